"""A latent MDP as a Gymnasium environment.

Each episode draws a context and hides it: observations are states, and only the last step's info
holds `info["context"]`. An episode terminates in a terminal state, lasts H steps otherwise and is
then truncated; a model without a horizon never truncates (Gymnasium's `TimeLimit` does). Where
actions are forbidden, `info["action_mask"]` says which the state has, as `action_space.sample`
takes it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from latentmdp._util import names
from latentmdp.model import LatentMDP
from latentmdp.worlds import ModelWorld


class LatentMDPEnv(gymnasium.Env[np.int64, np.int64]):
    """Play a latent MDP step by step.

    Parameters
    ----------
    model
        The latent MDP; or give `instance`.
    instance, seed_of_instance, arguments
        The name of a registered instance, the seed it is drawn with and its arguments.
    render_mode
        None or "ansi": a line of text that tells what happened in the last step.

    Examples
    --------
    >>> import gymnasium, latentmdp.envs
    >>> env = gymnasium.make("LatentMDP-v0", instance="river-swim")
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        model: LatentMDP | None = None,
        instance: str = "separated",
        seed_of_instance: int = 0,
        render_mode: str | None = None,
        **arguments: Any,
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode must be None or "ansi", got {render_mode!r}')
        if model is None:
            from latentmdp.instances import make

            model = make(instance, rng=seed_of_instance, **arguments)
        elif arguments:
            raise TypeError(f"{sorted(arguments)[0]!r} is for an instance, but a model is given")
        self.model = model
        self.render_mode = render_mode
        self.observation_space = spaces.Discrete(model.n_states)
        self.action_space = spaces.Discrete(model.n_actions)
        self.n_contexts = model.n_contexts
        self.reward_values = tuple(model.reward_values.tolist())
        self.horizon = model.horizon
        self.allowed = None if model.all_allowed else model.allowed
        self._world = ModelWorld(model)
        self._text = ""
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Start an episode; options={"context": m} chooses the context instead of drawing it."""
        super().reset(seed=seed)
        world, model, context = self._world, self.model, (options or {}).get("context")
        if context is not None and not 0 <= int(context) < model.n_contexts:
            raise ValueError(f"context must lie in [0, {model.n_contexts}), got {context}")
        world.given_context = None if context is None else int(context)
        self._state = world.begin(int(self.np_random.integers(1 << 63)), 0)
        self._context = world.context()
        self._t, self._over = 0, bool(model.terminal[self._state])
        self._text = f"start in {names.label('state', self._state, model.state_names)}"
        return np.int64(self._state), self._info()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Take an action; the context is in the info of the last step."""
        if not self.action_space.contains(action):
            raise ValueError(f"action must lie in [0, {self.model.n_actions}), got {action!r}")
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset()")
        model, s, a = self.model, self._state, int(action)
        self._state, z, terminated, *_ = self._world.step(a)
        self._t += 1
        reward = float(model.reward_values[z])
        truncated = self._t == model.horizon and not terminated
        self._over = terminated or truncated
        before, now = (names.label("state", n, model.state_names) for n in (s, self._state))
        did = names.label("action", a, model.action_names)
        self._text = f"step {self._t}: {before}, {did} -> {now}, reward {reward:g}"
        return np.int64(self._state), reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"context": self._context} if self._over else {}
        if self.allowed is not None:
            info["action_mask"] = self.allowed[self._state].astype(np.int8)
        return info

    def render(self) -> str | None:
        """What happened in the last step, as text."""
        return self._text if self.render_mode == "ansi" else None
