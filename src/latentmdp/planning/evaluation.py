"""The value of a policy: what it earns on average, hidden bonus counted.

    V = sum_m w_m V_m,    V_m = R^hid_init(m) + E_m^pi [sum_t discount^{t-1} r_t].

For Markov policies by dynamic programming, or where there is no end by the linear equations
V_m = r_m^pi + discount T_m^pi V_m (`latentmdp.planning.chains`). For policy graphs by the same
along their nodes (`latentmdp.planning.graphs`). For others by enumeration of the histories the
policy can meet, or by Monte Carlo. A history is carried with the probabilities P_m^pi(history), so

    V_m = R^hid_init(m) + sum_t discount^{t-1} sum_h P_m^pi(h) R_m(s_t, pi(h)).

Monte Carlo is stratified: each context has its own episodes, about w_m of all, and at least two.
The estimate is sum_m w_m mean_m, with standard error sqrt(sum_m w_m^2 var_m / n_m), which is no
larger than that of contexts drawn by chance (but for rounding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from latentmdp._kernels import bellman
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.results import Result, Worded
from latentmdp.engines import Engine, as_engine, tree_total
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP, require_horizon, require_model
from latentmdp.planning.chains import solve_chains
from latentmdp.planning.graphs import graph_bounds
from latentmdp.planning.qmdp import best_of, planning_rows, q_values
from latentmdp.policies import HistoryPolicy, Policy, PolicyGraph, action_table, interpreter
from latentmdp.simulation import block_sums
from latentmdp.worlds import Space

_METHODS = ("auto", "exact", "monte-carlo")


@dataclass(frozen=True, eq=False)
class Value(Result):
    """A policy's value.

    Attributes
    ----------
    mean
        The value, or its Monte Carlo estimate.
    stderr
        Standard error of the estimate; 0 if exact.
    exact
        Whether `mean` was computed rather than estimated.
    by_context
        The value in each context, (M,), contexts of weight zero included; their average by weight
        is `mean`.
    stderr_by_context
        Standard error of each entry of `by_context`, (M,); 0 if exact.
    truncation
        How far `mean` may be off, beyond its standard error, because simulated episodes without
        end were cut off; 0 if none were.
    """

    mean: float
    stderr: float
    exact: bool
    by_context: Floats
    truncation: float = 0.0
    stderr_by_context: Floats | None = None

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self.mean, self.stderr, self.exact, self.truncation))

    def facts(self, contexts: Sequence[str] | None = None) -> dict[str, Any]:
        """The value in words, and all numbers; `contexts` are the names of the contexts."""
        errors = self.stderr_by_context
        each = np.zeros(self.by_context.size) if errors is None else errors
        spread = ["" if self.exact else f" ± {error:.2g}" for error in each]
        names = contexts or [f"context {m}" for m in range(each.size)]
        lines = [f"{c}: {v:.6g}{e}" for c, v, e in zip(names, self.by_context, spread)]
        accuracy = "exact" if self.exact else "with its standard error"
        return {
            "mean": Worded(self.mean, f"{self} per episode, {accuracy}"),
            **{name: Worded(getattr(self, name), "") for name in ("stderr", "exact", "truncation")},
            "by_context": Worded(self.by_context, "\n".join(lines)),
            "stderr_by_context": Worded(each, ""),
        }

    def __str__(self) -> str:
        if self.exact:
            return f"{self.mean:.6g}"
        cut = f" (episodes cut off: at most {self.truncation:.2g} off)" if self.truncation else ""
        return f"{self.mean:.6g} ± {self.stderr:.2g}{cut}"


def evaluate(
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    episodes: int = 100_000,
    rng: RNGLike = None,
    method: str = "auto",
    *,
    max_histories: int = 200_000,
    threads: int | None = None,
    device: str = "cpu",
    engine: Engine | None = None,
) -> Value:
    """Value of a policy in a model.

    Parameters
    ----------
    policy
        A `Policy`, or a callable of a `History` that gives an action or A probabilities.
    episodes, rng
        For Monte Carlo, which shares the episodes out among the contexts by weight, at least two
        for each. Where the model has no end, episodes are cut off after T steps, the first with
        discount^T below 1e-4, or 10,000 without a discount; `Value.truncation` bounds what that
        leaves out.
    method
        "auto": exact for Markov policies and for policy graphs in a model with their outcomes,
        Monte Carlo for others. "exact": dynamic programming
        (linear equations where there is no end), or enumeration of all histories the policy can
        meet. "monte-carlo".
    max_histories
        Enumeration of more histories at one time step than this is refused.
    engine
        Where episodes are played: in threads of this process by default, see `latentmdp.engines`.
        A GPU plays any `Policy` but policy graphs. The result does not depend on it.
    threads, device
        `threads=n` is short for `engine=engines.Threads(n)`, `device="cuda"` for `engines.Cuda()`.
    """
    require_model(model)
    engine = as_engine(engine, threads, device)
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {method!r}")
    table = None if method == "monte-carlo" else action_table(policy, model)
    if table is not None:
        values = markov_values(model, table)
        # Costs may go on for ever, but not from where no episode begins.
        earned = np.multiply(
            model.initial, values, out=np.zeros_like(values), where=model.initial > 0
        )
        return _exact(model, earned.sum(axis=1))
    if isinstance(policy, PolicyGraph) and method != "monte-carlo":
        bounds = graph_bounds(model, policy)
        if bounds is not None:
            return _valued(model, 0.5 * (bounds[0] + bounds[1]))
    if method == "exact":
        return _exact(model, _enumerated_values(model, policy, max_histories))
    return _monte_carlo(model, policy, episodes, rng, engine)


def _exact(model: LatentMDP, earned: Floats) -> Value:
    """The value of a policy that earns so much in each context, (M,), after the start."""
    return _valued(model, earned if model.initial_bonus is None else earned + model.initial_bonus)


def _valued(model: LatentMDP, by_context: Floats) -> Value:
    """The value of a policy that earns so much in each context, (M,), for sure."""
    mean, errors = float(model.weights @ by_context), np.zeros(model.n_contexts)
    return Value(mean, 0.0, True, arrays.frozen(by_context), stderr_by_context=errors)


def markov_values(model: LatentMDP, probabilities: Floats) -> Floats:
    """V_m(s) at the start of a Markov policy pi_t(a | s) of shape (H or 1, S, A); shape (M, S)."""
    rewards = model.planning_rewards()
    if model.horizon is None:
        A, table, chances = model.n_actions, model.outcomes, probabilities[0]
        probs = table.probs * chances.ravel()[table.rows()][:, None]
        earned = (chances * rewards).sum(axis=-1).T
        return solve_chains(table.starts[::A], table.next_state, probs, earned, model.discount).T
    values = np.zeros((model.n_contexts, model.n_states))
    for pi, Q in backward_q(model, probabilities, rewards, model.horizon):
        values = (pi * Q).sum(axis=-1)
    return values


def backward_q(
    model: LatentMDP, probabilities: Floats, rewards: Floats, horizon: int
) -> Iterator[tuple[Floats, Floats]]:
    """(pi_t, Q_t) of a Markov policy, of shape (..., S, A) and (M, S, A), from the last t down.

    The policy pi_t(a | s) is of shape (H or 1, S, A), or (H, M, S, A) where it acts by context;
    `rewards` (M, S, A) are what a step earns.
    """
    M, S, A, _ = model.dimensions
    steps, allowed = planning_rows(model).steps, np.flatnonzero(model.allowed)
    earned = np.ascontiguousarray(rewards.reshape(M, S * A)[:, allowed].T)
    later, backed, rows = np.zeros((S, M)), np.empty_like(earned), np.arange(allowed.size)[:, None]
    for t in range(horizon - 1, -1, -1):
        pi, Q = probabilities[t if len(probabilities) > 1 else 0], np.zeros((M, S, A))
        bellman.follow(0, len(rows), steps, earned, rows, later, backed)
        Q.reshape(M, S * A)[:, allowed] = backed.T
        yield pi, Q
        later = np.ascontiguousarray(model.discount * (pi * Q).sum(axis=-1).T)


def _monte_carlo(
    model: LatentMDP, policy: Any, episodes: int, rng: RNGLike, engine: Engine
) -> Value:
    """Mean and variance of the returns in each context, from their sums over blocks of episodes.

    With n_b episodes, mean x_b and sum of squares q_b in block b, the squared distances from the
    mean x of a context sum up to sum_b (q_b + n_b (x_b - x)^2).
    """
    episodes = arrays.positive_integer("episodes", episodes)
    if episodes < 2:
        raise ValueError("episodes must be at least 2 for a standard error, got 1")
    counts = _shares(model.weights, episodes)
    sums, squares, sizes, starts = block_sums(model, policy, counts, philox_key(rng), engine)
    by_context, variances = np.empty(model.n_contexts), np.empty(model.n_contexts)
    for m, (n, block) in enumerate(zip(counts, map(slice, starts[:-1], starts[1:]))):
        by_context[m] = tree_total(sums[block]) / n
        distances = sums[block] / sizes[block] - by_context[m]
        variances[m] = tree_total(squares[block] + sizes[block] * distances**2) / (n - 1) / n
    # Where no data say where a context begins, nothing is earned there.
    unseen = ~model.initial_vectors.distinct.any(axis=0)
    by_context[unseen] = 0.0 if model.initial_bonus is None else model.initial_bonus[unseen]
    return Value(
        float(model.weights @ by_context),
        float(np.sqrt(model.weights**2 @ variances)),
        exact=False,
        by_context=arrays.frozen(by_context),
        truncation=_truncation(model),
        stderr_by_context=arrays.frozen(np.where(unseen, 0.0, np.sqrt(variances))),
    )


def _shares(weights: Floats, episodes: int) -> Integers:
    """How many episodes each context gets: by weight, largest remainders first, at least two."""
    exact = weights * episodes
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: episodes - int(counts.sum())]] += 1
    return np.maximum(counts, 2)


def _truncation(model: LatentMDP) -> float:
    """discount^T max |r| / (1 - discount): what lies beyond the T steps that are simulated.

    Without a discount, the most that can be earned from anywhere; costs may go on for ever.
    """
    if model.duration.is_total and model.planning_rewards().min() >= 0.0:
        return float(best_of(model, q_values(model)).max())
    beyond = model.duration.discounted_steps(Space.of(model).longest_episode)
    # Of distinct rows only: those of all states in thousands of contexts would not fit.
    return beyond * float(np.abs(model.row_rewards().distinct).max())


class TooManyHistoriesError(LatentMDPError, ValueError):
    """Enumeration would visit more histories than allowed."""


def histories_met(
    model: LatentMDP, policy: Any, most: int, advice: str
) -> Iterator[list[tuple[int, Floats, Floats]]]:
    """The histories that a policy can meet, those of length 0, 1, ...

    Each as (last state, P_m^pi(history) of shape (M,), chances (A,) of the next action); nothing
    follows those that end in a terminal state, and no action is taken there. Beyond `most` of one
    length `TooManyHistoriesError` is raised, with `advice`.
    """
    asked, table, A = interpreter(policy, model), model.outcomes, model.n_actions
    first, nothing = model.initial_vectors, np.zeros(A)
    met = [
        (s, first.of(s) * share, memory)
        for s in first.nonzero().tolist()
        for share, memory in asked.starts(s)
        if share > 0.0
    ]
    for t in count():
        over = model.terminal | model.duration.is_over(t)
        decided = [(s, p, nothing if over[s] else asked.act(t, s, memory)) for s, p, memory in met]
        yield decided
        longer = []
        for (s, joint, chances), (_, _, memory) in zip(decided, met):
            for a in np.flatnonzero(chances).tolist():
                row = slice(*table.starts[s * A + a : s * A + a + 2])
                joints = table.probs_of(row) * (joint * chances[a])
                possible = (joints > 0.0).any(axis=-1).nonzero()[0]
                observed = (
                    part[row][possible].tolist() for part in (table.next_state, table.reward)
                )
                for after, n, z in zip(joints[possible], *observed):
                    longer.append((n, after, asked.observe(memory, s, a, n, z)))
            if len(longer) > most:
                raise TooManyHistoriesError(
                    f"more than {most} histories at time {t + 1} of {model.horizon}: {advice}"
                )
        met = longer


def _enumerated_values(model: LatentMDP, policy: Any, max_histories: int) -> Floats:
    """What a policy earns in each context, (M,), by every history it can meet."""
    horizon = require_horizon(model, 'method="exact" for a policy with a memory')
    advice = "enumeration is for small problems, use method='monte-carlo'"
    rewards = np.moveaxis(model.planning_rewards(), 0, -1)
    values = np.zeros(model.n_contexts)
    for t, met in zip(range(horizon), histories_met(model, policy, max_histories, advice)):
        for s, joint, chances in met:
            for a in np.flatnonzero(chances):
                values += model.discount**t * chances[a] * joint * rewards[s, a]
    return values
