"""Planning oracles [kwon2021, Sec. 2.1]: `planner.plan(model)` gives a `Plan`."""

from latentmdp.planning.base import Plan, Planner
from latentmdp.planning.choice import acting_policy, certified_plan
from latentmdp.planning.evaluation import Value, evaluate
from latentmdp.planning.exact import Exact
from latentmdp.planning.hsvi import HSVI
from latentmdp.planning.memoryless.planner import Memoryless
from latentmdp.planning.pbvi import PBVI
from latentmdp.planning.qmdp import QMDP

__all__ = [
    "HSVI",
    "PBVI",
    "QMDP",
    "Exact",
    "Memoryless",
    "Plan",
    "Planner",
    "Value",
    "acting_policy",
    "certified_plan",
    "evaluate",
]
