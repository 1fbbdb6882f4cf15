"""Logs in the form the mixture likelihood reads: cells, merged episodes, expected counts.

A transition (s, a, s', z) is a *cell*; with rewards left out, (s, a, s'). Only cells that occur
are numbered, in the order of (s, a, s', z), so the cost of learning does not depend on how many
transitions are impossible. The likelihood of an episode is a product over its cells, so identical
episodes are merged with their multiplicities; short ones are sorted as well, so that a pass visits
each common prefix once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._threads import Team
from latentmdp.errors import TrajectoryError
from latentmdp.trajectories import Trajectories

__all__ = ["Episodes", "ExpectedCounts", "merged_logs"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KEY_BITS = 62.0
_DIRECT_KEYS = 1 << 23
_BLOCK_WORK = 1 << 17


class ExpectedCounts(NamedTuple):
    """What an E-step returns: shares added up per cell (C, M) and first state (S, M), and log Z."""

    by_cell: Floats
    by_first: Floats
    log_likelihood: float


@dataclass(frozen=True)
class Group:
    """Some episodes; `common` is set where they have one length and are sorted by their steps."""

    cells: NDArray[np.integer[Any]]
    offsets: Integers
    first: NDArray[np.int32]
    counts: Floats
    common: NDArray[np.int32] | None

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Intervals of episodes of about equal work."""
        work = np.cumsum(np.diff(self.offsets) + 2.0)
        if self.common is not None:
            work = np.cumsum(np.diff(self.offsets) - self.common + 2.0)
        pieces = int(np.ceil(work[-1] / _BLOCK_WORK))
        cuts = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces)
        edges = np.unique(np.concatenate([[0], cuts, [self.first.size]]))
        return list(zip(edges[:-1].tolist(), edges[1:].tolist()))


