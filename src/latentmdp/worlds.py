"""Worlds: what a learner may see and do, one episode at a time.

A world begins an episode by number and answers actions, one after the other. What happens in
episode k depends on the key, on k and on the actions alone, so a run can be interrupted after any
episode and go on later. There are two:

- `ModelWorld`, a latent MDP, with the chance that `simulate` would use;
- `GymnasiumWorld`, an environment with finitely many observations and actions (`adapt`), and
  `VectorWorld`, copies of one side by side. Others are adapted by way of it: `from_callable` makes
  one of any simulator given as a function, `envs.from_dm_env` of a dm_env environment.

Endings mean the same in all of them, and they are known as such: nothing is earned, explored or
counted after one. An episode that is *terminated* ends in a terminal state of the space. A model
has its own; so has an environment or a function that says beforehand where episodes end. Any other
gets one state more than it shows, the last one, the **end**: whatever terminates leads there, so
that a state, or an action, may end one episode and not another, and nobody has to find out which
states are final. Where an episode is *truncated*, it was cut short: what was seen counts, and
nothing is assumed of the rest.

A reward is one of the values named if it is equal to it up to rounding: relative 1e-6, as of
numbers that were once 32 bits wide.

`play_episode` is the loop over the steps of an episode, for any world and anybody who acts;
`play_side_by_side` that of a `VectorWorld`, whose episodes are those that one copy would play.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, names, validation
from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.duration import Duration
from latentmdp._util.fields import Fielded
from latentmdp._util.memory import require_memory
from latentmdp._util.spaces import FiniteSpace
from latentmdp.errors import LatentMDPError, WorldError
from latentmdp.logs import END, Episode
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes, numbered, row_sums

if TYPE_CHECKING:
    from latentmdp._kernels.rollout import Chances

__all__ = [
    "Agent",
    "GymnasiumWorld",
    "ModelWorld",
    "PaidEpisode",
    "Space",
    "TableEntries",
    "Transition",
    "VectorWorld",
    "World",
    "adapt",
    "as_world",
    "chances_of",
    "ending_states",
    "from_callable",
    "play_episode",
    "play_side_by_side",
    "table_entries",
    "table_of",
    "table_rewards",
]


@dataclass(frozen=True, eq=False)
class Space(Fielded):
    """What is told of a world before anybody acts.

    Attributes
    ----------
    n_contexts, n_states, n_actions, reward_values
        M, S, A, and what the rewards are worth.
    horizon
        H; None where an episode has no end.
    discount
        In (0, 1].
    allowed
        (S, A) flags of the actions that each state has; None where all have all. A state with
        none is terminal.
    measured, reward_edges
        Whether what is paid is an amount beside the reward that is seen, and where the levels are
        cut that rewards then are, if they are levels.
    """

    n_contexts: int
    n_states: int
    n_actions: int
    reward_values: tuple[float, ...]
    horizon: int | None
    discount: float = 1.0
    allowed: Flags | None = None
    measured: bool = False
    reward_edges: tuple[float, ...] | None = None

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

    @property
    def highest_returns(self) -> Floats:
        """The most that an episode can earn from each step on, (H,).

        That is the largest reward in every step that is left; where it is a cost and some state is
        terminal, an episode may end after one more step.
        """
        best, may_end = max(self.reward_values), bool(self.terminal.any())
        returns = np.empty(self.required_horizon())
        later = 0.0
        for t in range(returns.size - 1, -1, -1):
            later = best + self.discount * (max(later, 0.0) if may_end else later)
            returns[t] = later
        return returns

    def required_horizon(self) -> int:
        """H; `ModelError` where episodes have no end, since learners count episodes."""
        return self.duration.required("learning")

    @property
    def duration(self) -> Duration:
        """How long an episode lasts, and what follows from it."""
        return Duration(self.horizon, self.discount)

    def cut(self, horizon: int | None) -> Space:
        """The space of episodes that are cut off after so many steps; None: as they are."""
        if horizon is None:
            return self
        steps = arrays.positive_integer("horizon", horizon)
        if self.duration.within(steps) < steps:
            raise ValueError(f"horizon is {steps}, but the model ends after {self.horizon}")
        return replace(self, horizon=steps)

    def allowed_actions(self) -> Flags:
        """Which actions each state has, (S, A)."""
        if self.allowed is None:
            return np.ones((self.n_states, self.n_actions), np.bool_)
        return self.allowed

    @property
    def discounted_steps(self) -> float:
        """1 + discount + ... + discount^{H-1}; 1 / (1 - discount) where there is no end."""
        return self.duration.discounted_steps()

    @property
    def longest_episode(self) -> int:
        """H; where there is no end, the steps after which episodes are cut off.

        Those are the first T with discount^T below 1e-4: what comes later is worth less than
        1e-4 of the largest return. Without a discount they are 10,000.
        """
        return self.duration.cut_off(1e-4)

    def table_model(self, table: Outcomes, **others: Any) -> LatentMDP:
        """A model of this space; `others` as for `LatentMDP.from_outcomes`."""
        space = {
            "n_states": self.n_states,
            "horizon": self.horizon,
            "discount": self.discount,
            "reward_values": self.reward_array,
            "allowed": self.allowed_actions(),
        }
        return LatentMDP.from_outcomes(*table, **{**space, **others})

    def require_fit(self, name: str, other: LatentMDP) -> None:
        """Raise unless a model has the same contexts, states, actions and rewards."""
        space = Space.of(other)
        for field in ("n_contexts", "n_states", "n_actions", "n_rewards", "reward_values"):
            mine, theirs = getattr(self, field), getattr(space, field)
            if mine != theirs:
                raise ValueError(f"{name} has {field}={theirs}, the world {mine}")


class Transition(NamedTuple):
    """What follows an action: s', the index of r, whether the episode ends here, and any amount."""

    next_state: int
    reward: int
    terminated: bool = False
    truncated: bool = False
    amount: float = 0.0


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
    finding_rewards
        Whether the rewards in `space` are only those met so far.
    met
        Where states are numbered as they are met: the number of each.
    state_names, action_names
        Names of what was numbered to make the space; None where the numbers are the world's own.
    """

    space: Space
    model: LatentMDP | None = None
    knows_contexts: bool = True
    finding_rewards: bool = False
    met: dict[int, int] | None = None
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

    @property
    def name(self) -> str:
        """What messages call it."""
        return type(self).__name__

    @property
    def state_names(self) -> tuple[str, ...] | None:
        """See the class."""
        return None

    def for_states(self, most: int) -> World:
        """The world for somebody who meets no more than so many states."""
        return self


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
        context = -1 if self.given_context is None else self.given_context
        self._context, self._state = begin_episode(self.chances, self._key, self._episode, context)
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
    number, first = numbered(table.starts, table.pattern)
    shared = table.of_rows(first)  # rows with the same probabilities have the same tables
    require_memory(12.0 * shared.size * M, f"drawing from {table.size:,} outcomes")
    empty = row_sums(shared, shared.probs) == 0.0
    wrong = np.flatnonzero(empty.any(axis=1)[number] & model.allowed.ravel())
    if wrong.size:
        m, i = arrays.first_index(empty[number[wrong]].T)
        raise ValueError(
            f"cannot simulate: context {m}, state {wrong[i] // A}, action {wrong[i] % A} was never "
            "visited, so what follows it is unknown"
        )
    begins = model.initial_vectors.dense()
    listed = (*table[:3], shared.starts[number])
    starts, next_state, reward, tables = (arrays.read_only(array) for array in listed)
    return Chances(
        (S, A, Z),
        starts,
        next_state,
        reward,
        tables,
        model.terminal,
        *alias_tables(model.weights),
        *alias_tables(begins[:1] if model.initial_vectors.is_shared else begins),
        *ragged_alias_tables(arrays.read_only(shared.probs), arrays.read_only(shared.starts)),
    )


_MANY_STATES = 1 << 12
"""So many states of an environment cost less to keep than to number as they are met."""


class GymnasiumWorld(World):
    """A Gymnasium environment as a learner sees it; made by `adapt`.

    Every episode resets the environment with a seed that depends on the key and on the number of
    the episode alone. `info["context"]`, where it is there at the last step, is the context in
    hindsight.

    Parameters
    ----------
    space
        What is shown.
    model
        The true one, where the environment has it.
    reward_levels
        Where rewards are to be found: how many levels they may become, as in
        `Trajectories.from_table`.
    adds_end
        Whether one terminal state is added to it; by default unless it has one.
    """

    def __init__(
        self,
        env: Any,
        space: Space,
        model: LatentMDP | None,
        knows_contexts: bool,
        reward_levels: int | str | None,
        adds_end: bool | None,
    ) -> None:
        self._end: int | None = None
        if not space.terminal.any() if adds_end is None else adds_end:
            self._end = space.n_states
            allowed = np.concatenate([space.allowed_actions(), [[False] * space.n_actions]])
            space = replace(space, n_states=space.n_states + 1, allowed=allowed)
        self.space, self.knows_contexts, self._levels = space, knows_contexts, reward_levels
        self.finding_rewards = space.measured
        self._index = {value: z for z, value in enumerate(space.reward_values)}
        self.env, self.model = env, model
        self._states, self._actions = (
            _finite(env, name) for name in ("observation_space", "action_space")
        )
        self.action_names = self._actions.names()
        self._context: int | None = None

    def meet(self, state: int) -> int:
        """The number of a state that the world gave: its own, or that of its first occurrence."""
        return state if self.met is None else self.met.setdefault(state, len(self.met))

    def _moved(self, state: int, reward: float, terminated: bool, truncated: bool) -> Transition:
        state = self.meet(state)
        if reward not in self._index:
            self._index[reward] = self._met(reward)
        z, amount = self._index[reward], reward
        if self.finding_rewards:
            amount = self.space.reward_values[z]
        if terminated and not self.space.terminal[state]:
            if self._end is None:
                raise ValueError(
                    f"the world ended an episode in state {state}, which is not among the terminal "
                    "states that it was said to have: name all of them in allowed=, or none"
                )
            state = self._end
        return Transition(state, z, terminated, truncated and not terminated, amount)

    def _met(self, reward: float) -> int:
        """The number of a reward that was not met before: of the one it is equal to, or a new one.

        Once rewards were found, a further one has its level, or counts as the nearest.
        """
        space, order = self.space, np.argsort(self.space.reward_values)
        place, equal = arrays.nearest(space.reward_array[order], reward)
        nearest = int(order[place])
        if space.reward_edges is None and equal:
            return nearest
        if not space.measured or not np.isfinite(reward):
            raise ValueError(
                f"the world gave reward {reward}, not one of reward_values "
                f"{space.reward_values}: name every reward in reward_values="
            )
        if space.reward_edges is not None:
            return int(np.searchsorted(space.reward_edges, reward, side="right"))
        if self.finding_rewards:
            self.space = replace(space, reward_values=(*space.reward_values, reward))
            return space.n_rewards
        return nearest

    def find_rewards(self, amounts: Floats) -> None:
        """Let these be all rewards, or a sample of what is to become levels.

        Amounts paid from now on are kept beside the reward or level that they count as, so that
        means stay what they are.
        """
        counted = np.unique(amounts, return_counts=True)
        from latentmdp.logs import reward_values_of_counts  # tables import pyarrow, which is slow

        values, edges = reward_values_of_counts(*counted, self._levels)
        cuts = None if edges is None else tuple(edges.tolist())
        self.space = replace(self.space, reward_values=tuple(values.tolist()), reward_edges=cuts)
        self.finding_rewards = False
        self._index = {}

    @property
    def state_names(self) -> tuple[str, ...] | None:
        """See `World`; where states are numbered as they are met, others share the last numbers."""
        known = self._states.names(self.met)
        if known is None:
            return None
        spare = self.space.n_states - len(known) - (self._end is not None)
        unmet = [names.NOT_MET, *(f"{names.NOT_MET} {i}" for i in range(2, spare + 1))][:spare]
        return (*known, *unmet, *([END] if self._end is not None else []))

    def for_states(self, most: int) -> World:
        """See `World`: a world whose many states are numbered as they are met, with room for more.

        What a learner keeps by state then follows from what it meets. Spaces with few elements, or
        of a single number, or where not all actions are allowed, stay as they are.
        """
        few = self.met is not None or self.space.n_states <= max(_MANY_STATES, most + 2)
        allowed = self.space.allowed_actions()
        if few or not self._states.has_parts or self._end is None or not allowed[:-1].all():
            return self
        world = copy(self)
        world.met, world._end = {}, most + 1
        world.space = replace(self.space, n_states=most + 2, allowed=allowed[-most - 2 :])
        return world

    def begin(self, key: int, episode: int) -> int:
        """See `World`."""
        observation, info = self.env.reset(seed=_episode_seed(key, episode))
        self._context = info.get("context")
        return self.meet(self._states.index(observation))

    def step(self, action: int) -> Transition:
        """See `World`."""
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

    @property
    def name(self) -> str:
        """See `World`."""
        spec = getattr(self.env, "spec", None)
        return getattr(spec, "id", None) or type(self.env.unwrapped).__name__


def _episode_seed(key: int, episode: int) -> int:
    """The seed of an environment; 31 bits, since some hold it in a signed integer of 32."""
    return int(np.random.SeedSequence((key, episode)).generate_state(1)[0]) >> 1


class VectorWorld(GymnasiumWorld):
    """Copies of a Gymnasium environment side by side, a `VectorEnv`; made by `adapt`.

    Each episode has the seed that it has in a single environment, so it is the same whatever the
    number of copies. Where episodes follow each other, because each acts by what the one before it
    showed, the first copy plays them.

    Attributes
    ----------
    lanes
        The number of copies.
    """

    def __init__(self, env: Any, *arguments: Any) -> None:
        super().__init__(env, *arguments)
        self.lanes = int(env.num_envs)
        mode = getattr(env, "metadata", {}).get("autoreset_mode")
        if mode is not None and getattr(mode, "name", mode) != "NEXT_STEP":
            raise ValueError(
                f"the vector environment has autoreset_mode {mode}: only NEXT_STEP, Gymnasium's "
                "default, shows how an episode ended"
            )

    def for_states(self, most: int) -> World:
        """See `World`; all states are numbered beforehand."""
        return self

    def begin_side_by_side(self, key: int, episodes: Sequence[int]) -> list[int]:
        """Start an episode in each of the first copies; their first states."""
        seeds = [_episode_seed(key, k) for k in episodes]
        seeds += [0] * (self.lanes - len(seeds))
        observations, info = self.env.reset(seed=seeds)
        self._contexts: list[int | None] = [None] * self.lanes
        self._note_contexts(info)
        self._seen = [self.meet(self._states.index(one)) for one in self._parts(observations)]
        return self._seen

    def step_side_by_side(self, actions: Sequence[int | None]) -> list[Transition]:
        """Act in the first copies; those without an action do anything, and nothing is read."""
        from gymnasium.vector.utils import concatenate, create_empty_array

        space = self.env.single_action_space
        allowed = self.space.allowed_actions()
        chosen = [*actions, *[None] * (self.lanes - len(actions))]
        going = [action is not None for action in chosen]
        elements = [
            self._actions.element(int(allowed[state].argmax()) if action is None else action)
            for state, action in zip(self._seen, chosen)
        ]
        room: Any = create_empty_array(space, self.lanes)
        joined = concatenate(space, elements, room)
        observations, rewards, terminated, truncated, info = self.env.step(joined)
        self._note_contexts(info, going)
        self._seen = [self._states.index(one) for one in self._parts(observations)]
        return [
            self._moved(state, float(rewards[i]), bool(terminated[i]), bool(truncated[i]))
            if going[i]
            else Transition(state, 0)
            for i, state in enumerate(self._seen)
        ]

    def context_of(self, lane: int) -> int | None:
        """The context of the episode in a copy, in hindsight; None where it is not revealed."""
        return self._contexts[lane]

    def begin(self, key: int, episode: int) -> int:
        """See `World`."""
        return self.begin_side_by_side(key, [episode])[0]

    def step(self, action: int) -> Transition:
        """See `World`."""
        return self.step_side_by_side([action])[0]

    def context(self) -> int | None:
        """See `World`."""
        return self.context_of(0)

    def _parts(self, observations: Any) -> list[Any]:
        from gymnasium.vector.utils import iterate

        return list(iterate(self.env.observation_space, observations))

    def _note_contexts(self, info: dict[str, Any], going: Sequence[bool] | None = None) -> None:
        told = info.get("_context", ())
        for lane in np.flatnonzero(told).tolist():
            if going is None or going[lane]:
                self._contexts[lane] = int(info["context"][lane])


Simulator = Callable[[np.random.Generator], tuple[int, Callable[[int], Sequence[Any]]]]
"""simulator(rng) -> (first state, step); step(action) -> (next state, reward[, terminated])."""


class _FunctionEnv:
    """A simulator given as a function, with the methods of Gymnasium."""

    def __init__(self, simulator: Simulator, n_states: int, n_actions: int) -> None:
        from gymnasium import spaces

        self.simulator, self.unwrapped = simulator, self
        self.observation_space = spaces.Discrete(n_states)
        self.action_space = spaces.Discrete(n_actions)
        name = getattr(simulator, "__qualname__", type(simulator).__qualname__)
        self.spec = SimpleNamespace(id=f"{getattr(simulator, '__module__', '')}.{name}")

    def reset(self, *, seed: int) -> tuple[int, dict[str, Any]]:
        """Start an episode."""
        answer: Any = self.simulator(np.random.default_rng(seed))
        if not isinstance(answer, tuple) or len(answer) != 2 or not callable(answer[1]):
            raise TypeError(f"simulator(rng) must return (first state, step), got {answer!r}")
        state, self._step = answer
        return state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Act."""
        answer = self._step(int(action))
        if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
            raise TypeError(
                f"step(action) must return (next state, reward[, terminated]), got {answer!r}"
            )
        state, reward, *ended = answer
        return state, reward, bool(ended and ended[0]), False, {}


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
) -> GymnasiumWorld:
    """A world from a function that starts an episode.

    Parameters
    ----------
    simulator
        `simulator(rng)` draws what is hidden and returns the first state and a function `step`;
        `step(action)` returns the next state, the reward and, if it likes, whether the episode
        is over. Whatever it draws, it draws from `rng`.
    n_contexts
        M, where it is known.
    allowed : None or (S, A) of flags
        Which actions a state has; all by default. A state that has none is terminal. If there is
        none, the world has one terminal state more than `n_states`, to which every end leads.
    """
    sizes = (
        arrays.positive_integer("n_states", n_states),
        arrays.positive_integer("n_actions", n_actions),
    )
    return adapt(
        _FunctionEnv(simulator, *sizes),
        n_contexts=n_contexts,
        horizon=horizon,
        reward_values=reward_values,
        discount=discount,
        allowed=allowed,
    )


