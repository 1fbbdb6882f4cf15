"""Deterministic latent MDPs: exploration by distinguishing observations [kwon2021, App. A.2]."""

from latentmdp.deterministic.exploration import Exploration, episode_bound, explore
from latentmdp.deterministic.graph import Edge, Graph, GraphPolicy, Node
from latentmdp.deterministic.search import ExplorationError

__all__ = [
    "Edge",
    "Exploration",
    "ExplorationError",
    "Graph",
    "GraphPolicy",
    "Node",
    "episode_bound",
    "explore",
]
