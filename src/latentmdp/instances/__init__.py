"""Named latent MDPs: `make("separated", delta=0.5, rng=0)`; `list_instances()` lists them all."""

from latentmdp.instances import (  # noqa: F401: a module registers its instances
    cue,
    deterministic,
    frozen_lake,
    hard,
    identification,
    random,
    river_swim,
    rock_sample,
    separated,
    sparse,
    treatment,
    visitor,
    wait_hub,
)
from latentmdp.instances.registry import Instance, get_instance, list_instances, make, register

__all__ = ["Instance", "get_instance", "list_instances", "make", "register"]
