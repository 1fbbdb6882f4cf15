"""Planning oracles [kwon2021, Sec. 2.1]: `planner.plan(model)` gives a `Plan`."""

from latentmdp.planning.base import CrossedBoundsError, Plan, Planner
from latentmdp.planning.choice import ActingPlanner, acting_smoothing, certified_plan
from latentmdp.planning.evaluation import (
    TooManyHistoriesError,
    Value,
    action_table,
    backward_q,
    evaluate,
)
from latentmdp.planning.exact import Exact, TooManyBeliefsError
from latentmdp.planning.explanation import Explanation, MixtureExplanation, explain
from latentmdp.planning.hsvi import HSVI
from latentmdp.planning.memoryless import Memoryless
from latentmdp.planning.pbvi import PBVI
from latentmdp.planning.qmdp import QMDP, context_values, q_values
from latentmdp.planning.robust import Robust, RobustPlan

__all__ = [
    "HSVI",
    "PBVI",
    "QMDP",
    "ActingPlanner",
    "CrossedBoundsError",
    "Exact",
    "Explanation",
    "Memoryless",
    "MixtureExplanation",
    "Plan",
    "Planner",
    "Robust",
    "RobustPlan",
    "TooManyBeliefsError",
    "TooManyHistoriesError",
    "Value",
    "acting_smoothing",
    "action_table",
    "backward_q",
    "certified_plan",
    "context_values",
    "evaluate",
    "explain",
    "q_values",
]
