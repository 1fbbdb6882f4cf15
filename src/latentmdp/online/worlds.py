"""Where a learner acts: a latent MDP, or a Gymnasium environment behind an adapter.

A world plays one episode at a time, by number: what happens in episode k depends on the seed, on k
and on the actions alone. So a run can be interrupted after any episode and go on later.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from latentmdp.model import LatentMDP
from latentmdp.simulation import world_tables
from latentmdp.space import Space

__all__ = ["ModelWorld", "World", "as_world"]


class World(Protocol):
    """What a learner needs of a world."""

    space: Space
    model: LatentMDP | None

    def begin(self, key: int, episode: int) -> int:
        """Start an episode; its first state."""
        ...

    def step(self, action: int) -> tuple[int, int, bool]:
        """Next state, reward index, and whether the episode was cut short here."""
        ...

    def context(self) -> int:
        """The context of the episode that has ended; -1 where it is not revealed."""
        ...

    def fingerprint(self) -> str:
        """A text that tells this world from others."""
        ...


class ModelWorld:
    """A latent MDP, step by step, with the chance that `simulate` would use."""

    def __init__(self, model: LatentMDP) -> None:
        self.model: LatentMDP | None = model
        self.space = Space.of(model)
        self._fingerprint = model.fingerprint()
        self.tables = world_tables(model)

    def begin(self, key: int, episode: int) -> int:
        """See `World`."""
        from latentmdp._kernels.rollout import begin_episode

        self._key, self._episode, self._t = np.uint64(key), np.uint64(episode), 0
        self._context, self._state = begin_episode(self.tables, self._key, self._episode)
        return int(self._state)

    def step(self, action: int) -> tuple[int, int, bool]:
        """See `World`."""
        from latentmdp._kernels.rollout import world_step

        self._state, z = world_step(
            self.tables, self._key, self._episode, self._t, self._context, self._state, action
        )
        self._t += 1
        return int(self._state), int(z), False

    def context(self) -> int:
        """See `World`."""
        return int(self._context)

    def fingerprint(self) -> str:
        """See `World`."""
        return self._fingerprint


def as_world(world: Any) -> World:
    """A `World` from a latent MDP, an adapted environment or a Gymnasium environment."""
    if isinstance(world, LatentMDP):
        return ModelWorld(world)
    if all(hasattr(world, name) for name in ("begin", "step", "context", "space", "fingerprint")):
        return world
    if hasattr(world, "reset") and hasattr(world, "observation_space"):
        from latentmdp.envs import adapt

        return adapt(world)
    raise TypeError(
        f"the world must be a LatentMDP or a Gymnasium environment, got {type(world).__name__}"
    )
