"""The value of a policy: what it earns on average, hidden bonus counted.

    V = sum_m w_m V_m,    V_m = R^hid_init(m) + E_m^pi [sum_t discount^{t-1} r_t].

For Markov policies by dynamic programming, or where there is no end by the linear equations
V_m = r_m^pi + discount T_m^pi V_m. For others by enumeration of the histories the policy can meet,
or by Monte Carlo. A history is carried with the probabilities P_m^pi(history), so

    V_m = R^hid_init(m) + sum_t discount^{t-1} sum_h P_m^pi(h) R_m(s_t, pi(h)).

Monte Carlo is stratified: each context has its own episodes, about w_m of all, and at least two.
The estimate is sum_m w_m mean_m, with standard error sqrt(sum_m w_m^2 var_m / n_m), which is no
larger than that of contexts drawn by chance (but for rounding).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.belief import filter_tables
from latentmdp.engines.cuda import on_gpu
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP, require_horizon, require_model
from latentmdp.policies import AlphaVectorPolicy, History, HistoryPolicy, Policy, action_table
from latentmdp.simulation import returns_in
from latentmdp.worlds import Space

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = [
    "Controller",
    "HistoryTree",
    "TooManyHistoriesError",
    "Value",
    "action_table",
    "as_controller",
    "evaluate",
]

_METHODS = ("auto", "exact", "monte-carlo")
_LARGEST_FACTORED = 500
"""With more states, linear equations are solved by iteration: factors would fill up."""
_RESIDUAL = 1e-13
"""How well linear equations are solved, relative to the largest value."""


@dataclass(frozen=True, eq=False)
class Value:
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
    truncation
        How far `mean` may be off, beyond its standard error, because simulated episodes without
        end were cut off; 0 if none were.
    """

    mean: float
    stderr: float
    exact: bool
    by_context: Floats
    truncation: float = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and arrays.same_content(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash((self.mean, self.stderr, self.exact, self.truncation))

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
) -> Value:
    """Value of a policy in a model.

    Parameters
    ----------
    policy
        A `Policy`, or a callable of a `History` that gives an action or A probabilities.
    episodes, rng, threads
        For Monte Carlo, which shares the episodes out among the contexts by weight, at least two
        for each. The result does not depend on `threads`. Where the model has no end, episodes are
        cut off after T steps, the first with discount^T below 1e-4; `Value.truncation` bounds what
        that leaves out.
    method
        "auto": exact for Markov policies, Monte Carlo for others. "exact": dynamic programming
        (linear equations where there is no end), or enumeration of all histories the policy can
        meet. "monte-carlo".
    max_histories
        Enumeration of more histories at one time step than this is refused.
    device
        "cpu", or "cuda" for Monte Carlo on a GPU, which plays any `Policy`. The result does not
        depend on it.
    """
    require_model(model)
    on_gpu(device)
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {method!r}")
    table = None if method == "monte-carlo" else action_table(policy, model)
    if table is not None:
        return _exact(model, (model.initial * _markov_values(model, table)).sum(axis=1))
    if method == "exact":
        return _exact(model, _enumerated_values(model, policy, max_histories))
    return _monte_carlo(model, policy, episodes, rng, threads, device)


def _exact(model: LatentMDP, earned: Floats) -> Value:
    """The value of a policy that earns so much in each context, (M,), after the start."""
    by_context = earned if model.initial_bonus is None else earned + model.initial_bonus
    mean = float(model.weights @ by_context)
    return Value(mean, 0.0, exact=True, by_context=arrays.frozen(by_context))


def _markov_values(model: LatentMDP, probabilities: Floats) -> Floats:
    """V_m(s) at the start of a Markov policy pi_t(a | s) of shape (H or 1, S, A); shape (M, S)."""
    import scipy.sparse as sp

    M, S, A, _ = model.dimensions
    rewards, successors = model.planning_rewards(), model.outcomes.successors()
    steps = [
        sp.csr_array((column, successors.next_state, successors.starts), shape=(S * A, S))
        for column in np.ascontiguousarray(successors.probs.T)
    ]
    if model.horizon is None:
        rows, columns = np.repeat(np.arange(S), A), np.arange(S * A)
        choice = sp.csr_array((probabilities[0].ravel(), (rows, columns)), shape=(S, S * A))
        solved = [
            _solution(sp.csr_array(choice @ step), (probabilities[0] * r).sum(axis=1), model)
            for step, r in zip(steps, rewards)
        ]
        return np.array(solved)
    values = np.zeros((M, S))
    for t in range(model.horizon - 1, -1, -1):
        pi = probabilities[t if len(probabilities) > 1 else 0]
        follow = np.stack([step @ value for step, value in zip(steps, values)]).reshape(M, S, A)
        values = (pi * (rewards + model.discount * follow)).sum(axis=-1)
    return values


