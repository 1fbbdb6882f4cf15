"""Off-policy evaluation: the value of a policy, estimated from logs of another one.

Let pi(a | h) be the policy after history h, and let the logged actions have been chosen with the
probabilities pi_b. Up to step t, episode i has the ratio

    rho_it = prod_{k <= t} pi(a_k | h_k) / pi_b(a_k | .),    rho_{i,-1} = 1.

**Per decision** [precup2000] each reward is weighed with the ratio of its own step. As such

    V = sum_t discount^t (1/n) sum_i rho_it r_it

is unbiased, but the ratios may differ wildly. *Weighted*, the normaliser n is sum_i rho_it: a bias
of order 1/n for a much smaller variance. **Importance** sampling weighs the whole return with the
last ratio. **Doubly robust** [jiang2016, thomas2016] starts from a model's values and weighs only
what they miss,

    V = (1/n) sum_i v_i0 + sum_t discount^t (1/n) sum_i rho_it (r_it - q_it + discount v_{i,t+1}),

with q_it = Q_t(h_it, a_it) and v_it = sum_a pi(a | h_it) Q_t(h_it, a). It is unbiased whatever Q
is, if pi_b is right, and needs no pi_b where Q is right. Here Q_t(h, a) = sum_m b_t(m) Q_m,t(s, a),
with b_t the belief after h and Q_m,t the value in context m of the Markov policy that acts there as
often as pi: P_m^pi(a_t = a | s_t = s).

**A logger that knew the context** acted by pi_b(a | s, m). Neither pi_b(a | s) nor the
probability sum_m P(m | h_t) pi_b(a_t | s_t, m) of an action given the history will do: the logged
actions then tell which context the rewards come from, and an error of the order of the horizon
remains. So each episode counts in context m with its posterior p_im given all it shows, the
logger's actions among it, and with the ratios of that context, pi / pi_b(a | s, m):

    V = sum_m w_m V_m,    w_m = (1/n) sum_i p_im,    V_m as above with weights p_im rho^m_it,

which is: cluster, evaluate within clusters, and weigh them by size [kausik2024].

**Intervals.** Every estimate is a sum of quotients of sums over episodes. Its standard error is
that of the linearised estimate; the interval is the studentised bootstrap's, which follows the
skewness that a few large ratios cause. Episodes are resampled in random groups where they are many:
sums keep their variance and their skewness.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from latentmdp._util import arrays
from latentmdp._util.arrays import Flags, Floats, Integers, normalised
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.results import Result, Worded
from latentmdp._util.validation import require_choice
from latentmdp._util.words import plural
from latentmdp.estimation import EM, final_states
from latentmdp.fit import logged_behaviour, without_fit_warnings
from latentmdp.logs import Logs, Trajectories, require_logs
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.offline.logger import (
    PSEUDO_COUNTS,
    AnyPolicy,
    Logger,
    beliefs_of,
    followed,
    logger_of,
    more_than_the_state,
)
from latentmdp.planning import action_table, backward_q
from latentmdp.policies import Policy
from latentmdp.simulation import simulate
from latentmdp.worlds import Space

__all__ = [
    "Interval",
    "LoggedEstimate",
    "OffPolicyValue",
    "OffPolicyWarning",
    "logged_estimate",
    "off_policy_value",
]

Method = Literal["doubly-robust", "per-decision", "importance"]

_METHODS = ("doubly-robust", "per-decision", "importance")

_FEWEST_EFFECTIVE = 30.0
"""Effective episodes that a step needs: more would end the estimate earlier, fewer would leave a
bootstrap standard error that cannot be trusted. 30 is the usual rule for a mean of a sample."""

_RESAMPLES = 1_000
"""Bootstrap resamples of the episodes: the 2.5 % quantile is then itself known to about 0.5 %."""

_MOST_GROUPS = 1_024
"""Groups of episodes that are resampled. The bootstrap's own error falls with their number and is
already far below that of the estimate; its time and memory grow with it."""

_SIMULATED, _SIMULATED_SLOWLY = 20_000, 1_000
"""Episodes that tell how a policy with a memory acts in each context; a Python function is slow.
Errors of these shares cost variance, not bias."""

_TIME_POOLING = 5.0
"""Visits that the choice of actions at all times is worth at each time."""


class OffPolicyWarning(UserWarning):
    """An off-policy estimate is less certain than its interval says; the message says why."""


@dataclass(frozen=True, eq=False)
class LoggedEstimate(Result):
    """Importance sampling over the first `steps` steps of the logs.

    Attributes
    ----------
    mean, stderr : float
        Value of those steps and its standard error; NaN and infinity without steps.
    steps : int
        Number of steps at which enough episodes still agree with the policy.
    effective_size : (steps,)
        Effective number of episodes at each of those steps.
    """

    mean: float
    stderr: float
    steps: int
    effective_size: Floats

    def __repr__(self) -> str:
        return f"LoggedEstimate({self.mean:.4g} ± {self.stderr:.2g} over {self.steps} steps)"


@dataclass(frozen=True, eq=False)
class OffPolicyValue(Result):
    """What a policy would earn per episode, estimated from logs of another one.

    Attributes
    ----------
    mean, low, high : float
        The estimate and the ends of its confidence interval.
    stderr : float
        Standard error of the estimate.
    steps : int
        Number of steps, from the first, that logged episodes speak of.
    effective_size : (steps,)
        Effective number of episodes, (sum of weights)^2 / (sum of squared weights), at each step.
    episodes : int
        Number of logged episodes.
    method : str
        "doubly-robust", "per-decision" or "importance".
    weighted : bool
        Whether weights were normalised by their own sum.
    behaviour : str
        Where the logger's probabilities come from: "given", "by context", "policy", "propensities"
        or "estimated".
    confidence : float
        Probability with which the interval is to hold the value.
    truncation : float
        How far the estimate may be off because the logs are shorter than the episodes.
    warnings : tuple of str
        What a user should know before relying on it.
    """

    mean: float
    low: float
    high: float
    stderr: float
    steps: int
    effective_size: Floats
    episodes: int
    method: str
    weighted: bool
    behaviour: str
    confidence: float
    truncation: float = 0.0
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        least = self.effective_size.min(initial=self.episodes)
        said = f", {plural(len(self.warnings), 'warning')}" if self.warnings else ""
        return (
            f"OffPolicyValue({Interval(self.mean, self.low, self.high)}, {self.method}, "
            f"effective size {least:.0f} of {self.episodes}{said})"
        )

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        sizes, off = self.effective_size, self.truncation
        least = int(np.argmin(sizes)) if self.steps else 0
        said = f"{sizes[least]:.3g} at step {least}, where it is smallest" if self.steps else ""
        value = Interval(self.mean, self.low, self.high)
        return {
            **super().facts(),
            "mean": Worded(self.mean, f"{value} per episode"),
            "low": Worded(self.low, ""),
            "high": Worded(self.high, ""),
            "effective_size": Worded(sizes, said),
            "behaviour": Worded(self.behaviour, f"probabilities of actions: {self.behaviour}"),
            "truncation": Worded(off, f"beyond the logs, at most {off:.2g}" if off else ""),
            "warnings": Worded.lines(self.warnings),
        }


def off_policy_value(
    logs: Logs,
    policy: AnyPolicy,
    behaviour: ArrayLike | AnyPolicy | None = None,
    method: Method = "doubly-robust",
    model: LatentMDP | None = None,
    rng: RNGLike = 0,
    *,
    confidence: float = 0.95,
    weighted: bool = True,
) -> OffPolicyValue:
    """Estimate what a policy would earn per episode, from logs of another policy.

    Parameters
    ----------
    logs
        Episodes that the policy was not found from: a policy looks too good on its own logs. One
        shorter than the horizon that ends in a terminal state, or in a state where no action was
        ever logged, has ended; any other was cut short, for reasons that say nothing of the rest.
    policy
        Any policy. One with a filter runs it along the logs; for a function of the history each
        history is asked for.
    behaviour : (S, A), (M, S, A), policy or None
        The probabilities with which the logged actions were chosen: by state; by context and state
        where the logger knew the context, with contexts as in `model`; or the policy that chose
        them. None takes the logs' own propensities, or else estimates pi_b(a | s).
    method
        "doubly-robust", "per-decision" or "importance", see `latentmdp.offline.off_policy`.
    model
        Gives horizon, discount and, for "doubly-robust", the values to start from. By default the
        model of the policy; a policy without one gets a single MDP, counted in one half of the
        logs for the other half, with the horizon of the longest episode.
    rng
        Chance of the bootstrap, of halves, and of simulated values.
    confidence
        Of the interval.
    weighted
        Divide by the sum of the ratios in place of the number of episodes.
    """
    require_logs("logs", logs)
    require_choice("method", method, _METHODS)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    if not isinstance(policy, Policy) and not callable(policy):
        raise TypeError(f"policy must be a Policy or a function, got {type(policy).__name__}")
    if logs.n_episodes < 2 or logs.n_steps == 0:
        raise ValueError(f"an estimate needs two episodes with steps, got {logs!r}")
    known = getattr(policy, "model", None) if model is None else model
    generator = as_generator(rng)
    if known is not None:
        arrays.require_instance("model", known, LatentMDP)
    if not logs.fits_memory:
        if known is None:
            raise ValueError(
                "a policy without a model would need two halves of the logs in memory: give "
                "model=, such as EM(1).fit(other_logs).model"
            )
        asked = (method, weighted)
        return _streamed(logs, policy, behaviour, known, asked, confidence, generator)
    held = logs.read().without_contexts()
    if known is not None:
        held.validate(known)
        parts = [(np.arange(len(held)), known)]
    else:
        parts = _halves(held, generator)
    world = parts[0][1]
    logger = logger_of(held, behaviour, world, model_given=known is not None)
    final = world.terminal | _padded(final_states(held), world.n_states)
    shape = _Shape(method, weighted, *_covered(held, world, method))
    sums = _Sums.empty(held, logger.probabilities.shape[1], shape, generator)
    for episodes, own in parts:
        values = None
        if method == "doubly-robust":
            values = _context_values(own, policy, shape.horizon, generator)
        sums.add(held, episodes, policy, own, logger, final, values)
    return _result(held, world, sums, logger, final, confidence, generator)


def _streamed(
    logs: Logs,
    policy: AnyPolicy,
    behaviour: ArrayLike | AnyPolicy | None,
    world: LatentMDP,
    asked: tuple[str, bool],
    confidence: float,
    rng: np.random.Generator,
) -> OffPolicyValue:
    """The estimate from logs on disk: the sums of their batches, added up group by group."""
    logs = logs.without_contexts()
    logs.validate(world)
    final = world.terminal | _padded(final_states(logs), world.n_states)
    shape = _Shape(*asked, *_covered(logs, world, asked[0]))
    first = logs.batches()[0].read()
    source: str | None = None
    doubts: tuple[str, ...] = ()
    if behaviour is None and first.propensities is None:
        behaviour = logged_behaviour(logs, PSEUDO_COUNTS)
        source, doubts = "estimated", more_than_the_state(first)
    values = None
    if shape.method == "doubly-robust":
        values = _context_values(world, policy, shape.horizon, rng)
    groups = min(logs.n_episodes, _MOST_GROUPS)
    sums: _Sums | None = None
    for part in (batch.read() for batch in logs.batches()):
        logger = logger_of(part, behaviour, world, model_given=True)
        own = _Sums.empty(part, logger.probabilities.shape[1], shape, rng, groups)
        own.add(part, np.arange(len(part)), policy, world, logger, final, values)
        sums = own if sums is None else sums.joined(own)
    assert sums is not None
    logger = logger._replace(source=source or logger.source, doubts=(*doubts, *logger.doubts))
    return _result(logs, world, sums, logger, final, confidence, rng)


def logged_estimate(
    logs: Trajectories,
    policy: Policy,
    model: LatentMDP,
    behaviour: Floats | None,
    rng: np.random.Generator,
    final: Flags | None = None,
) -> LoggedEstimate:
    """Weighted per-decision importance sampling of the first steps of a policy.

    It covers the steps at which the effective number of episodes is large enough. The logs come
    from a behaviour (S, A), or (M, S, A) of a logger that knew the context; None takes the
    propensities of the logs. In states that are `final` (S,) nothing is chosen and nothing earned:
    an episode that reached one keeps its weight. One that is cut short elsewhere loses it.
    """
    require_horizon(model, "an estimate from logs")
    final = np.zeros(model.n_states, dtype=np.bool_) if final is None else final
    logger = logger_of(logs, behaviour, model, model_given=True)
    shape = _Shape("per-decision", True, *_covered(logs, model, "per-decision"))
    sums = _Sums.empty(logs, logger.probabilities.shape[1], shape, rng)
    sums.add(logs, np.arange(len(logs)), policy, model, logger, final)
    effective = sums.effective_size()
    steps = int(np.argmax([*(effective < _FEWEST_EFFECTIVE), True]))
    if steps == 0:
        return LoggedEstimate(float("nan"), float("inf"), 0, effective[:0])
    found = sums.first(steps).estimate()
    return LoggedEstimate(found.mean, found.stderr, steps, effective[:steps])


def _halves(logs: Trajectories, rng: np.random.Generator) -> list[tuple[Integers, LatentMDP]]:
    """Two halves of the episodes, each with a single MDP fitted to the other half."""
    if len(logs) < 2:
        raise ValueError("logs that are one episode, repeated, need model=")
    if logs.reward_values is None:
        raise ValueError("logs whose reward values are not known need model=")
    order, longest = rng.permutation(len(logs)), int(logs.lengths.max())
    halves = order[: len(logs) // 2], order[len(logs) // 2 :]
    parts = []
    for mine, other in (halves, halves[::-1]):
        with without_fit_warnings():
            fitted = EM(1).fit(logs[np.sort(other)], rng=rng).model
        parts.append((np.sort(mine), fitted.replace(horizon=longest)))
    return parts


def _padded(flags: Flags, size: int) -> Flags:
    return np.concatenate([flags, np.zeros(size - flags.size, np.bool_)])


def _covered(logs: Logs, world: LatentMDP, method: str) -> tuple[int, int]:
    """T, the steps that logs are read for, and H, the steps that the model's values reach."""
    longest = logs.longest
    if world.horizon is None:
        return longest, max(longest, Space.of(world).longest_episode)
    return min(longest, world.horizon), world.horizon


