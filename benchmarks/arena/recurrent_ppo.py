"""Recurrent PPO (sb3-contrib) on a world: a deep baseline that must remember what it saw.

Its LSTM sees the state and, as is usual where the task is hidden, the last action and reward: one
one-hot vector each for state and action, and the reward divided by the largest. The settings are
the package's own. It plays as many episodes as asked for and keeps their returns.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from latentmdp._util.arrays import Floats
from latentmdp._util.random import philox_key
from latentmdp.worlds import World

from .tasks import Task


class WorldEnv(gymnasium.Env[Any, Any]):
    """A world as an environment for deep learners, which keeps the return of every episode.

    An action that a state does not have stands for the first one that it has.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.key = world, philox_key(seed)
        space = world.space
        self._S, self._A, self._H = space.n_states, space.n_actions, space.required_horizon()
        self._allowed, self._values = space.allowed_actions(), space.reward_array
        self._scale = max(1e-12, float(np.abs(self._values).max()))
        self.observation_space = spaces.Box(-1.0, 1.0, (self._S + self._A + 1,), np.float32)
        self.action_space = spaces.Discrete(self._A)
        self.returns: list[float] = []
        self._total = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode of the world."""
        super().reset(seed=seed)
        self._state = self.world.begin(self.key, len(self.returns))
        self._t, self._total = 0, 0.0
        return self._seen(None, 0.0), {}

    def _seen(self, action: int | None, reward: float) -> Any:
        seen = np.zeros(self._S + self._A + 1, np.float32)
        seen[self._state] = 1.0
        if action is not None:
            seen[self._S + action] = 1.0
        seen[-1] = reward / self._scale
        return seen

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act; an episode that is over is recorded."""
        a = int(action)
        if not self._allowed[self._state, a]:
            a = int(np.argmax(self._allowed[self._state]))
        moved = self.world.step(a)
        self._state = moved.next_state
        reward = float(self._values[moved.reward])
        self._total += self.world.space.discount**self._t * reward
        self._t += 1
        ended = moved.terminated or bool(self.world.space.terminal[self._state])
        cut = not ended and (moved.truncated or self._t == self._H)
        if ended or cut:
            self.returns.append(self._total)
        return self._seen(a, reward), reward, ended, cut, {}


def recurrent_ppo_returns(task: Task, world: World, episodes: int, seed: int) -> Floats:
    """The return of each of the first episodes that recurrent PPO plays while it learns."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback

    env = WorldEnv(world, seed)

    class Enough(BaseCallback):
        """Stops when the episodes are played."""

        def _on_step(self) -> bool:
            return len(env.returns) < episodes

    learner = RecurrentPPO("MlpLstmPolicy", env, seed=seed, device="cpu")
    steps = episodes * world.space.required_horizon() + 1
    learner.learn(total_timesteps=steps, callback=Enough())
    return np.array(env.returns[:episodes])
