"""Where episodes come from: a latent MDP that is simulated, or a Gymnasium environment.

Both look the same to the explorer: `reset()` gives a state, `step(action)` a next state and the
index of a reward. A terminated environment is in state `n_states`, absorbing and worth nothing.
"""

from typing import Any, Protocol

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.model import LatentMDP

__all__ = ["World", "as_world"]


class World(Protocol):
    """A source of episodes."""

    n_states: int
    n_actions: int
    horizon: int
    discount: float
    reward_values: list[float]
    random_start: bool

    def reset(self) -> int:
        """Begin an episode; its first state."""
        ...

    def step(self, action: int) -> tuple[int, int]:
        """Act; the next state and the index of the reward."""
        ...


def as_world(source: Any, horizon: int | None, rng: RNGLike) -> World:
    """The episodes of a `LatentMDP` or of a Gymnasium environment with Discrete spaces."""
    if horizon is not None:
        horizon = arrays.positive_integer("horizon", horizon)
    if isinstance(source, LatentMDP):
        return _Simulation(source, horizon, as_generator(rng))
    if hasattr(source, "reset") and hasattr(source, "step"):
        return _Environment(source, horizon, as_generator(rng))
    raise TypeError(
        "explore needs a LatentMDP or a Gymnasium environment, got " + type(source).__name__
    )


class _Simulation:
    """Episodes of a model, whose tables are used to draw and for nothing else."""

    def __init__(self, model: LatentMDP, horizon: int | None, rng: np.random.Generator) -> None:
        self.n_states, self.n_actions = model.n_states, model.n_actions
        self.horizon = model.horizon if horizon is None else horizon
        self.discount = model.discount
        self.reward_values = model.reward_values.tolist()
        self.random_start = bool(((model.initial > 0.0).sum(axis=1) > 1).any())
        self._rng = rng
        self._weights = _cumulative(model.weights)
        self._initial = [_cumulative(row) for row in model.initial]
        self._outcomes = model.observation_probs()
        self._tables: dict[tuple[int, int, int], Any] = {}
        self._context = self._state = 0

    def reset(self) -> int:
        self._context = self._draw(self._weights)
        self._state = self._draw(self._initial[self._context])
        return self._state

    def step(self, action: int) -> tuple[int, int]:
        key = (self._context, self._state, action)
        if key not in self._tables:
            self._tables[key] = _cumulative(self._outcomes[key].ravel())
        drawn = self._draw(self._tables[key])
        self._state, reward = divmod(drawn, len(self.reward_values))
        return self._state, reward

    def _draw(self, table: tuple[list[int], Any]) -> int:
        support, bounds = table
        if len(support) == 1:
            return support[0]
        return support[int(np.searchsorted(bounds, self._rng.random(), side="right"))]


class _Environment:
    """Episodes of a Gymnasium environment with Discrete observations and actions."""

    def __init__(self, env: Any, horizon: int | None, rng: np.random.Generator) -> None:
        self.n_states, self._first_state = _discrete(env, "observation_space")
        self.n_actions, self._first_action = _discrete(env, "action_space")
        limit: Any = getattr(getattr(env, "spec", None), "max_episode_steps", None)
        if horizon is None and limit is None:
            raise ValueError("horizon is needed: the environment does not say how long it runs")
        self.horizon = int(limit) if horizon is None else horizon
        self.discount = 1.0
        self.random_start = False
        self.reward_values: list[float] = [0.0]
        self._indices = {0.0: 0}
        self._env = env
        self._seed: int | None = int(rng.integers(2**31))
        self._ended, self._time = False, 0

    def reset(self) -> int:
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None  # seeded once, so that episodes differ
        self._ended, self._time = False, 0
        return int(observation) - self._first_state

    def step(self, action: int) -> tuple[int, int]:
        self._time += 1
        if self._ended:
            return self.n_states, 0
        observation, reward, ended, cut, _ = self._env.step(action + self._first_action)
        self._ended = bool(ended)
        if cut and not ended and self._time < self.horizon:
            raise ValueError(
                f"the environment cut the episode after {self._time} steps, before the horizon "
                f"{self.horizon}: give a shorter horizon"
            )
        index = self._indices.setdefault(float(reward), len(self.reward_values))
        if index == len(self.reward_values):
            self.reward_values.append(float(reward))
        return self.n_states if self._ended else int(observation) - self._first_state, index


def _cumulative(row: Any) -> tuple[list[int], Any]:
    support = np.flatnonzero(row)
    if support.size == 0:
        raise ValueError("cannot simulate: the model has rows that were never visited")
    bounds = np.cumsum(row[support])
    bounds[-1] = np.inf  # rounding must not leave the support
    return support.tolist(), bounds


def _discrete(env: Any, name: str) -> tuple[int, int]:
    space: Any = getattr(env, name, None)
    if not hasattr(space, "n") or not hasattr(space, "start"):
        raise TypeError(f"the environment's {name} must be Discrete, got {space}")
    return int(space.n), int(space.start)
