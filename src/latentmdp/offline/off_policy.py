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

**Fitted Q** [le2019] takes that form of Q from the logs: step by step, from the last to the first,
the Q_m,t(s, a) are regressed on what was paid plus the value of what came next, with one
observation of the mean of all. It needs neither pi_b nor the model's values, and is right where Q
is of that form. With nu_t the mean of b_t(m) pi(a | h) 1(s_t = s) under pi, counted forward in the
same way, and Sigma_t the mean of b_t b_t' 1(s, a), w_it = b_t' Sigma_t^-1 nu_t stands for the ratio
[duan2020]: its error is that of the doubly robust sum above with w for rho, which is also added.

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

**A bound that needs no large sample** [thomas2015]. With rewards counted from the least that a step
pays, the per-decision estimate of a group of episodes, X_g >= 0, has mean V whatever the ratios
are, and min(X_g, c) a lower one. So by the empirical Bernstein bound [maurer2009] with probability
1 - delta, delta = 1 - confidence,

    V >= mean of min(X_g, c) - sqrt(2 v log(2/delta) / n) - 7 c log(2/delta) / (3 (n - 1)),

v being their variance. The cut c is chosen by a fifth of the groups, and the bound is that of the
others. It is far below the interval where the logs say little, and holds where that may not, as
long as the logger's probabilities are right.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Flags, Floats, Integers, normalised
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.results import Result, Worded
from latentmdp._util.validation import require_choice
from latentmdp._util.words import plural
from latentmdp.estimation import EM, cut_short, final_states
from latentmdp.fit import logged_behaviour, without_fit_warnings
from latentmdp.logs import Batch, Logs, Trajectories, require_logs
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.offline.checks import logger_warnings
from latentmdp.offline.logger import AnyPolicy, Logger, beliefs_of, followed, logger_of
from latentmdp.offline.references import randomised
from latentmdp.planning import action_table, backward_q
from latentmdp.policies import Policy
from latentmdp.simulation import simulate
from latentmdp.worlds import Space

Method = Literal["doubly-robust", "per-decision", "importance", "fitted-q"]

