"""Logged episodes: flat integer arrays plus offsets, so that episodes may differ in length.

Episode i of length L_i = offsets[i+1] - offsets[i] is

    actions[offsets[i] : offsets[i+1]]              a_1 .. a_L
    rewards[offsets[i] : offsets[i+1]]              r_1 .. r_L, as indices into reward_values
    states [offsets[i]+i : offsets[i+1]+i+1]        s_1 .. s_{L+1}, one more than actions

Several identical episodes may be stored once with a multiplicity in `counts`.

What was not recorded is kept as such:

    rewards[k] == -1                the reward of that step is missing: a likelihood sums over it
    states[last of episode] == -1   nobody knows where its last step led
    continues[i]                    episode i goes on with the individual of episode i-1 after lost
                                    steps: the belief goes on, there is no first state

So an *individual* is a run of episodes, its segments: one with continues False and those after it
that continue it. Its steps lie side by side, from `individual_offsets()[j]` on. An individual whose
first state is missing begins with an empty episode whose only state is -1. Where nothing is missing
`continues` is None and every episode is an individual.

Logs may be larger than memory (`on_disk.py`), so whatever reads all of them reads them in
*batches*, in memory as on disk. Individual j, with b_j steps logged before its first, is in batch
b_j // 2^21. So batches follow from the logs alone, and sums that are added up batch by batch are
the same to the last bit wherever the logs lie.

A *cell* is a combination of what a step shows, such as (s, a) or (s, a, s', r). Everything that is
counted in logs is counted here, by cell, each episode with its multiplicity and, where episodes are
shared among contexts, with its share: `cell_counts` as a dense array, `occurring_cells` as a list
of the cells that occur. A step in which a part of the cell is missing is not counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp._util.fields import Fielded
from latentmdp._util.words import plural
from latentmdp.errors import TrajectoryError
from latentmdp.logs.covariates import Covariates

if TYPE_CHECKING:  # a model reads its own table with this room's help
    from latentmdp.model import LatentMDP

__all__ = [
    "BATCH_STEPS",
    "NEVER",
    "Batch",
    "Endings",
    "Episode",
    "History",
    "Lacks",
    "Logs",
    "MissingCells",
    "Sizes",
    "Steps",
    "Trajectories",
    "cell_counts",
    "first_state_counts",
    "mean_amounts",
    "occurring_cells",
    "require_in_memory",
    "require_logs",
    "sizes_of",
]

BATCH_STEPS = 1 << 21
"""Steps of a batch, about: some 150 MB while it is read, and enough work that handing it to another
machine costs nothing beside it."""

Sizes = tuple[int, int, int]
"""(S, A, Z)."""


class Episode(NamedTuple):
    """One episode: L+1 states, L actions, L reward indices and, if it is known, the context."""

    states: Indices
    actions: Indices
    rewards: Indices
    context: int | None


class History(NamedTuple):
    """What an agent has seen when it acts at time t: t+1 states, t actions, t reward indices."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[int, ...]

    def then(self, action: int, next_state: int, reward: int) -> History:
        """The history one step later."""
        return History((*self.states, next_state), (*self.actions, action), (*self.rewards, reward))

    def ask(
        self,
        policy: Callable[[History], int | ArrayLike],
        n_actions: int,
        allowed: Flags | None = None,
    ) -> Floats:
        """The probabilities (A,) with which a callable policy acts now.

        The policy may return an action, or a vector of A probabilities; an action that is not
        `allowed` (A,) now is refused.
        """
        answer: Any = policy(self)
        if isinstance(answer, int | np.integer) and 0 <= answer < n_actions:
            chances = np.asarray(np.eye(n_actions)[answer])
        elif isinstance(answer, int | np.integer) or np.shape(answer) != (n_actions,):
            raise ValueError(
                f"{self._told(answer)}, neither an action in [0, {n_actions}) nor {n_actions} "
                "probabilities"
            )
        else:
            try:
                row = arrays.as_floats("probabilities", answer)
                chances = arrays.distributions("probabilities", row, (), given=answer)
            except ValueError as error:
                raise ValueError(f"{self._told(answer)}: {error}") from None
        if allowed is not None and chances[~allowed].any():
            action, state = int(np.argmax(chances * ~allowed)), self.states[-1]
            raise ValueError(
                f"{self._told(answer)}, but action {action} is not allowed in state {state}"
            )
        return chances

    def _told(self, answer: Any) -> str:
        return f"after {self} the policy returned {answer!r}"


class MissingCells(NamedTuple):
    """How many cells of a table were empty, and what that did.

    `lost_steps` are rows without a state or an action; they split episodes into `segments`, counted
    here where one continues another. `ends` are last steps of which the next state is unknown.
    """

    states: int = 0
    actions: int = 0
    rewards: int = 0
    next_states: int = 0
    lost_steps: int = 0
    segments: int = 0
    ends: int = 0

    def __str__(self) -> str:
        told = [
            (self.rewards, "missing reward", "missing rewards"),
            (self.states, "missing state", "missing states"),
            (self.actions, "missing action", "missing actions"),
            (self.lost_steps, "lost step", "lost steps"),
            (self.segments, "split of an episode", "splits of episodes"),
            (self.ends, "last step without a next state", "last steps without a next state"),
        ]
        return (
            ", ".join(plural(number, one, many) for number, one, many in told if number) or "none"
        )


class Steps(NamedTuple):
    """Every step of every episode, in the order of `actions`; -1 where a cell is missing."""

    episode: Integers
    state: Indices
    action: Indices
    reward: Indices
    next_state: Indices


class Lacks(NamedTuple):
    """What is missing somewhere in logs: rewards, last states, first states, steps in between."""

    rewards: bool = False
    ends: bool = False
    beginnings: bool = False
    steps: bool = False


class Endings(NamedTuple):
    """Where episodes end: by state, (S,).

    `shortest` is the number of steps of the shortest episode that ends there, a large number where
    none does; one that is continued does not end. `acted_in` says where actions were taken.
    """

    shortest: Integers
    acted_in: Flags

    def joined(self, other: Endings) -> Endings:
        """Those of both together; states that only one of them knows included."""
        size = max(self.shortest.size, other.shortest.size)
        found = [
            Endings(
                np.pad(one.shortest, (0, size - one.shortest.size), constant_values=NEVER),
                np.pad(one.acted_in, (0, size - one.acted_in.size)),
            )
            for one in (self, other)
        ]
        return Endings(
            np.minimum(found[0].shortest, found[1].shortest),
            found[0].acted_in | found[1].acted_in,
        )


NEVER = 1 << 62
"""Steps after which no episode ends."""


class Batch(Protocol):
    """Some neighbouring individuals of logs: episodes start .. stop - 1."""

    @property
    def start(self) -> int:
        """Number of its first episode."""

    @property
    def stop(self) -> int:
        """Number of the episode after its last."""

    def read(self) -> Trajectories:
        """The episodes themselves."""


