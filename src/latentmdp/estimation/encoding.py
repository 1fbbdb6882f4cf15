"""Logs as numbered transitions, with identical episodes merged.

A transition (s, a, s', z) is a *cell*; with rewards left out, (s, a, s'). The likelihood of an
episode is a product over its cells, so identical episodes are merged with their multiplicities.
Episodes short enough to be packed into one integer each are sorted as well, so that a pass over
them visits each common prefix once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Integers
from latentmdp.errors import TrajectoryError
from latentmdp.trajectories import Trajectories

__all__ = ["Encoder", "Group", "checked_logs", "numbered"]


_KEY_BITS = 62.0
_DIRECT_KEYS = 1 << 23
_BLOCK_WORK = 1 << 17
_LARGEST_TABLE = 10**9


@dataclass(frozen=True)
class Group:
    """Some episodes: cells[offsets[i]:offsets[i+1]] after state first[i], counts[i] times.

    Where they all have one length and are sorted, common[i] is the number of leading steps that
    episode i shares with episode i-1, or -1 if their first states differ.
    """

    cells: NDArray[np.integer[Any]]
    offsets: Integers
    first: NDArray[np.int32]
    counts: Floats
    common: NDArray[np.int32] | None

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Intervals of episodes of about equal work."""
        steps = np.diff(self.offsets)
        if self.common is not None:
            steps = steps - self.common
        work = np.cumsum(steps + 2.0)
        pieces = int(np.ceil(work[-1] / _BLOCK_WORK))
        cuts = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces)
        edges = np.unique(np.concatenate([[0], cuts, [self.first.size]]))
        return list(zip(edges[:-1].tolist(), edges[1:].tolist()))


class Encoder:
    """Turns logs over the same sizes into groups of merged episodes."""

    def __init__(self, n_states: int, n_actions: int, n_rewards: int, use_rewards: bool) -> None:
        self.n_states, self.n_rewards, self.use_rewards = n_states, n_rewards, use_rewards
        self.base = n_actions * n_states * n_rewards

    def groups(self, logs: Trajectories) -> list[Group]:
        """Split by length: what can be packed into integer keys is merged and sorted."""
        lengths = logs.lengths
        bits = np.log2(self.n_states) + lengths * np.log2(max(self.base, 2))
        short = (bits < _KEY_BITS) & (lengths > 0)
        groups = []
        for length in np.unique(lengths[short]).tolist():
            chosen = short & (lengths == length)
            groups.append(self._merged(logs if chosen.all() else logs[chosen], length))
        if not short.all():
            groups.append(self._plain(logs[~short] if short.any() else logs))
        return groups

    def steps(self, logs: Trajectories) -> Integers:
        """(a, s', z) of every transition as one number."""
        following = logs.steps().next_state
        steps = logs.actions.astype(np.int64) * self.n_states + following
        return steps * self.n_rewards + logs.rewards if self.use_rewards else steps

    def cells(self, logs: Trajectories) -> Integers:
        """(s, a, s', z) of every transition as one number."""
        before = logs.steps().state
        return before.astype(np.int64) * self.base + self.steps(logs)

    def _plain(self, logs: Trajectories) -> Group:
        first = logs.first_states
        counts = logs.multiplicities().astype(np.float64)
        return Group(self.cells(logs), logs.offsets, first, counts, None)

    def _merged(self, logs: Trajectories, length: int) -> Group:
        base = self.base
        steps = self.steps(logs).reshape(-1, length)
        keys = logs.states[:: length + 1].astype(np.int64)
        for t in range(length):
            keys = keys * base + steps[:, t]
        keys, counts = _tally(keys, logs.counts, self.n_states * base**length)
        steps = np.empty((keys.size, length), dtype=np.int64)
        for t in range(length - 1, -1, -1):
            keys, steps[:, t] = np.divmod(keys, base)
        common = np.full(keys.size, -1, dtype=np.int32)
        same = np.diff(keys, prepend=-1) == 0
        for t in range(length):
            common += same
            same &= np.diff(steps[:, t], prepend=-1) == 0
        before = np.column_stack([keys, steps[:, :-1] // self.n_rewards % self.n_states])
        offsets = np.arange(keys.size + 1, dtype=np.int64) * length
        cells = (before * base + steps).ravel()
        return Group(cells, offsets, keys.astype(np.int32), counts, common)


def _check_size(parts: Sequence[Trajectories]) -> None:
    """Refuse numbers of states whose table of transitions no machine holds."""
    S, A = max(part.n_states for part in parts), max(part.n_actions for part in parts)
    if S * S * A > _LARGEST_TABLE:
        occur = np.unique(np.concatenate([np.unique(part.states) for part in parts])).size
        raise TrajectoryError(
            f"states are numbered up to {S - 1} and {occur} of them occur: a table of transitions "
            f"would have {S * S * A:.1e} entries for each context; number states 0, 1, 2, ... "
            "without gaps"
        )


def checked_logs(
    logs: Trajectories | Sequence[Trajectories], minimum: int = 1
) -> list[Trajectories]:
    """The logs as a list, their contexts hidden.

    Raises
    ------
    TrajectoryError
        There is no episode, none has `minimum` steps, or the logs disagree on reward values.
    """
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    for i, part in enumerate(parts):
        if not isinstance(part, Trajectories):
            raise TypeError(f"logs[{i}] must be Trajectories, got {type(part).__name__}")
    parts = [part.without_contexts() for part in parts if len(part)]
    if not parts:
        raise TrajectoryError("the logs hold no episode")
    known = [part.reward_values for part in parts if part.reward_values is not None]
    for values in known:
        if not np.array_equal(values, known[0]):
            raise TrajectoryError(
                f"the logs differ in reward_values: {known[0].tolist()} and {values.tolist()}"
            )
    _check_size(parts)
    if known and max(part.n_rewards for part in parts) > known[0].size:
        raise TrajectoryError(
            f"a log without reward_values has reward indices beyond {known[0].tolist()}"
        )
    longest = max(int(part.lengths.max()) for part in parts)
    if longest < minimum:
        raise TrajectoryError(
            f"every episode is too short: the longest has {longest} steps, {minimum} are needed"
        )
    return parts


def numbered(parts: Sequence[NDArray[Any]]) -> tuple[Integers, list[NDArray[np.int32]]]:
    """The distinct cells of all parts in order, and each part in terms of their positions."""
    top = max((int(part.max()) + 1 for part in parts if part.size), default=0)
    if top > _DIRECT_KEYS:
        distinct = np.unique(np.concatenate([np.unique(part) for part in parts]))
        return distinct, [np.searchsorted(distinct, part).astype(np.int32) for part in parts]
    occurs = np.zeros(top, dtype=np.bool_)
    for part in parts:
        occurs[part] = True
    distinct = np.flatnonzero(occurs)
    position = np.zeros(top, dtype=np.int32)
    position[distinct] = np.arange(distinct.size, dtype=np.int32)
    return distinct, [position[part] for part in parts]


def _tally(keys: Integers, counts: NDArray[np.int64] | None, space: int) -> tuple[Integers, Floats]:
    """Distinct keys in order, and the number (or the summed counts) of each."""
    if space <= _DIRECT_KEYS:
        total = np.bincount(keys, weights=counts)
        distinct = np.flatnonzero(total)
        return distinct, total[distinct].astype(np.float64)
    distinct, inverse = np.unique(keys, return_inverse=True)
    return distinct, np.bincount(inverse, weights=counts).astype(np.float64)
