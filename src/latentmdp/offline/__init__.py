"""Offline learning: from logged episodes to a policy, with an interval for what it will earn."""

from latentmdp.metrics import Interval
from latentmdp.offline.off_policy import (
    LoggedEstimate,
    OffPolicyValue,
    OffPolicyWarning,
    off_policy_value,
)
from latentmdp.offline.solving import Solved, SolveWarning, solve

__all__ = [
    "Interval",
    "LoggedEstimate",
    "OffPolicyValue",
    "OffPolicyWarning",
    "SolveWarning",
    "Solved",
    "off_policy_value",
    "solve",
]