def adapt(
    env: Any,
    *,
    n_contexts: int | None = None,
    horizon: int | None = None,
    reward_values: ArrayLike | None = None,
    discount: float = 1.0,
    open_rewards: bool = False,
    reward_levels: int | Literal["auto"] | None = None,
    allowed: ArrayLike | None = None,
) -> GymnasiumWorld:
    """Make a Gymnasium environment a world for learners.

    Parameters
    ----------
    env
        With finitely many observations and actions: Discrete, MultiDiscrete and MultiBinary
        spaces, a bounded Box of integers, and Tuple and Dict spaces of these, one state or action
        for each combination;
        where combinations are many, a learner's model has those states that it met, by name. Of a
        `VectorEnv` the copies play episodes in parallel where these do not depend on each other.
    n_contexts
        M; by default the environment's own attribute `n_contexts`, as `envs.MixtureEnv` has it. A
        learner that is told how many to assume, or finds out, does not need it.
    horizon
        H; by default the environment's attribute `horizon`, or its time limit.
    reward_values
        Every reward that may occur. By default those of the environment's attribute
        `reward_values` or of its table `P`.
    discount
        In (0, 1].
    open_rewards
        Let rewards that are not named join when they are met. `learn` takes those of its random
        episodes for all that there are; one that is met later counts as the nearest of them where
        it is evidence, and for what it is where it is earned.
    reward_levels
        Of measured rewards, which hardly ever repeat: how many levels `learn` makes of those of
        its random episodes, "auto" for ten. Levels are evidence only; values are means of what was
        paid. Includes `open_rewards`, which is "auto".
    allowed : None or (S, A) of flags
        Which actions a state has; by default those of the environment's attribute `allowed`, or
        all. A state that has none is terminal; by default those where a table `P` ends every
        episode. If there is none, the world has one terminal state more than the environment, to
        which every end leads.
    """
    kind = VectorWorld if hasattr(env, "single_observation_space") else GymnasiumWorld
    S, A = (_finite(env, name).n for name in ("observation_space", "action_space"))
    base = env.unwrapped if kind is GymnasiumWorld else _Copies(env)
    M = n_contexts if n_contexts is not None else getattr(base, "n_contexts", None)
    limited = env if kind is GymnasiumWorld else base
    H = horizon if horizon is not None else getattr(base, "horizon", None) or _time_limit(limited)
    if H is None:
        advice = "give latentmdp.envs.adapt(env, horizon=)"
        raise ValueError(f"horizon: the environment does not tell it, {advice}")
    values = getattr(base, "reward_values", None) if reward_values is None else reward_values
    finds = open_rewards or reward_levels is not None
    if reward_levels is not None:
        values = (0.0,)
    if values is None:
        values = table_rewards(getattr(base, "envs", [base])) if kind is GymnasiumWorld else None
    if values is None and not finds:
        raise ValueError(
            "reward_values: the environment does not tell which rewards occur, give "
            "adapt(env, reward_values=(...))"
        )
    flags = getattr(base, "allowed", None) if allowed is None else allowed
    truth, adds_end = getattr(base, "model", None), None
    if isinstance(truth, LatentMDP):
        adds_end = False
    elif flags is None and kind is GymnasiumWorld:
        flags, adds_end = _told_by_tables(env) or (None, None)
    values = (0.0,) if values is None else values
    values = tuple(arrays.as_floats("reward_values", values).ravel().tolist())
    if not values:
        raise ValueError("reward_values must not be empty")
    space = Space(
        1 if M is None else arrays.positive_integer("n_contexts", M),
        arrays.positive_integer("n_states", S),
        arrays.positive_integer("n_actions", A),
        values,
        arrays.positive_integer("horizon", H),
        validation.discount(discount),
        None if flags is None else validation.allowed(flags, S, A),
    )
    if not isinstance(truth, LatentMDP) or Space.of(truth).reward_values != space.reward_values:
        truth = None
    levels = "auto" if reward_levels is None else reward_levels
    return kind(env, replace(space, measured=finds), truth, M is not None, levels, adds_end)


