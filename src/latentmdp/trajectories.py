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

from latentmdp import _trajectory_checks, _trajectory_parts
from latentmdp._util import arrays
from latentmdp._util.arrays import Indices
from latentmdp.errors import TrajectoryError
from latentmdp.model import LatentMDP

__all__ = ["Episode", "Trajectories"]


class Episode(NamedTuple):
    """One episode: L+1 states, L actions, L reward indices and, if it is known, the context."""

    states: Indices
    actions: Indices
    rewards: Indices
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
        fields = _trajectory_checks.flat_fields(
            reward_values,
            states=states,
            actions=actions,
            rewards=rewards,
            offsets=offsets,
            contexts=contexts,
            counts=counts,
        )
        self._fill(fields, n_states, n_actions)
        if n_states is not None or n_actions is not None or reward_values is not None:
            _trajectory_checks.check_sizes(self, self.n_states, self.n_actions, self.n_rewards)

    def _fill(self, fields: dict[str, Any], n_states: int | None, n_actions: int | None) -> None:
        arrays.store(self, fields)
        self.__dict__["n_states"] = _trajectory_checks.size("n_states", n_states, self.states)
        self.__dict__["n_actions"] = _trajectory_checks.size("n_actions", n_actions, self.actions)

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
        return cls(*_trajectory_checks.flat_arrays(states, actions, rewards), contexts, **sizes)

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
        return cls(*_trajectory_checks.flat_lists(states, actions, rewards), contexts, **sizes)

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
        from latentmdp._util.long_table import fields_to_columns

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
            return self._with(**_trajectory_parts.cut(self, *key.indices(len(self))[:2]))
        index = np.arange(len(self))[key]
        if index.ndim != 1:
            raise IndexError(f"episodes are taken by a number, slice, mask or 1-d index, got {key}")
        return self._with(**_trajectory_parts.gathered(self, index))

    def _episode(self, i: int) -> Episode:
        start, stop = int(self.offsets[i]), int(self.offsets[i + 1])
        context = None if self.contexts is None else int(self.contexts[i])
        return Episode(
            self.states[start + i : stop + i + 1],
            self.actions[start:stop],
            self.rewards[start:stop],
            context,
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
        for i, batch in enumerate(batches):
            arrays.require_instance(f"batch {i}", batch, Trajectories)
        return cls._trusted(**_trajectory_parts.joined(batches))

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
        merged = _trajectory_parts.gathered(self, first)
        merged["counts"] = np.rint(counts).astype(np.int64)
        return self._with(**merged), inverse

    def as_arrays(self) -> tuple[Indices, Indices, Indices]:
        """States (N, L+1), actions (N, L) and rewards (N, L) when all lengths are equal."""
        return _trajectory_parts.stacked(self)

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
        _trajectory_checks.check_model(self, model)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Trajectories are immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Trajectories are immutable")

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays.store(self, state)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trajectories):
            return NotImplemented
        return (self.n_states, self.n_actions) == (other.n_states, other.n_actions) and all(
            arrays.same(self.__dict__[name], other.__dict__[name]) for name in _ARRAYS
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
