"""Learning a latent MDP, from logs by likelihood or clustering, or by acting in it."""

from latentmdp.learning.checkpoint import CheckpointError
from latentmdp.learning.confidence import Bonus
from latentmdp.learning.counts import Counts
from latentmdp.learning.lucrl import LUCRL
from latentmdp.learning.results import Curve, Regret, Run

__all__ = ["LUCRL", "Bonus", "CheckpointError", "Counts", "Curve", "Regret", "Run"]
