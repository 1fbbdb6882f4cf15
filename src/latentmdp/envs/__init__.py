"""Gymnasium environments: latent MDPs as environments, and environments as worlds for learners.

Importing this module registers `LatentMDP-v0`; `gymnasium.make("latentmdp.envs:LatentMDP-v0")` does
both at once.
"""

import gymnasium

from latentmdp.envs.adapter import AdaptedEnv, adapt
from latentmdp.envs.latent_env import LatentMDPEnv
from latentmdp.envs.mixture import MixtureEnv
from latentmdp.envs.tables import tabular_model

__all__ = ["AdaptedEnv", "LatentMDPEnv", "MixtureEnv", "adapt", "tabular_model"]

if "LatentMDP-v0" not in gymnasium.registry:
    gymnasium.register(id="LatentMDP-v0", entry_point="latentmdp.envs.latent_env:LatentMDPEnv")
