"""Worlds: what a learner may see and do, one episode at a time.

A world begins an episode by number and answers actions, one after the other. What happens in
episode k depends on the key, on k and on the actions alone, so a run can be interrupted after any
episode and go on later. There are three:

- `ModelWorld`, a latent MDP, with the chance that `simulate` would use;
- `GymnasiumWorld`, an environment with finitely many observations and actions (`adapt`);
- `CallableWorld`, any simulator given as a function (`from_callable`).

Endings mean the same in all of them. Where an episode is *terminated*, the state reached is final:
the episode ends if the space says that the state is terminal, and otherwise stays there, with
reward 0, until the horizon. Where it is *truncated*, it was cut
short: what was seen counts, and nothing is assumed of the rest.

`play_episode` is the loop over the steps of an episode, for any world and anybody who acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, names, validation
from latentmdp._util.arrays import Flags, Floats
from latentmdp._util.memory import require_memory
from latentmdp._util.spaces import FiniteSpace
from latentmdp.errors import ModelError
from latentmdp.model import LatentMDP
from latentmdp.outcomes import row_sums
from latentmdp.trajectories import Episode

if TYPE_CHECKING:
    from latentmdp._kernels.rollout import Chances

__all__ = [
    "Agent",
    "CallableWorld",
    "GymnasiumWorld",
    "ModelWorld",
    "Space",
    "Transition",
    "World",
    "adapt",
    "as_world",
    "chances_of",
    "from_callable",
    "play_episode",
    "table_of",
    "table_rewards",
]


_WORTH_NOTHING = 1e-4
"""Where discount^t falls below this, an episode without end is cut off."""


@dataclass(frozen=True, eq=False)
class Space:
    """What is told of a world before anybody acts.

    Attributes
    ----------
    n_contexts, n_states, n_actions, reward_values
        M, S, A, and what the rewards are worth.
    horizon
        H; None where an episode has no end.
    discount
        In (0, 1], below 1 where there is no end.
    allowed
        (S, A) flags of the actions that each state has; None where all have all. A state with
        none is terminal.
    """

    n_contexts: int
    n_states: int
    n_actions: int
    reward_values: tuple[float, ...]
    horizon: int | None
    discount: float = 1.0
    allowed: Flags | None = None

    @classmethod
    def of(cls, model: LatentMDP) -> Space:
        """The space of a model."""
        return cls(
            model.n_contexts,
            model.n_states,
            model.n_actions,
            tuple(model.reward_values.tolist()),
            model.horizon,
            model.discount,
            None if model.all_allowed else model.allowed,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and all(
            arrays.same_content(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.dimensions, self.reward_values, self.horizon, self.discount))

    @cached_property
    def terminal(self) -> Flags:
        """Whether an episode ends in each state, (S,): no action is allowed there."""
        if self.allowed is None:
            return np.zeros(self.n_states, np.bool_)
        return np.asarray(~self.allowed.any(axis=1))

    @property
    def n_rewards(self) -> int:
        """Z."""
        return len(self.reward_values)

    @property
    def dimensions(self) -> tuple[int, int, int, int]:
        """M, S, A and Z."""
        return self.n_contexts, self.n_states, self.n_actions, self.n_rewards

    @property
    def reward_array(self) -> Floats:
        """The reward values as an array."""
        return np.asarray(self.reward_values)

    @property
    def reward_span(self) -> float:
        """max(r, 0) - min(r, 0) over the reward values: 1 for rewards in {0, 1}."""
        return max(*self.reward_values, 0.0) - min(*self.reward_values, 0.0)

    @property
    def largest_return(self) -> float:
        """`steps` times the span: H for rewards in {0, 1}."""
        return self.discounted_steps * self.reward_span

    def required_horizon(self) -> int:
        """H; `ModelError` where episodes have no end, since learners count episodes."""
        if self.horizon is None:
            raise ModelError(
                "learning needs episodes that end, and this world has no horizon: "
                "model.replace(horizon=...) cuts its episodes off"
            )
        return self.horizon

    def allowed_actions(self) -> Flags:
        """Which actions each state has, (S, A)."""
        if self.allowed is None:
            return np.ones((self.n_states, self.n_actions), np.bool_)
        return self.allowed

    @property
    def discounted_steps(self) -> float:
        """1 + discount + ... + discount^{H-1}; 1 / (1 - discount) where there is no end."""
        if self.horizon is None:
            return 1.0 / (1.0 - self.discount)
        return float((self.discount ** np.arange(self.horizon)).sum())

    @property
    def longest_episode(self) -> int:
        """H; where there is no end, the steps after which episodes are cut off.

        Those are the first T with discount^T below 1e-4: what comes later is worth less than
        1e-4 of the largest return.
        """
        if self.horizon is None:
            return int(np.floor(np.log(_WORTH_NOTHING) / np.log(self.discount))) + 1
        return self.horizon

    def uniform_model(self) -> LatentMDP:
        """A model of these sizes that knows nothing: every outcome equally likely."""
        M, S, A, Z = self.dimensions
        return self.model_of(np.full((M, S, A, S), 1.0 / S), np.full((M, S, A, Z), 1.0 / Z))

    def model_of(self, transitions: Floats, rewards: Floats, **others: Any) -> LatentMDP:
        """A model with this horizon, discount and reward values; `others` as for `LatentMDP`."""
        own = {
            "horizon": self.horizon,
            "discount": self.discount,
            "reward_values": self.reward_array,
            "allowed": self.allowed,
        }
        return LatentMDP(transitions, rewards, **{**own, **others})

    def require_fit(self, name: str, other: LatentMDP) -> None:
        """Raise unless a model has the same contexts, states, actions and rewards."""
        given = Space.of(other)
        for field in ("n_contexts", "n_states", "n_actions", "n_rewards", "reward_values"):
            mine, theirs = getattr(self, field), getattr(given, field)
            if mine != theirs:
                raise ValueError(f"{name} has {field}={theirs}, the world {mine}")


class Transition(NamedTuple):
    """What follows an action: s', the index of r, and whether the episode ends here."""

    next_state: int
    reward: int
    terminated: bool = False
    truncated: bool = False


