"""Named latent MDPs: `make("separated", delta=0.5, rng=0)`; `list_instances()` lists them all."""

from latentmdp.instances import (
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

__all__ = [
    "Instance",
    "cue",
    "deterministic",
    "frozen_lake",
    "get_instance",
    "hard",
    "identification",
    "list_instances",
    "make",
    "random",
    "register",
    "river_swim",
    "rock_sample",
    "separated",
    "sparse",
    "treatment",
    "visitor",
    "wait_hub",
]