class Logs:
    """Logged episodes that are read batch by batch: `Trajectories`, or `LogFiles` on disk.

    Attributes
    ----------
    n_states, n_actions, reward_values, state_names, action_names, reward_edges, covariates, missing
        As for `Trajectories`.
    """

    n_states: int
    n_actions: int
    reward_values: Floats | None
    covariates: Covariates | None
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    reward_edges: Floats | None
    missing: MissingCells | None

    def batches(self) -> Sequence[Batch]:
        """The episodes in batches of about `BATCH_STEPS` steps, whole individuals each."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def n_rewards(self) -> int:
        """Z."""
        raise NotImplementedError

    @property
    def n_steps(self) -> int:
        """Number of stored transitions, multiplicities not counted."""
        raise NotImplementedError

    @property
    def n_episodes(self) -> int:
        """Number of episodes, multiplicities counted."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Number of actions in the longest episode."""
        raise NotImplementedError

    @property
    def pays_amounts(self) -> bool:
        """Whether rewards are amounts that say nothing about the context."""
        raise NotImplementedError

    @property
    def lacks(self) -> Lacks:
        """What is missing somewhere."""
        raise NotImplementedError

    def without_contexts(self) -> Logs:
        """The same episodes with their contexts hidden."""
        raise NotImplementedError

    def endings(self) -> Endings:
        """Where episodes end, and where actions were taken."""
        raise NotImplementedError

    def validate(self, model: LatentMDP) -> None:
        """Raise `TrajectoryError` unless every index fits the model."""
        raise NotImplementedError

    def describe(self, model: LatentMDP) -> LatentMDP:
        """The model with what these logs know besides: names, reward edges, and mean amounts.

        Names that the model has stay. Where the logs hold `amounts`, their mean in each (s, a)
        becomes the model's `bonus`: counted by a planner, never seen by an agent.
        """
        known: dict[str, Any] = {}
        for name, size in (("state_names", model.n_states), ("action_names", model.n_actions)):
            names = getattr(self, name)
            if names is not None and getattr(model, name) is None and len(names) == size:
                known[name] = names
        if self.reward_edges is not None and model.n_rewards == self.reward_edges.size + 1:
            known["reward_edges"] = self.reward_edges
        if self.pays_amounts:
            means = mean_amounts(self, model.n_states, model.n_actions)
            bonus = np.repeat(means[None], model.n_contexts, axis=0)
            known["bonus"] = np.where(model.allowed, bonus, 0.0)
        return model.replace(**known) if known else model


class _HeldBatch(NamedTuple):
    """Episodes start .. stop - 1 of logs in memory."""

    logs: Trajectories
    start: int
    stop: int

    def read(self) -> Trajectories:
        """The episodes: views of the logs."""
        if (self.start, self.stop) == (0, len(self.logs)):
            return self.logs
        part: Trajectories = self.logs[self.start : self.stop]
        return part