class World(ABC):
    """A source of episodes.

    Attributes
    ----------
    space
        What a learner is told.
    model
        The true model where it is known: for the record of a run, never for a learner.
    knows_contexts
        Whether the number of contexts in `space` is known, or 1 for want of it.
    state_names, action_names
        Names of what was numbered to make the space; None where the numbers are the world's own.
    """

    space: Space
    model: LatentMDP | None = None
    knows_contexts: bool = True
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None

    @abstractmethod
    def begin(self, key: int, episode: int) -> int:
        """Start an episode; its first state."""

    @abstractmethod
    def step(self, action: int) -> Transition:
        """Act."""

    @abstractmethod
    def context(self) -> int | None:
        """The context of the episode, in hindsight; None where it is not revealed."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A text that tells this world from others."""


class ModelWorld(World):
    """A latent MDP, step by step.

    Attributes
    ----------
    given_context
        The context of the episodes to come, where it is not to be drawn.
    """

    model: LatentMDP
    given_context: int | None = None

    def __init__(self, model: LatentMDP) -> None:
        self.model = model
        self.space = Space.of(model)
        self.chances = chances_of(model)

    def begin(self, key: int, episode: int) -> int:
        """See `World`."""
        from latentmdp._kernels.rollout import begin_episode

        self._key, self._episode, self._t = np.uint64(key), np.uint64(episode), 0
        given = -1 if self.given_context is None else self.given_context
        self._context, self._state = begin_episode(self.chances, self._key, self._episode, given)
        return int(self._state)

    def step(self, action: int) -> Transition:
        """See `World`."""
        from latentmdp._kernels.rollout import world_step

        if not self.model.allowed[self._state, action]:
            raise ValueError(names.forbidden(self._state, action, self.model))
        self._state, z = world_step(
            self.chances, self._key, self._episode, self._t, self._context, self._state, action
        )
        self._t += 1
        return Transition(int(self._state), int(z), bool(self.model.terminal[self._state]))

    def context(self) -> int:
        """See `World`."""
        return int(self._context)

    def fingerprint(self) -> str:
        """See `World`."""
        return self.model.fingerprint()


