"""Merged episodes, and the pass over them that gives expected counts.

A transition (s, a, s', z) is a *cell*; what says nothing about the context is left out of it:
(s, a, s') where rewards are shared, (s, a, z) where transitions are. The likelihood of an episode
in context m is a product over its cells, so identical episodes are merged, with their
multiplicities. Only the cells that occur are numbered, in the order of (s, a, s', z): the cost of
learning does not depend on how many transitions are impossible.

With P_m(x) the probability of cell x and W_m(s) = w_m nu_m(s), one pass over the episodes
i = (s; c_1, .., c_L), which came n_i times, computes

    Z_i = sum_m W_m(s) prod_t P_m(c_t),    q_i(m) = W_m(s) prod_t P_m(c_t) / Z_i,
    N_m(x) = sum_i n_i q_i(m) #{t : c_t = x},    N_m(s) = sum_{i begins in s} n_i q_i(m),

and sum_i n_i log Z_i. Episodes that are short enough to be packed into one integer each are sorted
as well, so that the pass visits each common prefix once. The loops are in `_kernels.mixture`.

What is missing in the logs stays missing: a cell may lack its reward or its next state, and the
segments of an individual are one episode here. Where individuals have covariates x, the weights
are w_m(x), and W has a row for every pair of a first state and covariates that occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Indices, Integers, require_instance
from latentmdp.covariates import Encoder
from latentmdp.engines.threads import Team
from latentmdp.errors import TrajectoryError
from latentmdp.trajectories import Trajectories, sizes_of

__all__ = ["CellParts", "Episodes", "ExpectedCounts", "Group", "checked_logs"]

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
    """N_m(x) of every cell, (C, M), and N_m of every beginning, (B, M)."""

    by_cell: Floats
    by_first: Floats


class CellParts(NamedTuple):
    """(s, a) as the number s A + a, s' and z of some cells.

    0 stands for what is left out of all cells, -1 for what is missing in one.
    """

    pair: Integers
    next_state: Integers
    reward: Integers


@dataclass(frozen=True)
class Group:
    """Some episodes: cells[offsets[i]:offsets[i+1]] from beginning first[i] on, counts[i] times.

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
    use_rewards, use_next_states : bool
        Whether rewards, and next states, are part of a cell.
    sizes : None or (S, A, Z)
        By default no larger than the logs say.

    Attributes
    ----------
    cells : (C,)
        The cells that occur, each as the number ((s A + a) S' + s') Z' + z; S' and Z' are S and Z,
        or 1 where next states, or rewards, are left out. Where some are missing they are one more,
        and the last number stands for a missing one.
    groups : list of Group
        The episodes, their cells given by position in `cells`.
    first_state : (B,)
        The state of each beginning, -1 where it is missing. Without covariates and missing states,
        beginnings are the states themselves.
    design : (B, d) or None
        The covariates of each beginning.
    """

    def __init__(
        self,
        logs: Sequence[Trajectories],
        use_rewards: bool = True,
        sizes: tuple[int, int, int] | None = None,
        use_next_states: bool = True,
        encoder: Encoder | None = None,
    ) -> None:
        self.n_states, self.n_actions, Z = sizes or sizes_of(logs)
        self.n_rewards = Z if use_rewards else 1
        self.uses_next_states = use_next_states
        self._widths = (
            self.n_states + _lacks(part.last_states for part in logs) if use_next_states else 1,
            Z + _lacks(part.rewards for part in logs) if use_rewards else 1,
        )
        self.encoder = encoder
        self.first_state, self.design = _beginnings(logs, self.n_states, encoder)
        raw = [group for part in logs for group in self._grouped(part)]
        self.cells, positions = _numbered([group.cells for group in raw])
        self.groups = [replace(group, cells=cells) for group, cells in zip(raw, positions)]

    def _codes(self, logs: Trajectories, from_state: bool = True) -> Integers:
        """The cell of every step as one number, with or without its state."""
        steps = logs.steps()
        moves, pays = self._widths
        code = steps.action.astype(np.int64)
        if from_state:
            code += self.n_actions * steps.state.astype(np.int64)
        if moves > 1 or self.uses_next_states:
            next_state = steps.next_state
            code = code * moves + np.where(next_state < 0, self.n_states, next_state)
        if pays > 1:
            code = code * pays + np.where(steps.reward < 0, self.n_rewards, steps.reward)
        return code

    def _first_rows(self, logs: Trajectories) -> Indices:
        """The beginning of every individual."""
        first = logs.first_states[logs.beginnings()]
        if self.design is None:
            missing = self.first_state.size - 1
            return np.where(first < 0, missing, first).astype(np.int32)
        assert self.encoder is not None
        rows = _design_rows(logs, self.encoder)
        place = {key.tobytes(): i for i, key in enumerate(self._beginning_keys())}
        keys = np.column_stack([first.astype(np.float64), rows]) + 0.0
        return np.array([place[key.tobytes()] for key in keys], dtype=np.int32)

    def _beginning_keys(self) -> Floats:
        assert self.design is not None
        return np.ascontiguousarray(
            np.column_stack([self.first_state.astype(np.float64), self.design]) + 0.0
        )

    def _grouped(self, logs: Trajectories) -> list[Group]:
        """Split by length: what can be packed into integer keys is merged and sorted."""
        lengths = logs.lengths
        base = self.n_actions * int(np.prod(self._widths))
        bits = np.log2(self.n_states) + lengths * np.log2(max(base, 2))
        whole = logs.complete and self.design is None and self.uses_next_states
        short = (bits < _KEY_BITS) & (lengths > 0) & whole
        groups = []
        for length in np.unique(lengths[short]).tolist():
            chosen = short & (lengths == length)
            groups.append(self._merged(logs if chosen.all() else logs[chosen], length))
        if not short.all():
            rest = logs[~short] if short.any() else logs
            counts = rest.multiplicities()[rest.beginnings()].astype(np.float64)
            first, cells = self._first_rows(rest), self._codes(rest)
            groups.append(Group(cells, rest.individual_offsets(), first, counts, None))
        return groups

    def _merged(self, logs: Trajectories, length: int) -> Group:
        """Episodes of one length: each becomes the integer (s, (a, s', z), (a, s', z), ...)."""
        base = self.n_actions * int(np.prod(self._widths))
        moves, pays = self._widths
        steps = self._codes(logs, from_state=False).reshape(-1, length)
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
        state = np.column_stack([keys, steps[:, :-1] // pays % moves])
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

    def parts_of_cells(self) -> CellParts:
        """The columns of every cell."""
        moves, pays = self._widths
        pair, rest = np.divmod(self.cells, moves * pays)
        next_state, reward = np.divmod(rest, pays)
        if self.uses_next_states:
            next_state[next_state == self.n_states] = -1
        if pays > self.n_rewards:
            reward[reward == self.n_rewards] = -1
        return CellParts(pair, next_state, reward)

    def numbered(self, keys: Integers) -> tuple[Episodes, Integers]:
        """The same episodes with cells of the same key taken for one, and each old cell's new one.

        `keys` (C,) stand for what is kept of every cell.
        """
        other = copy(self)
        other.cells, index = np.unique(keys, return_inverse=True)
        other.groups = [
            replace(group, cells=index[group.cells], common=None) for group in self.groups
        ]
        return other, index

    def cell_counts(self) -> Floats:
        """How often each cell occurs."""
        total = np.zeros(self.cells.size)
        for group in self.groups:
            weights = np.repeat(group.counts, np.diff(group.offsets))
            total += np.bincount(group.cells, weights, self.cells.size)
        return total

    def beginning_counts(self) -> Floats:
        """How often each beginning occurs."""
        total = np.zeros(self.first_state.size)
        for group in self.groups:
            total += np.bincount(group.first, group.counts, total.size)
        return total

    def by_state(self, counts: Floats) -> Floats:
        """Counts of beginnings (B, ...) added up by state (S, ...), missing ones left out."""
        known = self.first_state >= 0
        total = np.zeros((self.n_states, *counts.shape[1:]))
        np.add.at(total, self.first_state[known], counts[known])
        return total

    def first_counts(self) -> Floats:
        """How often each state comes first."""
        return self.by_state(self.beginning_counts())

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
        by_cell = np.zeros((self.cells.size, M))
        by_first = np.zeros((self.first_state.size, M))
        ends = np.cumsum([len(part) for part in logs])
        for part, own in zip(logs, np.split(shares, ends[:-1])):
            own = own * part.multiplicities()[:, None]
            place = np.searchsorted(self.cells, self._codes(part))
            np.add.at(by_cell, place, np.repeat(own, part.lengths, axis=0))
            np.add.at(by_first, self._first_rows(part), own[part.beginnings()])
        return ExpectedCounts(by_cell, by_first)

    def expected_counts(
        self, table: Floats, first: Floats, team: Team | None = None
    ) -> tuple[ExpectedCounts, float]:
        """One pass: the expected counts, and the log-likelihood of all episodes.

        Blocks and the order in which they are added up do not depend on the team's size.

        Parameters
        ----------
        table : (C, M)
            P_m(x) of every cell.
        first : (B, M)
            w_m nu_m(s) of every beginning.
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


def _lacks(arrays: Iterable[NDArray[Any]]) -> int:
    """1 if something is missing in one of the arrays."""
    return int(any(array.min(initial=0) < 0 for array in arrays))


def _beginnings(
    logs: Sequence[Trajectories], n_states: int, encoder: Encoder | None
) -> tuple[Integers, Floats | None]:
    """The state and the covariates of every beginning."""
    firsts = [part.first_states[part.beginnings()] for part in logs]
    if encoder is None:
        missing = [-1] if _lacks(firsts) else []
        return np.append(np.arange(n_states), np.array(missing, np.int64)), None
    rows = np.concatenate([_design_rows(part, encoder) for part in logs])
    keys = np.column_stack([np.concatenate(firsts).astype(np.float64), rows]) + 0.0
    keys = np.unique(keys, axis=0)
    return keys[:, 0].astype(np.int64), np.ascontiguousarray(keys[:, 1:])


def _design_rows(logs: Trajectories, encoder: Encoder) -> Floats:
    """The design vectors of all individuals, the average one where they have no covariates."""
    if logs.covariates is None:
        return np.zeros((logs.n_individuals, encoder.width))
    return encoder.design(logs.covariates[logs.beginnings()])


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