def _context_values(
    model: LatentMDP, policy: AnyPolicy, horizon: int, rng: np.random.Generator
) -> Floats:
    """Q_m,t(s, a) of the Markov policy that acts in context m as `policy` does, (H, M, S, A)."""
    table = action_table(policy, model) if isinstance(policy, Policy) else None
    if table is None:
        table = _marginal_policy(model, policy, horizon, rng)
    M, S, A, _ = model.dimensions
    values = np.empty((horizon, M, S, A))
    steps = backward_q(model, table, model.mean_rewards(), horizon)
    for t, (_, Q) in zip(range(horizon - 1, -1, -1), steps):
        values[t] = Q
    return values


def _marginal_policy(
    model: LatentMDP, policy: AnyPolicy, horizon: int, rng: np.random.Generator
) -> Floats:
    """P_m^pi(a_t = a | s_t = s) by simulation, (H, M, S, A), shrunk towards all times together."""
    M, S, A, _ = model.dimensions
    episodes = _SIMULATED if isinstance(policy, Policy) else _SIMULATED_SLOWLY
    played = simulate(model.replace(horizon=horizon), policy, episodes, rng)
    assert played.contexts is not None
    episode, state, action, *_ = played.steps()
    t = np.arange(played.n_steps) - played.offsets[episode]
    cell = ((t * M + played.contexts[episode]) * S + state) * A + action
    visits = np.bincount(cell, minlength=horizon * M * S * A).astype(np.float64)
    visits = visits.reshape(horizon, M, S, A)
    anywhere = normalised(visits.sum(axis=(0, 1)), model.allowed.astype(np.float64))
    ever = normalised(visits.sum(axis=0) + _TIME_POOLING * anywhere)
    return normalised(visits + _TIME_POOLING * ever)


