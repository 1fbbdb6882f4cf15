"""The choice of a planner for a fitted model: Q-MDP where it suffices, else one that pays for news.

Q-MDP is fast and, where acting well also informs, nearly optimal. Where information must be bought
with steps that earn nothing it may wait for ever; its own bound, which no policy can beat, then
stands far above what its policy earns.
"""

from __future__ import annotations

import dataclasses

from latentmdp.model import LatentMDP
from latentmdp.planning.base import Plan, Planner
from latentmdp.planning.evaluation import Value, evaluate
from latentmdp.planning.hsvi import HSVI
from latentmdp.planning.pbvi import PBVI
from latentmdp.planning.qmdp import QMDP
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["ActingPlanner", "acting_smoothing", "certified_plan"]

_POINTS = PBVI(beliefs=100)
"""Half of PBVI's default number of points, since it plans anew after every fit."""

_FALLS_SHORT = 0.1
"""A share of its bound that Q-MDP's policy may miss: 2 to 5% are missed where acting informs (the
instances separated, random, treatment), where PBVI gains little, 88% where it waits (wait-hub)."""

_EPISODES = 4_000
"""Simulated to value Q-MDP's policy: a standard error of 1.6% of the returns' spread."""

_GAP, _SECONDS = 0.02, 10.0
"""Of the certificate: a fitted model is rarely right to 2%, and ten seconds are little against
the learning that ends with them."""


def acting_smoothing(n_states: int, n_rewards: int) -> float:
    """Alpha of the filter that acts by a fitted model, min(1e-3, 0.1 / (S Z)).

    What the model thinks impossible may happen, and then the filter must survive it. At most a
    tenth of the probability is given to surprises, however many observations S Z there are.
    """
    return min(1e-3, 0.1 / (n_states * n_rewards))


@dataclasses.dataclass(frozen=True)
class ActingPlanner(Planner):
    """The planner for a fitted model: Q-MDP, or PBVI where information must be bought.

    Its filter survives what the model thinks impossible (`acting_smoothing`).

    Parameters
    ----------
    points
        Whether to plan with PBVI; None decides for each model.
    """

    points: bool | None = None

    def plan(self, model: LatentMDP) -> Plan:
        """See `Planner`."""
        if not (_falls_short(model) if self.points is None else self.points):
            return _q_mdp_plan(model)
        plan = _POINTS.plan(model)
        assert isinstance(plan.policy, AlphaVectorPolicy)
        smoothing = acting_smoothing(model.n_states, model.n_rewards)
        return dataclasses.replace(plan, policy=plan.policy.filtering(plan.policy.model, smoothing))

    @classmethod
    def suited(cls, fitted: LatentMDP) -> ActingPlanner:
        """The planner with its decision made for one model, and kept for others like it."""
        return cls(_falls_short(fitted))


def certified_plan(model: LatentMDP) -> Plan:
    """HSVI's plan; Q-MDP's policy under its bound where HSVI ran out of time below it."""
    plan = HSVI(gap=_GAP, time_limit=_SECONDS).plan(model)
    if plan.converged:
        return plan
    quick, earned = _quick(model)
    if plan.lower is not None and plan.lower >= earned.mean - 2.0 * earned.stderr:
        return plan
    return dataclasses.replace(
        plan, policy=quick.policy, message=f"{plan.message}; Q-MDP's policy is worth more"
    )


def _q_mdp_plan(model: LatentMDP) -> Plan:
    return QMDP(acting_smoothing(model.n_states, model.n_rewards)).plan(model)


def _quick(model: LatentMDP) -> tuple[Plan, Value]:
    """Q-MDP's plan and what its policy earns."""
    plan = _q_mdp_plan(model)
    return plan, evaluate(model, plan.policy, _EPISODES, rng=0)


def _falls_short(fitted: LatentMDP) -> bool:
    """Whether Q-MDP's policy earns much less than its bound, and PBVI's is worth more."""
    informed, earned = _quick(fitted)
    assert informed.upper is not None
    if informed.upper - earned.mean <= _FALLS_SHORT * abs(informed.upper):
        return False
    found = _POINTS.plan(fitted).lower
    return found is not None and found > earned.mean + 2.0 * earned.stderr
