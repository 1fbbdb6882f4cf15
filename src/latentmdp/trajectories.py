"""Logged episodes: flat integer arrays plus offsets, so that episodes may differ in length.

Episode i of length L_i = offsets[i+1] - offsets[i] is

    actions[offsets[i] : offsets[i+1]]              a_1 .. a_L
    rewards[offsets[i] : offsets[i+1]]              r_1 .. r_L, as indices into reward_values
    states [offsets[i]+i : offsets[i+1]+i+1]        s_1 .. s_{L+1}, one more than actions

Several identical episodes may be stored once with a multiplicity in `counts`.

A *cell* is a combination of what a step shows, such as (s, a) or (s, a, s', r). Everything that is
counted in logs is counted here, by cell, each episode with its multiplicity and, where episodes are
shared among contexts, with its share: `cell_counts` as a dense array, `occurring_cells` as a list
of the cells that occur.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp._util.fields import Fielded
from latentmdp.errors import TrajectoryError
from latentmdp.model import LatentMDP

__all__ = [
    "Episode",
    "History",
    "Sizes",
    "Steps",
    "Trajectories",
    "cell_counts",
    "first_state_counts",
    "occurring_cells",
    "sizes_of",
]

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


class Steps(NamedTuple):
    """Every step of every episode, in the order of `actions`."""

    episode: Integers
    state: Indices
    action: Indices
    reward: Indices
    next_state: Indices


class Trajectories(Fielded):
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
    ) -> None:
        given: dict[str, tuple[Any, type[np.integer[Any]]]] = {
            "states": (states, np.int32),
            "actions": (actions, np.int32),
            "rewards": (rewards, np.int32),
            "offsets": (offsets, np.int64),
            "contexts": (contexts, np.int32),
            "counts": (counts, np.int64),
        }
        try:
            fields: dict[str, Any] = {
                name: None
                if value is None and name in ("contexts", "counts")
                else arrays.as_integers(name, value, dtype)
                for name, (value, dtype) in given.items()
            }
            fields["reward_values"] = (
                None if reward_values is None else validation.reward_values(reward_values)
            )
            _check_layout(fields)
        except ValueError as error:
            raise TrajectoryError(str(error)) from None
        self._fill(fields, n_states, n_actions)
        if n_states is not None or n_actions is not None or reward_values is not None:
            self.require_sizes(self.n_states, self.n_actions, self.n_rewards)

    def _fill(self, fields: dict[str, Any], n_states: int | None, n_actions: int | None) -> None:
        """Store the fields; a size that is not declared is what the data show."""
        arrays.store(self, fields)
        for name, declared in (("states", n_states), ("actions", n_actions)):
            size = int(fields[name].max(initial=0)) + 1 if declared is None else declared
            self.__dict__[f"n_{name}"] = arrays.positive_integer(f"n_{name}", size)

    @classmethod
    def _trusted(cls, n_states: int, n_actions: int, **fields: Any) -> Trajectories:
        """Wrap arrays that are known to be valid, without copying or checking them."""
        self = cls.__new__(cls)
        self._fill({"contexts": None, "counts": None, **fields}, n_states, n_actions)
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
    def from_table(cls, table: Mapping[str, ArrayLike], **sizes: Any) -> Trajectories:
        """Episodes from columns episode, t, state, action, reward, next_state (and context, count).

        Rows may come in any order; `t` must count 0, 1, 2, ... within each episode and the next
        state of one row must be the state of the following one. Without `reward_values` the
        rewards are taken for values, and `reward_values` becomes the sorted set of them, or (0, 1)
        where only those occur; with `reward_values` each reward must be one of those. Episodes
        are called by integers or strings and kept in sorted order. An episode of no steps has no
        row, so a table cannot hold it.
        """
        from latentmdp._util.long_table import columns_to_fields

        return cls(**columns_to_fields(table, **sizes))

    def to_table(self) -> dict[str, NDArray[Any]]:
        """The columns `from_table` reads, one row per step; rewards as values where known."""
        lengths = self.lengths
        if (lengths == 0).any():
            raise TrajectoryError(
                f"episode {int(np.argmax(lengths == 0))} has no steps, and a table holds one row "
                "per step: drop such episodes (logs[logs.lengths > 0]), or save the logs as .npz"
            )
        steps = self.steps()
        episode = steps.episode
        columns: dict[str, NDArray[Any]] = {
            "episode": episode,
            "t": np.arange(self.n_steps) - self.offsets[episode],
            "state": steps.state,
            "action": self.actions,
            "reward": self.rewards if self.reward_values is None else self.values(),
            "next_state": steps.next_state,
        }
        if self.contexts is not None:
            columns["context"] = self.contexts[episode]
        if self.counts is not None:
            columns["count"] = self.counts[episode]
        return columns

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
        return self._with(
            states=self.states[states],
            actions=self.actions[steps],
            rewards=self.rewards[steps],
            offsets=offsets,
            contexts=None if self.contexts is None else self.contexts[episodes],
            counts=None if self.counts is None else self.counts[episodes],
        )

    def _with(self, **fields: Any) -> Trajectories:
        kept = {name: self.__dict__[name] for name in _ARRAYS}
        return Trajectories._trusted(self.n_states, self.n_actions, **{**kept, **fields})

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
            if (batch.contexts is None) != (batches[0].contexts is None):
                raise TrajectoryError(f"batch {i} and batch 0: only one of them knows its contexts")
        shifts = np.cumsum([0, *(b.n_steps for b in batches)])
        offsets = [b.offsets[:-1] + shift for b, shift in zip(batches, shifts)]
        weighted = any(b.counts is not None for b in batches)
        contexts = [b.contexts for b in batches if b.contexts is not None]
        return cls._trusted(
            *sizes_of(batches)[:2],
            states=np.concatenate([b.states for b in batches]),
            actions=np.concatenate([b.actions for b in batches]),
            rewards=np.concatenate([b.rewards for b in batches]),
            offsets=np.concatenate([*offsets, shifts[-1:]]),
            contexts=np.concatenate(contexts) if contexts else None,
            counts=np.concatenate([b.multiplicities() for b in batches]) if weighted else None,
            reward_values=batches[0].reward_values,
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
        """The state in which each episode begins."""
        return self.states[self.offsets[:-1] + np.arange(len(self))]

    @property
    def last_states(self) -> Indices:
        """The state in which each episode ends."""
        return self.states[self.offsets[1:] + np.arange(len(self))]

    def cells(self, by: Sequence[str], sizes: Sizes | None = None) -> Integers:
        """The cell of every step as one number: the mixed radix of the columns named in `by`.

        Columns are "state", "action", "next_state" and "reward"; the first one counts most.
        """
        steps, widths = self.steps(), _widths(by, sizes or sizes_of(self))
        code = np.zeros(self.n_steps, np.int64)
        for name, width in zip(by, widths):
            code = code * width + getattr(steps, name)
        return code

    def multiplicities(self) -> NDArray[np.int64]:
        """`counts`, or ones where episodes are not counted."""
        return np.ones(len(self), dtype=np.int64) if self.counts is None else self.counts

    def deduplicate(self) -> Trajectories:
        """Merge identical episodes (of the same known context), adding up their counts.

        Episodes keep the order of their first occurrence.
        """
        return self.deduplicate_with_inverse()[0]

    def deduplicate_with_inverse(self) -> tuple[Trajectories, NDArray[np.int64]]:
        """`deduplicate`, and for each episode here the index of its merged episode."""
        from latentmdp._kernels.episodes import group_identical

        labels = np.full(len(self), -1, dtype=np.int32) if self.contexts is None else self.contexts
        first, inverse = group_identical(
            self.states, self.actions, self.rewards, self.offsets, labels
        )
        counts = np.bincount(inverse, weights=self.multiplicities(), minlength=first.size)
        return self._gathered(first)._with(counts=np.rint(counts).astype(np.int64)), inverse

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
        """The rewards as values, one per step; indices themselves where no values are known."""
        if self.reward_values is None:
            return self.rewards.astype(np.float64)
        values: NDArray[np.float64] = self.reward_values[self.rewards]
        return values

    def returns(self, discount: float = 1.0) -> NDArray[np.float64]:
        """The (discounted) sum of rewards of each episode."""
        episode = np.repeat(np.arange(len(self)), self.lengths)
        steps = np.arange(self.n_steps) - self.offsets[episode]
        weighted = self.values() if discount == 1.0 else self.values() * discount**steps
        return np.asarray(np.bincount(episode, weighted, len(self)), dtype=np.float64)

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
            digest.update(name.encode() + (b"" if array is None else array.tobytes()))
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
        return f"Trajectories({len(self)} episodes, {length}{extra})"


_ARRAYS = ("states", "actions", "rewards", "offsets", "contexts", "counts", "reward_values")


def sizes_of(logs: Trajectories | Sequence[Trajectories]) -> Sizes:
    """(S, A, Z) of one log or of several together, no larger than they say."""
    parts = [logs] if isinstance(logs, Trajectories) else logs
    return (
        max(part.n_states for part in parts),
        max(part.n_actions for part in parts),
        max(part.n_rewards for part in parts),
    )


def cell_counts(
    logs: Trajectories | Sequence[Trajectories],
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
    cells, weights = _weighted_cells(logs, by, sizes, shares)
    length = int(np.prod(shape))
    counts = np.stack([_tally(cells, column, length) for column in weights])
    return counts.reshape(shape if shares is None else (-1, *shape))


def occurring_cells(
    logs: Trajectories | Sequence[Trajectories],
    by: Sequence[str],
    sizes: Sizes | None = None,
    shares: Floats | None = None,
) -> tuple[Integers, Floats]:
    """The cells that occur, in order, and how often: (C,) or, with shares, (C, M).

    Arguments as for `cell_counts`; memory follows the number of different cells.
    """
    cells, weights = _weighted_cells(logs, by, sizes or sizes_of(logs), shares)
    distinct, index = np.unique(cells, return_inverse=True)
    counts = np.stack([_tally(index, column, distinct.size) for column in weights], axis=1)
    return distinct, counts[:, 0] if shares is None else counts


def first_state_counts(
    logs: Trajectories, n_states: int | None = None, shares: Floats | None = None
) -> Floats:
    """How often each state comes first, multiplicities counted: (S,) or, with shares, (M, S)."""
    first, S = logs.first_states, n_states or logs.n_states
    counts = logs.multiplicities().astype(np.float64)
    if shares is None:
        return _tally(first, counts, S)
    return np.stack([_tally(first, column, S) for column in (shares * counts[:, None]).T])


def _tally(places: NDArray[Any], weights: Floats, length: int) -> Floats:
    """The sum of the weights at each place below `length`."""
    return np.asarray(np.bincount(places, weights=weights, minlength=length), np.float64)


def _widths(by: Sequence[str], sizes: Sizes) -> tuple[int, ...]:
    S, A, Z = sizes
    known = {"state": S, "action": A, "next_state": S, "reward": Z}
    return tuple(known[name] for name in by)


def _weighted_cells(
    logs: Trajectories | Sequence[Trajectories],
    by: Sequence[str],
    sizes: Sizes,
    shares: Floats | None,
) -> tuple[Integers, Iterator[Floats]]:
    """The cell of every step of all logs, and the weight of every step, context by context."""
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    cells = np.concatenate([part.cells(by, sizes) for part in parts])
    episode = np.repeat(
        np.arange(sum(len(part) for part in parts)), np.concatenate([p.lengths for p in parts])
    )
    counts = np.concatenate([part.multiplicities() for part in parts])
    each = counts.astype(np.float64)[:, None] if shares is None else counts[:, None] * shares
    return cells, (column[episode] for column in each.T)


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
    for name, size in expected.items():
        array = fields[name]
        if array is not None and array.size != size:
            raise ValueError(
                f"{name} has {array.size} entries, but offsets describe {N} episodes with "
                f"{total} steps, which need {size}"
            )
