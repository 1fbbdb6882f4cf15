"""Merged episodes, and the pass over them that gives expected counts.

A transition (s, a, s', z) is a *cell*. The likelihood of an episode in context m is a product over
its cells, so identical episodes are merged, with their multiplicities. Only the cells that occur
are numbered, in the order of (s, a, s', z): the cost of learning does not depend on how many
transitions are impossible.

With P_m(x) the probability of cell x and W_m(s) = w_m nu_m(s), one pass over the episodes
i = (s; c_1, .., c_L), which came n_i times, computes

    Z_i = sum_m W_m(s) prod_t P_m(c_t),    q_i(m) = W_m(s) prod_t P_m(c_t) / Z_i,
    N_m(x) = sum_i n_i q_i(m) #{t : c_t = x},    N_m(s) = sum_{i begins in s} n_i q_i(m),

and sum_i n_i log Z_i. Episodes that are short enough to be packed into one integer each are sorted
as well, so that the pass visits each common prefix once. The loops are in `_kernels.mixture`.

Logs are read in batches (`Trajectories.batches`), and each becomes a *chunk*: identical episodes
are merged within it. Chunks are held in memory or, where logs lie on disk or workers are to read
them, stored in files of 2 to 4 bytes a step. Sums run over the blocks of a chunk in their order,
and over chunks in the order of `engines.tree_sum`, so that a pass gives the same bits wherever
it runs. What needs all episodes at once, such as folds and pair moments, looks at `sample`: chunks
spread evenly over logs that are long, and all of them otherwise.

What is missing in the logs stays missing: a cell may lack its reward or its next state, and the
segments of an individual are one episode here. Where individuals have covariates x, the weights
are w_m(x), and W has a row for every pair of a first state and covariates that occurs.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Indices, Integers, normalised
from latentmdp._util.words import plural
from latentmdp.engines import Engine, Threads, total, tree_sum
from latentmdp.errors import DeviceError, TrajectoryError
from latentmdp.logs import (
    Batch,
    Encoder,
    Logs,
    Trajectories,
    dense_counts,
    listed_logs,
    require_logs,
    sizes_of,
    spread,
)

_DIRECT_KEYS = 1 << 23
"""Up to this largest number, distinct integers are found by marking a table of as many entries
(8 MB of flags), beyond it by sorting: the table is faster, its memory grows with the number."""


class ExpectedCounts(NamedTuple):
    """N_m(x) of every cell, (C, M), and N_m of every beginning, (B, M)."""

    by_cell: Floats
    by_first: Floats


class CellParts(NamedTuple):
    """(s, a) as the number s A + a, s' and z of some cells; -1 for what is missing in one."""

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
    def _work(self) -> Floats:
        """Of all episodes up to each."""
        steps = np.diff(self.offsets)
        if self.common is not None:
            steps = steps - self.common
        return np.cumsum(steps + 2.0)

    def blocks(self, size: int) -> list[tuple[int, int]]:
        """Intervals of episodes of about equal work, of `size` steps or less."""
        work = self._work
        pieces = int(np.ceil(work[-1] / size))
        cuts = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces)
        edges = np.unique(np.concatenate([[0], cuts, [self.first.size]]))
        return list(zip(edges[:-1].tolist(), edges[1:].tolist()))


class Chunk(NamedTuple):
    """The episodes of one batch, held in memory or written to a file.

    `numbers` are the cells that those of the groups stand for, None where they are the same.
    """

    held: tuple[Group, ...]
    path: str | None = None
    numbers: NDArray[np.integer[Any]] | None = None

    def groups(self) -> tuple[Group, ...]:
        """The episodes, read from the file where there is one."""
        groups = self.held
        if self.path is not None:
            with open(self.path, "rb") as stream:
                groups = pickle.load(stream)
        if self.numbers is None:
            return groups
        return tuple(replace(group, cells=self.numbers[group.cells]) for group in groups)

    def jobs(self, size: int) -> list[_Job]:
        """The blocks of the groups, of `size` steps or less each."""
        return [(group, block) for group in self.groups() for block in group.blocks(size)]


