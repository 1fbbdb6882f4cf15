"""Learning a latent MDP, from logs by likelihood or clustering, or by acting in it."""
"""Learning a latent MDP and acting well in it at the same time [kwon2021, Sec. 3]."""

from latentmdp.learning.checkpoint import CheckpointError
from latentmdp.learning.confidence import Bonus
from latentmdp.learning.counts import Counts
from latentmdp.learning.lucrl import LUCRL
from latentmdp.learning.results import Curve, Regret, Run

__all__ = ["LUCRL", "Bonus", "CheckpointError", "Counts", "Curve", "Regret", "Run"]
