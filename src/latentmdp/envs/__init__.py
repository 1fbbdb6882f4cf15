"""Gymnasium environments: latent MDPs as environments, mixtures of environments, their tables.

`import latentmdp` registers `LatentMDP-v0`. The way from an environment to a world that learners
act in is `adapt`, of `latentmdp.worlds`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.envs.dm_env import from_dm_env
    from latentmdp.envs.latent_env import LatentMDPEnv
    from latentmdp.envs.mixture_env import MixtureEnv
    from latentmdp.envs.tabular import tabular_model
    from latentmdp.worlds import adapt
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