def chances_of(model: LatentMDP) -> Chances:
    """Alias tables of the model's distributions, as compiled loops draw from them.

    They depend on the model's outcomes only, so a model draws the same episodes whether it was
    given as arrays or as a table.
    """
    from latentmdp._kernels.alias import alias_tables, ragged_alias_tables
    from latentmdp._kernels.rollout import Chances

    M, S, A, Z = model.dimensions
    table = model.outcomes
    require_memory(12.0 * table.size * M, f"drawing from {table.size:,} outcomes")
    empty = (row_sums(table, table.probs) == 0.0) & model.allowed.reshape(-1, 1)
    if empty.any():
        m, row = arrays.first_index(empty.T)
        raise ValueError(
            f"cannot simulate: context {m}, state {row // A}, action {row % A} was never visited, "
            "so what follows it is unknown"
        )
    starts, next_state, reward, probs = (arrays.read_only(array) for array in table)
    return Chances(
        (S, A, Z),
        starts,
        next_state,
        reward,
        model.terminal,
        *alias_tables(model.weights),
        *alias_tables(model.initial),
        *ragged_alias_tables(probs, starts),
    )


class _SteppedWorld(World):
    """What worlds share that only tell a reward by its value, and may end an episode."""

    def __init__(self, space: Space, knows_contexts: bool, open_rewards: bool = False) -> None:
        self.space, self.knows_contexts, self._open = space, knows_contexts, open_rewards
        self._index = {value: z for z, value in enumerate(space.reward_values)}
        self._state, self._over = 0, False

    def _started(self, state: int) -> int:
        self._enter(state)
        self._over = False
        return state

    def _enter(self, state: int) -> None:
        if not 0 <= state < self.space.n_states:
            raise ValueError(
                f"the world gave state {state}: must lie in [0, {self.space.n_states})"
            )
        self._state = state

    def _stayed(self) -> Transition:
        """A step after the end: the final state, and nothing earned."""
        return Transition(self._state, self._index[0.0], terminated=True)

    def _moved(self, state: int, reward: float, terminated: bool, truncated: bool) -> Transition:
        self._enter(state)
        if reward not in self._index:
            self._meet(reward)
        self._over = terminated
        cut = truncated and not terminated
        return Transition(state, self._index[reward], terminated, cut)

    def _meet(self, reward: float) -> None:
        if not self._open:
            raise ValueError(
                f"the world gave reward {reward}, not one of reward_values "
                f"{self.space.reward_values}: name every reward in reward_values="
            )
        self._index[reward] = len(self._index)
        self.space = replace(self.space, reward_values=tuple(self._index))


class GymnasiumWorld(_SteppedWorld):
    """A Gymnasium environment as a learner sees it; made by `adapt`.

    Every episode resets the environment with a seed that depends on the key and on the number of
    the episode alone. `info["context"]`, where it is there at the last step, is the context in
    hindsight.
    """

    def __init__(
        self,
        env: Any,
        space: Space,
        model: LatentMDP | None,
        knows_contexts: bool,
        open_rewards: bool,
    ) -> None:
        super().__init__(space, knows_contexts, open_rewards)
        self.env, self.model = env, model
        self._states = FiniteSpace("observation_space", env.observation_space)
        self._actions = FiniteSpace("action_space", env.action_space)
        self.state_names, self.action_names = self._states.names(), self._actions.names()
        self._context: int | None = None

    def begin(self, key: int, episode: int) -> int:
        """See `World`."""
        seed = int(np.random.SeedSequence((key, episode)).generate_state(1)[0]) >> 1
        observation, info = self.env.reset(seed=seed)
        self._context = info.get("context")
        return self._started(self._states.index(observation))

    def step(self, action: int) -> Transition:
        """See `World`."""
        if self._over:
            return self._stayed()
        observation, reward, terminated, truncated, info = self.env.step(
            self._actions.element(action)
        )
        self._context = info.get("context", self._context)
        state = self._states.index(observation)
        return self._moved(state, float(reward), bool(terminated), bool(truncated))

    def context(self) -> int | None:
        """See `World`."""
        return None if self._context is None else int(self._context)

    def fingerprint(self) -> str:
        """Which environment this is, as far as it can be told from outside."""
        return f"{type(self.env.unwrapped).__name__} {self.env.spec} {self.space}"