class Trajectories(Logs, Fielded):
    """A batch of episodes; immutable.

    Parameters
    ----------
    states, actions, rewards, offsets
        The flat layout described in the module's docstring; `rewards` are indices.
    contexts : (N,) or None
        The true context of each episode, where it is known.
    counts : (N,) or None
        How many times each episode occurred; once by default.
    n_states, n_actions, reward_values
        Sizes of the space the data come from. By default no larger than the data show.
    continues : (N,) or None
        Which episodes are further segments of the individual of the episode before.
    propensities : (n,) or None
        The probability with which the logger took the action of each step.
    amounts : (n,) or None
        What was paid at each step, where that is money which says nothing about the context; NaN
        where it is missing. Rewards are then all 0 and `reward_values` is (0,).
    covariates : Covariates of N rows, or None
        What was known of each individual before its first step; its segments repeat the row.
    state_names, action_names : None or sequences of distinct strings
        What states and actions are called.
    episode_names : (N,) or None
        What the episodes, or the individuals whose segments they are, are called.
    reward_edges : (Z - 1,) or None
        Where measured rewards were cut into levels: level z holds the rewards from edge z - 1 up to
        edge z, and `reward_values` are the means of the levels.
    missing : MissingCells or None
        What was missing in the table that the logs come from; None for a part of such logs.

    Raises
    ------
    TrajectoryError
        Naming the array, or the episode and the step.
    """

    states: Indices
    actions: Indices
    rewards: Indices
    offsets: NDArray[np.int64]
    contexts: Indices | None
    counts: NDArray[np.int64] | None
    n_states: int
    n_actions: int
    reward_values: NDArray[np.float64] | None
    continues: Flags | None
    propensities: Floats | None
    amounts: Floats | None
    covariates: Covariates | None
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    episode_names: NDArray[np.object_] | None
    reward_edges: Floats | None
    missing: MissingCells | None

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        offsets: ArrayLike,
        contexts: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        *,
        n_states: int | None = None,
        n_actions: int | None = None,
        reward_values: ArrayLike | None = None,
        continues: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        amounts: ArrayLike | None = None,
        covariates: Covariates | None = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        episode_names: Sequence[str] | NDArray[np.object_] | None = None,
        reward_edges: ArrayLike | None = None,
        missing: MissingCells | None = None,
    ) -> None:
        given: dict[str, tuple[Any, type[np.integer[Any]]]] = {
            "states": (states, np.int32),
            "actions": (actions, np.int32),
            "rewards": (rewards, np.int32),
            "offsets": (offsets, np.int64),
            "contexts": (contexts, np.int32),
            "counts": (counts, np.int64),
        }
        if covariates is not None:
            arrays.require_instance("covariates", covariates, Covariates)
        try:
            fields: dict[str, Any] = {
                name: None
                if value is None and name in ("contexts", "counts")
                else arrays.as_integers(
                    name, value, dtype, low=-1 if name in ("states", "rewards") else 0
                )
                for name, (value, dtype) in given.items()
            }
            fields["reward_values"] = (
                None if reward_values is None else validation.reward_values(reward_values)
            )
            fields["continues"] = _segments(continues)
            fields["propensities"] = _propensities(propensities)
            fields["amounts"] = _amounts(amounts)
            fields["reward_edges"] = _edges(reward_edges, fields["reward_values"])
            fields["episode_names"] = _episode_names(episode_names)
            fields |= {"covariates": covariates, "missing": missing}
            _check_layout(fields)
            for name, words in (("states", state_names), ("actions", action_names)):
                size = n_states if name == "states" else n_actions
                size = len(words) if size is None and words is not None else size
                label = f"{name[:-1]}_names"
                fields[label] = None if size is None else validation.names(label, words, size)
        except ValueError as error:
            raise TrajectoryError(str(error)) from None
        n_states = len(state_names) if n_states is None and state_names else n_states
        n_actions = len(action_names) if n_actions is None and action_names else n_actions
        self._fill(fields, n_states, n_actions)
        if n_states is not None or n_actions is not None or reward_values is not None:
            self.require_sizes(self.n_states, self.n_actions, self.n_rewards)

    def _fill(self, fields: dict[str, Any], n_states: int | None, n_actions: int | None) -> None:
        """Store the fields; a size that is not declared is what the data show."""
        arrays.store(self, fields)
        for name, declared in (("states", n_states), ("actions", n_actions)):
            size = int(fields[name].max(initial=0)) + 1 if declared is None else declared
            self.__dict__[f"n_{name}"] = arrays.positive_integer(f"n_{name}", size)

    def to_fields(self) -> dict[str, Any]:
        """The arguments by name; what was missing as a plain mapping."""
        missing = None if self.missing is None else self.missing._asdict()
        names = None if self.episode_names is None else self.episode_names.tolist()
        return {**super().to_fields(), "missing": missing, "episode_names": names}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Trajectories:
        """The logs with these fields, validated."""
        missing = fields.get("missing")
        return cls(**{**fields, "missing": None if missing is None else MissingCells(**missing)})

    @classmethod
    def _trusted(cls, n_states: int, n_actions: int, **fields: Any) -> Trajectories:
        """Wrap arrays that are known to be valid, without copying or checking them."""
        self = cls.__new__(cls)
        self._fill({**dict.fromkeys(_OPTIONAL), **fields}, n_states, n_actions)
        return self

    @classmethod
    def from_arrays(
        cls,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        contexts: ArrayLike | None = None,
        **sizes: Any,
    ) -> Trajectories:
        """Episodes of equal length L from arrays (N, L+1), (N, L) and (N, L)."""
        named = {"states": states, "actions": actions, "rewards": rewards}
        s, a, r = (arrays.to_array(name, value) for name, value in named.items())
        if a.ndim != 2 or r.shape != a.shape or s.shape != (a.shape[0], a.shape[1] + 1):
            raise TrajectoryError(
                "states, actions and rewards must have shapes (N, L+1), (N, L) and (N, L), got "
                f"{s.shape}, {a.shape} and {r.shape}"
            )
        offsets = np.arange(a.shape[0] + 1, dtype=np.int64) * a.shape[1]
        return cls(s.ravel(), a.ravel(), r.ravel(), offsets, contexts, **sizes)

    @classmethod
    def from_lists(
        cls,
        states: Sequence[Sequence[int]],
        actions: Sequence[Sequence[int]],
        rewards: Sequence[Sequence[int]],
        contexts: ArrayLike | None = None,
        **sizes: Any,
    ) -> Trajectories:
        """Episodes of any length from one list per episode; states are one longer than actions."""
        if not len(states) == len(actions) == len(rewards):
            raise TrajectoryError(
                "states, actions and rewards must hold as many episodes, got "
                f"{len(states)}, {len(actions)} and {len(rewards)}"
            )
        for i, (s, a, r) in enumerate(zip(states, actions, rewards)):
            if len(s) != len(a) + 1 or len(r) != len(a):
                raise TrajectoryError(
                    f"episode {i} has {len(s)} states, {len(a)} actions and {len(r)} rewards: "
                    "L actions need L rewards and L+1 states"
                )
        offsets = np.cumsum([0, *map(len, actions)], dtype=np.int64)
        flat = [[x for part in parts for x in part] for parts in (states, actions, rewards)]
        return cls(flat[0], flat[1], flat[2], offsets, contexts, **sizes)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        columns: Mapping[str, str] | None = None,
        episode: str = "episode",
        t: str | None = "t",
        state: str = "state",
        action: str = "action",
        reward: str = "reward",
        next_state: str | None = "next_state",
        context: str | None = "context",
        count: str | None = "count",
        propensity: str | None = "propensity",
        terminated: str | None = "terminated",
        covariates: Sequence[str] = (),
        reward_levels: int | Literal["auto"] | None = "auto",
        informative_rewards: bool = True,
        reward_values: ArrayLike | None = None,
        reward_edges: ArrayLike | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        rewards_are_indices: bool = False,
    ) -> Trajectories:
        """Episodes from a long table with one row per step, in any order of rows.

        Parameters
        ----------
        table
            A frame (pandas, polars, pyarrow, ...), a mapping of columns, a list of mappings, or the
            path of a .csv or .parquet file.
        columns
            What the table calls its columns, by the words of the next parameters:
            `{"episode": "household", "state": "brand"}`.
        episode, t, state, action, reward, next_state, context, count, propensity, terminated
            The same, one by one. The columns from `next_state` on may be absent under these names;
            a name that is given must be there, and None leaves a column unread.

            | column       | what it holds                                                     |
            |--------------|-------------------------------------------------------------------|
            | `episode`    | which episode, by numbers or names                                |
            | `t`          | steps 0, 1, 2, ... of it; or dates, times, numbers that order rows |
            | `state`      | s_t, by number from 0 or by name                                  |
            | `action`     | a_t, likewise                                                     |
            | `reward`     | the value of r_t                                                  |
            | `next_state` | s_{t+1}, by default the state of the next row                     |
            | `context`    | the true context, the same in all rows of an episode              |
            | `count`      | how often the episode occurred, likewise                          |
            | `propensity` | the probability with which the logger took the action             |
            | `terminated` | whether the episode ended for good with this row                  |

            With `t=None` the rows of an episode are in their order.
        covariates
            Columns that hold covariates of the individual, the same in all rows of an episode.
        reward_levels
            Into how many levels rewards are cut where they have more distinct values; "auto": 10
            where there are more than 20; None: never. The levels have about equal mass, their
            means become `reward_values`, and `reward_edges` says where they were cut.
        informative_rewards
            False: rewards are money that says nothing about the context. They become `amounts`.
        reward_values, reward_edges, n_states, n_actions, state_names, action_names
            As for `Trajectories`, where they are known beforehand, as from the model of other logs.
        rewards_are_indices
            Whether the column `reward` holds indices of unknown values.

        Notes
        -----
        An empty reward is missing. A row whose state or action is empty is a lost step: it splits
        the episode into segments of one individual. Where nothing says to which state the last step
        of an episode led, that state is missing, or a state called `(end)` if `terminated` is true.
        How many cells were empty is kept in `missing`.

        Raises
        ------
        TrajectoryError
            Naming the column and the row, counted from 0.
        """
        from latentmdp.logs.long_table import OPTIONAL, REQUIRED, columns_to_fields

        named = (episode, t, state, action, reward, next_state, context, count, propensity)
        words = (*REQUIRED, *OPTIONAL)
        called = _column_names(dict(zip(words, (*named, terminated), strict=True)), columns)
        if isinstance(covariates, str):
            raise TypeError(f"covariates must be a list of column names, got {covariates!r}")
        fields = columns_to_fields(
            table,
            called,
            covariates=covariates,
            n_states=n_states,
            n_actions=n_actions,
            reward_values=reward_values,
            reward_edges=reward_edges,
            reward_levels=reward_levels,
            informative_rewards=informative_rewards,
            rewards_are_indices=rewards_are_indices,
            state_names=state_names,
            action_names=action_names,
        )
        found = fields.pop("covariates")
        if found is not None:
            levels = {name: f.labels for name, f in found.items() if f.labels is not None}
            values = np.column_stack([f.values for f in found.values()])
            fields["covariates"] = Covariates(list(found), values, levels)
        return cls.from_fields(fields)

    def to_table(self) -> dict[str, NDArray[Any]]:
        """The columns `from_table` reads, one row per step; rewards as values where known.

        States, actions and episodes are called by name where they have names. Lost steps between
        two segments are one row without an action. What is missing is NaN, or None among names.
        """
        index = np.flatnonzero(np.bincount(self.individuals(), self.lengths) == 0)
        if index.size:
            raise TrajectoryError(
                f"episode {int(self.beginnings()[index[0]])} has no steps, and a table holds one "
                "row per step: drop such episodes (logs[logs.lengths > 0]), or save the logs as "
                ".npz"
            )
        steps = self.steps()
        rewards: NDArray[Any] = self.values()
        if self.reward_values is None and self.rewards.min(initial=0) >= 0:
            rewards = self.rewards
        rows: dict[str, NDArray[Any]] = {
            "state": steps.state,
            "action": self.actions,
            "reward": rewards,
            "next_state": steps.next_state,
        }
        if self.propensities is not None:
            rows["propensity"] = self.propensities
        episode = steps.episode
        if self.continues is not None:
            rows, episode = self._with_lost_rows(rows, episode)
        individual = self.individuals()[episode]
        begins = np.searchsorted(individual, np.arange(self.n_individuals))
        columns: dict[str, NDArray[Any]] = {
            "episode": individual if self.episode_names is None else self.episode_names[episode],
            "t": np.arange(individual.size) - begins[individual],
            **rows,
        }
        for name, known in (("state", self.state_names), ("action", self.action_names)):
            for column in (name, f"next_{name}") if name == "state" else (name,):
                columns[column] = _called(columns[column], known)
        if self.contexts is not None:
            columns["context"] = self.contexts[episode]
        if self.counts is not None:
            columns["count"] = self.counts[episode]
        for k, name in enumerate(self.covariates.names if self.covariates is not None else ()):
            assert self.covariates is not None
            values = self.covariates.values[episode, k]
            labels = self.covariates.levels.get(name)
            columns[name] = values if labels is None else _called(_codes(values), labels)
        return columns

    def _with_lost_rows(
        self, rows: dict[str, NDArray[Any]], episode: Integers
    ) -> tuple[dict[str, NDArray[Any]], Integers]:
        """The rows of a table with one more before each segment that continues another."""
        assert self.continues is not None
        later = np.flatnonzero(self.continues)
        before = self.offsets[later]
        rows = {**rows, "reward": rows["reward"].astype(np.float64)}
        lost: dict[str, Any] = {
            "state": self.last_states[later - 1],
            "action": -1,
            "next_state": self.first_states[later],
        }
        longer = {n: np.insert(column, before, lost.get(n, np.nan)) for n, column in rows.items()}
        return longer, np.insert(episode, before, later)

    @property
    def n_rewards(self) -> int:
        """Z: the number of reward values, or one more than the largest index in the data."""
        if self.reward_values is not None:
            return self.reward_values.size
        return int(self.rewards.max(initial=0)) + 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of actions in each episode."""
        return np.diff(self.offsets)

    @property
    def n_steps(self) -> int:
        """Number of stored transitions, multiplicities not counted."""
        return self.actions.size

    @property
    def n_episodes(self) -> int:
        """Number of episodes, multiplicities counted."""
        return len(self) if self.counts is None else int(self.counts.sum())

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __iter__(self) -> Iterator[Episode]:
        return (self._episode(i) for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        """An `Episode` for an integer; `Trajectories` for a slice, a mask or an index array."""
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"episode {key} of {len(self)}")
            return self._episode(int(key) % len(self))
        if isinstance(key, slice) and key.step in (None, 1):
            first, last, _ = key.indices(len(self))
            last = max(first, last)
            start, stop = int(self.offsets[first]), int(self.offsets[last])
            return self._taken(
                slice(start + first, stop + last),
                slice(start, stop),
                self.offsets[first : last + 1] - start,
                slice(first, last),
            )
        index = np.arange(len(self))[key]
        if index.ndim != 1:
            raise IndexError(f"episodes are taken by a number, slice, mask or 1-d index, got {key}")
        return self._gathered(index)

    def _episode(self, i: int) -> Episode:
        start, stop = int(self.offsets[i]), int(self.offsets[i + 1])
        context = None if self.contexts is None else int(self.contexts[i])
        return Episode(
            self.states[start + i : stop + i + 1],
            self.actions[start:stop],
            self.rewards[start:stop],
            context,
        )

    def _gathered(self, index: Integers) -> Trajectories:
        """The episodes of an index array, in its order."""
        lengths = self.lengths[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        steps = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], lengths)
        first_state = self.offsets[index] + index - offsets[:-1] - np.arange(index.size)
        places = np.arange(offsets[-1] + index.size) + np.repeat(first_state, lengths + 1)
        return self._taken(places, steps, offsets, index)

    def _taken(self, states: Any, steps: Any, offsets: Integers, episodes: Any) -> Trajectories:
        """Some states and steps with their new offsets, and what is known of their episodes."""
        by_step = {name: self.__dict__[name] for name in ("propensities", "amounts")}
        by_episode = {name: self.__dict__[name] for name in _BY_EPISODE}
        return self._with(
            states=self.states[states],
            actions=self.actions[steps],
            rewards=self.rewards[steps],
            offsets=offsets,
            continues=self._continuing(episodes),
            missing=None,
            **{name: a if a is None else a[steps] for name, a in by_step.items()},
            **{name: a if a is None else a[episodes] for name, a in by_episode.items()},
        )

    def _continuing(self, episodes: Any) -> Flags | None:
        """`continues` of some episodes; one may not be taken without the one that it continues."""
        if self.continues is None:
            return None
        taken, index = self.continues[episodes], np.arange(len(self))[episodes]
        orphaned = taken & (np.diff(index, prepend=-2) != 1)
        if orphaned.any():
            i = int(index[np.argmax(orphaned)])
            raise IndexError(
                f"episode {i} continues episode {i - 1}, which is not taken with it: take whole "
                "individuals, logs.take_individuals(...)"
            )
        return taken if taken.any() else None

    def _with(self, **fields: Any) -> Trajectories:
        kept = {name: self.__dict__[name] for name in (*_ARRAYS, *_OTHERS)}
        return Trajectories._trusted(self.n_states, self.n_actions, **{**kept, **fields})

    def individuals(self) -> Integers:
        """(N,): the individual that each episode belongs to, numbered from 0 in their order."""
        if self.continues is None:
            return np.arange(len(self))
        return np.asarray(np.cumsum(~self.continues) - 1)

    @property
    def n_individuals(self) -> int:
        """Number of stored individuals, multiplicities not counted."""
        return len(self) if self.continues is None else int((~self.continues).sum())

    def beginnings(self) -> Integers:
        """The first episode of each individual."""
        return np.arange(len(self)) if self.continues is None else np.flatnonzero(~self.continues)

    def individual_offsets(self) -> Integers:
        """Where the steps of each individual begin, and their number: `offsets` by individual."""
        return np.append(self.offsets[self.beginnings()], self.offsets[-1])

    def take_individuals(self, key: Any) -> Trajectories:
        """All segments of some individuals: a slice, a mask or an index array, in its order."""
        chosen = np.arange(self.n_individuals)[key]
        if chosen.ndim != 1:
            raise IndexError(f"individuals are taken by a slice, mask or 1-d index, got {key}")
        if self.continues is None:
            return self._gathered(chosen)
        first = np.append(self.beginnings(), len(self))
        sizes = np.diff(first)[chosen]
        starts = np.cumsum(sizes) - sizes
        index = np.arange(sizes.sum()) + np.repeat(first[chosen] - starts, sizes)
        return self._gathered(index)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing: no reward, no last state, no lost steps."""
        known = self.rewards.min(initial=0) >= 0 and self.states.min(initial=0) >= 0
        return self.continues is None and bool(known)

    def require_complete(self, what: str) -> None:
        """Raise `TrajectoryError` if something is missing in the logs; `what` cannot cope with it.

        Raises
        ------
        TrajectoryError
            Naming the first episode and step.
        """
        if self.complete:
            return
        episode, step, gap = len(self), 0, ""
        if self.continues is not None:
            episode, gap = int(np.argmax(self.continues)), "it continues the episode before"
        lost = np.flatnonzero(self.rewards < 0)
        if lost.size:
            first = int(np.searchsorted(self.offsets, lost[0], side="right")) - 1
            if first < episode:
                episode, step = first, int(lost[0] - self.offsets[first])
                gap = f"the reward of step {step} is missing"
        ends = np.flatnonzero(self.last_states < 0)
        if ends.size and ends[0] < episode:
            episode, gap = int(ends[0]), "its last state is missing"
        raise TrajectoryError(f"{what} needs complete episodes, but of episode {episode}: {gap}")

    @property
    def pays_amounts(self) -> bool:
        """Whether rewards are amounts that say nothing about the context."""
        return self.amounts is not None

    def mean_amounts(self, n_states: int | None = None, n_actions: int | None = None) -> Floats:
        """The mean amount paid in each (s, a), (S, A); the least of them where nothing was paid."""
        return mean_amounts(self, n_states, n_actions)

    @property
    def lacks(self) -> Lacks:
        """What is missing somewhere."""
        return Lacks(
            bool(self.rewards.min(initial=0) < 0),
            bool(self.last_states.min(initial=0) < 0),
            bool(self.first_states[self.beginnings()].min(initial=0) < 0),
            self.continues is not None,
        )

    def endings(self) -> Endings:
        """Where episodes end, and where actions were taken."""
        shortest = np.full(self.n_states, NEVER)
        ends = self.last_states >= 0
        if self.continues is not None:
            ends[:-1] &= ~self.continues[1:]  # that one goes on
        np.minimum.at(shortest, self.last_states[ends], self.lengths[ends])
        acted_in = np.zeros(self.n_states, np.bool_)
        acted_in[self.steps().state] = True
        return Endings(shortest, acted_in)

    def batches(self) -> list[_HeldBatch]:
        """The episodes in batches of about `BATCH_STEPS` steps, whole individuals each."""
        if self.n_steps <= BATCH_STEPS:
            return [_HeldBatch(self, 0, len(self))] if len(self) else []
        begins = self.beginnings()
        batch = self.offsets[begins] // BATCH_STEPS
        first = begins[np.flatnonzero(np.diff(batch, prepend=-1))]
        edges = [*first.tolist(), len(self)]
        return [_HeldBatch(self, *edge) for edge in pairwise(edges)]

    @property
    def longest(self) -> int:
        """Number of actions in the longest episode."""
        return int(self.lengths.max(initial=0))

    def without_contexts(self) -> Trajectories:
        """The same episodes with their contexts hidden."""
        return self._with(contexts=None)

    def with_contexts(self, contexts: ArrayLike) -> Trajectories:
        """The same episodes with the given contexts."""
        labels = arrays.as_integers("contexts", contexts, np.int32)
        if labels.size != len(self):
            raise TrajectoryError(f"contexts must have {len(self)} entries, got {labels.size}")
        return self._with(contexts=labels)

    @classmethod
    def concat(cls, parts: Iterable[Trajectories]) -> Trajectories:
        """Join batches; sizes grow to the largest, reward values must agree."""
        batches = list(parts)
        if not batches:
            raise ValueError("concat needs at least one batch")
        for i, batch in enumerate(batches):
            arrays.require_instance(f"batch {i}", batch, Trajectories)
            if not arrays.same_content(batches[0].reward_values, batch.reward_values):
                raise TrajectoryError(f"batch {i} has other reward_values than batch 0")
            for name in ("state_names", "action_names", "reward_edges"):
                mine, first = batch.__dict__[name], batches[0].__dict__[name]
                if not arrays.same_content(first, mine):
                    raise TrajectoryError(f"batch {i} has other {name} than batch 0")
            for name in ("contexts", "propensities", "amounts", "covariates", "episode_names"):
                if (batch.__dict__[name] is None) != (batches[0].__dict__[name] is None):
                    raise TrajectoryError(f"batch {i} and batch 0: only one of them has {name}")
        shifts = np.cumsum([0, *(b.n_steps for b in batches)])
        offsets = [b.offsets[:-1] + shift for b, shift in zip(batches, shifts)]
        weighted = any(b.counts is not None for b in batches)
        split = any(b.continues is not None for b in batches)
        none = [np.zeros(len(b), np.bool_) if b.continues is None else b.continues for b in batches]
        joined: dict[str, Any] = {
            name: np.concatenate([b.__dict__[name] for b in batches])
            for name in (*_LISTS, "contexts", "propensities", "amounts", "episode_names")
            if batches[0].__dict__[name] is not None
        }
        if batches[0].covariates is not None:
            joined["covariates"] = Covariates.concat([b.__dict__["covariates"] for b in batches])
        missing = [b.missing for b in batches if b.missing is not None]
        S, A, _ = sizes_of(batches)
        return cls._trusted(
            S,
            A,
            **joined,
            offsets=np.concatenate([*offsets, shifts[-1:]]),
            counts=np.concatenate([b.multiplicities() for b in batches]) if weighted else None,
            continues=np.concatenate(none) if split else None,
            missing=MissingCells(*map(sum, zip(*missing)))
            if len(missing) == len(batches)
            else None,
            **{
                name: batches[0].__dict__[name]
                for name in ("reward_values", "reward_edges", "state_names", "action_names")
            },
        )

    def steps(self) -> Steps:
        """All steps of all episodes, one by one."""
        episode = np.repeat(np.arange(len(self)), self.lengths)
        place = np.arange(self.n_steps) + episode
        return Steps(
            episode, self.states[place], self.actions, self.rewards, self.states[place + 1]
        )

    @property
    def first_states(self) -> Indices:
        """The state in which each episode, or segment, begins."""
        return self.states[self.offsets[:-1] + np.arange(len(self))]

    @property
    def last_states(self) -> Indices:
        """The state in which each episode ends; -1 where it is missing."""
        return self.states[self.offsets[1:] + np.arange(len(self))]

    def cells(self, by: Sequence[str], sizes: Sizes | None = None) -> Integers:
        """The cell of every step as one number: the mixed radix of the columns named in `by`.

        Columns are "state", "action", "next_state" and "reward"; the first one counts most. The
        cell is -1 where one of them is missing.
        """
        steps, widths = self.steps(), _widths(by, sizes or sizes_of(self))
        code = np.zeros(self.n_steps, np.int64)
        for name, width in zip(by, widths):
            code = code * width + getattr(steps, name)
        for name in {"next_state", "reward"} & set(by):
            column = getattr(steps, name)
            if column.min(initial=0) < 0:
                code[column < 0] = -1
        return code

    def multiplicities(self) -> NDArray[np.int64]:
        """`counts`, or ones where episodes are not counted."""
        return np.ones(len(self), dtype=np.int64) if self.counts is None else self.counts

    def deduplicate(self) -> Trajectories:
        """Merge identical episodes (of the same known context), adding up their counts.

        Episodes keep the order of their first occurrence. Those with propensities or amounts, and
        individuals of several segments, stay as they are.
        """
        return self.deduplicate_with_inverse()[0]

    def deduplicate_with_inverse(self) -> tuple[Trajectories, NDArray[np.int64]]:
        """`deduplicate`, and for each episode here the index of its merged episode."""
        from latentmdp._kernels.episodes import group_identical

        labels = self._kinds_of_episodes()
        first, inverse = group_identical(
            self.states, self.actions, self.rewards, self.offsets, labels
        )
        counts = np.bincount(inverse, weights=self.multiplicities(), minlength=first.size)
        merged = self._gathered(first)
        return merged._with(counts=np.rint(counts).astype(np.int64), episode_names=None), inverse

    def _kinds_of_episodes(self) -> Indices:
        """A number for each episode: identical episodes are merged where it is the same."""
        labels = np.full(len(self), -1, dtype=np.int32) if self.contexts is None else self.contexts
        if self.covariates is not None:
            rows = np.column_stack([labels, np.nan_to_num(self.covariates.values, nan=np.inf)])
            labels = np.unique(rows, axis=0, return_inverse=True)[1].astype(np.int32).ravel()
        apart = np.zeros(len(self), np.bool_)
        if self.continues is not None:
            apart = self.continues | np.append(self.continues[1:], False)
        if self.propensities is not None or self.amounts is not None:
            apart = np.ones(len(self), np.bool_)
        if apart.any():
            highest = int(labels.max(initial=0)) + 1
            labels = np.where(apart, highest + np.arange(len(self)), labels).astype(np.int32)
        return labels

    def as_arrays(self) -> tuple[Indices, Indices, Indices]:
        """States (N, L+1), actions (N, L) and rewards (N, L) when all lengths are equal."""
        lengths = self.lengths
        if lengths.size and (lengths != lengths[0]).any():
            odd = int(np.argmax(lengths != lengths[0]))
            raise TrajectoryError(
                f"as_arrays needs equal lengths: episode 0 has {lengths[0]} steps, "
                f"episode {odd} has {lengths[odd]}"
            )
        N, L = len(self), int(lengths[0]) if lengths.size else 0
        return self.states.reshape(N, L + 1), self.actions.reshape(N, L), self.rewards.reshape(N, L)

    def values(self) -> NDArray[np.float64]:
        """The rewards as values, one per step; indices themselves where no values are known.

        What was paid where the logs hold `amounts`, and NaN where a reward is missing.
        """
        if self.amounts is not None:
            return self.amounts
        if self.reward_values is None:
            values = self.rewards.astype(np.float64)
        else:
            values = self.reward_values[self.rewards]
        if self.rewards.min(initial=0) < 0:
            values[self.rewards < 0] = np.nan
        return values

    def returns(self, discount: float = 1.0) -> NDArray[np.float64]:
        """The (discounted) sum of rewards of each episode.

        NaN where a reward of it is missing, and in all segments of an individual with lost steps.
        """
        episode = np.repeat(np.arange(len(self)), self.lengths)
        steps = np.arange(self.n_steps) - self.offsets[episode]
        weighted = self.values() if discount == 1.0 else self.values() * discount**steps
        totals = np.asarray(np.bincount(episode, weighted, len(self)), dtype=np.float64)
        if self.continues is not None:
            totals[self.continues | np.append(self.continues[1:], False)] = np.nan
        return totals

    def validate(self, model: LatentMDP) -> None:
        """Raise `TrajectoryError` unless every index fits the model, naming episode and step."""
        self.require_sizes(model.n_states, model.n_actions, model.n_rewards)
        contexts, M = self.contexts, model.n_contexts
        if contexts is not None and (contexts >= M).any():
            worst = int(np.argmax(contexts >= M))
            raise TrajectoryError(
                f"episode {worst}: context {contexts[worst]} is not below the model's "
                f"n_contexts={M}"
            )
        known = self.reward_values
        if known is not None and not np.array_equal(known, model.reward_values):
            raise TrajectoryError(
                f"the logs' reward_values {known.tolist()} are not the model's "
                f"{model.reward_values.tolist()}"
            )

    def require_sizes(self, n_states: int, n_actions: int, n_rewards: int) -> None:
        """Raise `TrajectoryError` unless every index is below its size, naming episode and step."""
        bounds = (("state", n_states), ("action", n_actions), ("reward index", n_rewards))
        for (what, limit), array in zip(bounds, (self.states, self.actions, self.rewards)):
            if array.max(initial=-1) >= limit:
                place = int(np.argmax(array >= limit))
                starts = self.offsets + (np.arange(len(self) + 1) if what == "state" else 0)
                episode = int(np.searchsorted(starts, place, side="right")) - 1
                raise TrajectoryError(
                    f"episode {episode}, step {place - int(starts[episode])}: {what} "
                    f"{array[place]} is out of range, must be below {limit}"
                )

    def fingerprint(self) -> str:
        """A hexadecimal digest of every array: equal logs have equal fingerprints."""
        digest = hashlib.sha256()
        for name in _ARRAYS:
            array = self.__dict__[name]
            if array is not None or name in _DIGESTED:
                digest.update(name.encode() + (b"" if array is None else array.tobytes()))
        for name in ("covariates", "state_names", "action_names", "episode_names"):
            value = self.__dict__[name]
            if value is not None:
                told = value.fingerprint() if name == "covariates" else repr(tuple(value))
                digest.update((name + told).encode())
        return digest.hexdigest()

    def __setattr__(self, name: str, *value: object) -> None:
        raise AttributeError("Trajectories are immutable")

    __delattr__ = __setattr__

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays.store(self, state)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lengths = self.lengths
        if lengths.size == 0:
            return "Trajectories(no episodes)"
        low, high = int(lengths.min()), int(lengths.max())
        length = f"length {low}" if low == high else f"lengths {low} to {high}"
        extra = "" if self.counts is None else f", {self.n_episodes} with multiplicities"
        extra += "" if self.contexts is None else ", contexts known"
        if self.continues is not None:
            extra += f", segments of {plural(self.n_individuals, 'individual')}"
        gaps = int((self.rewards < 0).sum())
        extra += f", {plural(gaps, 'missing reward')}" if gaps else ""
        if self.reward_edges is not None:
            extra += f", rewards in {self.reward_edges.size + 1} levels"
        extra += "" if self.amounts is None else ", rewards unseen"
        if self.covariates is not None:
            extra += f", covariates {', '.join(self.covariates.names)}"
        noun = "episode" if len(self) == 1 else "episodes"
        return f"Trajectories({len(self)} {noun}, {length}{extra})"