class _Shape(NamedTuple):
    """What is summed: the method, whether weights are normalised, and how far."""

    method: str
    weighted: bool
    steps: int  # T, of the logs
    horizon: int  # H, of the model's values


class _Estimate(NamedTuple):
    mean: float
    stderr: float


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over groups of episodes, of which every estimate is made.

    With G groups, K contexts and J quotients: `amounts` and `normalisers` (G, K, J), and `shares`
    (G, K) of each context. `sizes` (G,) are the episodes in each group, `totals` and `squares` (T,)
    of the weights at each step.
    """

    shape: _Shape
    groups: csr_array  # (G, N): how often each episode is in each group
    sizes: Floats
    amounts: Floats
    normalisers: Floats
    shares: Floats
    totals: Floats
    squares: Floats

    @classmethod
    def empty(
        cls,
        logs: Trajectories,
        contexts: int,
        shape: _Shape,
        rng: np.random.Generator,
        groups: int | None = None,
    ) -> _Sums:
        """Nothing summed yet; episodes are put into groups of nearly equal size by chance."""
        counts = logs.multiplicities()
        total = int(counts.sum())
        G = groups or min(total, _MOST_GROUPS)
        group = rng.permutation(total) % G
        entry = (np.ones(total), (group, np.repeat(np.arange(len(logs)), counts)))
        J = {"importance": 1, "per-decision": shape.steps}.get(shape.method, shape.steps + 1)
        room = (G, contexts, J)
        return cls(
            shape,
            csr_array(entry, shape=(G, len(logs))),
            np.bincount(group, minlength=G).astype(np.float64),
            np.zeros(room),
            np.zeros(room),
            np.zeros(room[:2]),
            np.zeros(shape.steps),
            np.zeros(shape.steps),
        )

    def add(
        self,
        logs: Trajectories,
        episodes: Integers,
        policy: AnyPolicy,
        model: LatentMDP,
        logger: Logger,
        final: Flags,
        values: Floats | None = None,
    ) -> None:
        """Add some episodes; a doubly robust estimate has the model's `values`."""
        T = self.shape.steps
        counts = logs.multiplicities()
        for chosen, chances in followed(logs, policy, model, episodes, T):
            block = _Block.of(logs, chosen, chances, logger, final, T)
            rewards = model.reward_values[block.rewards]
            amounts, normalisers = self._quotients(block, rewards, model, values, logs[chosen])
            into = self.groups[:, chosen]
            flat = (chosen.size, -1)
            self.amounts[:] += (into @ amounts.reshape(flat)).reshape(self.amounts.shape)
            self.normalisers[:] += (into @ normalisers.reshape(flat)).reshape(self.amounts.shape)
            self.shares[:] += into @ block.shares
            weights = (block.shares[:, :, None] * block.ratios).sum(axis=1)
            weights = np.where(block.seen, weights, 0.0)
            self.totals[:] += counts[chosen] @ weights
            self.squares[:] += counts[chosen] @ weights**2

    def joined(self, other: _Sums) -> _Sums:
        """The sums over the episodes of both, which have the same groups."""
        names = ("sizes", "amounts", "normalisers", "shares", "totals", "squares")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def _quotients(
        self,
        block: _Block,
        rewards: Floats,
        model: LatentMDP,
        values: Floats | None,
        logs: Trajectories,
    ) -> tuple[Floats, Floats]:
        """Amounts and normalisers of each episode in each context, (n, K, J)."""
        T, K = self.shape.steps, block.shares.shape[1]
        scale = model.discount ** np.arange(T)
        seen, gains = block.seen[:, None, :], np.where(block.taken, rewards, 0.0)[:, None, :]
        weights = block.shares[:, :, None] * np.where(seen, block.ratios, 0.0)
        counted = np.broadcast_to(seen, weights.shape).astype(np.float64)
        if self.shape.method == "importance":
            whole = np.where(block.seen[:, -1], (gains[:, 0] * scale).sum(axis=1), 0.0)
            weights, counted = weights[:, :, -1:], counted[:, :, -1:]
            return weights * whole[:, None, None], weights if self.shape.weighted else counted
        if values is None:
            return weights * gains * scale, weights if self.shape.weighted else counted
        q, v = _expected(block, model, values, logs, K)
        missed = (gains - q + model.discount * v[:, :, 1:]) * scale
        first = block.shares[:, :, None]
        amounts = np.concatenate([first * v[:, :, :1], weights * missed], axis=2)
        if self.shape.weighted:
            return amounts, np.concatenate([first, weights], axis=2)
        return amounts, np.concatenate([np.ones_like(first), counted], axis=2)

    def first(self, steps: int) -> _Sums:
        """The sums of the first steps alone, of an estimate per decision."""
        parts = {"amounts": self.amounts[..., :steps], "normalisers": self.normalisers[..., :steps]}
        kept = {"shape": self.shape._replace(steps=steps), "groups": self.groups}
        kept["sizes"] = self.sizes
        rest = {"totals": self.totals[:steps], "squares": self.squares[:steps]}
        return _Sums(shares=self.shares, **parts, **kept, **rest)  # type: ignore[arg-type]

    def effective_size(self) -> Floats:
        """(sum of weights)^2 / sum of squared weights at each step, (T,)."""
        none = np.zeros_like(self.totals)
        return np.divide(self.totals**2, self.squares, out=none, where=self.squares > 0.0)

    def estimate(self) -> _Estimate:
        """The estimate and its standard error."""
        mean, stderr = self._estimates(np.ones((1, len(self.amounts))))
        return _Estimate(float(mean[0]), float(stderr[0]))

    def interval(self, confidence: float, rng: np.random.Generator) -> tuple[float, float]:
        """The ends of the studentised bootstrap's interval."""
        G = len(self.amounts)
        mean, stderr = self.estimate()
        drawn = rng.multinomial(G, np.full(G, 1.0 / G), _RESAMPLES).astype(np.float64)
        means, stderrs = self._estimates(drawn)
        use = stderrs > 1e-12 * max(abs(mean), stderr, 1e-300)
        if stderr == 0.0 or not use.any():
            return mean, mean
        places = np.quantile(
            (means - mean)[use] / stderrs[use], [0.5 - confidence / 2, 0.5 + confidence / 2]
        )
        return mean - float(places[1]) * stderr, mean - float(places[0]) * stderr

    def _estimates(self, drawn: Floats) -> tuple[Floats, Floats]:
        """Estimates and standard errors where group g is drawn `drawn[b, g]` times, (B,) each."""
        G, K, J = self.amounts.shape
        amounts, normalisers = self.amounts.reshape(G, -1), self.normalisers.reshape(G, -1)
        sizes = self.sizes
        total = drawn @ sizes
        norm = drawn @ normalisers
        inverse = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0.0)
        means = (drawn @ amounts) * inverse  # (B, K J)
        by_context = means.reshape(-1, K, J).sum(axis=2)
        weights = np.ones((len(drawn), K))
        if self.shape.weighted:
            weights = (drawn @ self.shares) / total[:, None]
        estimates = (weights * by_context).sum(axis=1)
        slope = np.repeat(weights, J, axis=1) * inverse
        influence = slope @ amounts.T - (slope * means) @ normalisers.T  # (B, G)
        if self.shape.weighted and K > 1:
            tilt = by_context / total[:, None]
            influence += tilt @ self.shares.T - (tilt * weights).sum(axis=1)[:, None] * sizes
        spread = (drawn * influence**2).sum(axis=1)
        return estimates, np.sqrt(spread * G / max(G - 1, 1))


