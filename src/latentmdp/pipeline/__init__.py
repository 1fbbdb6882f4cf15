"""The whole path: an environment or logs in, a policy with what is known of it out."""

from latentmdp.pipeline import files  # noqa: F401 (it makes `save` and `load` know outcomes)
from latentmdp.pipeline.off_policy import Interval, LoggedEstimate
from latentmdp.pipeline.offline import Solved, SolveWarning, solve
from latentmdp.pipeline.online import Learned, Phase, learn

__all__ = [
    "Interval",
    "Learned",
    "LoggedEstimate",
    "Phase",
    "SolveWarning",
    "Solved",
    "learn",
    "solve",
]