def _finite(env: Any, name: str) -> FiniteSpace:
    """A space of an environment, or of one of several copies, numbered."""
    return FiniteSpace(name, getattr(env, f"single_{name}", getattr(env, name, None)))


class _Copies:
    """What the copies of a vector environment tell of themselves: attributes of the first one."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        # Asked first: a process that is asked for what its copy has not ends.
        if not self._env.call("has_wrapper_attr", name)[0]:
            raise AttributeError(name)
        return self._env.get_attr(name)[0]


def _time_limit(env: Any) -> int | None:
    """The limit that the environment was registered with, or that a wrapper sets."""
    import gymnasium

    limit: int | None = getattr(env.spec, "max_episode_steps", None)
    while limit is None and isinstance(env, gymnasium.Wrapper):
        limit = getattr(env, "_max_episode_steps", None)  # of the wrapper `TimeLimit`
        env = env.env
    return limit


Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


def table_of(env: Any) -> Table | None:
    """The table `P[s][a]` of (probability, next state, reward, terminated) that is, or has, one."""
    return env if isinstance(env, dict) else getattr(env.unwrapped, "P", None)


class TableEntries(NamedTuple):
    """All tables of several environments, one entry for each thing that can happen."""

    context: Integers
    state: Integers
    action: Integers
    next_state: Integers
    reward: Floats
    probability: Floats
    terminated: Flags


def table_entries(envs: Sequence[Any]) -> TableEntries:
    """What can happen in the tables of environments, in order."""
    entries = [
        (m, s, a, n, float(reward), p, bool(terminated))
        for m, env in enumerate(envs)
        for s, actions in (table_of(env) or {}).items()
        for a, outcomes in actions.items()
        for p, n, reward, terminated in outcomes
        if p > 0.0
    ]
    m, s, a, n, reward, p, terminated = (np.array(column) for column in zip(*entries))
    return TableEntries(m, s, a, n, reward, p, terminated)


def ending_states(entries: TableEntries, first: Flags) -> Flags:
    """The states in which every episode ends that comes there from a `first` state, (S,)."""
    goes_on = first.copy()
    while True:
        leaves = goes_on[entries.state]
        new = goes_on.copy()
        new[entries.next_state[leaves & ~entries.terminated]] = True
        if (new == goes_on).all():
            break
        goes_on = new
    ends = np.zeros(first.size, np.bool_)
    ends[entries.next_state[entries.terminated]] = True
    return ends & ~goes_on


def _told_by_tables(env: Any) -> tuple[Flags, bool] | None:
    """Which actions states have, none where tables end every episode, and whether others may end.

    States are those of `envs.tabular_model`. None where there are no tables or where a wrapper may
    have changed what they say.
    """
    envs = getattr(env.unwrapped, "envs", [env])
    first: list[Any] = [getattr(one.unwrapped, "initial_state_distrib", None) for one in envs]
    plain = all(_only_watched(one) for one in (env, *envs))
    if not plain or any(table_of(one) is None for one in envs) or any(f is None for f in first):
        return None
    entries = table_entries(envs)
    ends = ending_states(entries, np.sum(first, axis=0) > 0.0)
    others_end = bool((entries.terminated & ~ends[entries.next_state]).any())
    return np.repeat(~ends[:, None], env.action_space.n, axis=1), others_end


def _only_watched(env: Any) -> bool:
    """Whether no wrapper changes what an environment does, except for its time limit."""
    from gymnasium import wrappers

    watching = (wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)
    while env is not env.unwrapped:
        if type(env) not in watching:
            return False
        env = env.env
    return True


def table_rewards(envs: Sequence[Any]) -> tuple[float, ...] | None:
    """The rewards that occur in the tables of all environments; None without tables."""
    if not envs or any(table_of(env) is None for env in envs):
        return None
    return tuple(np.unique(table_entries(envs).reward).tolist())


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
) -> PaidEpisode:
    """Play one episode, step by step: to the horizon, or until it ends, is cut short or left.

    It ends in a state that is terminal in the world's space. Without a horizon it is cut off
    after `Space.longest_episode` steps.
    """
    seen = _Seen([_answer(world, episode, None, world.begin, key, episode)], [], [])
    steps = world.space.cut(horizon).longest_episode
    for action in _actions(agent, episode, seen, world.space.terminal, steps):
        seen.moved.append(_answer(world, episode, len(seen.moved), world.step, action))
    return seen.episode(world.context())


class PaidEpisode(Episode):
    """An episode with the amounts that its steps paid, (L,); still a tuple of four."""

    amounts: Floats


class _Seen(NamedTuple):
    """What was seen of an episode so far."""

    states: list[int]
    actions: list[int]
    moved: list[Transition]

    def episode(self, context: int | None) -> PaidEpisode:
        """As arrays."""
        rewards = [one.reward for one in self.moved]
        parts = [np.array(part, np.int32) for part in (self.states, self.actions, rewards)]
        episode = PaidEpisode(parts[0], parts[1], parts[2], context)
        episode.amounts = np.array([one.amount for one in self.moved], np.float64)
        return episode


def _actions(
    agent: Agent, episode: int, seen: _Seen, terminal: Flags, horizon: int
) -> Iterator[int]:
    """The actions of an episode: whoever takes one adds what followed to `seen.moved`."""
    agent.begin(episode, seen.states[0])
    for t in range(horizon):
        action = None if terminal[seen.states[-1]] else agent.act(t)
        if action is None:
            return
        yield action
        transition = seen.moved[-1]
        agent.observe(action, transition)
        seen.actions.append(action)
        seen.states.append(transition.next_state)
        if transition.truncated:
            return


def play_side_by_side(
    world: VectorWorld, agents: Sequence[Agent], key: int, first_episode: int, horizon: int
) -> list[PaidEpisode]:
    """As many episodes as agents, in as many copies, as `play_episode` would play each."""
    episodes = range(first_episode, first_episode + len(agents))
    first = _answer(world, first_episode, None, world.begin_side_by_side, key, episodes)
    seen = [_Seen([state], [], []) for state in first[: len(agents)]]
    contexts = [world.context_of(lane) for lane in range(len(agents))]
    terminal = world.space.terminal
    played = [_actions(*lane, terminal, horizon) for lane in zip(agents, episodes, seen)]
    chosen = [next(actions, None) for actions in played]
    for t in range(horizon):
        if not any(action is not None for action in chosen):
            break
        moved = _answer(world, first_episode, t, world.step_side_by_side, chosen)
        for i in [i for i, action in enumerate(chosen) if action is not None]:
            seen[i].moved.append(moved[i])
            contexts[i] = world.context_of(i)
            chosen[i] = next(played[i], None)
    return [one.episode(context) for one, context in zip(seen, contexts)]


def _answer(
    world: World, episode: int, t: int | None, asked: Callable[..., Any], *arguments: Any
) -> Any:
    """What a world answers; its errors name it, the episode and the step."""
    try:
        return asked(*arguments)
    except LatentMDPError:  # named already
        raise
    except Exception as error:
        when = "at its start" if t is None else f"at step {t}"
        raise WorldError(f"{world.name}, episode {episode}, {when}: {error}") from error