_LISTS = ("states", "actions", "rewards")
_DIGESTED = (*_LISTS, "offsets", "contexts", "counts", "reward_values")
_ARRAYS = (*_DIGESTED, "continues", "propensities", "amounts", "reward_edges")
_OTHERS = ("covariates", "state_names", "action_names", "episode_names", "missing")
_BY_EPISODE = ("contexts", "counts", "covariates", "episode_names")
_OPTIONAL = ("contexts", "counts", *_ARRAYS[len(_DIGESTED) :], *_OTHERS)


def _column_names(
    named: Mapping[str, str | None], columns: Mapping[str, str] | None
) -> dict[str, str | None]:
    """What a table calls its columns, from the keyword arguments and `columns` together."""
    called = dict(named)
    for word, column in (columns or {}).items():
        if word not in named:
            raise TypeError(f"from_table knows no column {word!r}; it knows {', '.join(named)}")
        if named[word] != word:
            raise TypeError(f"{word} is given twice, as {named[word]!r} and in columns")
        called[word] = column
    for word, name in called.items():
        if name is not None and not isinstance(name, str):
            raise TypeError(f"{word} must be the name of a column, got {name!r:.60}")
    return called


def _codes(values: Floats) -> Integers:
    """Indices kept as floats, NaN becoming -1."""
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _called(codes: NDArray[Any], names: Sequence[str] | None) -> NDArray[Any]:
    """Indices by their names, or as they are; -1 becomes None, or NaN."""
    if names is not None:
        return np.array([*names, None], dtype=object)[codes]
    if codes.min(initial=0) < 0:
        return np.where(codes < 0, np.nan, codes.astype(np.float64))
    return codes