Simulator = Callable[[np.random.Generator], tuple[int, Callable[[int], Sequence[Any]]]]
"""simulator(rng) -> (first state, step); step(action) -> (next state, reward[, terminated])."""


class CallableWorld(_SteppedWorld):
    """A simulator given as a function; made by `from_callable`."""

    def __init__(self, simulator: Simulator, space: Space, knows_contexts: bool) -> None:
        super().__init__(space, knows_contexts)
        self.simulator = simulator

    def begin(self, key: int, episode: int) -> int:
        """See `World`."""
        answer: Any = self.simulator(np.random.default_rng((key, episode)))
        if not isinstance(answer, tuple) or len(answer) != 2 or not callable(answer[1]):
            raise TypeError(f"simulator(rng) must return (first state, step), got {answer!r}")
        state, self._step = answer
        return self._started(int(state))

    def step(self, action: int) -> Transition:
        """See `World`."""
        if self._over:
            return self._stayed()
        answer = self._step(action)
        if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
            raise TypeError(
                f"step(action) must return (next state, reward[, terminated]), got {answer!r}"
            )
        state, reward, *ended = answer
        return self._moved(int(state), float(reward), bool(ended and ended[0]), False)

    def context(self) -> None:
        """A function tells no context."""
        return None

    def fingerprint(self) -> str:
        """Which function this is, as far as its name tells."""
        name = getattr(self.simulator, "__qualname__", type(self.simulator).__qualname__)
        return f"{getattr(self.simulator, '__module__', '')}.{name} {self.space}"


def from_callable(
    simulator: Simulator,
    *,
    n_states: int,
    n_actions: int,
    horizon: int,
    reward_values: ArrayLike,
    n_contexts: int | None = None,
    discount: float = 1.0,
    allowed: ArrayLike | None = None,
) -> CallableWorld:
    """A world from a function that starts an episode.

    Parameters
    ----------
    simulator
        `simulator(rng)` draws what is hidden and returns the first state and a function `step`;
        `step(action)` returns the next state, the reward and, if it likes, whether the state
        reached is final. Whatever it draws, it draws from `rng`.
    n_contexts
        M, where it is known.
    allowed : None or (S, A) of flags
        Which actions a state has; all by default. A state that has none is terminal.
    """
    S, A = (
        arrays.positive_integer(name, value)
        for name, value in (("n_states", n_states), ("n_actions", n_actions))
    )
    space = Space(
        1 if n_contexts is None else arrays.positive_integer("n_contexts", n_contexts),
        S,
        A,
        _with_zero(reward_values),
        arrays.positive_integer("horizon", horizon),
        validation.discount(discount),
        None if allowed is None else validation.allowed(allowed, S, A),
    )
    return CallableWorld(simulator, space, n_contexts is not None)


def adapt(
    env: Any,
    *,
    n_contexts: int | None = None,
    horizon: int | None = None,
    reward_values: ArrayLike | None = None,
    discount: float = 1.0,
    open_rewards: bool = False,
    allowed: ArrayLike | None = None,
) -> GymnasiumWorld:
    """Make a Gymnasium environment a world for learners.

    Parameters
    ----------
    env
        With finitely many observations and actions: Discrete, MultiDiscrete and MultiBinary
        spaces, and Tuple and Dict spaces of these, one state or action for each combination.
    n_contexts
        M; by default the environment's own attribute `n_contexts`, as `envs.MixtureEnv` has it. A
        learner that is told how many to assume, or finds out, does not need it.
    horizon
        H; by default the environment's attribute `horizon`, or its time limit.
    reward_values
        Every reward that may occur; 0 is added for final states. By default those of the
        environment's attribute `reward_values` or of its table `P`.
    discount
        In (0, 1].
    open_rewards
        Let rewards that are not named join when they are met; learners need to know all of them.
    allowed : None or (S, A) of flags
        Which actions a state has; by default those of the environment's attribute `allowed`, or
        all. A state that has none is terminal.
    """
    S, A = (
        FiniteSpace(name, getattr(env, name, None)).n
        for name in ("observation_space", "action_space")
    )
    base = env.unwrapped
    M = n_contexts if n_contexts is not None else getattr(base, "n_contexts", None)
    H = horizon if horizon is not None else getattr(base, "horizon", None) or _time_limit(env)
    if H is None:
        raise ValueError("horizon: the environment does not tell it, give adapt(env, horizon=)")
    values = getattr(base, "reward_values", None) if reward_values is None else reward_values
    if values is None:
        values = table_rewards(getattr(base, "envs", [base]))
    if values is None and not open_rewards:
        raise ValueError(
            "reward_values: the environment does not tell which rewards occur, give "
            "adapt(env, reward_values=(...))"
        )
    flags = getattr(base, "allowed", None) if allowed is None else allowed
    space = Space(
        1 if M is None else arrays.positive_integer("n_contexts", M),
        S,
        A,
        _with_zero(() if values is None else values),
        arrays.positive_integer("horizon", H),
        validation.discount(discount),
        None if flags is None else validation.allowed(flags, S, A),
    )
    truth = getattr(base, "model", None)
    if not isinstance(truth, LatentMDP) or Space.of(truth).reward_values != space.reward_values:
        truth = None
    return GymnasiumWorld(env, space, truth, M is not None, open_rewards)