class _Block(NamedTuple):
    """Some episodes of one length, at the T steps of the estimate.

    Ratios rho (n, K, T), whether a step is known of (n, T), whether it was taken (n, T): an episode
    that has ended is known of and takes no more steps.
    """

    states: Integers
    actions: Integers
    rewards: Integers
    chances: Floats  # (n, T + 1, A)
    shares: Floats  # (n, K)
    ratios: Floats
    seen: Flags
    taken: Flags

    @classmethod
    def of(
        cls,
        logs: Trajectories,
        chosen: Integers,
        chances: Floats,
        logger: Logger,
        final: Flags,
        steps: int,
    ) -> _Block:
        """Line up episodes that all have the same length."""
        n, last, K = chosen.size, chances.shape[1] - 1, logger.probabilities.shape[1]
        states, actions, rewards = logs[chosen].as_arrays()
        places = logs.offsets[chosen][:, None] + np.arange(last)
        target = np.take_along_axis(chances[:, :-1], actions[:, :last, None], axis=2)[:, :, 0]
        base = logger.probabilities[places]  # (n, last, K)
        each = np.divide(
            target[:, :, None], base, out=np.zeros((n, last, K)), where=base > 0.0
        ).swapaxes(1, 2)
        ratios = np.zeros((n, K, steps))
        ratios[:, :, :last] = np.cumprod(each, axis=2)
        ended = final[states[:, -1]] if logs.lengths[chosen[0]] == last else np.zeros(n, np.bool_)
        if last < steps:
            after = ratios[:, :, last - 1] if last else np.ones((n, K))
            ratios[ended, :, last:] = after[ended][:, :, None]
        taken = np.broadcast_to(np.arange(steps) < last, (n, steps))
        seen = taken | ended[:, None]
        pad = ((0, 0), (0, steps - last))
        still = np.where(
            ended[:, None, None] & (np.arange(last + 1) == last)[:, None], 0.0, chances
        )
        return cls(
            np.pad(states[:, : last + 1], pad, mode="edge"),
            np.pad(actions[:, :last], pad),
            np.pad(rewards[:, :last], pad),
            np.pad(still, (*pad, (0, 0))),
            logger.shares[chosen],
            ratios,
            seen,
            taken,
        )


