"""Estimation of latent MDPs from logs: maximum likelihood, the number of contexts, clustering."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.estimation.clustering import SubspaceClustering, TrajectoryKMeans
    from latentmdp.estimation.em import EM
    from latentmdp.estimation.initialization import initialize
    from latentmdp.estimation.n_contexts import MAX_CONTEXTS, choose_contexts, may_show_contexts
    from latentmdp.estimation.reward_model import preferred_reward_model, require_reward_model
    from latentmdp.estimation.termination import (
        cut_short,
        final_states,
        only_tried,
        restricted,
        tried_pairs,
    )
    from latentmdp.fit import ContextSelection

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.estimation.n_contexts import FEW_CONTEXTS, ContextSearch
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
