"""Planners side by side: what each finds on a model, and what its policy is worth."""

from __future__ import annotations

from dataclasses import dataclass

from latentmdp._util.random import RNGLike
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.planning import Plan, Planner, Value, evaluate

__all__ = ["PlannerResult", "try_planner"]


@dataclass(frozen=True)
class PlannerResult:
    """What one planner did.

    Attributes
    ----------
    plan, value
        None where the planner refused the model, or its policy cannot be evaluated.
    problem
        Why not.
    """

    name: str
    plan: Plan | None
    value: Value | None
    problem: str = ""


def try_planner(
    name: str, planner: Planner, model: LatentMDP, episodes: int, rng: RNGLike
) -> PlannerResult:
    """Plan, then evaluate the policy: exactly where that is cheap, else over many episodes."""
    plan = None
    try:
        plan = planner.plan(model)
        return PlannerResult(name, plan, evaluate(model, plan.policy, episodes=episodes, rng=rng))
    except (LatentMDPError, ValueError) as error:
        return PlannerResult(name, plan, None, str(error))
