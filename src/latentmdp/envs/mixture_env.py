"""Several Gymnasium environments as the contexts of one: which one is in force stays hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from numpy.typing import ArrayLike

from latentmdp._util import arrays, validation
from latentmdp._util.spaces import FiniteSpace


class MixtureEnv(gymnasium.Env[Any, Any]):
    """Each episode is played in one of several environments, drawn and not told.

    Parameters
    ----------
    envs
        Environments with the same finite spaces; environment m is context m.
    weights
        How likely each is; uniform by default.
    horizon
        Truncate episodes after this many steps; by default only where the environments do.
    tell_context
        Whether `info["context"]` is there from `reset` on, for learners that are told it; by
        default only when an episode ends.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        weights: ArrayLike | None = None,
        horizon: int | None = None,
        tell_context: bool = False,
    ) -> None:
        if not envs:
            raise ValueError("envs must name at least one environment")
        for name in ("observation_space", "action_space"):
            first = getattr(envs[0], name)
            FiniteSpace(name, first)
            for m, env in enumerate(envs):
                if getattr(env, name) != first:
                    raise ValueError(
                        f"environment {m} has {name} {getattr(env, name)}; all must have the "
                        f"same Discrete space or other finite space, environment 0 has {first}"
                    )
        self.envs = list(envs)
        self.n_contexts = len(self.envs)
        self.weights = validation.weights(weights, self.n_contexts)
        self.horizon = arrays.optional_integer("horizon", horizon)
        self.tell_context = tell_context
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draw an environment and start an episode in it."""
        super().reset(seed=seed)
        self._context = int(self.np_random.choice(self.n_contexts, p=self.weights))
        self._t = 0
        inner = None if seed is None else int(self.np_random.integers(2**31))
        observation, info = self.envs[self._context].reset(seed=inner, options=options)
        return observation, self._told(info, self.tell_context)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step in the environment in force."""
        observation, reward, terminated, truncated, info = self.envs[self._context].step(action)
        self._t += 1
        truncated = truncated or (self._t == self.horizon and not terminated)
        info = self._told(info, self.tell_context or terminated or truncated)
        return observation, float(reward), terminated, truncated, info

    def _told(self, info: dict[str, Any], context: bool) -> dict[str, Any]:
        """The environment's info, with the context if it is to be told and without it if not."""
        others = {name: value for name, value in info.items() if name != "context"}
        return {**others, "context": self._context} if context else others

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()