def require_logs(name: str, logs: object) -> None:
    """Raise `TypeError` unless an argument is logs."""
    if not isinstance(logs, Logs):
        raise TypeError(
            f"{name} must be Trajectories or LogFiles, got {type(logs).__name__}: read a file with "
            "load(path), columns with Trajectories.from_table(table), or what is larger than "
            "memory with open_logs(paths)"
        )


def require_in_memory(name: str, logs: object) -> None:
    """Raise `TypeError` unless an argument is logs in memory."""
    require_logs(name, logs)
    if not isinstance(logs, Trajectories):
        raise TypeError(
            f"{name} must be Trajectories, all episodes in memory at once, got {logs!r}: give "
            "logs.read(), or logs.sample(steps) of them"
        )


def sizes_of(logs: Logs | Sequence[Logs]) -> Sizes:
    """(S, A, Z) of one log or of several together, no larger than they say."""
    parts = _listed(logs)
    return (
        max(part.n_states for part in parts),
        max(part.n_actions for part in parts),
        max(part.n_rewards for part in parts),
    )


def _listed(logs: Logs | Sequence[Logs]) -> list[Logs]:
    return [logs] if isinstance(logs, Logs) else list(logs)


def cell_counts(
    logs: Logs | Sequence[Logs],
    by: Sequence[str],
    sizes: Sizes | None = None,
    shares: Floats | None = None,
) -> Floats:
    """How often each cell occurs, multiplicities counted.

    Parameters
    ----------
    by
        The columns of a cell, see `Trajectories.cells`; they become the axes of the result.
    sizes
        (S, A, Z); by default no larger than the logs say.
    shares : (N, M) or None
        The share of each context in each episode of all logs, one log after the other: the
        result then has a first axis of M contexts.
    """
    sizes = sizes or sizes_of(logs)
    shape = _widths(by, sizes)
    length = int(np.prod(shape))
    counts = np.zeros((1 if shares is None else shares.shape[1], length))
    for cells, weights in _weighted_cells(logs, by, sizes, shares):
        for total, column in zip(counts, weights):
            total += _tally(cells, column, length)
    return counts.reshape(shape if shares is None else (-1, *shape))


