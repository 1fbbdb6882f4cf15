"""Tables and pages about models, policies and runs.

The names are imported when first used, so that a command that only prints loads no plotting.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.report.decisions import DecisionTable, decision_table, write_decision_page
    from latentmdp.report.policy_page import write_explorer
    from latentmdp.report.report import write_report

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.report.demo import (
        INSTANCES,
        QUICK,
        Demonstration,
        demonstrate,
        values_table,
        write_demo,
    )
    from latentmdp.report.groups import assignment, profiles, write_groups
    from latentmdp.report.plans import PlannerResult, try_planner
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
