"""Logged episodes in memory: flat integer arrays plus offsets, so that lengths may differ.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp._util.fields import Fielded
from latentmdp._util.results import extent
from latentmdp._util.words import plural
from latentmdp.errors import TrajectoryError
from latentmdp.logs.base import (
    NO_END,
    Endings,
    Logs,
    MissingCells,
    MissingKinds,
    Sizes,
    Summary,
    batch_edges,
    require_logs,
    sizes_of,
)
from latentmdp.logs.covariates import Covariates
from latentmdp.logs.history import JoinedStates


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
                f"{self._answered(answer)}, neither an action in [0, {n_actions}) nor {n_actions} "
                "probabilities"
            )
        else:
            try:
                row = arrays.as_floats("probabilities", answer)
                chances = arrays.distributions("probabilities", row, (), source=answer)
            except ValueError as error:
                raise ValueError(f"{self._answered(answer)}: {error}") from None
        if allowed is not None and chances[~allowed].any():
            action, state = int(np.argmax(chances * ~allowed)), self.states[-1]
            raise ValueError(
                f"{self._answered(answer)}, but action {action} is not allowed in state {state}"
            )
        return chances

    def _answered(self, answer: Any) -> str:
        return f"after {self} the policy returned {answer!r}"


class Steps(NamedTuple):
    """Every step of every episode, in the order of `actions`; -1 where a cell is missing."""

    episode: Integers
    state: Indices
    action: Indices
    reward: Indices
    next_state: Indices


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
    **details
        What else is known, by the names of the other parameters.

    Other Parameters
    ----------------
    continues : (N,) or None
        Which episodes are further segments of the individual of the episode before.
    propensities : (n,) or None
        The probability with which the logger took the action of each step.
    amounts : (n,) or None
        What was paid at each step, NaN where it is missing, where rewards are not what is paid:
        they are its levels (`reward_edges`) or, where the money says nothing about the context, all
        0 with `reward_values` (0,). Levels are evidence only; values are means of amounts.
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
        **details: Any,
    ) -> None:
        given = {**locals(), **details}  # by name: the signature is the one list of them
        strange = [name for name in details if name not in _DETAILS]
        if strange:
            raise TypeError(
                f"Trajectories takes no {strange[0]!r}; it takes {', '.join(_DETAILS)} by name"
            )
        fields: dict[str, Any] = {name: given.get(name) for name in _FIELDS}
        declared = {"states": n_states, "actions": n_actions}
        required = ("states", "actions", "rewards", "offsets")
        try:
            for name, value in fields.items():
                check = _FIELDS[name][1]
                if check is not None and (value is not None or name in required):
                    fields[name] = check(value)
            if fields["reward_edges"] is not None:
                if reward_values is None:
                    raise ValueError("reward_edges need reward_values, the means of the levels")
                edges = validation.reward_edges(fields["reward_edges"], fields["reward_values"])
                fields["reward_edges"] = edges
            _check_layout(fields)
            for name, label in (("states", "state_names"), ("actions", "action_names")):
                if (names := fields[label]) is not None:
                    size = declared[name]
                    declared[name] = size = len(names) if size is None else size
                    fields[label] = validation.names(label, names, size)
        except ValueError as error:
            raise TrajectoryError(str(error)) from None
        self._fill(fields, declared["states"], declared["actions"])
        if reward_values is not None or any(size is not None for size in declared.values()):
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
        fields = {name: self.__dict__[name] for name in _FIELDS}
        return {**fields, "missing": missing, "episode_names": names}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Trajectories:
        """The logs with these fields, validated."""
        missing = fields.get("missing")
        return cls(**{**fields, "missing": None if missing is None else MissingCells(**missing)})

    @classmethod
    def _trusted(cls, n_states: int, n_actions: int, **fields: Any) -> Trajectories:
        """Wrap arrays that are known to be valid, without copying or checking them."""
        self = cls.__new__(cls)
        self._fill({**dict.fromkeys(_FIELDS), **fields}, n_states, n_actions)
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
            | `t`          | steps of it, from any number on; or dates, times that order rows  |
            | `state`      | s_t, by number from 0, or by name or code (10, 20, ...)           |
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
            means become `reward_values`, and `reward_edges` says where they were cut. What was paid
            stays in `amounts`: a policy is valued by the means of these, not of levels.
        informative_rewards
            False: rewards are money that says nothing about the context. They are `amounts` only.
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
        arguments = dict(locals())  # by name: the signature is the one list of them
        from latentmdp.logs.long_table import WORDS, TableOptions, fields_of_table

        names = _column_names({word: arguments[word] for word in WORDS}, columns)
        if isinstance(covariates, str):
            raise TypeError(f"covariates must be a list of column names, got {covariates!r}")
        arguments["covariates"] = tuple(covariates)
        options = {name: arguments[name] for name in TableOptions._fields if name in arguments}
        return cls(**fields_of_table(table, names, TableOptions(**options)))

    def to_table(self) -> dict[str, NDArray[Any]]:
        """The columns `from_table` reads, one row per step; rewards as values where known.

        States, actions and episodes are called by name where they have names. Lost steps between
        two segments are one row without an action. What is missing is NaN, or None among names.
        """
        from latentmdp.logs.long_table import table_of

        return table_of(self)

    @property
    def summary(self) -> Summary:
        """What is known of the episodes as a whole."""
        return Summary.of(self)

    @property
    def fits_memory(self) -> bool:
        """True: all episodes are there."""
        return True

    def read(self) -> Trajectories:
        """The logs themselves."""
        return self

    def held(self) -> Trajectories:
        """The logs themselves."""
        return self

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
        states = np.arange(offsets[-1] + index.size) + np.repeat(first_state, lengths + 1)
        return self._taken(states, steps, offsets, index)

    def _taken(self, states: Any, steps: Any, offsets: Integers, episodes: Any) -> Trajectories:
        """Some states and steps with their new offsets, and what is known of their episodes."""
        index = {"states": states, "steps": steps, "episodes": episodes}
        # slices of arrays are views: batches of logs in memory copy nothing
        fields = {name: self.__dict__[name] for name in _ALONG}
        parts = {n: a if a is None else a[index[_ALONG[n]]] for n, a in fields.items()}
        parts["continues"] = self._continuing(episodes)
        return self._with(**parts, offsets=offsets, missing=None)

    def _continuing(self, episodes: Any) -> Flags | None:
        """`continues` of some episodes; one may not be taken without the one that it continues."""
        if self.continues is None:
            return None
        continues, index = self.continues[episodes], np.arange(len(self))[episodes]
        orphaned = continues & (np.diff(index, prepend=-2) != 1)
        if orphaned.any():
            i = int(index[np.argmax(orphaned)])
            raise IndexError(
                f"episode {i} continues episode {i - 1}, which is not taken with it: take whole "
                "individuals, logs.take_individuals(...)"
            )
        return continues if continues.any() else None

    def _with(self, **fields: Any) -> Trajectories:
        return Trajectories._trusted(**{**self.__dict__, **fields})

    def individuals(self) -> Integers:
        """(N,): the individual that each episode belongs to, numbered from 0 in their order."""
        continues = np.zeros(len(self), np.bool_) if self.continues is None else self.continues
        return np.asarray(np.cumsum(~continues) - 1)

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
        individuals = np.arange(self.n_individuals)[key]
        if individuals.ndim != 1:
            raise IndexError(f"individuals are taken by a slice, mask or 1-d index, got {key}")
        first = np.append(self.beginnings(), len(self))
        sizes = np.diff(first)[individuals]
        starts = np.cumsum(sizes) - sizes
        index = np.arange(sizes.sum()) + np.repeat(first[individuals] - starts, sizes)
        return self._gathered(index)

    def require_complete(self, what: str) -> None:
        """Raise `TrajectoryError` if something is missing in the logs; `what` cannot cope with it.

        Raises
        ------
        TrajectoryError
            Naming the first episode and step.
        """
        if self.complete:
            return
        gaps = []
        if self.continues is not None:
            gaps.append((int(np.argmax(self.continues)), "it continues the episode before"))
        for k in np.flatnonzero(self.rewards < 0)[:1].tolist():
            episode = int(np.searchsorted(self.offsets, k, side="right")) - 1
            step = k - int(self.offsets[episode])
            gaps.append((episode, f"the reward of step {step} is missing"))
        for episode in np.flatnonzero(self.last_states < 0)[:1].tolist():
            gaps.append((episode, "its last state is missing"))
        episode, gap = min(gaps, key=lambda one: one[0])
        raise TrajectoryError(f"{what} needs complete episodes, but of episode {episode}: {gap}")

    @property
    def pays_amounts(self) -> bool:
        """Whether the amounts paid are known beside the rewards that are seen, or levels."""
        return self.amounts is not None

    @property
    def lacks(self) -> MissingKinds:
        """What is missing somewhere."""
        return MissingKinds(
            bool(self.rewards.min(initial=0) < 0),
            bool(self.last_states.min(initial=0) < 0),
            bool(self.first_states[self.beginnings()].min(initial=0) < 0),
            self.continues is not None,
        )

    def endings(self) -> Endings:
        """Where episodes end, and where actions were taken."""
        shortest = np.full(self.n_states, NO_END)
        ends = self.last_states >= 0
        if self.continues is not None:
            ends[:-1] &= ~self.continues[1:]  # that one goes on
        np.minimum.at(shortest, self.last_states[ends], self.lengths[ends])
        acted_in = np.zeros(self.n_states, np.bool_)
        acted_in[self.steps().state] = True
        return Endings(shortest, acted_in)

    def batches(self) -> list[_HeldBatch]:
        """The episodes in batches of about `BATCH_STEPS` steps, whole individuals each."""
        first = self.beginnings()
        edges = batch_edges(self.offsets[first])
        starts = [*(int(first[j]) for j in edges[:-1]), len(self)]
        return [_HeldBatch(self, *edge) for edge in pairwise(starts)]

    @property
    def longest(self) -> int:
        """Number of actions in the longest episode."""
        return int(self.lengths.max(initial=0))

    def without_contexts(self) -> Trajectories:
        """The same episodes with their contexts hidden."""
        return self._with(contexts=None)

    def _joined(self, history: JoinedStates) -> Trajectories:
        return history.applied(self)

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
        first = batches[0]
        for i, batch in enumerate(batches):
            arrays.require_instance(f"batch {i}", batch, Trajectories)
            for name in _SHARED:
                if not arrays.same_content(first.__dict__[name], batch.__dict__[name]):
                    raise TrajectoryError(f"batch {i} has other {name} than batch 0")
            for name in _ALONG.keys() - _FILLED.keys():
                if (batch.__dict__[name] is None) != (first.__dict__[name] is None):
                    raise TrajectoryError(f"batch {i} and batch 0: only one of them has {name}")
        joined = {name: _joined([b.__dict__[name] for b in batches]) for name in _ALONG}
        for name, value in _FILLED.items():
            columns = [b.__dict__[name] for b in batches]
            if any(column is not None for column in columns):
                sizes = map(len, batches)
                filled = (np.full(n, value) if c is None else c for n, c in zip(sizes, columns))
                joined[name] = np.concatenate(list(filled))
        shifts = np.cumsum([0, *(b.n_steps for b in batches)])
        offsets = [b.offsets[:-1] + shift for b, shift in zip(batches, shifts)]
        missing = [b.missing for b in batches if b.missing is not None]
        return cls._trusted(
            max(b.n_states for b in batches),
            max(b.n_actions for b in batches),
            **joined,
            **{name: first.__dict__[name] for name in _SHARED},
            offsets=np.concatenate([*offsets, shifts[-1:]]),
            missing=MissingCells.total(missing) if len(missing) == len(batches) else None,
        )

    def steps(self) -> Steps:
        """All steps of all episodes, one by one."""
        episode = np.repeat(np.arange(len(self)), self.lengths)
        position = np.arange(self.n_steps) + episode
        return Steps(
            episode, self.states[position], self.actions, self.rewards, self.states[position + 1]
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
        steps, widths = self.steps(), cell_widths(by, sizes or sizes_of(self))
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

    def step_counts(self) -> NDArray[np.int64]:
        """How often the episode of each step occurred."""
        return np.repeat(self.multiplicities(), self.lengths)

    def deduplicate(self) -> Trajectories:
        """Merge identical episodes (of the same known context), adding up their counts.

        Episodes keep the order of their first occurrence. Those with propensities or amounts, and
        individuals of several segments, stay as they are.
        """
        return self.deduplicate_with_inverse()[0]

    def deduplicate_with_inverse(self) -> tuple[Trajectories, NDArray[np.int64]]:
        """`deduplicate`, and for each episode here the index of its merged episode."""
        numbers: dict[Any, int] = {}
        kinds = zip(self._kinds_of_episodes().tolist(), self)
        keys = ((kind, *(x.tobytes() for x in one[:3])) for kind, one in kinds)
        inverse = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        first = np.unique(inverse, return_index=True)[1]
        counts = np.zeros(first.size, np.int64)
        np.add.at(counts, inverse, self.multiplicities())
        return self._gathered(first)._with(counts=counts, episode_names=None), inverse

    def _kinds_of_episodes(self) -> Integers:
        """A number for each episode: identical episodes are merged where it is the same."""
        apart = np.full(len(self), self.propensities is not None or self.amounts is not None)
        if self.continues is not None:
            apart |= self.continues | np.append(self.continues[1:], False)
        rows = [np.where(apart, np.arange(len(self)), -1)]
        if self.contexts is not None:
            rows.append(self.contexts)
        if self.covariates is not None:
            rows += [*np.nan_to_num(self.covariates.values, nan=np.inf).T]
        return np.asarray(np.unique(np.column_stack(rows), axis=0, return_inverse=True)[1].ravel())

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
        if self.rewards.min(initial=0) < 0:  # -1 picked the last value
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

    def require_sizes(
        self, n_states: int, n_actions: int, n_rewards: int, n_contexts: int | None = None
    ) -> None:
        """Raise `TrajectoryError` unless every index is below its size, naming episode and step."""
        bounds = (("state", n_states), ("action", n_actions), ("reward index", n_rewards))
        for (what, limit), array in zip(bounds, (self.states, self.actions, self.rewards)):
            if array.max(initial=-1) >= limit:
                index = int(np.argmax(array >= limit))
                starts = self.offsets + (np.arange(len(self) + 1) if what == "state" else 0)
                episode = int(np.searchsorted(starts, index, side="right")) - 1
                raise TrajectoryError(
                    f"episode {episode}, step {index - int(starts[episode])}: {what} "
                    f"{array[index]} is out of range, must be below {limit}"
                )
        contexts = self.contexts
        if contexts is not None and n_contexts is not None and (contexts >= n_contexts).any():
            worst = int(np.argmax(contexts >= n_contexts))
            raise TrajectoryError(
                f"episode {worst}: context {contexts[worst]} is not below the model's "
                f"n_contexts={n_contexts}"
            )

    def __setattr__(self, name: str, *value: object) -> None:
        raise AttributeError("Trajectories are immutable")

    __delattr__ = __setattr__

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays.store(self, state)

    __hash__ = None  # type: ignore[assignment]

    def facts(self) -> dict[str, Any]:
        """How much was logged, what was earned and what is not known."""
        returns, counts = self.returns(), self.multiplicities()
        known = ~np.isnan(returns)
        return {
            "episodes": self.n_episodes,
            "stored_episodes": len(self),
            "steps": self.n_steps,
            "states": self.n_states,
            "actions": self.n_actions,
            "contexts_known": self.contexts is not None,
            "lengths": extent(self.lengths),
            "mean_return": np.average(returns[known], weights=counts[known])
            if known.any()
            else None,
            "reward_values": self.reward_values,
            "individuals": None if self.continues is None else self.n_individuals,
            "missing": self.missing,
            "covariates": None if self.covariates is None else list(self.covariates.names),
            "state_names": self.state_names,
            "action_names": self.action_names,
        }

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


def _segments(continues: ArrayLike) -> Flags | None:
    flags = np.array(continues)
    if flags.ndim != 1 or (flags.size and flags.dtype != np.bool_):
        raise ValueError(f"continues must be flags (N,), got {flags.dtype} of shape {flags.shape}")
    if flags.size and flags[0]:
        raise ValueError("episode 0 cannot continue an episode before it")
    return flags if flags.any() else None


def _propensities(value: ArrayLike) -> Floats:
    values = arrays.as_floats("propensities", value)
    wrong = (values <= 0.0) | (values > 1.0)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(
            f"propensities[{k}] is {values.ravel()[k]:g}: the probability of an action that was "
            "taken lies in (0, 1]"
        )
    return values


def _amounts(value: ArrayLike) -> Floats:
    values = np.array(value, np.float64) + 0.0
    if np.isinf(values).any():
        raise ValueError(f"amounts[{int(np.argmax(np.isinf(values)))}] is infinite")
    return values


def _episode_names(value: Sequence[str] | NDArray[np.object_]) -> NDArray[np.object_]:
    names = np.empty(len(value), dtype=object)
    names[:] = value
    if not all(isinstance(name, str) for name in names):
        raise TypeError("episode_names must be a sequence of strings")
    return names


def _covariates(value: Covariates) -> Covariates:
    arrays.require_instance("covariates", value, Covariates)
    return value


def _indices(
    name: str, low: int = 0, dtype: type[np.integer[Any]] = np.int32
) -> Callable[[Any], NDArray[Any]]:
    return lambda value: arrays.as_integers(name, value, dtype, low)


_FIELDS: dict[str, tuple[str | None, Callable[[Any], Any] | None]] = {
    "states": ("states", _indices("states", low=-1)),
    "actions": ("steps", _indices("actions")),
    "rewards": ("steps", _indices("rewards", low=-1)),
    "offsets": (None, _indices("offsets", dtype=np.int64)),
    "contexts": ("episodes", _indices("contexts")),
    "counts": ("episodes", _indices("counts", dtype=np.int64)),
    "n_states": (None, None),
    "n_actions": (None, None),
    "reward_values": ("logs", validation.reward_values),
    "continues": ("episodes", _segments),
    "propensities": ("steps", _propensities),
    "amounts": ("steps", _amounts),
    "covariates": ("episodes", _covariates),
    "state_names": ("logs", None),
    "action_names": ("logs", None),
    "episode_names": ("episodes", _episode_names),
    "reward_edges": ("logs", None),
    "missing": (None, None),
}
"""Every field of logs, as files have them: what its entries belong to, and its check where that
needs no other field. No method lists fields again. Those that belong to all the logs must agree
where batches are joined; after the first nine, fields are given to `Trajectories` by name only."""

_ALONG = {n: along for n, (along, _) in _FIELDS.items() if along in ("states", "steps", "episodes")}
_SHARED = [name for name, (along, _) in _FIELDS.items() if along == "logs"]
_DETAILS = list(_FIELDS)[9:]

_FILLED = {"counts": 1, "continues": False}
"""Fields that a batch may lack where another has them, and what stands for them then."""


def _joined(columns: list[Any]) -> Any:
    """One field of several batches, None where they have none."""
    if any(column is None for column in columns):
        return None
    if isinstance(columns[0], Covariates):
        return Covariates.concat(columns)
    return np.concatenate(columns)


def _check_layout(fields: dict[str, Any]) -> None:
    """Every field has as many entries as the offsets say, and individuals agree in themselves."""
    offsets = fields["offsets"]
    if offsets.size == 0 or offsets[0] != 0:
        raise ValueError("offsets must begin with 0")
    falling = np.diff(offsets) < 0
    if falling.any():
        i = int(np.argmax(falling))
        raise ValueError(f"offsets must not fall: episode {i} ends before it begins")
    N, total = offsets.size - 1, int(offsets[-1])
    sizes = {"states": total + N, "steps": total, "episodes": N}
    for name, along in _ALONG.items():
        column = fields[name]
        entries = len(column) if isinstance(column, Covariates) else np.size(column)
        if column is not None and entries != sizes[along]:
            raise ValueError(
                f"{name} has {entries} entries, but offsets describe {N} episodes with "
                f"{total} steps, which need {sizes[along]}"
            )
    _check_last_states(fields["states"], offsets)
    if fields["continues"] is not None:
        _check_segments(fields, np.flatnonzero(fields["continues"]))


def _check_last_states(states: Indices, offsets: Integers) -> None:
    """A state may be missing at the end of an episode only."""
    unknown = states < 0
    if not unknown.any():
        return
    unknown[offsets[1:] + np.arange(offsets.size - 1)] = False
    if unknown.any():
        index = int(np.argmax(unknown))
        raise ValueError(
            f"states[{index}] is -1: only the last state of an episode may be missing (split the "
            "episode with continues)"
        )


def _check_segments(fields: dict[str, Any], later: Integers) -> None:
    """What is known of an individual is the same in all its segments."""
    for name in ("contexts", "counts", "covariates"):
        field = fields[name]
        if field is None:
            continue
        rows = field.values if isinstance(field, Covariates) else field[:, None]
        rows = np.nan_to_num(rows.astype(np.float64), nan=np.inf)
        wrong = (rows[later] != rows[later - 1]).any(axis=1)
        if wrong.any():
            i = int(later[np.argmax(wrong)])
            raise ValueError(
                f"episode {i} continues episode {i - 1}, but they have different {name}"
            )


def cell_widths(by: Sequence[str], sizes: Sizes) -> tuple[int, ...]:
    """How many values each column of a cell has."""
    S, A, Z = sizes
    widths = {"state": S, "action": A, "next_state": S, "reward": Z}
    return tuple(widths[name] for name in by)


def require_trajectories(name: str, logs: object) -> Trajectories:
    """An argument that must be logs in memory; raises `TypeError` where it is not."""
    require_logs(name, logs)
    if not isinstance(logs, Trajectories):
        raise TypeError(
            f"{name} must be Trajectories, all episodes in memory at once, got {logs!r}: give "
            "logs.read(), or logs.sample(steps) of them"
        )
    return logs


def _column_names(
    named: Mapping[str, str | None], columns: Mapping[str, str] | None
) -> dict[str, str | None]:
    """What a table calls its columns, from the keyword arguments and `columns` together."""
    names = dict(named)
    for word, column in (columns or {}).items():
        if word not in named:
            raise TypeError(f"from_table knows no column {word!r}; it knows {', '.join(named)}")
        if named[word] != word:
            raise TypeError(f"{word} is given twice, as {named[word]!r} and in columns")
        names[word] = column
    for word, name in names.items():
        if name is not None and not isinstance(name, str):
            raise TypeError(f"{word} must be the name of a column, got {name!r:.60}")
    return names