def occurring_cells(
    logs: Logs | Sequence[Logs],
    by: Sequence[str],
    sizes: Sizes | None = None,
    shares: Floats | None = None,
) -> tuple[Integers, Floats]:
    """The cells that occur, in order, and how often: (C,) or, with shares, (C, M).

    Arguments as for `cell_counts`; memory follows the number of different cells.
    """
    known = np.zeros(0, np.int64)
    counts = np.zeros((0, 1 if shares is None else shares.shape[1]))
    for cells, weights in _weighted_cells(logs, by, sizes or sizes_of(logs), shares):
        distinct, index = np.unique(cells, return_inverse=True)
        found = np.stack([_tally(index, column, distinct.size) for column in weights], axis=1)
        every = np.union1d(known, distinct)
        total = np.zeros((every.size, counts.shape[1]))
        total[np.searchsorted(every, known)] = counts
        total[np.searchsorted(every, distinct)] += found
        known, counts = every, total
    return known, counts[:, 0] if shares is None else counts


def first_state_counts(
    logs: Logs, n_states: int | None = None, shares: Floats | None = None
) -> Floats:
    """How often each state comes first, multiplicities counted: (S,) or, with shares, (M, S).

    An individual counts once, however many segments it has; one without a first state does not.
    """
    S = n_states or logs.n_states
    total = np.zeros((1 if shares is None else shares.shape[1], S))
    for batch in logs.batches():
        part = batch.read()
        first, counts = part.first_states, part.multiplicities().astype(np.float64)
        own = None if shares is None else shares[batch.start : batch.stop]
        begins = first >= 0 if part.continues is None else (first >= 0) & ~part.continues
        if not begins.all():
            first, counts = first[begins], counts[begins]
            own = None if own is None else own[begins]
        columns = counts[None] if own is None else (own * counts[:, None]).T
        for row, column in zip(total, columns):
            row += _tally(first, column, S)
    return total[0] if shares is None else total


