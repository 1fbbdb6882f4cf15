"""From a Gymnasium environment to a world that learners act in.

Observations and actions must be Discrete and rewards come from a finite set. What an environment
says becomes steps of a latent MDP with horizon H:

- `terminated`: the state reached is absorbing. The episode goes on there, with reward 0 and without
  the environment, until H: so its rows are learned as those of any state.
- `truncated`: the episode was cut short. What was seen counts, nothing is assumed of the rest.
- `info["context"]`, where it is there at the last step, is the context in hindsight.

Every episode resets the environment with a seed that depends on the run's seed and on the number of
the episode alone, so that a run can be resumed after any episode.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp.envs.tables import table_rewards
from latentmdp.model import LatentMDP
from latentmdp.space import Space

__all__ = ["AdaptedEnv", "adapt"]


class AdaptedEnv:
    """An environment as a learner sees it; made by `adapt`.

    `tells_contexts` says whether the number of contexts in `space` is known, or 1 for want of it.
    """

    def __init__(
        self, env: Any, space: Space, model: LatentMDP | None, tells_contexts: bool = True
    ) -> None:
        self.env, self.space, self.model = env, space, model
        self.tells_contexts = tells_contexts
        self._index = {value: z for z, value in enumerate(space.reward_values)}
        self._first_state = int(env.observation_space.start)
        self._first_action = int(env.action_space.start)

    def begin(self, key: int, episode: int) -> int:
        """Reset the environment for an episode; its first state."""
        sequence = np.random.SeedSequence((key, episode))
        seed = int(sequence.generate_state(1)[0]) >> 1
        observation, info = self.env.reset(seed=seed)
        self._over, self._context = False, info.get("context")
        self._state = int(observation) - self._first_state
        return self._state

    def step(self, action: int) -> tuple[int, int, bool]:
        """Next state, reward index, and whether the environment cut the episode short."""
        if self._over:
            return self._state, self._index[0.0], False
        observation, reward, terminated, truncated, info = self.env.step(
            np.int64(action + self._first_action)
        )
        self._state = int(observation) - self._first_state
        self._over = bool(terminated)
        self._context = info.get("context", self._context)
        value = float(reward)
        if value not in self._index:
            raise ValueError(
                f"the environment gave reward {value}, not one of reward_values "
                f"{self.space.reward_values}: name every reward in adapt(env, reward_values=...)"
            )
        return self._state, self._index[value], bool(truncated) and not terminated

    def context(self) -> int:
        """The context in hindsight; -1 if the environment does not tell."""
        return -1 if self._context is None else int(self._context)

    def fingerprint(self) -> str:
        """Which environment this is, as far as it can be told from outside."""
        env = self.env
        return f"{type(env.unwrapped).__name__} {env.spec} {self.space}"


def adapt(
    env: Any,
    *,
    n_contexts: int | None = None,
    horizon: int | None = None,
    reward_values: ArrayLike | None = None,
    discount: float = 1.0,
) -> AdaptedEnv:
    """Make a Gymnasium environment a world for learners.

    Parameters
    ----------
    env
        With Discrete observations and actions.
    n_contexts
        M; by default the environment's own attribute `n_contexts`, as `MixtureEnv` has it. A
        learner that is told how many to assume, or finds out, does not need it.
    horizon
        H; by default the environment's attribute `horizon`, or its time limit.
    reward_values
        Every reward that may occur; 0 is added for absorbing states. By default those of the
        environment's attribute `reward_values` or of its table `P`.
    discount
        In (0, 1].
    """
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Discrete):
            raise TypeError(f"env must have a Discrete {name}, got {getattr(env, name, None)}")
    base = env.unwrapped
    M = n_contexts if n_contexts is not None else getattr(base, "n_contexts", None)
    H = horizon if horizon is not None else getattr(base, "horizon", None) or _time_limit(env)
    if H is None:
        raise ValueError("horizon: the environment does not tell it, give adapt(env, horizon=)")
    if not 0.0 < discount <= 1.0:
        raise ValueError(f"discount must lie in (0, 1], got {discount}")
    space = Space(
        1 if M is None else arrays.positive_integer("n_contexts", M),
        int(env.observation_space.n),
        int(env.action_space.n),
        _rewards(base, reward_values),
        arrays.positive_integer("horizon", H),
        float(discount),
    )
    return AdaptedEnv(env, space, _true_model(base, space), tells_contexts=M is not None)


def _time_limit(env: Any) -> int | None:
    """The limit that the environment was registered with, or that a wrapper sets."""
    limit: int | None = getattr(env.spec, "max_episode_steps", None)
    while limit is None and isinstance(env, gymnasium.Wrapper):
        limit = env._max_episode_steps if isinstance(env, TimeLimit) else None
        env = env.env
    return limit


def _rewards(base: Any, given: ArrayLike | None) -> tuple[float, ...]:
    if given is None:
        given = getattr(base, "reward_values", None)
    if given is None:
        given = table_rewards(getattr(base, "envs", [base]))
    if given is None:
        raise ValueError(
            "reward_values: the environment does not tell which rewards occur, give "
            "adapt(env, reward_values=(...))"
        )
    values = arrays.as_floats("reward_values", given).ravel().tolist()
    return tuple(values) if 0.0 in values else tuple(sorted([*values, 0.0]))


def _true_model(base: Any, space: Space) -> LatentMDP | None:
    """The true model, where the environment is a latent MDP: for the error curve."""
    model = getattr(base, "model", None)
    if isinstance(model, LatentMDP) and tuple(model.reward_values.tolist()) == space.reward_values:
        return model
    return None