def _solution(step: sp.csr_array, earned: Floats, model: LatentMDP) -> Floats:
    """V = earned + discount step V, by factors or, where there are many states, by iteration."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import bicgstab, spsolve

    equations = sp.csr_array(sp.eye_array(len(earned)) - model.discount * step)
    if len(earned) <= _LARGEST_FACTORED:
        return np.atleast_1d(np.asarray(spsolve(sp.csc_array(equations), earned)))
    found, _ = bicgstab(equations, earned, rtol=_RESIDUAL, atol=0.0, maxiter=1_000)
    value = found if np.isfinite(found).all() else np.zeros(len(earned))
    while True:  # each round brings the values closer by the discount
        better = earned + model.discount * (step @ value)
        if np.abs(better - value).max() <= _RESIDUAL * max(1.0, float(np.abs(better).max())):
            return better
        value = better


def _monte_carlo(
    model: LatentMDP, policy: Any, episodes: int, rng: RNGLike, threads: int | None, device: str
) -> Value:
    episodes = arrays.positive_integer("episodes", episodes)
    if episodes < 2:
        raise ValueError("episodes must be at least 2 for a standard error, got 1")
    counts = _shares(model.weights, episodes)
    contexts = np.repeat(np.arange(model.n_contexts, dtype=np.int32), counts)
    returns = returns_in(model, policy, contexts, philox_key(rng), threads=threads, device=device)
    parts = np.split(returns, np.cumsum(counts)[:-1])
    by_context = np.array([part.mean() for part in parts])
    unseen = ~model.initial.any(axis=1)  # no data say where it begins: nothing is earned there
    by_context[unseen] = 0.0 if model.initial_bonus is None else model.initial_bonus[unseen]
    variances = np.array([part.var(ddof=1) for part in parts]) / counts
    return Value(
        float(model.weights @ by_context),
        float(np.sqrt(model.weights**2 @ variances)),
        exact=False,
        by_context=arrays.frozen(by_context),
        truncation=_truncation(model),
    )


def _shares(weights: Floats, episodes: int) -> Integers:
    """How many episodes each context gets: by weight, largest remainders first, at least two."""
    exact = weights * episodes
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: episodes - int(counts.sum())]] += 1
    return np.maximum(counts, 2)


def _truncation(model: LatentMDP) -> float:
    """discount^T max |r| / (1 - discount): what lies beyond the T steps that are simulated."""
    if model.horizon is not None:
        return 0.0
    steps, largest = Space.of(model).longest_episode, np.abs(model.planning_rewards()).max()
    return float(model.discount**steps * largest / (1.0 - model.discount))


class TooManyHistoriesError(LatentMDPError, ValueError):
    """Enumeration would visit more histories than allowed."""


class Controller(NamedTuple):
    """A policy with an explicit memory in place of the history."""

    start: Callable[[int], Any]  # memory at the first state
    act: Callable[[int, int, Any], Floats]  # (t, s, memory): probabilities (A,) of the actions
    observe: Callable[[Any, int, int, int, int], Any]  # (memory, s, a, s', z): memory after a step


def as_controller(policy: Any, model: LatentMDP) -> Controller:
    """Any policy, with its memory made explicit; raises if it does not fit the model's sizes."""
    if isinstance(policy, AlphaVectorPolicy):
        return _belief_controller(policy, model)
    table = action_table(policy, model)
    if table is not None:
        return Controller(
            start=lambda state: None,
            act=lambda t, state, memory: table[t if len(table) > 1 else 0, state],
            observe=lambda memory, *step: None,
        )
    if isinstance(policy, Policy) or not callable(policy):
        raise TypeError(f"cannot enumerate the histories of a {type(policy).__name__}")
    return Controller(
        start=lambda state: History((state,), (), ()),
        act=lambda t, state, history: history.ask(policy, model.n_actions, model.allowed[state]),
        observe=lambda history, s, a, next_state, z: history.then(a, next_state, z),
    )