_FEWEST_EFFECTIVE = 30.0
"""Effective episodes that a step needs: more would end the estimate earlier, fewer would leave a
bootstrap standard error that cannot be trusted. 30 is the usual rule for a mean of a sample."""


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
        "doubly-robust", "per-decision", "importance" or "fitted-q".
    weighted : bool
        Whether weights were normalised by their own sum.
    behaviour : str
        Where the logger's probabilities come from: "given", "by context", "policy", "propensities"
        or "estimated".
    confidence : float
        Probability with which the interval is to hold the value.
    lower : float
        What the policy earns at least, with this confidence, by a bound that holds for any number
        of episodes and any ratios; the least possible where the logs do not say more.
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
    lower: float = float("-inf")
    truncation: float = 0.0
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        least = self.effective_size.min(initial=self.episodes)
        doubts = f", {plural(len(self.warnings), 'warning')}" if self.warnings else ""
        return (
            f"OffPolicyValue({Interval(self.mean, self.low, self.high)}, {self.method}, "
            f"effective size {least:.0f} of {self.episodes}{doubts})"
        )

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        sizes, off = self.effective_size, self.truncation
        least = int(np.argmin(sizes)) if self.steps else 0
        smallest = f"{sizes[least]:.3g} at step {least}, where it is smallest" if self.steps else ""
        value = Interval(self.mean, self.low, self.high)
        return {
            **super().facts(),
            "mean": Worded(self.mean, f"{value} per episode"),
            "low": Worded(self.low, ""),
            "high": Worded(self.high, ""),
            "lower": Worded(self.lower, f"{self.lower:.4g} at least, for any sample"),
            "effective_size": Worded(sizes, smallest),
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
        "doubly-robust", "per-decision", "importance" or "fitted-q", see
        `latentmdp.offline.off_policy`.
    model
        Gives horizon, discount and, for "doubly-robust", the values to start from. By default the
        model of the policy; a policy without one gets a single MDP, counted in one half of the
        logs for the other half, with the horizon of the longest episode.
    rng
        Chance of the bootstrap, of halves, and of simulated values.
    confidence
        Of the interval.
    weighted
        Divide by the sum of the ratios in place of the number of episodes; "fitted-q" has none.
    """
    require_logs("logs", logs)
    require_choice("method", method, get_args(Method))
    validation.require_inside("confidence", confidence)
    if not isinstance(policy, Policy) and not callable(policy):
        raise TypeError(f"policy must be a Policy or a function, got {type(policy).__name__}")
    if logs.n_episodes < 2 or logs.n_steps == 0:
        raise ValueError(f"an estimate needs two episodes with steps, got {logs!r}")
    assumed = getattr(policy, "model", None) if model is None else model
    generator, logs = as_generator(rng), logs.without_contexts()
    messages: tuple[str, ...] = ()
    if any(logs.lacks._replace(ends=False)) and logs.fits_memory:
        whole = _without_gaps(logs.read())
        lost = logs.n_individuals - len(whole)
        messages = (f"{lost} of {logs.n_individuals} individuals have gaps, and are left out",)
        if len(whole) < 2:
            raise ValueError(f"an estimate needs two episodes without gaps, got {len(whole)}")
        logs = whole
    source: str | None = None
    if behaviour is None and logs.fits_memory:
        held = logs.read()
        logs = randomised(held)
        if logs is not held:
            source = "estimated"
            messages += (
                "no individual ever changes its action: what a change would do is not identified",
            )
    if assumed is not None:
        arrays.require_instance("model", assumed, LatentMDP)
        logs.validate(assumed)
        parts = [(b, np.arange(b.start, b.stop), assumed) for b in logs.batches()]
    else:
        parts = _halves(logs, generator)
    world = parts[0][2]
    final = world.terminal | np.pad(final_states(logs), (0, world.n_states - logs.n_states))
    shape = _Shape.of(method, weighted, logs, world)
    if behaviour is None and parts[0][0].read().propensities is None:
        # The pooled choice of actions counts as one logged action in every state: that keeps the
        # ratios of rare states finite, and changes nothing where a state is seen often.
        rows = logged_behaviour(logs, 1.0, world.dimensions[1:])
        behaviour, source = rows, "estimated"
        messages += logger_warnings(logs, world, rows, generator.spawn(1)[0])
    sums: _Sums | None = None
    values: _Values | None = None
    paid = paid_range(logs, world)
    for k, (batch, numbers, own_model) in enumerate(parts):
        episodes = _with_known_ends(batch.read(), shape)
        logger = logger_of(episodes, behaviour, own_model, assumed is not None, numbers)
        group = _random_groups(episodes, min(logs.n_episodes, 1_024), generator)
        if method == "doubly-robust" and (k == 0 or own_model is not world):
            # Hidden rewards of a model count where the logs say what was paid.
            rewards = (
                own_model.planning_rewards() if logs.pays_amounts else own_model.mean_rewards()
            )
            table = _context_values(own_model, policy, shape.horizon, generator, rewards)
            values = _Values(table)
        elif method == "fitted-q":
            if logger.shares.shape[1] > 1:
                raise ValueError(f"{method} takes no logger that knew the context")
            values = _fitted(episodes, shape, policy, own_model, logger, final)
        more = _Sums.of(episodes, group, shape, policy, own_model, logger, final, values, paid[0])
        sums = more if sums is None else sums + more
    assert sums is not None
    logger = logger._replace(source=source or logger.source, warnings=(*messages, *logger.warnings))
    return _result(logs, world, sums, logger, final, confidence, generator, paid)


_Part = tuple[Batch, Integers, LatentMDP]
"""Episodes that are read together, their numbers, and the model that values them."""


def _with_known_ends(logs: Trajectories, shape: _Shape) -> Trajectories:
    """Episodes without a last step that led nobody knows where, if its end is to be valued.

    Beyond the model's last step nothing is valued, and importance sampling asks for no end.
    """
    lost = (logs.last_states < 0) & (logs.lengths < shape.horizon) & (logs.lengths > 0)
    if shape.method != "doubly-robust" or not lost.any():
        return logs
    return cut_short(logs, logs.lengths - lost)


def _random_groups(logs: Trajectories, number: int, rng: np.random.Generator) -> csr_array:
    """Which episodes are resampled together, (G, N): groups of nearly equal size by chance.

    The bootstrap's own error falls with their number, and is already far below that of the
    estimate with a thousand of them; its time and memory grow with it.
    """
    counts = logs.multiplicities()
    total = int(counts.sum())
    group = rng.permutation(total) % number
    entry = (np.ones(total), (group, np.repeat(np.arange(len(logs)), counts)))
    return csr_array(entry, shape=(number, len(logs)))


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
    an episode that reached one keeps its weight. One that is cut short elsewhere loses it. Of
    individuals of whom anything but the last state is missing nothing is said.
    """
    require_horizon(model, "an estimate from logs")
    nothing = LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))
    logs = _without_gaps(logs)
    if len(logs) == 0:
        return nothing
    final = np.zeros(model.n_states, dtype=np.bool_) if final is None else final
    logger = logger_of(logs, behaviour, model, model_given=True)
    shape = _Shape.of("per-decision", True, logs, model)
    group = _random_groups(logs, min(logs.n_episodes, 1_024), rng)
    sums = _Sums.of(logs, group, shape, policy, model, logger, final)
    effective = sums.effective_size()
    steps = int(np.argmax([*(effective < _FEWEST_EFFECTIVE), True]))
    if steps == 0:
        return nothing
    return LoggedEstimate(*sums.estimate(steps), steps, effective[:steps])


