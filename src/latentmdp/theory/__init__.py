"""The quantities the theory of latent MDPs speaks of, computed for a given model."""

from latentmdp.theory.separation import Closest, closest_contexts, separation

__all__ = ["Closest", "closest_contexts", "separation"]
