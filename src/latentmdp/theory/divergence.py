"""Separation of the contexts, and how fast an episode reveals its context [kwon2021, App. C].

An LMDP is delta-separated (Assumption 1) if, for all contexts m1 != m2 and all (s, a), the joint
distributions of the next state and the reward differ by at least delta,

    ||P_m1(. | s, a) - P_m2(. | s, a)||_1 >= delta.

`separation` is the largest such delta. Episodes of about delta^-4 steps (up to logarithms) then
reveal their context, whatever the policy.

    KL rate(m, n) = (1/H) sum_t E_m^pi [ KL(P_m(. | s_t, a_t), P_n(. | s_t, a_t)) ]

is the expected growth per step of the log-likelihood ratio of the true context m against n; its
inverse times ln(1/eps) is about the number of steps that bring the odds to eps. Condition 3
(well-separated MDPs) asks, for every pair m* != m,

    P_{m*}^pi( P_m(tau) / P_{m*}(tau) > (eps_p / M)^{c_1} ) < (eps_p / M)^{c_2},    c_1, c_2 >= 4.
"""

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, names, validation
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.results import Result
from latentmdp.belief import posterior
from latentmdp.engines import blocks
from latentmdp.model import LatentMDP, require_horizon, require_model
from latentmdp.outcomes import row_sums
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy, action_table
from latentmdp.simulation import simulate
from latentmdp.theory.visitation import occupancy


class Closest(NamedTuple):
    """Where two contexts are hardest to tell apart: distance, pair, state and action."""

    distance: float
    contexts: tuple[int, int]
    state: int
    action: int


def separation(model: LatentMDP) -> float:
    """The delta of Assumption 1: the smallest L1 distance of two contexts in any allowed (s, a).

    With a single context there is nothing to tell apart and the value is infinity.
    """
    require_model(model)
    return min((float(d.min()) for _, _, d in _allowed_distances(model)), default=float("inf"))


def closest_contexts(model: LatentMDP) -> Closest:
    """Where `separation` is attained (the first place, in the order of contexts, state, action).

    A model with a single context is refused.
    """
    if model.n_contexts < 2:
        raise ValueError("closest_contexts needs at least two contexts, the model has one")
    pairs = _allowed_distances(model)
    first, second, distances = min(pairs, key=lambda entry: float(entry[2].min()))
    s, a = np.unravel_index(int(np.argmin(distances)), distances.shape)
    return Closest(float(distances[s, a]), (first, second), int(s), int(a))


def telling_outcomes(model: LatentMDP, most: int = 5) -> list[tuple[str, Floats]]:
    """(what, probability in each context (M,)) of what tells contexts apart best.

    The outcomes are first states, or what follows a state and an action, the one in which two
    contexts differ most of each; those of the largest differences come first.
    """
    table, A = model.outcomes, model.n_actions
    rows = table.rows()
    every = np.concatenate([model.initial.T, table.probs])  # first states, then outcomes
    # All first states are one distribution, as the outcomes of a state and an action are.
    of_row = np.concatenate([np.full(model.n_states, -1), rows])
    order = np.argsort(-np.ptp(every, axis=1), kind="stable")
    first = np.sort(np.unique(of_row[order], return_index=True)[1])[:most]
    several = np.unique(table.reward).size > 1
    told = []
    for k in order[first].tolist():
        if of_row[k] < 0:
            text = f"begins in {names.label('state', k, model.state_names)}"
        else:
            s, a = divmod(int(of_row[k]), A)
            outcome = k - model.n_states
            n, paid = int(table.next_state[outcome]), model.reward_values[table.reward[outcome]]
            here, there = (names.label("state", i, model.state_names) for i in (s, n))
            text = f"{here}, {names.label('action', a, model.action_names)} → {there}"
            text += f" ({paid:g})" if several else ""
        told.append((text, every[k]))
    return told


def _allowed_distances(model: LatentMDP) -> list[tuple[int, int, Floats]]:
    """For each pair of contexts, the L1 distances (S, A) of what follows.

    They are infinite where an action is not allowed: it never fails to tell contexts apart.
    """
    p = model.outcomes.probs
    return [
        (m, n, np.where(model.allowed, _by_action(model, np.abs(p[:, m] - p[:, n])), np.inf))
        for m, n in combinations(range(model.n_contexts), 2)
    ]


