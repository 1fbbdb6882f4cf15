"""Logged episodes: flat integer arrays plus offsets, so that episodes may differ in length.

Episode i of length L_i = offsets[i+1] - offsets[i] is

    actions[offsets[i] : offsets[i+1]]              a_1 .. a_L
    rewards[offsets[i] : offsets[i+1]]              r_1 .. r_L, as indices into reward_values
    states [offsets[i]+i : offsets[i+1]+i+1]        s_1 .. s_{L+1}, one more than actions

Several identical episodes may be stored once with a multiplicity in `counts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp import _arrays, _model_checks
from latentmdp.errors import TrajectoryError
from latentmdp.model import LatentMDP

__all__ = ["Episode", "Trajectories"]

Integers = NDArray[np.int32]


class Episode(NamedTuple):
    """One episode: L+1 states, L actions, L reward indices and, if it is known, the context."""

    states: Integers
    actions: Integers
    rewards: Integers
    context: int | None


class Trajectories:
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

    states: Integers
    actions: Integers
    rewards: Integers
    offsets: NDArray[np.int64]
    contexts: Integers | None
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
        try:
            fields: dict[str, Any] = {
                "states": _arrays.as_integers("states", states, np.int32),
                "actions": _arrays.as_integers("actions", actions, np.int32),
                "rewards": _arrays.as_integers("rewards", rewards, np.int32),
                "offsets": _arrays.as_integers("offsets", offsets, np.int64),
                "contexts": None,
                "counts": None,
                "reward_values": None,
            }
            if contexts is not None:
                fields["contexts"] = _arrays.as_integers("contexts", contexts, np.int32)
            if counts is not None:
                fields["counts"] = _arrays.as_integers("counts", counts, np.int64)
            if reward_values is not None:
                fields["reward_values"] = _model_checks.reward_values(reward_values)
            _check_layout(fields)
        except ValueError as error:
            raise TrajectoryError(str(error)) from None
        self._fill(fields, n_states, n_actions)
        if n_states is not None or n_actions is not None or reward_values is not None:
            self._check_sizes(self.n_states, self.n_actions, self.n_rewards)

    def _fill(self, fields: dict[str, Any], n_states: int | None, n_actions: int | None) -> None:
        for name, array in fields.items():
            self.__dict__[name] = None if array is None else _arrays.frozen(array)
        self.__dict__["n_states"] = _size("n_states", n_states, self.states)
        self.__dict__["n_actions"] = _size("n_actions", n_actions, self.actions)

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
        s, a, r = (_arrays.to_array(name, value) for name, value in named.items())
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
        flat = [_flatten(part) for part in (states, actions, rewards)]
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
        from latentmdp._tables import columns_to_fields

        return cls(**columns_to_fields(table, **sizes))

    def to_table(self) -> dict[str, NDArray[Any]]:
        """The columns `from_table` reads, one row per step; rewards as values where known."""
        from latentmdp._tables import fields_to_columns

        return fields_to_columns(self)

    @property
    def n_rewards(self) -> int:
        """Z: the number of reward values, or one more than the largest index in the data."""
        if self.reward_values is not None:
            return self.reward_values.size
        return int(self.rewards.max()) + 1 if self.rewards.size else 1

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
            return self._contiguous(*key.indices(len(self))[:2])
        index = np.arange(len(self))[key]
        if index.ndim != 1:
            raise IndexError(f"episodes are taken by a number, slice, mask or 1-d index, got {key}")
        return self._gather(index)

    def _episode(self, i: int) -> Episode:
        start, stop = int(self.offsets[i]), int(self.offsets[i + 1])
        context = None if self.contexts is None else int(self.contexts[i])
        return Episode(
            self.states[start + i : stop + i + 1],
            self.actions[start:stop],
            self.rewards[start:stop],
            context,
        )

    def _contiguous(self, first: int, last: int) -> Trajectories:
        last = max(first, last)
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return self._with(
            states=self.states[start + first : stop + last],
            actions=self.actions[start:stop],
            rewards=self.rewards[start:stop],
            offsets=self.offsets[first : last + 1] - start,
            contexts=None if self.contexts is None else self.contexts[first:last],
            counts=None if self.counts is None else self.counts[first:last],
        )

    def _gather(self, index: NDArray[np.int64]) -> Trajectories:
        lengths = self.lengths[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        shift = np.repeat(self.offsets[index] - offsets[:-1], lengths)
        steps = np.arange(offsets[-1]) + shift
        first_state = self.offsets[index] + index - offsets[:-1] - np.arange(index.size)
        places = np.arange(offsets[-1] + index.size) + np.repeat(first_state, lengths + 1)
        return self._with(
            states=self.states[places],
            actions=self.actions[steps],
            rewards=self.rewards[steps],
            offsets=offsets,
            contexts=None if self.contexts is None else self.contexts[index],
            counts=None if self.counts is None else self.counts[index],
        )

    def _with(self, **fields: Any) -> Trajectories:
        kept = {name: self.__dict__[name] for name in _ARRAYS}
        return Trajectories._trusted(self.n_states, self.n_actions, **{**kept, **fields})

    def without_contexts(self) -> Trajectories:
        """The same episodes with their contexts hidden."""
        return self._with(contexts=None)

    def with_contexts(self, contexts: ArrayLike) -> Trajectories:
        """The same episodes with the given contexts."""
        labels = _arrays.as_integers("contexts", contexts, np.int32)
        if labels.size != len(self):
            raise TrajectoryError(f"contexts must have {len(self)} entries, got {labels.size}")
        return self._with(contexts=labels)

    @classmethod
    def concat(cls, parts: Iterable[Trajectories]) -> Trajectories:
        """Join batches; sizes grow to the largest, reward values must agree."""
        batches = list(parts)
        if not batches:
            raise ValueError("concat needs at least one batch")
        values = batches[0].reward_values
        for i, batch in enumerate(batches):
            if not _same(values, batch.reward_values):
                raise TrajectoryError(f"batch {i} has other reward_values than batch 0")
            if (batch.contexts is None) != (batches[0].contexts is None):
                raise TrajectoryError(f"batch {i} and batch 0: only one of them knows its contexts")
        shifts = np.cumsum([0, *(b.n_steps for b in batches)])
        offsets = [b.offsets[:-1] + shift for b, shift in zip(batches, shifts)]
        weighted = any(b.counts is not None for b in batches)
        contexts = [b.contexts for b in batches if b.contexts is not None]
        return cls._trusted(
            max(b.n_states for b in batches),
            max(b.n_actions for b in batches),
            states=np.concatenate([b.states for b in batches]),
            actions=np.concatenate([b.actions for b in batches]),
            rewards=np.concatenate([b.rewards for b in batches]),
            offsets=np.concatenate([*offsets, shifts[-1:]]),
            contexts=np.concatenate(contexts) if contexts else None,
            counts=np.concatenate([b.multiplicities() for b in batches]) if weighted else None,
            reward_values=values,
        )

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
        merged = self._gather(first)._with(counts=np.rint(counts).astype(np.int64))
        return merged, inverse

    def as_arrays(self) -> tuple[Integers, Integers, Integers]:
        """States (N, L+1), actions (N, L) and rewards (N, L) when all lengths are equal."""
        lengths = self.lengths
        if lengths.size and (lengths != lengths[0]).any():
            odd = int(np.argmax(lengths != lengths[0]))
            raise TrajectoryError(
                f"as_arrays needs equal lengths: episode 0 has {lengths[0]} steps, "
                f"episode {odd} has {lengths[odd]}"
            )
        N, L = len(self), int(lengths[0]) if lengths.size else 0
        return (
            self.states.reshape(N, L + 1),
            self.actions.reshape(N, L),
            self.rewards.reshape(N, L),
        )

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
        self._check_sizes(model.n_states, model.n_actions, model.n_rewards)
        if self.contexts is not None and self.contexts.size:
            worst = int(np.argmax(self.contexts >= model.n_contexts))
            if self.contexts[worst] >= model.n_contexts:
                raise TrajectoryError(
                    f"episode {worst}: context {self.contexts[worst]} is not below the model's "
                    f"n_contexts={model.n_contexts}"
                )
        known = self.reward_values
        if known is not None and not np.array_equal(known, model.reward_values):
            raise TrajectoryError(
                f"the logs' reward_values {known.tolist()} are not the model's "
                f"{model.reward_values.tolist()}"
            )

    def _check_sizes(self, n_states: int, n_actions: int, n_rewards: int) -> None:
        bounds = (("state", n_states), ("action", n_actions), ("reward index", n_rewards))
        for (what, limit), array in zip(bounds, (self.states, self.actions, self.rewards)):
            if array.size and int(array.max()) >= limit:
                place = int(np.argmax(array >= limit))
                starts = self.offsets + (np.arange(len(self) + 1) if what == "state" else 0)
                episode = int(np.searchsorted(starts, place, side="right")) - 1
                raise TrajectoryError(
                    f"episode {episode}, step {place - int(starts[episode])}: {what} "
                    f"{array[place]} is out of range, must be below {limit}"
                )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Trajectories are immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Trajectories are immutable")

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            self.__dict__[name] = _arrays.frozen(value) if isinstance(value, np.ndarray) else value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trajectories):
            return NotImplemented
        return (self.n_states, self.n_actions) == (other.n_states, other.n_actions) and all(
            _same(self.__dict__[name], other.__dict__[name]) for name in _ARRAYS
        )

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


def _same(first: NDArray[Any] | None, second: NDArray[Any] | None) -> bool:
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)


def _size(name: str, declared: int | None, array: Integers) -> int:
    seen = int(array.max()) + 1 if array.size else 1
    return seen if declared is None else _arrays.positive_integer(name, declared)


def _flatten(parts: Sequence[Sequence[int]]) -> NDArray[Any]:
    flat = [x for part in parts for x in part]
    return np.asarray(flat if flat else np.zeros(0, dtype=np.int32))


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
