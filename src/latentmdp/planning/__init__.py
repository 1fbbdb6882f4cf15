"""Planning oracles [kwon2021, Sec. 2.1]: `planner.plan(model)` gives a `Plan`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.planning.base import CrossedBoundsError, Plan, Planner
    from latentmdp.planning.evaluation import (
        TooManyHistoriesError,
        Value,
        action_table,
        backward_q,
        evaluate,
    )
    from latentmdp.planning.exact import Exact, TooManyBeliefsError
    from latentmdp.planning.explanation import Explanation, explain
    from latentmdp.planning.hsvi import HSVI
    from latentmdp.planning.memoryless import Memoryless
    from latentmdp.planning.pbvi import PBVI
    from latentmdp.planning.qmdp import QMDP, context_values, q_values
    from latentmdp.planning.robust import Robust, RobustPlan

if TYPE_CHECKING:
    from latentmdp.planning.acting import (
        ActingPlanner,
        CertifiedPlanner,
        acting_smoothing,
        planner_for,
    )
    from latentmdp.planning.almost_sure import AlmostSurely, SupportPolicy, almost_surely
    from latentmdp.planning.chains import solve_dense
    from latentmdp.planning.evaluation import histories_met
    from latentmdp.planning.explanation import ActionRule, action_rule, belief_at, checked_time
    from latentmdp.planning.limits import check_limit, held_interrupts
    from latentmdp.planning.qmdp import best_actions, policy_values
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
