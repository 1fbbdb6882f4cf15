"""Environments of dm_env (bsuite, the Control Suite, ...) as worlds.

A dm_env environment answers with time steps: `step_type` says whether it is the first, a middle or
the last one of an episode, and a last one with a `discount` above 0 was cut short. Nothing is
imported of it: whatever has `reset`, `step`, `observation_spec` and `action_spec` will do.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from latentmdp.worlds import GymnasiumWorld, adapt


def from_dm_env(env: Any, **settings: Any) -> GymnasiumWorld:
    """Make a dm_env environment a world for learners.

    Parameters
    ----------
    env
        An environment whose specs are integers within bounds (`DiscreteArray`, or `BoundedArray` of
        integers); or a function of a seed that makes one. dm_env's `reset` takes no seed, so only a
        function makes runs repeatable: it is called for every episode.
    settings
        As for `adapt`: `horizon` and `reward_values` at least, which a dm_env does not tell.
    """
    return adapt(_DmEnv(env), **settings)


class _DmEnv(gymnasium.Env[Any, Any]):
    """The same environment with the methods of Gymnasium."""

    def __init__(self, env: Any) -> None:
        makes = isinstance(env, type) or not hasattr(env, "reset")
        self._make: Callable[[int], Any] | None = env if makes else None
        self._env = env(0) if makes else env
        self.spec: Any = SimpleNamespace(id=type(self._env).__qualname__)
        self.observation_space = _space("observation_spec", self._env.observation_spec())
        self.action_space = _space("action_spec", self._env.action_spec())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, in a new environment where a function makes them."""
        if self._make is not None and seed is not None:
            self._env = self._make(seed)
        return self._env.reset().observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act; a last time step that is discounted to 0 is an end, another was cut short."""
        answer = self._env.step(action)
        last = int(answer.step_type) == 2
        cut_short = last and answer.discount is not None and float(answer.discount) > 0.0
        reward = 0.0 if answer.reward is None else float(np.asarray(answer.reward).sum())
        return answer.observation, reward, last and not cut_short, cut_short, {}


def _space(name: str, spec: Any) -> spaces.Space[Any]:
    """The finite space of a spec."""
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if low is None or high is None or np.dtype(spec.dtype).kind not in "iub":
        raise TypeError(
            f"env must have a {name} of integers within bounds, got {spec!r}: cut it into finitely "
            "many values with a wrapper"
        )
    low, high = (np.broadcast_to(bound, spec.shape).astype(np.int64) for bound in (low, high))
    if not spec.shape:
        return spaces.Discrete(int(high - low) + 1, start=int(low))
    return spaces.MultiDiscrete(high - low + 1, start=low)
