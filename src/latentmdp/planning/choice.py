"""Which planner to trust with a fitted model.

Q-MDP is fast and, where acting well also informs, nearly optimal. Where information must be bought
with steps that earn nothing it may wait for ever; its own bound, which no policy can beat, then
stands far above what its policy earns.
"""

from __future__ import annotations

import dataclasses

from latentmdp.model import LatentMDP
from latentmdp.planning.base import Plan
from latentmdp.planning.evaluation import evaluate
from latentmdp.planning.hsvi import HSVI
from latentmdp.planning.pbvi import PBVI
from latentmdp.planning.qmdp import QMDP
from latentmdp.policies import AlphaVectorPolicy, Policy

__all__ = ["ACTING_SMOOTHING", "acting_policy", "certified_plan"]

ACTING_SMOOTHING = 1e-3
"""Of the filter that acts by a fitted model, which is wrong somewhere."""

_POINTS = PBVI(beliefs=100)
_FALLS_SHORT = 0.1
_EPISODES = 4_000
_GAP, _SECONDS = 0.01, 10.0


def acting_policy(fitted: LatentMDP, optimistic: LatentMDP) -> Policy:
    """Plan optimistically: with Q-MDP, or with PBVI where Q-MDP falls short in the fitted model."""
    if not _falls_short(fitted):
        return QMDP(smoothing=ACTING_SMOOTHING).plan(optimistic).policy
    policy = _POINTS.plan(optimistic).policy
    assert isinstance(policy, AlphaVectorPolicy)
    return AlphaVectorPolicy(
        policy.vectors, policy.actions, policy.offsets, policy.model, ACTING_SMOOTHING
    )


def _falls_short(fitted: LatentMDP) -> bool:
    """Whether Q-MDP's policy earns much less than its bound, and PBVI's is worth more."""
    informed = QMDP(smoothing=ACTING_SMOOTHING).plan(fitted)
    assert informed.upper is not None
    earned = evaluate(fitted, informed.policy, _EPISODES, rng=0)
    if informed.upper - earned.mean <= _FALLS_SHORT * abs(informed.upper):
        return False
    found = _POINTS.plan(fitted).lower
    return found is not None and found > earned.mean + 2.0 * earned.stderr


def certified_plan(model: LatentMDP) -> Plan:
    """HSVI's plan; Q-MDP's policy under its bound where HSVI ran out of time below it."""
    plan = HSVI(gap=_GAP, time_limit=_SECONDS).plan(model)
    if plan.converged:
        return plan
    quick = QMDP(smoothing=ACTING_SMOOTHING).plan(model)
    earned = evaluate(model, quick.policy, _EPISODES, rng=0)
    if plan.lower is not None and plan.lower >= earned.mean - 2.0 * earned.stderr:
        return plan
    return dataclasses.replace(
        plan, policy=quick.policy, message=f"{plan.message}; Q-MDP's policy is worth more"
    )
