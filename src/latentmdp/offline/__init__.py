"""Offline learning: from logged episodes to a policy, with an interval for what it will earn."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.metrics import Interval
    from latentmdp.offline.checks import Check, FitChecks, check_fit
    from latentmdp.offline.off_policy import (
        LoggedEstimate,
        OffPolicyValue,
        OffPolicyWarning,
        off_policy_value,
    )
    from latentmdp.offline.optimism_bias import StandardErrors
    from latentmdp.offline.references import ConstantActions, Reference
    from latentmdp.offline.sensitivity import Sensitivity
    from latentmdp.offline.solving import Solved, SolveWarning, solve
    from latentmdp.offline.warnings import Support

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.offline.checks import outcome_warnings
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
