"""Deterministic latent MDPs: exploration by distinguishing observations [kwon2021, App. A.2]."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.deterministic.exploration import Exploration, episode_bound, explore
    from latentmdp.deterministic.graph import Edge, Graph, GraphPolicy, Node
    from latentmdp.deterministic.search import ExplorationError
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
