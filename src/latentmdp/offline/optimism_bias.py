"""What a planned policy will earn: its value in the fitted model, less the flattery of it.

A policy planned in a fitted model looks better there than it is. How much, a parametric bootstrap
tells: logs are simulated in the fitted model, the whole path is repeated on them, and the policy
found is valued in the model refitted and in the one simulated from.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy import stats

from latentmdp._util.arrays import Flags, Floats
from latentmdp.engines.threads import run_blocks
from latentmdp.estimation import EM, cut_short, forbidding
from latentmdp.fit import Fit, FitWarning
from latentmdp.model import LatentMDP
from latentmdp.offline.off_policy import Interval
from latentmdp.planning import Planner, evaluate
from latentmdp.policies import MarkovPolicy, Policy
from latentmdp.simulation import simulate
from latentmdp.trajectories import Trajectories

__all__ = ["EPISODES", "corrected", "flattery_draws", "value_in"]


EPISODES = 20_000
"""Simulated to value a policy in a model."""

_PSEUDO_COUNTS_STEP = 2.0


def flattery_draws(
    logs: Trajectories,
    fit: Fit,
    planner: Planner,
    behaviour: Floats,
    final: Flags,
    repeats: int,
    rng: np.random.Generator,
) -> Floats:
    """Value in the refitted model minus value in the fitted one, of the policy planned there.

    The pseudo-counts were chosen from data, so each repetition draws its own: those of
    the fit, or a step of the grid they were chosen from away. Simulated episodes are cut where
    logged ones were; one that ended for good, ends by itself.
    """
    seeds = rng.integers(0, 2**63, size=repeats)
    policy = MarkovPolicy(behaviour)
    lengths = np.where(final[logs.last_states], fit.model.horizon, logs.lengths)
    lengths = np.repeat(lengths, logs.multiplicities())

    def repeat(first: int, _: int) -> float:
        own = np.random.default_rng(int(seeds[first]))
        drawn = simulate(fit.model, policy, logs.n_episodes, own, threads=1)
        drawn = cut_short(drawn.without_contexts(), lengths)
        step = _PSEUDO_COUNTS_STEP ** own.choice([-1.0, 0.0, 1.0], size=2)
        em = EM(
            fit.model.n_contexts,
            pseudo_counts=fit.pseudo_counts * step[0],
            reward_pseudo_counts=fit.reward_pseudo_counts * step[1],
            reward_model=fit.model.reward_model,
            threads=1,
        )
        again = em.fit(drawn, start=fit.model, rng=own)
        planned = planner.plan(forbidding(again.model, drawn)).policy
        return value_in(again.model, planned, own) - value_in(fit.model, planned, own)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return np.array(run_blocks(repeat, [(i, i + 1) for i in range(repeats)], None))


def corrected(promised: float, differences: Floats, confidence: float) -> Interval:
    """Take the mean difference off; it is itself uncertain, by as much as its own size.

    The refitted models lie closer to the fitted one than that does to the truth, so the mean
    difference understates what it corrects.
    """
    n, flattery = differences.size, float(differences.mean())
    spread = float(differences.std(ddof=1)) * np.sqrt(1.0 + 1.0 / n)
    chance = float(stats.t.ppf(0.5 + confidence / 2.0, n - 1)) * spread
    half = float(np.hypot(chance, flattery))
    mean = promised - flattery
    return Interval(mean, mean - half, mean + half)


def value_in(model: LatentMDP, policy: Policy, rng: np.random.Generator) -> float:
    """What a policy earns per episode in a model."""
    return evaluate(model, policy, EPISODES, rng, threads=1).mean