class Episodes:
    """Merged episodes of one or more logs.

    Parameters
    ----------
    logs : sequence of Trajectories
    use_rewards : bool
        Whether rewards are part of a cell.
    """

    def __init__(self, logs: Sequence[Trajectories], use_rewards: bool = True) -> None:
        self.n_states = max(part.n_states for part in logs)
        self.n_actions = max(part.n_actions for part in logs)
        self.n_rewards = max(part.n_rewards for part in logs) if use_rewards else 1
        self.use_rewards = use_rewards
        raw = [g for part in logs for g in self._groups(part)]
        self.cells, numbered = _numbered([group.cells for group in raw])
        self.groups = [replace(group, cells=cells) for group, cells in zip(raw, numbered)]

    @property
    def n_episodes(self) -> float:
        """Number of episodes, multiplicities counted."""
        return float(sum(group.counts.sum() for group in self.groups))

    @property
    def longest(self) -> int:
        """Length of the longest episode."""
        return max(int(np.diff(group.offsets).max()) for group in self.groups)

    def cell_counts(self) -> Floats:
        """How often each cell occurs."""
        total = np.zeros(self.cells.size)
        for group in self.groups:
            weights = np.repeat(group.counts, np.diff(group.offsets))
            total += np.bincount(group.cells, weights=weights, minlength=self.cells.size)
        return total

    def first_counts(self) -> Floats:
        """How often each state comes first."""
        return sum(
            (np.bincount(g.first, weights=g.counts, minlength=self.n_states) for g in self.groups),
            start=np.zeros(self.n_states),
        )

    def pair_counts(self) -> Floats:
        """(C, C): how often cells x and y occur at two different times of an episode."""
        from latentmdp._kernels.mixture import pair_counts

        pairs = np.zeros((self.cells.size, self.cells.size))
        for group in self.groups:
            pair_counts(group.cells, group.offsets, group.counts, pairs)
        return pairs

    def expected_counts(
        self, table: Floats, first: Floats, team: Team | None = None
    ) -> ExpectedCounts:
        """One pass: `table` (C, M) holds P_m(cell), `first` (S, M) holds w_m nu_m(s).

        Blocks and the order in which they are added up do not depend on the team's size.
        """
        from latentmdp._kernels.mixture import kernels

        M = table.shape[1]
        width = _width(M)
        P, W = _padded(table, width), _padded(first, width)
        episodes, prefixes = kernels(width)
        jobs = [
            (group, evidence, *block)
            for group, evidence in ((g, np.empty(g.first.size)) for g in self.groups)
            for block in group.blocks
        ]

        def work(job: int) -> tuple[Floats, Floats, float]:
            group, evidence, start, stop = jobs[job]
            by_cell, by_first = np.zeros(P.shape), np.zeros(W.shape)
            tail = (group.first, group.counts, start, stop, P, W, by_cell, by_first, evidence)
            if group.common is None:
                shift = episodes(group.cells, group.offsets, *tail)
            else:
                length = int(group.offsets[1])
                shift = prefixes(group.cells, length, group.common, *tail)
            with np.errstate(divide="ignore"):
                logs = np.log(evidence[start:stop])
            return by_cell, by_first, shift + float(group.counts[start:stop] @ logs)

        parts = (team or Team(1)).run(work, len(jobs))
        by_cell, by_first = sum(p[0] for p in parts), sum(p[1] for p in parts)
        return ExpectedCounts(by_cell[:, :M], by_first[:, :M], sum(p[2] for p in parts))

    def log_evidence(self, table: Floats, first: Floats) -> list[Floats]:
        """Log p of each merged episode, group by group; `table` and `first` as above."""
        with np.errstate(divide="ignore"):
            log_table, log_first = np.log(table), np.log(first)
        found = []
        for group in self.groups:
            scores = log_first[group.first]
            filled = np.flatnonzero(np.diff(group.offsets))
            if filled.size:
                steps = log_table[group.cells]
                scores[filled] += np.add.reduceat(steps, group.offsets[filled], axis=0)
            found.append(np.logaddexp.reduce(scores, axis=1))
        return found

    def thinned(self, counts: Sequence[Floats]) -> Episodes:
        """The same episodes with other multiplicities, one array per group."""
        other = object.__new__(Episodes)
        other.__dict__.update(self.__dict__)
        other.groups = [
            replace(group, counts=np.asarray(c, dtype=np.float64))
            for group, c in zip(self.groups, counts)
        ]
        return other

    def folds(self, number: int, rng: np.random.Generator) -> list[tuple[Episodes, Episodes]]:
        """Random (training, held-out) partitions of the episodes, one pair per fold."""
        shares = [
            rng.multinomial(np.rint(g.counts).astype(np.int64), np.full(number, 1.0 / number))
            for g in self.groups
        ]
        held = [self.thinned([s[:, k] for s in shares]) for k in range(number)]
        rest = [
            self.thinned([g.counts - s[:, k] for g, s in zip(self.groups, shares)])
            for k in range(number)
        ]
        return list(zip(rest, held))

    def shares_by_cell(self, logs: Sequence[Trajectories], shares: Floats) -> tuple[Floats, Floats]:
        """Shares (N, M) of the original episodes added up per cell (C, M) and first state (S, M)."""
        M = shares.shape[1]
        by_cell, by_first = np.zeros((self.cells.size, M)), np.zeros((self.n_states, M))
        begin = 0
        for part in logs:
            cell = np.searchsorted(self.cells, self._raw_cells(part))
            first = part.states[part.offsets[:-1] + np.arange(len(part))]
            weighted = shares[begin : begin + len(part)] * part.multiplicities()[:, None]
            begin += len(part)
            for m in range(M):
                by_first[:, m] += np.bincount(first, weighted[:, m], minlength=self.n_states)
                steps = np.repeat(weighted[:, m], part.lengths)
                by_cell[:, m] += np.bincount(cell, steps, minlength=self.cells.size)
        return by_cell, by_first

    def _groups(self, logs: Trajectories) -> list[Group]:
        """Split by length: what can be packed into integer keys is merged and sorted."""
        lengths = logs.lengths
        base = self.n_actions * self.n_states * self.n_rewards
        bits = np.log2(self.n_states) + lengths * np.log2(max(base, 2))
        short = (bits < _KEY_BITS) & (lengths > 0)
        groups = []
        for length in np.unique(lengths[short]).tolist():
            chosen = short & (lengths == length)
            groups.append(self._merged(logs if chosen.all() else logs[chosen], length))
        if not short.all():
            groups.append(self._plain(logs[~short] if short.any() else logs))
        return groups

    def _steps(self, logs: Trajectories) -> Integers:
        """(a, s', z) of every transition as one number."""
        following = np.delete(logs.states, logs.offsets[:-1] + np.arange(len(logs)))
        steps = logs.actions.astype(np.int64) * self.n_states + following
        return steps * self.n_rewards + logs.rewards if self.use_rewards else steps

    def _raw_cells(self, logs: Trajectories) -> Integers:
        """(s, a, s', z) of every transition as one number."""
        before = np.delete(logs.states, logs.offsets[1:] + np.arange(len(logs))).astype(np.int64)
        return before * (self.n_actions * self.n_states * self.n_rewards) + self._steps(logs)

    def _plain(self, logs: Trajectories) -> Group:
        first = logs.states[logs.offsets[:-1] + np.arange(len(logs))]
        counts = logs.multiplicities().astype(np.float64)
        return Group(self._raw_cells(logs), logs.offsets, first, counts, None)

    def _merged(self, logs: Trajectories, length: int) -> Group:
        base = self.n_actions * self.n_states * self.n_rewards
        steps = self._steps(logs).reshape(-1, length)
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
        return Group(
            (before * base + steps).ravel(), offsets, keys.astype(np.int32), counts, common
        )


def merged_logs(
    logs: Trajectories | Sequence[Trajectories], minimum: int = 1
) -> list[Trajectories]:
    """The logs as a checked list, their contexts hidden.

    Raises
    ------
    TrajectoryError
        There is no log, no episode, or none is long enough.
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
    longest = max(int(part.lengths.max()) for part in parts)
    if longest < minimum:
        raise TrajectoryError(
            f"every episode is too short: the longest has {longest} steps, {minimum} are needed"
        )
    return parts


def _tally(keys: Integers, counts: NDArray[np.int64] | None, space: int) -> tuple[Integers, Floats]:
    """Distinct keys in order, and the number (or the summed counts) of each."""
    if space <= _DIRECT_KEYS:
        total = np.bincount(keys, weights=counts)
        distinct = np.flatnonzero(total)
        return distinct, total[distinct].astype(np.float64)
    distinct, inverse = np.unique(keys, return_inverse=True)
    return distinct, np.bincount(inverse, weights=counts).astype(np.float64)


def _numbered(parts: Sequence[NDArray[Any]]) -> tuple[Integers, list[NDArray[np.int32]]]:
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


def _width(n_contexts: int) -> int:
    """Contexts are padded to a few widths, so that few kernels are ever compiled."""
    if n_contexts <= 4:
        return max(n_contexts, 2)
    return 1 << (n_contexts - 1).bit_length()


def _padded(table: Floats, width: int) -> Floats:
    if table.shape[1] == width:
        return np.ascontiguousarray(table)
    return np.pad(table, ((0, 0), (0, width - table.shape[1])))