class CellEncoder(NamedTuple):
    """How the steps of logs become cells, and their first states beginnings.

    `widths` are S' and Z' of `Episodes`; `first_state` and `design` its beginnings, in the order
    of their columns where there is a design.
    """

    n_states: int
    n_actions: int
    n_rewards: int
    widths: tuple[int, int]
    encoder: Encoder | None
    first_state: Integers
    design: Floats | None

    @property
    def base(self) -> int:
        """How many different steps may follow a state."""
        return self.n_actions * self.widths[0] * self.widths[1]

    def codes(self, logs: Trajectories, from_state: bool = True) -> Integers:
        """The cell of every step as one number, with or without its state."""
        steps = logs.steps()
        moves, pays = self.widths
        code = steps.action.astype(np.int64)
        if from_state:
            code += self.n_actions * steps.state.astype(np.int64)
        next_state, reward = steps.next_state, steps.reward
        code = code * moves + np.where(next_state < 0, self.n_states, next_state)
        return code * pays + np.where(reward < 0, self.n_rewards, reward)

    def first_rows(self, logs: Trajectories) -> Indices:
        """The beginning of every individual."""
        first = logs.first_states[logs.beginnings()]
        if self.design is None:
            missing = self.first_state.size - 1
            return np.where(first < 0, missing, first).astype(np.int32)
        assert self.encoder is not None
        beginnings = np.column_stack([self.first_state, self.design])
        rows = np.column_stack([first, _design_rows(logs, self.encoder)]) + 0.0
        # all rows are known, so each has the number that it has among those known
        _, number = np.unique(np.concatenate([beginnings, rows]), axis=0, return_inverse=True)
        return number[len(beginnings) :].astype(np.int32)

    def grouped(self, logs: Trajectories) -> list[Group]:
        """Split by length: what can be packed into integer keys is merged and sorted."""
        lengths = logs.lengths
        bits = np.log2(self.n_states) + lengths * np.log2(max(self.base, 2))
        whole = logs.complete and self.design is None
        # one bit of an int64 is the sign, one is spare
        short = (bits < 62.0) & (lengths > 0) & whole
        groups = []
        for length in np.unique(lengths[short]).tolist():
            of_length = short & (lengths == length)
            groups.append(self._merged(logs if of_length.all() else logs[of_length], length))
        if not short.all():
            rest = logs[~short] if short.any() else logs
            counts = rest.multiplicities()[rest.beginnings()].astype(np.float64)
            first, cells = self.first_rows(rest), self.codes(rest)
            groups.append(Group(cells, rest.individual_offsets(), first, counts, None))
        return groups

    def _merged(self, logs: Trajectories, length: int) -> Group:
        """Episodes of one length: each becomes the integer (s, (a, s', z), (a, s', z), ...)."""
        base = self.base
        moves, pays = self.widths
        steps = self.codes(logs, from_state=False).reshape(-1, length)
        # The first step has the most significant digits, so sorted keys put episodes with common
        # beginnings side by side: `common` is then all the pass needs to visit each prefix once.
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


class _Totals(NamedTuple):
    """What episodes hold together: counts of cells and of beginnings, and the longest length."""

    cells: Floats
    beginnings: Floats
    longest: int

    @classmethod
    def of(cls, groups: Sequence[Group], n_cells: int, n_beginnings: int) -> _Totals:
        """The totals of some groups."""
        cells, beginnings, longest = np.zeros(n_cells), np.zeros(n_beginnings), 0
        for group in groups:
            lengths = np.diff(group.offsets)
            cells += np.bincount(group.cells, np.repeat(group.counts, lengths), n_cells)
            beginnings += np.bincount(group.first, group.counts, n_beginnings)
            longest = max(longest, int(lengths.max(initial=0)))
        return cls(cells, beginnings, longest)


def _coded(
    job: tuple[Batch, str | None], cell_encoder: CellEncoder
) -> tuple[Chunk, NDArray[np.int64], _Totals]:
    """The chunk of a batch, written to a file where one is named; its cells, and its totals."""
    batch, path = job
    groups = cell_encoder.grouped(batch.read())
    cells, positions = _numbered([group.cells for group in groups])
    groups = [replace(group, cells=numbers) for group, numbers in zip(groups, positions)]
    totals = _Totals.of(groups, cells.size, cell_encoder.first_state.size)
    if path is None:
        return Chunk(tuple(groups)), cells, totals
    aside = f"{path}.{os.getpid()}.{id(groups)}"  # the file appears whole or not at all
    with open(aside, "wb") as stream:
        pickle.dump(tuple(groups), stream, pickle.HIGHEST_PROTOCOL)
    os.replace(aside, path)
    return Chunk((), path), cells, totals


