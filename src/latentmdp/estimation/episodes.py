"""Episodes as the mixture likelihood reads them: one pass gives expected counts.

Only the cells that occur (`encoding`) are numbered, in the order of (s, a, s', z), so the cost of
learning does not depend on how many transitions are impossible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.engines.threads import Team
from latentmdp.estimation.encoding import Encoder, numbered
from latentmdp.trajectories import Trajectories, sizes_of

__all__ = ["Episodes", "ExpectedCounts"]


class ExpectedCounts(NamedTuple):
    """What an E-step returns: shares added up per cell (C, M) and first state (S, M), and log Z."""

    by_cell: Floats
    by_first: Floats
    log_likelihood: float


class Episodes:
    """Merged episodes of one or more logs.

    Parameters
    ----------
    logs : sequence of Trajectories
    use_rewards : bool
        Whether rewards are part of a cell.
    sizes : None or (S, A, Z)
        By default no larger than the logs say.
    """

    def __init__(
        self,
        logs: Sequence[Trajectories],
        use_rewards: bool = True,
        sizes: tuple[int, int, int] | None = None,
    ) -> None:
        self.n_states, self.n_actions, Z = sizes or sizes_of(logs)
        self.n_rewards = Z if use_rewards else 1
        self.encoder = Encoder(self.n_states, self.n_actions, self.n_rewards, use_rewards)
        raw = [group for part in logs for group in self.encoder.groups(part)]
        self.cells, positions = numbered([group.cells for group in raw])
        self.groups = [replace(group, cells=cells) for group, cells in zip(raw, positions)]

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
        total = np.zeros(self.n_states)
        for group in self.groups:
            total += np.bincount(group.first, weights=group.counts, minlength=self.n_states)
        return total

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
            # a sum of products, not a dot product: BLAS threads would get in the way of ours
            return by_cell, by_first, shift + float(np.sum(group.counts[start:stop] * logs))

        parts = (team or Team(1)).run(work, len(jobs))
        by_cell, by_first = np.zeros(P.shape), np.zeros(W.shape)
        for cells, firsts, _ in parts:
            by_cell += cells
            by_first += firsts
        return ExpectedCounts(by_cell[:, :M], by_first[:, :M], sum(part[2] for part in parts))

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
        return [self._fold([s[:, k].astype(np.float64) for s in shares]) for k in kept]

    def _fold(self, held: list[Floats]) -> tuple[Episodes, Episodes]:
        rest = [g.counts - out for g, out in zip(self.groups, held)]
        return self.thinned(rest), self.thinned(held)

    def shares_by_cell(self, logs: Sequence[Trajectories], shares: Floats) -> tuple[Floats, Floats]:
        """Shares (N, M) of the original episodes, added up per cell and per first state."""
        M = shares.shape[1]
        by_cell, by_first = np.zeros((self.cells.size, M)), np.zeros((self.n_states, M))
        begin = 0
        for part in logs:
            cell = np.searchsorted(self.cells, self.encoder.cells(part))
            first = part.first_states
            weighted = shares[begin : begin + len(part)] * part.multiplicities()[:, None]
            begin += len(part)
            for m in range(M):
                by_first[:, m] += np.bincount(first, weighted[:, m], minlength=self.n_states)
                steps = np.repeat(weighted[:, m], part.lengths)
                by_cell[:, m] += np.bincount(cell, steps, minlength=self.cells.size)
        return by_cell, by_first


def _width(n_contexts: int) -> int:
    """Contexts are padded to a few widths, so that few kernels are ever compiled."""
    if n_contexts <= 4:
        return max(n_contexts, 2)
    return 1 << (n_contexts - 1).bit_length()


def _padded(table: Floats, width: int) -> Floats:
    if table.shape[1] == width:
        return np.ascontiguousarray(table)
    return np.pad(table, ((0, 0), (0, width - table.shape[1])))
