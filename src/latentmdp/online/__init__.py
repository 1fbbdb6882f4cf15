"""Learning by acting: L-UCRL, `learn` and baselines over one loop of episodes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp._util.checkpoint import CheckpointError
    from latentmdp.online import baselines
    from latentmdp.online.base import Learner
    from latentmdp.online.bonus import Bonus, VarianceBonus
    from latentmdp.online.empirical_model import Counts
    from latentmdp.online.lucrl import LUCRL
    from latentmdp.online.posterior_sampling import PosteriorSampling
    from latentmdp.online.psr_start import PSRStart
    from latentmdp.online.q_learning import QLearning
    from latentmdp.online.refit import Refit, learn
    from latentmdp.online.run import Curve, Phase, Regret, Run
    from latentmdp.online.warnings import LearnWarning

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.online.baselines import thompson_sampling
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