def _without_gaps(logs: Trajectories) -> Trajectories:
    """The individuals of whom nothing is missing but the last state."""
    if not any(logs.lacks._replace(ends=False)):
        return logs
    individual = logs.individuals()
    lost = np.bincount(np.repeat(individual, logs.lengths), logs.rewards < 0, logs.n_individuals)
    lost += np.bincount(individual, logs.first_states < 0, logs.n_individuals)
    lost += np.bincount(individual) - 1  # further segments
    return logs.take_individuals(np.flatnonzero(lost == 0))


def _halves(logs: Logs, rng: np.random.Generator) -> list[_Part]:
    """Two halves of the episodes, each with a single MDP fitted to the other half."""
    if not logs.fits_memory:
        raise ValueError(
            "a policy without a model would need two halves of the logs in memory: give "
            "model=, such as EM(1).fit(other_logs).model"
        )
    if len(logs) < 2:
        raise ValueError("logs that are one episode, repeated, need model=")
    if logs.reward_values is None:
        raise ValueError("logs whose reward values are not known need model=")
    held, order = logs.read(), rng.permutation(len(logs))
    halves = [np.sort(half) for half in np.split(order, [len(logs) // 2])]
    parts: list[_Part] = []
    for mine, other in zip(halves, halves[::-1]):
        with without_fit_warnings():
            fitted = EM(1).fit(held[other], rng=rng).model.replace(horizon=logs.longest)
        parts += [(b, mine[b.start : b.stop], fitted) for b in held[mine].batches()]
    return parts


def _context_values(
    model: LatentMDP, policy: AnyPolicy, horizon: int, rng: np.random.Generator, rewards: Floats
) -> Floats:
    """Q_m,t(s, a) of the Markov policy that acts in context m as `policy` does, (H, M, S, A)."""
    M, S, A, _ = model.dimensions
    values = np.empty((horizon, M, S, A))
    steps = backward_q(model, policy_by_context(model, policy, horizon, rng), rewards, horizon)
    for t, (_, Q) in zip(range(horizon - 1, -1, -1), steps):
        values[t] = Q
    return values


def policy_by_context(
    model: LatentMDP, policy: AnyPolicy, horizon: int, rng: np.random.Generator
) -> Floats:
    """P_m^pi(a_t = a | s_t = s): the table of a Markov policy, (H or 1, S, A), or (H, M, S, A).

    That of another policy is simulated, and shrunk towards all times together. A Python function is
    slow, so fewer of its episodes are simulated. Errors of these shares cost variance, not bias.
    """
    table = action_table(policy, model) if isinstance(policy, Policy) else None
    if table is not None:
        return table
    M, S, A, _ = model.dimensions
    episodes = 20_000 if isinstance(policy, Policy) else 1_000
    pooling = 5.0  # visits that the choice of actions at all times is worth at each time
    played = simulate(model.replace(horizon=horizon), policy, episodes, rng)
    assert played.contexts is not None
    episode, state, action, *_ = played.steps()
    t = np.arange(played.n_steps) - played.offsets[episode]
    cell = ((t * M + played.contexts[episode]) * S + state) * A + action
    visits = np.bincount(cell, minlength=horizon * M * S * A).astype(np.float64)
    visits = visits.reshape(horizon, M, S, A)
    anywhere = normalised(visits.sum(axis=(0, 1)), model.allowed.astype(np.float64))
    ever = normalised(visits.sum(axis=0) + pooling * anywhere)
    return normalised(visits + pooling * ever)


class _Shape(NamedTuple):
    """What is summed: the method, whether weights are normalised, and how far."""

    method: str
    weighted: bool
    steps: int  # T, of the logs
    horizon: int  # H, of the model's values

    @classmethod
    def of(cls, method: str, weighted: bool, logs: Logs, world: LatentMDP) -> _Shape:
        """As far as logs are read, and the values of the model of the world reach."""
        steps = world.duration.within(logs.longest)
        return cls(method, weighted, steps, max(steps, Space.of(world).longest_episode))

    @property
    def valued_steps(self) -> int:
        """The steps that an estimate speaks of: those of the logs, or of the model's values."""
        return self.horizon if self.method == "doubly-robust" else self.steps


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over groups of episodes, of which every estimate is made.

    With G groups, K contexts and J quotients: `amounts` and `normalisers` (G, K, J), and `shares`
    (G, K) of each context. `sizes` (G,) are the episodes in each group, `totals` and `squares` (T,)
    of the weights at each step. `above` (G,) are weighted rewards beyond the least of a step.
    """

    shape: _Shape
    sizes: Floats
    amounts: Floats
    normalisers: Floats
    shares: Floats
    totals: Floats
    squares: Floats
    above: Floats

    @classmethod
    def of(
        cls,
        logs: Trajectories,
        group: csr_array,
        shape: _Shape,
        policy: AnyPolicy,
        model: LatentMDP,
        logger: Logger,
        final: Flags,
        values: _Values | None = None,
        least: float = 0.0,
    ) -> _Sums:
        """The sums of some episodes; an estimate that is not by ratios alone has `values`.

        The `least` is what a step pays at least.
        """
        T, G, K = shape.steps, group.shape[0], logger.probabilities.shape[1]
        J = {"importance": 1, "per-decision": T}.get(shape.method, T + 1)
        counts = logs.multiplicities()
        sizes = group @ np.ones(len(logs))
        room = (np.zeros((G, K, J)), np.zeros((G, K, J)), np.zeros((G, K)))
        sums = cls(shape, sizes, *room, np.zeros(T), np.zeros(T), np.zeros(G))
        scale = model.discount ** np.arange(T)
        for members, chances in followed(logs, policy, model, np.arange(len(logs)), T):
            block = _Block.of(logs, members, chances, logger, final, T, model)
            amounts, normalisers = sums._quotients(block, model, values, logs[members])
            into, flat = group[:, members], (members.size, -1)
            sums.amounts[:] += (into @ amounts.reshape(flat)).reshape(G, K, J)
            sums.normalisers[:] += (into @ normalisers.reshape(flat)).reshape(G, K, J)
            sums.shares[:] += into @ block.shares
            weights = (block.shares[:, :, None] * block.ratios).sum(axis=1)
            weights = np.where(block.observed, weights, 0.0)
            beyond = np.where(block.played, block.rewards - least, 0.0) * scale
            sums.above[:] += into @ (weights * beyond).sum(axis=1)
            sums.totals[:] += counts[members] @ weights
            sums.squares[:] += counts[members] @ weights**2
        return sums

    def __add__(self, other: _Sums) -> _Sums:
        """The sums over the episodes of both, which have the same number of groups."""
        sums = {name: array + getattr(other, name) for name, array in vars(self).items()}
        return replace(self, **{**sums, "shape": self.shape})

    def _quotients(
        self, block: _Block, model: LatentMDP, values: _Values | None, logs: Trajectories
    ) -> tuple[Floats, Floats]:
        """Amounts and normalisers of each episode in each context, (n, K, J)."""
        T, K = self.shape.steps, block.shares.shape[1]
        scale = model.discount ** np.arange(T)
        observed, gains = (
            block.observed[:, None, :],
            np.where(block.played, block.rewards, 0.0)[:, None, :],
        )
        weights = block.shares[:, :, None] * np.where(observed, block.ratios, 0.0)
        counted = np.broadcast_to(observed, weights.shape).astype(np.float64)
        if self.shape.method == "importance":
            whole = np.where(block.observed[:, -1], (gains[:, 0] * scale).sum(axis=1), 0.0)
            weights, counted = weights[:, :, -1:], counted[:, :, -1:]
            return weights * whole[:, None, None], weights if self.shape.weighted else counted
        if values is None:
            return weights * gains * scale, weights if self.shape.weighted else counted
        if values.slopes is not None:
            weights = _expected(block, model, values.slopes, logs, K)[0]
            counted = np.ones_like(counted)
        q, v = _expected(block, model, values.table, logs, K)
        missed = (gains - q + model.discount * v[:, :, 1:]) * scale
        first = block.shares[:, :, None]
        amounts = np.concatenate([first * v[:, :, :1], weights * missed], axis=2)
        if self.shape.weighted and values.slopes is None:
            return amounts, np.concatenate([first, weights], axis=2)
        return amounts, np.concatenate([np.ones_like(first), counted], axis=2)

    def effective_size(self) -> Floats:
        """(sum of weights)^2 / sum of squared weights at each step, (T,)."""
        none = np.zeros_like(self.totals)
        return np.divide(self.totals**2, self.squares, out=none, where=self.squares > 0.0)

    def estimate(self, steps: int | None = None) -> tuple[float, float]:
        """The estimate and its standard error, of the first steps alone where that is said."""
        mean, stderr = self._estimates(np.ones((1, len(self.amounts))), steps)
        return float(mean[0]), float(stderr[0])

    def interval(self, confidence: float, rng: np.random.Generator) -> tuple[float, float]:
        """The ends of the studentised bootstrap's interval."""
        G = len(self.amounts)
        mean, stderr = self.estimate()
        # of a thousand resamples the 2.5 % quantile is itself known to about 0.5 %
        repeats = rng.multinomial(G, np.full(G, 1.0 / G), 1_000).astype(np.float64)
        means, stderrs = self._estimates(repeats)
        # A resample of groups that are all alike has no standard error but rounding.
        use = stderrs > 1e-12 * max(abs(mean), stderr, 1e-300)
        if stderr == 0.0 or not use.any():
            return mean, mean
        places = np.quantile(
            (means - mean)[use] / stderrs[use], [0.5 - confidence / 2, 0.5 + confidence / 2]
        )
        return mean - float(places[1]) * stderr, mean - float(places[0]) * stderr

    def lower_bound(self, confidence: float) -> float:
        """What is earned at least beyond the least of all steps: an empirical Bernstein bound."""
        groups = self.above[self.sizes > 0.0] / self.sizes[self.sizes > 0.0]
        chosen = groups.size // 5  # groups are in random order
        if chosen < 2 or groups.size - chosen < 2:
            return 0.0
        pilot, rest = groups[:chosen], groups[chosen:]
        tail, n = np.log(2.0 / (1.0 - confidence)), rest.size

        def bound(values: Floats, cut: float) -> float:
            cells = np.minimum(values, cut)
            chance = np.sqrt(2.0 * cells.var(ddof=1) * tail / n)
            return float(cells.mean() - chance - 7.0 * cut * tail / (3.0 * (n - 1)))

        cut = max(np.unique(pilot).tolist(), key=lambda c: bound(pilot, c))
        return max(0.0, bound(rest, cut))

    def _estimates(self, repeats: Floats, steps: int | None = None) -> tuple[Floats, Floats]:
        """Estimates and standard errors where group g occurs `repeats[b, g]` times, (B,) each.

        Those of the first `steps`, of an estimate per decision, or of all.
        """
        G, K, J = self.amounts[..., :steps].shape
        amounts, normalisers = (
            column[..., :steps].reshape(G, -1) for column in (self.amounts, self.normalisers)
        )
        sizes = self.sizes
        total = repeats @ sizes
        norm = repeats @ normalisers
        inverse = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0.0)
        means = (repeats @ amounts) * inverse  # (B, K J)
        by_context = means.reshape(-1, K, J).sum(axis=2)
        weights = np.ones((len(repeats), K))
        if self.shape.weighted:
            weights = (repeats @ self.shares) / total[:, None]
        estimates = (weights * by_context).sum(axis=1)
        slope = np.repeat(weights, J, axis=1) * inverse
        influence = slope @ amounts.T - (slope * means) @ normalisers.T  # (B, G)
        if self.shape.weighted and K > 1:
            tilt = by_context / total[:, None]
            influence += tilt @ self.shares.T - (tilt * weights).sum(axis=1)[:, None] * sizes
        spread = (repeats * influence**2).sum(axis=1)
        return estimates, np.sqrt(spread * G / max(G - 1, 1))


class _Block(NamedTuple):
    """Some episodes of one length, at the T steps of the estimate.

    Ratios rho (n, K, T), whether a step is known of (n, T), whether it was played (n, T): an
    episode that has ended is known of and plays no more steps.
    """

    states: Integers
    actions: Integers
    rewards: Floats
    chances: Floats  # (n, T + 1, A)
    shares: Floats  # (n, K)
    ratios: Floats
    observed: Flags
    played: Flags

    @classmethod
    def of(
        cls,
        logs: Trajectories,
        members: Integers,
        chances: Floats,
        logger: Logger,
        final: Flags,
        steps: int,
        model: LatentMDP,
    ) -> _Block:
        """Line up episodes that all have the same length."""
        n, last, K = members.size, chances.shape[1] - 1, logger.probabilities.shape[1]
        states, actions, _ = logs[members].as_arrays()
        places = logs.offsets[members][:, None] + np.arange(last)
        paid = model.reward_values[logs.rewards] if logs.amounts is None else logs.amounts
        target = np.take_along_axis(chances[:, :-1], actions[:, :last, None], axis=2)[:, :, 0]
        base = logger.probabilities[places]  # (n, last, K)
        each = np.divide(
            target[:, :, None], base, out=np.zeros((n, last, K)), where=base > 0.0
        ).swapaxes(1, 2)
        ratios = np.zeros((n, K, steps))
        ratios[:, :, :last] = np.cumprod(each, axis=2)
        ended = final[states[:, -1]] & (states[:, -1] >= 0)
        ended &= logs.lengths[members[0]] == last
        if last < steps:
            after = ratios[:, :, last - 1] if last else np.ones((n, K))
            ratios[ended, :, last:] = after[ended][:, :, None]
        played = np.broadcast_to(np.arange(steps) < last, (n, steps))
        observed = played | ended[:, None]
        pad = ((0, 0), (0, steps - last))
        still = np.where(
            ended[:, None, None] & (np.arange(last + 1) == last)[:, None], 0.0, chances
        )
        return cls(
            np.pad(states[:, : last + 1], pad, mode="edge"),
            np.pad(actions[:, :last], pad),
            np.pad(paid[places], pad),
            np.pad(still, (*pad, (0, 0))),
            logger.shares[members],
            ratios,
            observed,
            played,
        )


class _Values(NamedTuple):
    """Q_m,t(s, a), (T, M, S, A); by regression with Sigma_t^-1 nu_t, whose mean over b_t is w."""

    table: Floats
    slopes: Floats | None = None


def _fitted(
    logs: Trajectories,
    shape: _Shape,
    policy: AnyPolicy,
    model: LatentMDP,
    logger: Logger,
    final: Flags,
) -> _Values:
    """Fit the values backwards from the last step, and count what the policy visits forwards."""
    (M, S, A, _), T = model.dimensions, shape.steps
    blocks = []
    for members, chances in followed(logs, policy, model, np.arange(len(logs)), T):
        block = _Block.of(logs, members, chances, logger, final, T, model)
        beliefs = beliefs_of(model, logs[members], along=True).reshape(members.size, -1, M)
        pad = ((0, 0), (0, max(0, T + 1 - beliefs.shape[1])), (0, 0))
        counts = logs.multiplicities()[members].astype(np.float64)
        blocks.append((block, np.pad(beliefs[:, : T + 1], pad), counts))
    values, slopes = np.zeros((T + 1, S, A, M)), np.zeros((T, S, A, M))
    spread = np.zeros((T, S, A, M, M))
    for t in range(T - 1, -1, -1):
        sums, total, number = np.zeros((S, A, M)), 0.0, 0.0
        for block, beliefs, counts in blocks:
            cell, b = (block.states[:, t], block.actions[:, t]), beliefs[:, t]
            each = counts * block.played[:, t]
            after = values[t + 1][block.states[:, t + 1]]
            ahead = np.einsum("nam,nm,na->n", after, beliefs[:, t + 1], block.chances[:, t + 1])
            target = block.rewards[:, t] + model.discount * ahead
            np.add.at(spread[t], cell, each[:, None, None] * b[:, :, None] * b[:, None, :])
            np.add.at(sums, cell, (each * target)[:, None] * b)
            total, number = total + float(each @ target), number + float(each.sum())
        spread[t] += np.eye(M)  # one observation
        sums += total / max(number, 1.0)
        values[t] = np.linalg.solve(spread[t], sums[..., None])[..., 0]
    for t in range(T):
        visits = np.zeros((S, A, M))
        for block, beliefs, counts in blocks:
            state, weights = block.states[:, t], counts
            if t:
                taken = slopes[t - 1][block.states[:, t - 1], block.actions[:, t - 1]]
                weights = counts * block.played[:, t - 1] * (taken * beliefs[:, t - 1]).sum(axis=1)
            chosen = weights[:, None] * block.chances[:, t]
            np.add.at(visits, state, chosen[:, :, None] * beliefs[:, t][:, None])
        slopes[t] = np.linalg.solve(spread[t], visits[..., None])[..., 0]
    return _Values(values[:T].transpose(0, 3, 1, 2), slopes.transpose(0, 3, 1, 2))


def _expected(
    block: _Block, model: LatentMDP, values: Floats, logs: Trajectories, contexts: int
) -> tuple[Floats, Floats]:
    """Values q (n, K, T) of the actions taken and v (n, K, T + 1) of the states; zero once over."""
    n, T = block.played.shape
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
            value = np.take_along_axis(here, action[:, None, None], axis=2)[:, :, 0]
            q[:, :, t] = np.where(block.played[:, t, None], value, 0.0)
    return q, v


def _result(
    logs: Logs,
    world: LatentMDP,
    sums: _Sums,
    logger: Logger,
    final: Flags,
    confidence: float,
    rng: np.random.Generator,
    paid: Floats,
) -> OffPolicyValue:
    """Put the estimate, its interval and its warnings together."""
    shape = sums.shape
    effective = sums.effective_size()
    steps = int(np.argmax([*(effective == 0.0), True]))
    least, most = possible_returns(paid, world, shape.valued_steps, final)
    truncation = world.duration.discounted_steps(shape.valued_steps) * float(np.abs(paid).max())
    mean, stderr = sums.estimate()
    value = Interval(mean, *sums.interval(confidence, rng))
    if stderr == 0.0:
        agree = int(effective.min(initial=logs.n_episodes))
        value = value.of_alike(agree, logs.held().returns(world.discount), confidence)
    low, high = min(mean, max(value.low, least)), max(mean, min(value.high, most))
    # steps that were not seen pay the least, and what is paid beyond it is never negative
    lower = least + sums.lower_bound(confidence)
    whole = shape.method == "importance"
    if steps == 0 or (whole and steps < shape.steps):
        low, high, stderr = least, most, float("inf")
        mean = mean if shape.method == "doubly-robust" else float("nan")
    messages = (*_agreement_warnings(effective, steps, shape), *logger.warnings)
    if truncation > max(stderr, 1e-3 * abs(mean)):
        messages += (
            f"the logs end after {plural(shape.steps, 'step')}: what comes later may be worth up "
            f"to {truncation:.3g}",
        )
    for message in messages:
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
        lower=lower,
        truncation=truncation,
        warnings=messages,
    )


def _agreement_warnings(effective: Floats, steps: int, shape: _Shape) -> tuple[str, ...]:
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


def paid_range(logs: Logs, world: LatentMDP) -> Floats:
    """The least and the most that a step pays."""
    if not logs.pays_amounts:
        return np.array([world.reward_values.min(), world.reward_values.max()])
    amounts = [batch.read().values() for batch in logs.batches()]
    return np.array([min(map(np.nanmin, amounts)), max(map(np.nanmax, amounts))])


def possible_returns(
    paid: Floats, world: LatentMDP, steps: int, final: Flags
) -> tuple[float, float]:
    """The least and the most that so many steps can earn, given what one can."""
    worth = float((world.discount ** np.arange(steps)).sum())
    least, most = paid.tolist()
    if final.any():
        least, most = min(least, 0.0), max(most, 0.0)
    return least * worth, most * worth