def _time_limit(env: Any) -> int | None:
    """The limit that the environment was registered with, or that a wrapper sets."""
    import gymnasium

    limit: int | None = getattr(env.spec, "max_episode_steps", None)
    while limit is None and isinstance(env, gymnasium.Wrapper):
        limit = getattr(env, "_max_episode_steps", None)  # of the wrapper `TimeLimit`
        env = env.env
    return limit


def _with_zero(given: ArrayLike) -> tuple[float, ...]:
    values = arrays.as_floats("reward_values", given).ravel().tolist()
    return tuple(values) if 0.0 in values else tuple(sorted([*values, 0.0]))


Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


def table_of(env: Any) -> Table | None:
    """The table `P[s][a]` of (probability, next state, reward, terminated) of an environment."""
    return getattr(env.unwrapped, "P", None)


def table_rewards(envs: Sequence[Any]) -> tuple[float, ...] | None:
    """The rewards that occur in the tables of all environments, and 0; None without tables."""
    tables = [table_of(env) for env in envs]
    if any(table is None for table in tables):
        return None
    found = {0.0}
    for table in tables:
        for actions in (table or {}).values():
            for outcomes in actions.values():
                found |= {float(reward) for p, _, reward, _ in outcomes if p > 0.0}
    return tuple(sorted(found))


def as_world(world: Any) -> World:
    """A `World` from a latent MDP, a Gymnasium environment, or a world itself."""
    if isinstance(world, World):
        return world
    if isinstance(world, LatentMDP):
        return ModelWorld(world)
    if hasattr(world, "reset") and hasattr(world, "observation_space"):
        return adapt(world)
    raise TypeError(
        "the world must be a LatentMDP, a Gymnasium environment or a World, got "
        f"{type(world).__name__}"
    )


class Agent(Protocol):
    """Whoever acts in an episode."""

    def begin(self, episode: int, state: int) -> None:
        """See the number of an episode and its first state."""

    def act(self, t: int) -> int | None:
        """The action at time t; None to leave the episode."""

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""


def play_episode(
    world: World, agent: Agent, key: int, episode: int, horizon: int | None = None
) -> Episode:
    """Play one episode, step by step: to the horizon, or until it ends, is cut short or left.

    It ends in a state that is terminal in the world's space. Without a horizon it is cut off
    after `Space.longest_episode` steps.
    """
    terminal = world.space.terminal
    states, actions, rewards = [world.begin(key, episode)], list[int](), list[int]()
    agent.begin(episode, states[0])
    for t in range(world.space.longest_episode if horizon is None else horizon):
        if terminal[states[-1]]:
            break
        action = agent.act(t)
        if action is None:
            break
        transition = world.step(action)
        agent.observe(action, transition)
        actions.append(action)
        rewards.append(transition.reward)
        states.append(transition.next_state)
        if transition.truncated:
            break
    return Episode(
        np.array(states, np.int32),
        np.array(actions, np.int32),
        np.array(rewards, np.int32),
        world.context(),
    )