def mean_amounts(logs: Logs, n_states: int | None = None, n_actions: int | None = None) -> Floats:
    """The mean amount paid in each (s, a), (S, A); the least of them where nothing was paid."""
    if not logs.pays_amounts:
        raise TrajectoryError("the logs hold no amounts")
    S, A = n_states or logs.n_states, n_actions or logs.n_actions
    totals, counts = np.zeros(S * A), np.zeros(S * A)
    for batch in logs.batches():
        part = batch.read()
        assert part.amounts is not None
        steps, known = part.steps(), ~np.isnan(part.amounts)
        rows = (steps.state.astype(np.int64) * A + steps.action)[known]
        weights = part.multiplicities()[steps.episode][known].astype(np.float64)
        totals += _tally(rows, weights * part.amounts[known], S * A)
        counts += _tally(rows, weights, S * A)
    means = np.divide(totals, counts, out=np.full(S * A, np.nan), where=counts > 0.0)
    least = float(np.nanmin(means)) if (counts > 0.0).any() else 0.0
    return np.where(np.isnan(means), least, means).reshape(S, A)


def _tally(places: NDArray[Any], weights: Floats, length: int) -> Floats:
    """The sum of the weights at each place below `length`."""
    return np.asarray(np.bincount(places, weights=weights, minlength=length), np.float64)