def _expected(
    block: _Block, model: LatentMDP, values: Floats, logs: Trajectories, contexts: int
) -> tuple[Floats, Floats]:
    """Values q (n, K, T) of the actions taken and v (n, K, T + 1) of the states; zero once over."""
    n, T = block.taken.shape
    H, M = values.shape[:2]
    q, v = np.zeros((n, contexts, T)), np.zeros((n, contexts, T + 1))
    beliefs = None
    if contexts == 1 and M > 1:
        beliefs = beliefs_of(model, logs, along=True).reshape(n, -1, M)
    for t in range(min(T + 1, H)):
        state = block.states[:, t]
        here = values[t][:, state].swapaxes(0, 1)  # (n, M, A)
        if beliefs is not None and t < beliefs.shape[1]:
            here = np.einsum("nm,nma->na", beliefs[:, t], here)[:, None]
        elif contexts == 1:
            here = here[:, :1]  # one context, or past the end of the episode, where all is zero
        v[:, :, t] = np.einsum("na,nka->nk", block.chances[:, t], here)
        if t < T:
            action = block.actions[:, t]
            taken = np.take_along_axis(here, action[:, None, None], axis=2)[:, :, 0]
            q[:, :, t] = np.where(block.taken[:, t, None], taken, 0.0)
    return q, v