def _by_action(model: LatentMDP, terms: Floats) -> Floats:
    """Sums (S, A) of numbers (n,), one for each outcome, in the order of the outcome table."""
    sums = row_sums(model.outcomes, terms[:, None])
    return sums.reshape(model.n_states, model.n_actions)


def divergences(model: LatentMDP) -> Floats:
    """KL(P_m(. | s, a), P_n(. | s, a)) in nats, shape (M, M, S, A); infinite where P_n excludes.

    It is 0 where an action is not allowed.
    """
    M, S, A = model.n_contexts, model.n_states, model.n_actions
    P = model.outcomes.probs.T
    nats = np.zeros((M, M, S, A))
    for m, n in permutations(range(M), 2):
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = P[m] * (np.log(P[m]) - np.log(P[n]))
        nats[m, n] = _by_action(model, np.where(P[m] > 0.0, terms, 0.0))
    return np.maximum(nats, 0.0)


def log_probability_norm(probabilities: ArrayLike) -> float:
    """Sub-exponential norm of ln(1/P(X)), sup_{q >= 1} E[ln^q(1/P(X))]^{1/q} / q [Lemma C.2].

    The lemma says 1/e for any X. Its proof bounds one term p ln^q(1/p) by (q/e)^q and forgets the
    sum over the n values of X, so what it proves is n/e; at q = 1 the expectation is the entropy,
    up to ln n, which exceeds 1/e for a fair coin. The horizon of Lemma C.1 then depends on the
    number of observations a little more than it says.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    p = p[p > 0.0]
    logs = -np.log(p)
    return max(float((p @ logs**q) ** (1.0 / q) / q) for q in np.geomspace(1.0, 200.0, 2000))


def kl_rate(model: LatentMDP, policy: Policy | HistoryPolicy | None = None) -> Floats:
    """Expected divergence per step over the horizon, shape (M, M): row m is the true context."""
    steps = require_horizon(model, "the KL rate")
    visits = occupancy(model, policy or UniformPolicy(), steps).mean(axis=0)
    weighted = np.where(visits[:, None] > 0.0, divergences(model), 0.0) * visits[:, None]
    return weighted.sum(axis=(2, 3))


@dataclass(frozen=True, eq=False)
class WellSeparated(Result):
    """Condition 3, by Monte Carlo.

    Attributes
    ----------
    probabilities : (M, M)
        Row m*, column m: the share of episodes of m* whose likelihood ratio exceeds the threshold.
    stderr : (M, M)
        Its standard error.
    threshold, limit
        (eps_p / M)^{c_1} and (eps_p / M)^{c_2}.
    episodes : (M,)
        Episodes of each true context.
    holds : bool or None
        False if some probability is above the limit and True if all are below it, with a one-sided
        confidence of 99.99% and 95% in each (Clopper and Pearson); None if the episodes do not
        suffice to say.
    """

    probabilities: Floats
    stderr: Floats
    threshold: float
    limit: float
    episodes: Integers
    holds: bool | None

    def __repr__(self) -> str:
        return (
            f"WellSeparated(holds={self.holds}, "
            f"largest probability={self.probabilities.max():.3g}, limit={self.limit:.3g}, "
            f"threshold={self.threshold:.3g}, episodes={int(self.episodes.sum())})"
        )


def well_separated(
    model: LatentMDP,
    policy: Policy | HistoryPolicy | None = None,
    *,
    target: float = 0.1,
    c1: float = 4.0,
    c2: float = 4.0,
    episodes: int = 20_000,
    rng: RNGLike = 0,
) -> WellSeparated:
    """Estimate the probabilities of Condition 3 for a policy.

    Parameters
    ----------
    target
        eps_p.
    c1, c2
        The constants; the paper asks for at least 4.
    episodes
        In total, shared equally by the contexts.
    """
    from scipy.stats import beta

    from latentmdp.spectral import log_likelihoods  # imports slowly, and only this needs it

    require_horizon(model, "Condition 3")
    M = model.n_contexts
    per_context = max(2, arrays.positive_integer("episodes", episodes) // M)
    threshold, limit = (target / M) ** c1, (target / M) ** c2
    exceed = np.zeros((M, M))
    seeds = np.random.SeedSequence(philox_key(rng)).spawn(M)
    for m in range(M):
        alone = model.replace(weights=np.eye(M)[m])
        for begin, end in blocks(per_context, 1 << 13):  # episodes at a time, to bound memory
            acting = policy or UniformPolicy()
            logs = simulate(alone, acting, end - begin, seeds[m], first_episode=begin)
            scores = log_likelihoods(model, logs)
            exceed[m] += (scores - scores[:, [m]] > np.log(threshold)).sum(axis=0)
    np.fill_diagonal(exceed, 0.0)
    share = exceed / per_context
    stderr = np.sqrt(share * (1.0 - share) / per_context)
    pairs = ~np.eye(M, dtype=bool)
    n, count = per_context, np.maximum(exceed, 1.0)
    low = np.where(exceed > 0, beta.ppf(1e-4, count, n - exceed + 1.0), 0.0)
    high = np.where(exceed < n, beta.ppf(0.95, exceed + 1.0, np.maximum(n - exceed, 1)), 1.0)
    below = True if (high[pairs] < limit).all() else None
    holds = False if (low[pairs] > limit).any() else below
    return WellSeparated(share, stderr, threshold, limit, np.full(M, per_context, np.int64), holds)


@dataclass(frozen=True)
class Revelation:
    """After how many steps the true context has the asked posterior probability.

    Attributes
    ----------
    level
        The posterior probability.
    share, stderr
        Share of episodes of the model's horizon that get there, and its standard error.
    mean, mean_stderr
        Mean number of steps to the first time; infinite if some episode never got there.
    quantiles
        Steps after which 50%, 90% and 99% of the episodes are there; infinite if not observed.
    longest
        How long episodes were followed.
    episodes
        How many were played.
    """

    level: float
    share: float
    stderr: float
    mean: float
    mean_stderr: float
    quantiles: tuple[float, float, float]
    longest: int
    episodes: int


def revelation(
    model: LatentMDP,
    policy: Policy | HistoryPolicy | None = None,
    *,
    level: float = 0.99,
    episodes: int = 2000,
    rng: RNGLike = 0,
) -> Revelation:
    """Monte Carlo of the first time the belief in the true context reaches `level`.

    Under a policy that does not depend on the time, episodes are followed beyond the horizon
    until 99% are there, twice the time brings no more, or 4,096 steps have passed: contexts so
    close are not told apart by episodes of any length one would plan for.
    """
    validation.require_inside("level", level)
    episodes = arrays.positive_integer("episodes", episodes)
    policy = policy or UniformPolicy()
    table = action_table(policy, model)
    longest = horizon = require_horizon(model, "revelation")
    seed = np.random.SeedSequence(philox_key(rng))

    def first_passage(steps: int) -> Floats:
        """When the true context got there in each episode of so many steps; infinite if never."""
        longer, first = model.replace(horizon=steps), np.full(episodes, np.inf)
        for start, stop in blocks(episodes, max(1, (1 << 20) // (steps + 1))):
            logs = simulate(longer, policy, stop - start, seed, first_episode=start)
            assert logs.contexts is not None
            owner = np.repeat(np.arange(len(logs)), logs.lengths + 1)
            beliefs = posterior(longer, logs, along=True)
            there = np.flatnonzero(beliefs[np.arange(owner.size), logs.contexts[owner]] >= level)
            reached, earliest = np.unique(owner[there], return_index=True)
            begin = logs.offsets[:-1] + np.arange(len(logs))
            first[start + reached] = there[earliest] - begin[reached]
        return first

    first = first_passage(longest)
    while table is not None and len(table) == 1 and longest < 4096:
        there = np.isfinite(first).mean()
        if there >= 0.99:
            break
        longest = min(2 * longest, 4096)
        first = first_passage(longest)
        if there > 0.0 and np.isfinite(first).mean() == there:
            break
    share = float((first <= horizon).mean())
    spread = float(first.std(ddof=1) / np.sqrt(episodes)) if np.isfinite(first).all() else np.inf
    half, most, nearly_all = np.quantile(first, [0.5, 0.9, 0.99], method="higher")
    return Revelation(
        level=level,
        share=share,
        stderr=float(np.sqrt(share * (1.0 - share) / episodes)),
        mean=float(first.mean()),
        mean_stderr=spread,
        quantiles=(float(half), float(most), float(nearly_all)),
        longest=longest,
        episodes=episodes,
    )
