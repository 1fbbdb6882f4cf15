"""Merged episodes, and the pass over them that gives expected counts.

A transition (s, a, s', z) is a *cell*; with rewards left out, (s, a, s'). The likelihood of an
episode in context m is a product over its cells, so identical episodes are merged, with their
multiplicities. Only the cells that occur are numbered, in the order of (s, a, s', z): the cost of
learning does not depend on how many transitions are impossible.

With P_m(x) the probability of cell x and W_m(s) = w_m nu_m(s), one pass over the episodes
i = (s; c_1, .., c_L), which came n_i times, computes

    Z_i = sum_m W_m(s) prod_t P_m(c_t),    q_i(m) = W_m(s) prod_t P_m(c_t) / Z_i,
    N_m(x) = sum_i n_i q_i(m) #{t : c_t = x},    N_m(s) = sum_{i begins in s} n_i q_i(m),

and sum_i n_i log Z_i. Episodes that are short enough to be packed into one integer each are sorted
as well, so that the pass visits each common prefix once. The loops are in `_kernels.mixture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Indices, Integers, require_instance
from latentmdp.engines.threads import Team
from latentmdp.errors import TrajectoryError
from latentmdp.estimation.cuda_pass import CudaPass
from latentmdp.trajectories import Trajectories, first_state_counts, occurring_cells, sizes_of

__all__ = ["Episodes", "ExpectedCounts", "Group", "checked_logs"]

_KEY_BITS = 62.0
"""An episode that needs fewer bits is packed into one int64; one bit is the sign, one is spare."""

_DIRECT_KEYS = 1 << 23
"""Up to this largest number, distinct integers are found by marking a table of as many entries
(8 MB of flags), beyond it by sorting: the table is faster, its memory grows with the number."""

_BLOCK_WORK = 1 << 17
"""Steps in one block of a pass: enough that starting a thread for it costs nothing beside the work,
few enough that a log of a million steps has a block for each of several threads."""

_MOST_ROWS = 10**8
"""Rows (s, a), 0.8 GB of flags and numbers each: beyond them a log is refused before memory runs
out, since state numbers that large are identifiers, not states."""

_MANY_STATES, _OCCURRING_SHARE = 100_000, 0.01
"""From so many states on, at least this share of them must occur, or they are identifiers too."""


class ExpectedCounts(NamedTuple):
    """N_m(x) of every cell, (C, M), and N_m(s) of every first state, (S, M)."""

    by_cell: Floats
    by_first: Floats


@dataclass(frozen=True)
class Group:
    """Some episodes: cells[offsets[i]:offsets[i+1]] from state first[i] on, counts[i] times.

    Where they all have one length and are sorted, common[i] is the number of leading steps that
    episode i shares with episode i-1, or -1 if their first states differ.
    """

    cells: NDArray[np.integer[Any]]
    offsets: Integers
    first: Indices
    counts: Floats
    common: Indices | None

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


class Episodes:
    """Merged episodes of one or more logs.

    Parameters
    ----------
    use_rewards : bool
        Whether rewards are part of a cell.
    sizes : None or (S, A, Z)
        By default no larger than the logs say.

    Attributes
    ----------
    cells : (C,)
        The cells that occur, each as the number ((s A + a) S + s') Z + z; `n_rewards` is 1 where
        rewards are left out.
    groups : list of Group
        The episodes, their cells given by position in `cells`.
    """

    def __init__(
        self,
        logs: Sequence[Trajectories],
        use_rewards: bool = True,
        sizes: tuple[int, int, int] | None = None,
    ) -> None:
        self.n_states, self.n_actions, Z = sizes or sizes_of(logs)
        self.n_rewards = Z if use_rewards else 1
        rewards = ("reward",) if use_rewards else ()
        self._columns = ("state", "action", "next_state", *rewards)
        raw = [group for part in logs for group in self._grouped(part)]
        self.cells, positions = _numbered([group.cells for group in raw])
        self.groups = [replace(group, cells=cells) for group, cells in zip(raw, positions)]

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.n_states, self.n_actions, self.n_rewards

    def _grouped(self, logs: Trajectories) -> list[Group]:
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
            rest = logs[~short] if short.any() else logs
            counts = rest.multiplicities().astype(np.float64)
            cells = rest.cells(self._columns, self._sizes)
            groups.append(Group(cells, rest.offsets, rest.first_states, counts, None))
        return groups

    def _merged(self, logs: Trajectories, length: int) -> Group:
        """Episodes of one length: each becomes the integer (s, (a, s', z), (a, s', z), ...)."""
        base = self.n_actions * self.n_states * self.n_rewards
        steps = logs.cells(self._columns[1:], self._sizes).reshape(-1, length)
        keys = logs.first_states.astype(np.int64)
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
        state = np.column_stack([keys, steps[:, :-1] // self.n_rewards % self.n_states])
        offsets = np.arange(keys.size + 1, dtype=np.int64) * length
        cells = (state * base + steps).ravel()
        return Group(cells, offsets, keys.astype(np.int32), counts, common)

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
            total += np.bincount(group.cells, weights, self.cells.size)
        return total

    def first_counts(self) -> Floats:
        """How often each state comes first."""
        total = np.zeros(self.n_states)
        for group in self.groups:
            total += np.bincount(group.first, group.counts, self.n_states)
        return total

    def pair_counts(self) -> Floats:
        """(C, C): how often cells x and y occur at two different times of an episode."""
        from latentmdp._kernels.mixture import pair_counts

        pairs = np.zeros((self.cells.size, self.cells.size))
        for group in self.groups:
            pair_counts(group.cells, group.offsets, group.counts, pairs)
        return pairs

    def shared_out(self, logs: Sequence[Trajectories], shares: Floats) -> ExpectedCounts:
        """Expected counts for given p(m | episode), (N, M), of all episodes of the logs."""
        M = shares.shape[1]
        by_cell, by_first = np.zeros((self.cells.size, M)), np.zeros((self.n_states, M))
        ends = np.cumsum([len(part) for part in logs])
        for part, own in zip(logs, np.split(shares, ends[:-1])):
            cells, counts = occurring_cells(part, self._columns, self._sizes, own)
            by_cell[np.searchsorted(self.cells, cells)] += counts
            by_first += first_state_counts(part, self.n_states, own).T
        return ExpectedCounts(by_cell, by_first)

    def expected_counts(
        self, table: Floats, first: Floats, team: Team | CudaPass | None = None
    ) -> tuple[ExpectedCounts, float]:
        """One pass: the expected counts, and the log-likelihood of all episodes.

        Blocks and the order in which they are added up do not depend on the team's size. On a GPU
        there is another fixed order.

        Parameters
        ----------
        table : (C, M)
            P_m(x) of every cell.
        first : (S, M)
            w_m nu_m(s) of every state.
        """
        from latentmdp._kernels.mixture import kernels

        if isinstance(team, CudaPass):
            by_cell, by_first, logs = team.expected_counts(self.groups, table, first)
            return ExpectedCounts(by_cell, by_first), logs
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
            # a sum of products, not a dot product: BLAS threads would get in the way of ours
            return by_cell, by_first, shift + float(np.sum(group.counts[start:stop] * logs))

        mapped = (team or Team(1)).mapper(len(jobs))
        parts = list(mapped(work, range(len(jobs))))
        by_cell, by_first = np.zeros(P.shape), np.zeros(W.shape)
        for cells, firsts, _ in parts:
            by_cell += cells
            by_first += firsts
        counts = ExpectedCounts(by_cell[:, :M], by_first[:, :M])
        return counts, sum(part[2] for part in parts)

    def log_evidence(self, table: Floats, first: Floats) -> list[Floats]:
        """Log Z of each merged episode, group by group; arguments as for `expected_counts`."""
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

    def folds(self, number: int, rng: np.random.Generator) -> list[tuple[Episodes, Episodes]]:
        """Random (training, held-out) partitions of the episodes, one pair per fold.

        Folds that hold out nothing, or everything, are left out, unless there is but one episode.
        """
        counts = [np.rint(g.counts).astype(np.int64) for g in self.groups]
        every, chances = sum(int(c.sum()) for c in counts), np.full(number, 1.0 / number)
        while True:
            shares = [rng.multinomial(c, chances) for c in counts]
            sizes = np.array([s.sum(axis=0) for s in shares]).sum(axis=0)
            parted = np.flatnonzero((sizes > 0) & (sizes < every))
            if parted.size or every < 2:
                break
        kept = parted if parted.size else np.arange(number)
        folds = [[s[:, k].astype(np.float64) for s in shares] for k in kept]
        rest = [[g.counts - out for g, out in zip(self.groups, held)] for held in folds]
        return [(self._counted(one), self._counted(held)) for one, held in zip(rest, folds)]

    def _counted(self, counts: Sequence[Floats]) -> Episodes:
        """The same episodes with other multiplicities, one array per group."""
        other = copy(self)
        other.groups = [replace(group, counts=c) for group, c in zip(self.groups, counts)]
        return other


def checked_logs(
    logs: Trajectories | Sequence[Trajectories], minimum: int = 1
) -> list[Trajectories]:
    """The logs as a list, their contexts hidden.

    Raises
    ------
    TrajectoryError
        There is no episode, none has `minimum` steps, the logs disagree on reward values, or the
        states are so many that no machine holds a table of them.
    """
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    for i, part in enumerate(parts):
        require_instance(f"logs[{i}]", part, Trajectories)
    parts = [part.without_contexts() for part in parts if len(part)]
    if not parts:
        raise TrajectoryError("the logs hold no episode")
    known = [part.reward_values for part in parts if part.reward_values is not None]
    for values in known:
        if not np.array_equal(values, known[0]):
            raise TrajectoryError(
                f"the logs differ in reward_values: {known[0].tolist()} and {values.tolist()}"
            )
    S, A, _ = sizes_of(parts)
    occur = S
    if S > _MANY_STATES:
        occur = np.unique(np.concatenate([np.unique(part.states) for part in parts])).size
    if S * A > _MOST_ROWS or occur < _OCCURRING_SHARE * S:
        raise TrajectoryError(
            f"states are numbered up to {S - 1} and {occur} of them occur: a table of "
            f"(state, action) would have {S * A:.1e} rows; number states 0, 1, 2, ... "
            "without gaps"
        )
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


def _numbered(parts: Sequence[NDArray[Any]]) -> tuple[Integers, list[Indices]]:
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


def _tally(keys: Integers, counts: Integers | None, space: int) -> tuple[Integers, Floats]:
    """Distinct keys in order, and the number (or the summed counts) of each."""
    if space <= _DIRECT_KEYS:
        total = np.bincount(keys, weights=counts)
        distinct = np.flatnonzero(total)
        return distinct, total[distinct].astype(np.float64)
    distinct, inverse = np.unique(keys, return_inverse=True)
    return distinct, np.bincount(inverse, weights=counts).astype(np.float64)


def _width(n_contexts: int) -> int:
    """Contexts are padded to a few widths, so that few kernels are ever compiled."""
    if n_contexts <= 4:
        return max(n_contexts, 2)
    return 1 << (n_contexts - 1).bit_length()


def _padded(table: Floats, width: int) -> Floats:
    if table.shape[1] == width:
        return np.ascontiguousarray(table)
    return np.pad(table, ((0, 0), (0, width - table.shape[1])))
