"""Learning by acting: L-UCRL, `learn` and baselines over one loop of episodes."""

from latentmdp._util.checkpoint import CheckpointError
from latentmdp.online import baselines
from latentmdp.online.base import Learner
from latentmdp.online.bonus import Bonus, VarianceBonus
from latentmdp.online.doubts import LearnWarning
from latentmdp.online.empirical_model import Counts, OutcomeCounts
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.many_runs import ManyRuns
from latentmdp.online.posterior_sampling import PosteriorSampling
from latentmdp.online.psr_start import PSRStart
from latentmdp.online.q_learning import QLearning
from latentmdp.online.refit import Refit, learn
from latentmdp.online.run import Curve, Phase, Regret, Run

__all__ = [
    "LUCRL",
    "Bonus",
    "CheckpointError",
    "Counts",
    "Curve",
    "LearnWarning",
    "Learner",
    "ManyRuns",
    "OutcomeCounts",
    "PSRStart",
    "Phase",
    "PosteriorSampling",
    "QLearning",
    "Refit",
    "Regret",
    "Run",
    "VarianceBonus",
    "baselines",
    "learn",
]
