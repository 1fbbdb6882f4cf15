"""The whole path: an environment or logs in, a policy with what is known of it out."""

from latentmdp.pipeline import files  # noqa: F401 (it makes `save` and `load` know outcomes)
from latentmdp.pipeline.learned import Learned, Phase
from latentmdp.pipeline.off_policy import Interval, LoggedEstimate
from latentmdp.pipeline.offline import solve
from latentmdp.pipeline.online import learn
from latentmdp.pipeline.solved import Solved, SolveWarning
from latentmdp.pipeline.spectral_start import learn_from_psr

__all__ = [
    "Interval",
    "Learned",
    "LoggedEstimate",
    "Phase",
    "SolveWarning",
    "Solved",
    "learn",
    "learn_from_psr",
    "solve",
]
