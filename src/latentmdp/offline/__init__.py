"""From logs to a policy, with what it will earn."""

from latentmdp.offline.off_policy import Interval, LoggedEstimate
from latentmdp.offline.solved import Solved, SolveWarning
from latentmdp.offline.solving import solve

__all__ = ["Interval", "LoggedEstimate", "SolveWarning", "Solved", "solve"]