class Episodes:
    """Merged episodes of one or more logs.

    Parameters
    ----------
    sizes : None or (S, A, Z)
        By default no larger than the logs say.
    engine
        Where logs are read.

    Attributes
    ----------
    cells : (C,)
        The cells that occur, each as the number ((s A + a) S' + s') Z' + z; S' and Z' are S and Z.
        Where some are missing they are one more, and the last number stands for a missing one.
    chunks : list of Chunk
        The episodes, their cells given by position in `cells`.
    cell_encoder : CellEncoder
        What the cells mean.
    n_states, n_actions, n_rewards : int
        S, A and Z.
    first_state : (B,)
        The state of each beginning, -1 where it is missing. Without covariates and missing states,
        beginnings are the states themselves.
    encoder, design : Encoder or None, (B, d) or None
        What turns covariates into design vectors, and those of each beginning.
    """

    def __init__(
        self,
        logs: Sequence[Logs],
        sizes: tuple[int, int, int] | None = None,
        encoder: Encoder | None = None,
        engine: Engine | None = None,
    ) -> None:
        engine = engine or Threads(1)
        S, A, Z = sizes or sizes_of(logs)
        lacks = [part.lacks for part in logs]
        widths = S + any(one.ends for one in lacks), Z + any(one.rewards for one in lacks)
        beginnings = _beginnings(logs, S, any(one.beginnings for one in lacks), encoder)
        self.cell_encoder = CellEncoder(S, A, Z, widths, encoder, *beginnings)
        self.n_states, self.n_actions, self.n_rewards = S, A, Z
        self.first_state, self.design = beginnings
        self.encoder = encoder
        self.n_steps = sum(part.n_steps for part in logs)
        # Steps of a block: enough that handing it to a thread costs nothing beside the work, few
        # enough that a log of a million steps has one for each of several threads.
        self._block_size = min(max(self.n_steps // 64, 1 << 17), 1 << 19)
        batches = [batch for part in logs for batch in part.batches()]
        self._folder: TemporaryDirectory[str] | None = None
        self._sample: Episodes | None = None
        self._held_by: dict[Engine, Any] = {}
        self._known_totals: _Totals | None = None
        if not engine.local or not all(part.fits_memory for part in logs):
            self._folder = TemporaryDirectory(prefix="latentmdp-", dir=engine.scratch)
        self._read(batches, engine)

    def _read(self, batches: Sequence[Batch], engine: Engine) -> None:
        """Make the chunks, and number the cells of all of them together."""
        folder = None if self._folder is None else self._folder.name
        paths = [
            None if folder is None else os.path.join(folder, str(k)) for k in range(len(batches))
        ]
        cells = np.zeros(0, np.int64)
        totals = _Totals(np.zeros(0), np.zeros(self.first_state.size), 0)
        chunks: list[tuple[Chunk, Integers]] = []
        for chunk, chunk_cells, part in engine.map(
            _coded, list(zip(batches, paths)), self.cell_encoder
        ):
            every = cells if np.array_equal(cells, chunk_cells) else np.union1d(cells, chunk_cells)
            counts = np.zeros(every.size)
            counts[np.searchsorted(every, cells)] = totals.cells
            counts[np.searchsorted(every, chunk_cells)] += part.cells
            longest = max(totals.longest, part.longest)
            cells, totals = every, _Totals(counts, totals.beginnings + part.beginnings, longest)
            chunks.append((chunk, chunk_cells))
        self.cells, self._known_totals = cells, totals
        self.chunks = [_numbered_chunk(chunk, chunk_cells, cells) for chunk, chunk_cells in chunks]

    def _of(self, chunks: list[Chunk], cells: Integers | None = None) -> Episodes:
        """Other episodes in memory, with other cells where some are given."""
        other = copy(self)
        other.chunks, other._sample, other._known_totals = chunks, None, None
        if cells is not None:
            other.cells, other._held_by = cells, {}
        return other

    @property
    def _totals(self) -> _Totals:
        if self._known_totals is None:
            sizes = self.cells.size, self.first_state.size
            self._known_totals = _Totals.of(self.groups, *sizes)
        return self._known_totals

    @property
    def held(self) -> bool:
        """Whether all episodes are in memory."""
        return all(chunk.path is None for chunk in self.chunks)

    @property
    def groups(self) -> list[Group]:
        """The groups of all chunks; stored ones are read for it, as `sample` does for a few."""
        return [group for chunk in self.chunks for group in chunk.groups()]

    def sample(self) -> Episodes:
        """Enough episodes to decide by, in memory: these, or chunks spread evenly over them."""
        sampled = spread(len(self.chunks), self.n_steps)
        if len(sampled) == len(self.chunks) and self.held:
            return self
        if self._sample is None:
            self._sample = self._of([Chunk(self.chunks[k].groups()) for k in sampled], self.cells)
            self._sample.n_steps = 0  # so that it is its own sample
        return self._sample

    @property
    def n_episodes(self) -> float:
        """Number of episodes, multiplicities counted."""
        return float(self._totals.beginnings.sum())

    @property
    def longest(self) -> int:
        """Length of the longest episode."""
        return self._totals.longest

    def parts_of_cells(self) -> CellParts:
        """The columns of every cell."""
        moves, pays = self.cell_encoder.widths
        pair, rest = np.divmod(self.cells, moves * pays)
        next_state, reward = np.divmod(rest, pays)
        next_state[next_state == self.n_states] = -1
        reward[reward == self.n_rewards] = -1
        return CellParts(pair, next_state, reward)

    def renumbered(self, cells: Integers, index: Integers, first: Integers) -> Episodes:
        """The same episodes in terms of other `cells`; cell x becomes number index[x] of them.

        Beginning b becomes cell first[b] before the first step, unless `first` is empty.
        """

        def renumber(group: Group) -> Group:
            numbers, offsets = index[group.cells], group.offsets
            if first.size:
                numbers = np.insert(numbers, offsets[:-1], first[group.first])
                offsets = offsets + np.arange(offsets.size)
            return replace(group, cells=numbers, offsets=offsets, common=None)

        chunks = [Chunk(tuple(map(renumber, chunk.groups()))) for chunk in self.chunks]
        return self._of(chunks, cells)

    def cell_counts(self) -> Floats:
        """How often each cell occurs."""
        return self._totals.cells

    def beginning_counts(self) -> Floats:
        """How often each beginning occurs."""
        return self._totals.beginnings

    def by_state(self, counts: Floats) -> Floats:
        """Counts of beginnings (B, ...) added up by state (S, ...), missing ones left out."""
        has_state = self.first_state >= 0
        total = np.zeros((self.n_states, *counts.shape[1:]))
        np.add.at(total, self.first_state[has_state], counts[has_state])
        return total

    def behaviour(self) -> Floats:
        """How often each action was taken in each state, (S, A); uniform where never seen."""
        S, A = self.n_states, self.n_actions
        visits = np.bincount(self.parts_of_cells().pair, self.cell_counts(), S * A)
        return normalised(visits.reshape(S, A).astype(np.float64), np.ones(A))

    def shared_out(self, logs: Sequence[Logs], shares: Floats) -> ExpectedCounts:
        """Expected counts for given p(m | episode), (N, M), of all episodes of the logs."""
        C, B = self.cells.size, self.first_state.size

        def cells_of(part: Trajectories) -> tuple[Integers, Integers]:
            """The cells of all steps, then the beginnings of individuals: one reading for both."""
            cells = np.searchsorted(self.cells, self.cell_encoder.codes(part))
            cells = np.append(cells, C + self.cell_encoder.first_rows(part))
            return cells, np.append(part.steps().episode, part.beginnings())

        counts = np.ascontiguousarray(dense_counts(logs, cells_of, C + B, shares).T)
        return ExpectedCounts(counts[:C], counts[C:])

    def expected_counts(
        self, table: Floats, first: Floats, engine: Engine | None = None
    ) -> tuple[ExpectedCounts, float]:
        """One pass: the expected counts, and the log-likelihood of all episodes.

        Parameters
        ----------
        table : (C, M)
            P_m(x) of every cell.
        first : (B, M)
            w_m nu_m(s) of every beginning.
        engine
            Where the pass runs; one thread by default. The result does not depend on it, but for
            the order of sums on a GPU.
        """
        engine, M = engine or Threads(1), table.shape[1]
        if (held := self.held_by(engine, M)) is not None:
            counts, firsts, logs = held([group.counts for group in self.groups], table, first)
            return ExpectedCounts(counts, firsts), logs
        P, W = (_padded(one, _width(M)) for one in (table, first))
        jobs = [chunk.jobs(self._block_size) for chunk in self.chunks] if self.held else []
        if not self.held:
            sums = total(engine, _chunk_counts, self.chunks, P, W, self._block_size)
        elif sum(map(len, jobs)) == 1:
            sums = _block_counts(jobs[0][0], P, W)
        else:  # where workers do not see this memory: few, and not worth a journey
            work = engine if engine.local else Threads(None)
            blocks = work.map(_block_counts, [job for some in jobs for job in some], P, W)
            sums = tree_sum(_added_up(islice(blocks, len(some)), P, W) for some in jobs)
        by_cell, by_first, log_likelihood = sums
        return ExpectedCounts(by_cell[:, :M], by_first[:, :M]), float(log_likelihood)

    def held_by(self, engine: Engine, n_contexts: int) -> Any:
        """The pass of an engine that holds the episodes in a memory of its own, or None.

        They are brought there once; copies of these episodes with other multiplicities share them.

        Raises
        ------
        DeviceError
            They do not fit there.
        """
        from latentmdp._kernels.mixture import kernels

        version = engine.version_of(kernels)
        if version is None:
            return None
        if not self.held:
            raise DeviceError(
                f"{self.n_steps:,} steps in files are more than is held in memory at once: "
                'they are fitted with device="cpu"'
            )
        if engine not in self._held_by:
            groups = [(group.cells, group.offsets, group.first) for group in self.groups]
            sizes = (self.cells.size, self.first_state.size, n_contexts)
            self._held_by[engine] = version(groups, sizes)
        return self._held_by[engine]

    def log_evidence(self, table: Floats, first: Floats) -> list[Floats]:
        """Log Z of each merged episode, group by group; arguments as for `expected_counts`."""
        with np.errstate(divide="ignore"):
            log_table, log_first = np.log(table), np.log(first)
        evidence = []
        for group in self.groups:
            scores = log_first[group.first]
            filled = np.flatnonzero(np.diff(group.offsets))
            if filled.size:
                steps = log_table[group.cells]
                scores[filled] += np.add.reduceat(steps, group.offsets[filled], axis=0)
            evidence.append(np.logaddexp.reduce(scores, axis=1))
        return evidence

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
        folds_used = parted if parted.size else np.arange(number)
        folds = [[s[:, k].astype(np.float64) for s in shares] for k in folds_used]
        rest = [[g.counts - out for g, out in zip(self.groups, held)] for held in folds]
        return [(self._counted(one), self._counted(held)) for one, held in zip(rest, folds)]

    def _counted(self, counts: Sequence[Floats]) -> Episodes:
        """The same episodes with other multiplicities, one array per group."""
        of_groups = iter(counts)
        return self._of(
            [
                Chunk(tuple(replace(group, counts=next(of_groups)) for group in chunk.groups()))
                for chunk in self.chunks
            ]
        )


_Sums = tuple[Floats, Floats, float]
"""Expected counts of cells and of beginnings, and the log-likelihood."""


_Job = tuple[Group, tuple[int, int]]
"""A group, and an interval of its episodes."""


def _added_up(blocks: Iterable[_Sums], P: Floats, W: Floats) -> _Sums:
    """The sums of a chunk, from those of its blocks in their order."""
    by_cell, by_first, log_likelihood = np.zeros(P.shape), np.zeros(W.shape), 0.0
    for block in blocks:
        by_cell += block[0]
        by_first += block[1]
        log_likelihood += block[2]
    return by_cell, by_first, log_likelihood


def _chunk_counts(chunk: Chunk, P: Floats, W: Floats, size: int) -> _Sums:
    """The sums over a chunk: a piece of work for any worker."""
    return _added_up((_block_counts(job, P, W) for job in chunk.jobs(size)), P, W)


def _block_counts(job: _Job, P: Floats, W: Floats) -> _Sums:
    """The sums over some episodes of a group, by the compiled loops."""
    from latentmdp._kernels.mixture import kernels

    group, (start, stop) = job
    episodes, prefixes = kernels(P.shape[1])
    by_cell, by_first = np.zeros(P.shape), np.zeros(W.shape)
    evidence = np.empty(stop - start)
    begin = int(group.offsets[start])
    first, counts = group.first[start:stop], group.counts[start:stop]
    tail = (first, counts, 0, stop - start, P, W, by_cell, by_first, evidence)
    if group.common is None:
        offsets = group.offsets[start : stop + 1] - begin
        shift = episodes(group.cells[begin : int(group.offsets[stop])], offsets, *tail)
    else:
        length = int(group.offsets[1])
        cells = group.cells[begin : int(group.offsets[stop])]
        shift = prefixes(cells, length, group.common[start:stop], *tail)
    with np.errstate(divide="ignore"):
        logs = np.log(evidence)
    # a sum of products, not a dot product: BLAS threads would get in the way of ours
    return by_cell, by_first, shift + float(np.sum(counts * logs))


def _numbered_chunk(chunk: Chunk, chunk_cells: Integers, cells: Integers) -> Chunk:
    """A chunk whose cells, so far in their own order, are given by position among all cells."""
    if chunk_cells.size == cells.size:
        return chunk
    numbers = np.searchsorted(cells, chunk_cells).astype(_cell_type(cells.size))
    chunk = chunk._replace(numbers=numbers)
    return chunk if chunk.path else Chunk(chunk.groups())  # what is in memory is numbered once


def _cell_type(n_cells: int) -> Any:
    """The smallest type for numbers of cells that loops are compiled for."""
    return np.uint16 if n_cells <= 1 << 16 else np.int32


def checked_logs(logs: Logs | Sequence[Logs], minimum: int = 1) -> list[Logs]:
    """The logs as a list, their contexts hidden.

    Raises
    ------
    TrajectoryError
        There is no episode, none has `minimum` steps, the logs disagree on reward values, or the
        states are so many that no machine holds a table of them.
    """
    every = listed_logs(logs)
    for i, part in enumerate(every):
        require_logs(f"logs[{i}]", part)
    parts = [part.without_contexts() for part in every if len(part)]
    if not parts:
        raise TrajectoryError("the logs hold no episode")
    declared = [part.reward_values for part in parts if part.reward_values is not None]
    for values in declared:
        if not np.array_equal(values, declared[0]):
            raise TrajectoryError(
                f"the logs differ in reward_values: {declared[0].tolist()} and {values.tolist()}"
            )
    S, A, _ = sizes_of(parts)
    occur = S
    if S > 100_000:
        states = [np.unique(b.read().states) for part in parts for b in part.batches()]
        occur = np.unique(np.concatenate(states)).size
    # flags and numbers of 10^8 rows take 0.8 GB each; numbers that large, or of which hardly any
    # occur, are identifiers and not states
    if S * A > 10**8 or occur < 0.01 * S:
        raise TrajectoryError(
            f"states are numbered up to {S - 1} and {occur} of them occur: a table of "
            f"(state, action) would have {S * A:.1e} rows; number states 0, 1, 2, ... "
            "without gaps"
        )
    if declared and max(part.n_rewards for part in parts) > declared[0].size:
        raise TrajectoryError(
            f"a log without reward_values has reward indices beyond {declared[0].tolist()}"
        )
    longest = max(part.longest for part in parts)
    if longest < minimum:
        raise TrajectoryError(
            f"every episode is too short: the longest has {plural(longest, 'step')}, {minimum} are "
            "needed"
        )
    return parts


def _beginnings(
    logs: Sequence[Logs], n_states: int, missing: bool, encoder: Encoder | None
) -> tuple[Integers, Floats | None]:
    """The state and the covariates of every beginning."""
    if encoder is None:
        return np.append(np.arange(n_states), np.full(int(missing), -1)), None
    keys = []
    for part in (batch.read() for logged in logs for batch in logged.batches()):
        first = part.first_states[part.beginnings()].astype(np.float64)
        keys.append(np.unique(np.column_stack([first, _design_rows(part, encoder)]) + 0.0, axis=0))
    rows = np.unique(np.concatenate(keys), axis=0)
    return rows[:, 0].astype(np.int64), np.ascontiguousarray(rows[:, 1:])


def _design_rows(logs: Trajectories, encoder: Encoder) -> Floats:
    """The design vectors of all individuals, the average one where they have no covariates."""
    if logs.covariates is None:
        return np.zeros((logs.n_individuals, encoder.width))
    return encoder.design(logs.covariates[logs.beginnings()])


def _numbered(parts: Sequence[NDArray[Any]]) -> tuple[Integers, list[NDArray[Any]]]:
    """The distinct cells of all parts in order, and each part in terms of their positions."""
    top = max((int(part.max()) + 1 for part in parts if part.size), default=0)
    if top > _DIRECT_KEYS:
        distinct = np.unique(np.concatenate([np.unique(part) for part in parts]))
        kind = _cell_type(distinct.size)
        return distinct, [np.searchsorted(distinct, part).astype(kind) for part in parts]
    occurs = np.zeros(top, dtype=np.bool_)
    for part in parts:
        occurs[part] = True
    distinct = np.flatnonzero(occurs)
    position = np.zeros(top, dtype=_cell_type(distinct.size))
    position[distinct] = np.arange(distinct.size)
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
    padded = np.zeros((len(table), width))  # np.pad takes as long as the pass over a few episodes
    padded[:, : table.shape[1]] = table
    return padded
