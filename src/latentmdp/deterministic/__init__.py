"""Deterministic latent MDPs: exploration by distinguishing observations [kwon2021, App. A.2]."""

from latentmdp.deterministic.errors import ExplorationError
from latentmdp.deterministic.explore import Exploration, episode_bound, explore
from latentmdp.deterministic.graph import Edge, Graph, GraphPolicy, Node

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