def _widths(by: Sequence[str], sizes: Sizes) -> tuple[int, ...]:
    S, A, Z = sizes
    known = {"state": S, "action": A, "next_state": S, "reward": Z}
    return tuple(known[name] for name in by)


def _weighted_cells(
    logs: Logs | Sequence[Logs], by: Sequence[str], sizes: Sizes, shares: Floats | None
) -> Iterator[tuple[Integers, Iterator[Floats]]]:
    """For each batch, the cell of every step, and the weight of every step, context by context."""
    before = 0
    for logged in _listed(logs):
        for batch in logged.batches():
            part = batch.read()
            cells, counts = part.cells(by, sizes), part.multiplicities()
            episode = np.repeat(np.arange(len(part)), part.lengths)
            if shares is None:
                each = counts.astype(np.float64)[:, None]
            else:
                each = counts[:, None] * shares[before + batch.start : before + batch.stop]
            known = cells >= 0
            if not known.all():
                cells, episode = cells[known], episode[known]
            yield cells, (column[episode] for column in each.T)
        before += len(logged)


def _segments(continues: ArrayLike | None) -> Flags | None:
    if continues is None:
        return None
    flags = np.array(continues)
    if flags.ndim != 1 or (flags.size and flags.dtype != np.bool_):
        raise ValueError(f"continues must be flags (N,), got {flags.dtype} of shape {flags.shape}")
    if flags.size and flags[0]:
        raise ValueError("episode 0 cannot continue an episode before it")
    return flags if flags.any() else None


def _propensities(given: ArrayLike | None) -> Floats | None:
    if given is None:
        return None
    values = arrays.as_floats("propensities", given)
    wrong = (values <= 0.0) | (values > 1.0)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(
            f"propensities[{k}] is {values.ravel()[k]:g}: the probability of an action that was "
            "taken lies in (0, 1]"
        )
    return values


def _amounts(given: ArrayLike | None) -> Floats | None:
    if given is None:
        return None
    values = np.array(given, np.float64) + 0.0
    if np.isinf(values).any():
        raise ValueError(f"amounts[{int(np.argmax(np.isinf(values)))}] is infinite")
    return values


def _episode_names(given: Sequence[str] | NDArray[np.object_] | None) -> Any:
    if given is None:
        return None
    names = np.empty(len(given), dtype=object)
    names[:] = given
    if not all(isinstance(name, str) for name in names):
        raise TypeError("episode_names must be a sequence of strings")
    return names


def _edges(given: ArrayLike | None, values: Floats | None) -> Floats | None:
    """Where rewards are cut into levels, checked against the means of the levels."""
    if given is None:
        return None
    if values is None:
        raise ValueError("reward_edges need reward_values, the means of the levels")
    return validation.reward_edges(given, values)


def _check_layout(fields: dict[str, Any]) -> None:
    offsets = fields["offsets"]
    if offsets.size == 0 or offsets[0] != 0:
        raise ValueError("offsets must begin with 0")
    falling = np.diff(offsets) < 0
    if falling.any():
        i = int(np.argmax(falling))
        raise ValueError(f"offsets must not fall: episode {i} ends before it begins")
    N, total = offsets.size - 1, int(offsets[-1])
    expected = {"states": total + N, "actions": total, "rewards": total, "contexts": N, "counts": N}
    expected |= {"continues": N, "propensities": total, "amounts": total, "episode_names": N}
    for name, size in expected.items():
        array = fields[name]
        if array is not None and array.size != size:
            raise ValueError(
                f"{name} has {array.size} entries, but offsets describe {N} episodes with "
                f"{total} steps, which need {size}"
            )
    covariates, continues = fields["covariates"], fields["continues"]
    if covariates is not None and len(covariates) != N:
        raise ValueError(f"covariates have {len(covariates)} rows, but there are {N} episodes")
    _check_last_states(fields["states"], offsets)
    if continues is not None:
        _check_segments(fields, np.flatnonzero(continues))


def _check_last_states(states: Indices, offsets: Integers) -> None:
    """A state may be missing at the end of an episode only."""
    unknown = states < 0
    if not unknown.any():
        return
    unknown[offsets[1:] + np.arange(offsets.size - 1)] = False
    if unknown.any():
        place = int(np.argmax(unknown))
        raise ValueError(
            f"states[{place}] is -1: only the last state of an episode may be missing (split the "
            "episode with continues)"
        )


def _check_segments(fields: dict[str, Any], later: Integers) -> None:
    """What is known of an individual is the same in all its segments."""
    for name in ("contexts", "counts", "covariates"):
        known = fields[name]
        if known is None:
            continue
        rows = known.values if isinstance(known, Covariates) else known[:, None]
        rows = np.nan_to_num(rows.astype(np.float64), nan=np.inf)
        wrong = (rows[later] != rows[later - 1]).any(axis=1)
        if wrong.any():
            i = int(later[np.argmax(wrong)])
            raise ValueError(
                f"episode {i} continues episode {i - 1}, but they have different {name}"
            )