def _belief_controller(policy: AlphaVectorPolicy, model: LatentMDP) -> Controller:
    """An alpha-vector policy; its memory is the belief of its own filter."""
    policy.acting(model)  # raises if the sizes do not fit
    table, certain = filter_tables(policy.model, policy.smoothing), np.eye(model.n_actions)
    _, A, Z = table.sizes
    keys = table.next_state.astype(np.int64) * Z + table.reward

    def observed(belief: Floats, s: int, a: int, n: int, z: int) -> Floats:
        begin, end = table.starts[s * A + a], table.starts[s * A + a + 1]
        k = begin + np.searchsorted(keys[begin:end], n * Z + z)
        if k == end or keys[k] != n * Z + z:
            return belief  # not listed: equally likely in all contexts, or impossible in all
        return conditioned(belief, table.likelihood[k])

    def conditioned(belief: Floats, likelihood: Floats) -> Floats:
        """The belief after an observation; unchanged by one impossible in every context."""
        product = belief * likelihood
        total = product.sum()
        return product / total if total > 0.0 else belief

    return Controller(
        start=lambda state: conditioned(table.prior, table.initial[state]),
        act=lambda t, state, belief: certain[policy.action(t, state, belief)],
        observe=observed,
    )


class HistoryTree:
    """The histories of one length that a policy can meet; `grow` makes them a step longer.

    `histories` lists (last state, w_m P_m^pi(history) of shape (M,), memory of the controller);
    nothing follows those that end in a terminal state, and no action is taken there. Beyond
    `most` of them `TooManyHistoriesError` is raised, with `advice`.
    """

    def __init__(
        self, model: LatentMDP, policy: Any, weights: Floats, most: int, advice: str
    ) -> None:
        self._model, self._controller = model, as_controller(policy, model)
        self._most, self._advice, self._length = most, advice, 0
        joint = weights * model.initial.T
        states = np.flatnonzero((joint > 0.0).any(axis=1)).tolist()
        self.histories = [(s, joint[s], self._controller.start(s)) for s in states]

    def decide(self) -> list[tuple[int, Floats, Floats]]:
        """(state, joint, probabilities (A,) of the next action) of each history."""
        act, t, over = self._controller.act, self._length, self._model.terminal
        nothing = np.zeros(self._model.n_actions)
        self._decided = [
            (s, joint, nothing if over[s] else act(t, s, memory))
            for s, joint, memory in self.histories
        ]
        return self._decided

    def grow(self) -> None:
        """Replace every history by those that can follow what was decided."""
        self._length += 1
        observe, table, A = self._controller.observe, self._model.outcomes, self._model.n_actions
        longer = []
        for (s, joint, probabilities), (_, _, memory) in zip(self._decided, self.histories):
            for a in np.flatnonzero(probabilities).tolist():
                row = slice(*table.starts[s * A + a : s * A + a + 2])
                joints = table.probs[row] * (joint * probabilities[a])
                possible = (joints > 0.0).any(axis=-1).nonzero()[0]
                seen = zip(table.next_state[row][possible], table.reward[row][possible])
                for after, (n, z) in zip(joints[possible], seen):
                    n, z = int(n), int(z)
                    longer.append((n, after, observe(memory, s, a, n, z)))
            if len(longer) > self._most:
                raise TooManyHistoriesError(
                    f"more than {self._most} histories at time {self._length} of "
                    f"{self._model.horizon}: {self._advice}"
                )
        self.histories = longer


def _enumerated_values(model: LatentMDP, policy: Any, max_histories: int) -> Floats:
    """What a policy earns in each context, (M,), by every history it can meet."""
    horizon = require_horizon(model, 'method="exact" for a policy with a memory')
    advice = "enumeration is for small problems, use method='monte-carlo'"
    tree = HistoryTree(model, policy, np.ones(model.n_contexts), max_histories, advice)
    rewards = np.moveaxis(model.planning_rewards(), 0, -1)
    values = np.zeros(model.n_contexts)
    for t in range(horizon):
        if t > 0:
            tree.grow()
        scale = model.discount**t
        for s, joint, probabilities in tree.decide():
            for a in np.flatnonzero(probabilities):
                values += scale * probabilities[a] * joint * rewards[s, a]
    return values
