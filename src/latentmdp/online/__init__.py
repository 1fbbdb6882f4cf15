"""Learning by acting: L-UCRL, `learn` and baselines over one loop of episodes."""

from latentmdp._util.checkpoint import CheckpointError
from latentmdp.online.bonus import Bonus
from latentmdp.online.counts import Counts
from latentmdp.online.learned import Learned, Phase
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.psr_start import learn_from_psr
from latentmdp.online.refit import learn
from latentmdp.online.run import Curve, Regret, Run

__all__ = [
    "LUCRL",
    "Bonus",
    "CheckpointError",
    "Counts",
    "Curve",
    "Learned",
    "Phase",
    "Regret",
    "Run",
    "learn",
    "learn_from_psr",
]