def _result(
    logs: Logs,
    world: LatentMDP,
    sums: _Sums,
    logger: Logger,
    final: Flags,
    confidence: float,
    rng: np.random.Generator,
) -> OffPolicyValue:
    """Put the estimate, its interval and its doubts together."""
    shape = sums.shape
    effective = sums.effective_size()
    steps = int(np.argmax([*(effective == 0.0), True]))
    least, most = _possible(world, shape, final)
    truncation = _beyond(world, shape)
    mean, stderr = sums.estimate()
    low, high = sums.interval(confidence, rng)
    low, high = min(mean, max(low, least)), max(mean, min(high, most))
    whole = shape.method == "importance"
    if steps == 0 or (whole and steps < shape.steps):
        low, high, stderr = least, most, float("inf")
        mean = mean if shape.method == "doubly-robust" else float("nan")
    doubts = (*_agreement_doubts(effective, steps, shape), *logger.doubts)
    if truncation > max(stderr, 1e-3 * abs(mean)):
        doubts += (
            f"the logs end after {plural(shape.steps, 'step')}: what comes later may be worth up "
            f"to {truncation:.3g}",
        )
    for message in doubts:
        warnings.warn(message, OffPolicyWarning, stacklevel=3)
    return OffPolicyValue(
        mean=mean,
        low=low,
        high=high,
        stderr=stderr,
        steps=steps,
        effective_size=arrays.frozen(effective[:steps]),
        episodes=logs.n_episodes,
        method=shape.method,
        weighted=bool(shape.weighted),
        behaviour=logger.source,
        confidence=float(confidence),
        truncation=truncation,
        warnings=doubts,
    )


def _agreement_doubts(effective: Floats, steps: int, shape: _Shape) -> tuple[str, ...]:
    """Whether enough logged episodes agree with the policy."""
    rest = "the rest is the model's word" if shape.method == "doubly-robust" else "nothing is known"
    if steps == 0:
        return (f"no logged episode agrees with the policy: {rest}",)
    if steps < shape.steps:
        return (
            f"no logged episode agrees with the policy for {steps + 1} steps: {rest} from there",
        )
    least = int(np.argmin(effective))
    if effective[least] < _FEWEST_EFFECTIVE:
        return (
            f"few logged episodes agree with the policy: the effective size is "
            f"{effective[least]:.3g} at step {least}, and the interval may be too short",
        )
    return ()


def _possible(world: LatentMDP, shape: _Shape, final: Flags) -> tuple[float, float]:
    """The least and the most that an episode can earn."""
    steps = shape.horizon if shape.method == "doubly-robust" else shape.steps
    worth = float((world.discount ** np.arange(steps)).sum())
    least, most = float(world.reward_values.min()), float(world.reward_values.max())
    if final.any():
        least, most = min(least, 0.0), max(most, 0.0)
    return least * worth, most * worth


def _beyond(world: LatentMDP, shape: _Shape) -> float:
    """How much the steps that the estimate leaves out can be worth."""
    steps = shape.horizon if shape.method == "doubly-robust" else shape.steps
    largest, discount = float(np.abs(world.reward_values).max()), world.discount
    if world.horizon is None:
        return discount**steps * largest / (1.0 - discount)
    return float((discount ** np.arange(steps, world.horizon)).sum() * largest)
