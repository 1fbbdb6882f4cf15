"""The likelihood of a mixture of MDPs, its EM map and its smoothing.

With cells x = (s, a, s', z), an episode c_1..c_L that starts in s has

    p(episode) = sum_m w_m nu_m(s) prod_t P_m(c_t),     P_m(x) = T_m(s'|s,a) R_m(z|s,a)

(the policy's factors cancel: they do not depend on m). The parameters are blocks of rows that sum
to one: T and R, or the joint P where a reward depends on the next state; T alone where rewards are
shared by all contexts and therefore say nothing about m; then nu and w. One EM map multiplies the
blocks into a table of cells, takes expected counts and normalises them, after adding k_T or k_R
pseudo-counts of the pooled row (that of one MDP for all episodes) to every row of T or R. It never
lowers

    log-likelihood + sum over rows and contexts of k <pooled row, log row>.

Two strengths, since contexts may share their dynamics and not their rewards, or the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from latentmdp._util.arrays import Floats, Integers
from latentmdp.engines.threads import Team
from latentmdp.estimation.episodes import Episodes, ExpectedCounts

__all__ = ["MixtureLikelihood", "Rows", "Smoothing", "Structure"]

Parameters = tuple[Floats, ...]

_FLOOR = 1e-9
"""Pseudo-counts of the pooled row that even an unsmoothed fit adds: they only decide rows that no
episode of a context visits, and keep every observed episode possible."""

_MIXED = 1e-6


class Smoothing(NamedTuple):
    """Pseudo-counts of the pooled row: k_T of transitions (or the joint rows), k_R of rewards."""

    transitions: float
    rewards: float


@dataclass(frozen=True)
class Structure:
    """Which parameters there are, and which are given.

    `weights` (M,) and `initial` (M, S) are learned where None.
    """

    n_contexts: int
    joint: bool = False
    shared_initial: bool = False
    weights: Floats | None = None
    initial: Floats | None = None


class Rows(NamedTuple):
    """A block of distributions: its entries, and how cells map to them.

    `position` is each entry's place in a dense array whose last axis is the distribution.
    """

    position: Integers
    row: Integers
    starts: Integers
    of_cell: Integers
    incidence: Any
    pooled: Floats

    def normalised(self, table: Floats) -> Floats:
        """`table` (entries, M) with every row of every context summing to one."""
        totals = np.add.reduceat(table, self.starts, axis=0)[self.row]
        return np.divide(table, totals, out=np.zeros_like(table), where=totals > 0.0)


class MixtureLikelihood:
    """The smoothed likelihood of some episodes as a function of the mixture's parameters.

    Parameters are a tuple of blocks: one (entries, M) table per element of `rows`, then nu (S, M)
    and w (M,).
    """

    def __init__(
        self,
        episodes: Episodes,
        structure: Structure,
        smoothing: Smoothing,
        team: Team | None = None,
    ) -> None:
        self.episodes, self.structure, self.team = episodes, structure, team
        self.smoothing = smoothing
        self.cell_counts = episodes.cell_counts()
        first = episodes.first_counts()
        self.pooled_first = first / first.sum()
        self.rows = self._blocks()

    def _blocks(self) -> list[Rows]:
        Z, S = self.episodes.n_rewards, self.episodes.n_states
        cells = self.episodes.cells
        pair, following, z = cells // (S * Z), cells // Z % S, cells % Z
        if self.structure.joint or Z == 1:
            return [_rows(pair, cells, self.cell_counts)]
        return [
            _rows(pair, pair * S + following, self.cell_counts),
            _rows(pair, pair * Z + z, self.cell_counts),
        ]

    @property
    def strengths(self) -> tuple[float, ...]:
        """Pseudo-counts added to the rows of each block."""
        return tuple(max(k, _FLOOR) for k in self.smoothing)[: len(self.rows)]

    def smoothed(self, smoothing: Smoothing) -> MixtureLikelihood:
        """The same likelihood with another smoothing."""
        other = object.__new__(MixtureLikelihood)
        other.__dict__.update(self.__dict__)
        other.smoothing = smoothing
        return other

    def with_own_initial(self) -> MixtureLikelihood:
        """The same likelihood with an initial distribution for each context."""
        other = self.smoothed(self.smoothing)
        other.structure = replace(self.structure, shared_initial=False)
        return other

    def prefers_own_initial(self, parameters: Parameters) -> bool:
        """Whether, at these parameters, BIC prefers an initial distribution for each context."""
        by_first = self.expected_counts(parameters).by_first
        totals = by_first.sum(axis=0)
        seen = by_first > 0.0
        expected = totals * self.pooled_first[:, None]
        gain = float(by_first[seen] @ np.log(by_first[seen] / expected[seen]))
        free = (self.structure.n_contexts - 1) * (np.count_nonzero(self.pooled_first) - 1)
        return gain > 0.5 * free * np.log(self.episodes.n_episodes)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of the contexts, the weights and the initial distributions."""
        M, given = self.structure.n_contexts, self.structure
        free: int = M * sum(block.position.size - block.starts.size for block in self.rows)
        if given.initial is None:
            free += (1 if given.shared_initial else M) * int(
                np.count_nonzero(self.pooled_first) - 1
            )
        return int(free + (M - 1 if given.weights is None else 0))

    def table(self, parameters: Parameters) -> Floats:
        """P_m(x) of every cell, (C, M)."""
        table = parameters[0][self.rows[0].of_cell]
        for block, values in zip(self.rows[1:], parameters[1:]):
            table = table * values[block.of_cell]
        return table

    def expected_counts(self, parameters: Parameters) -> ExpectedCounts:
        """The E-step."""
        initial, weights = parameters[-2:]
        table = self.table(parameters)
        return self.episodes.expected_counts(table, initial * weights, self.team)

    def maximised(self, by_cell: Floats, by_first: Floats) -> Parameters:
        """The M-step: parameters from expected counts."""
        blocks = [
            block.normalised(block.incidence @ by_cell + strength * block.pooled[:, None])
            for block, strength in zip(self.rows, self.strengths)
        ]
        return (*blocks, self._initial(by_first), self._weights(by_first))

    def _initial(self, by_first: Floats) -> Floats:
        M = self.structure.n_contexts
        if self.structure.initial is not None:
            return np.ascontiguousarray(self.structure.initial.T)
        if self.structure.shared_initial:
            return np.repeat(self.pooled_first[:, None], M, axis=1)
        counts = by_first + self.strengths[0] * self.pooled_first[:, None]
        return counts / counts.sum(axis=0)

    def _weights(self, by_first: Floats) -> Floats:
        if self.structure.weights is not None:
            return self.structure.weights
        totals = by_first.sum(axis=0)
        return totals / totals.sum()

    def step(self, parameters: Parameters) -> tuple[Parameters, float]:
        """One EM map, and the smoothed log-likelihood of the parameters it was given."""
        expected = self.expected_counts(parameters)
        objective = expected.log_likelihood + self.prior(parameters)
        return self.maximised(expected.by_cell, expected.by_first), objective

    def prior(self, parameters: Parameters) -> float:
        """The sum over rows and contexts of k <pooled row, log row>."""
        strengths = self.strengths
        total = sum(
            strength * _cross(block.pooled, values)
            for strength, block, values in zip(strengths, self.rows, parameters)
        )
        if self.structure.initial is None and not self.structure.shared_initial:
            total += strengths[0] * _cross(self.pooled_first, parameters[-2])
        return total

    def repair(self, candidate: Parameters, valid: Parameters) -> Parameters:
        """Pull entries that left the simplex back towards a valid point, and renormalise."""
        inside = [np.where(x > 0.0, x, 0.1 * y) for x, y in zip(candidate, valid)]
        blocks = [b.normalised(x) for b, x in zip(self.rows, inside)]
        initial, weights = inside[-2:]
        return (*blocks, initial / initial.sum(axis=0), weights / weights.sum())

    def mixed(self, parameters: Parameters) -> Parameters:
        """A little of the pooled model mixed in, so that no observed episode is impossible."""
        blocks = [
            block.normalised((1.0 - _MIXED) * values + _MIXED * block.pooled[:, None])
            for block, values in zip(self.rows, parameters)
        ]
        initial = (1.0 - _MIXED) * parameters[-2] + _MIXED * self.pooled_first[:, None]
        known = self.structure.initial is not None or self.structure.shared_initial
        weights = self.structure.weights
        return (
            *blocks,
            self._initial(initial) if known else initial / initial.sum(axis=0),
            parameters[-1] if weights is None else weights,
        )

    def pooled(self) -> Parameters:
        """Every context equal to the one MDP that fits all episodes, with equal weights."""
        M = self.structure.n_contexts
        by_cell = np.repeat(self.cell_counts[:, None], M, axis=1)
        by_first = np.repeat(self.pooled_first[:, None], M, axis=1)
        return self.maximised(by_cell, by_first)

    def tilted(self, factors: Floats, weights: Floats | None = None) -> Parameters:
        """The pooled model with P_m(x) multiplied by factors[x, m] and normalised."""
        M = self.structure.n_contexts
        shares = np.full(M, 1.0 / M) if weights is None else weights
        by_cell = self.cell_counts[:, None] * factors * shares
        by_first = self.pooled_first[:, None] * shares * self.episodes.n_episodes
        return self.maximised(by_cell, by_first)

    def held_out(self, parameters: Parameters, test: Episodes) -> float:
        """Log-likelihood of other episodes; cells that these episodes never show count as one."""
        return test.expected_counts(*self._for_others(parameters), self.team).log_likelihood

    def held_out_by_episode(self, parameters: Parameters, test: Episodes) -> list[Floats]:
        """The same for each merged episode."""
        return test.log_evidence(*self._for_others(parameters))

    def _for_others(self, parameters: Parameters) -> tuple[Floats, Floats]:
        table, initial = self.table(parameters), parameters[-2].copy()
        table[self.cell_counts == 0.0] = 1.0
        initial[self.pooled_first == 0.0] = 1.0
        return table, initial * parameters[-1]


def _rows(pair: Integers, entry: Integers, counts: Floats) -> Rows:
    """The block whose entries are the distinct values of `entry`, in rows by (s, a)."""
    position, first, of_cell = np.unique(entry, return_index=True, return_inverse=True)
    cells = np.arange(entry.size)
    incidence = sp.csr_matrix(
        (np.ones(entry.size), (of_cell, cells)), shape=(position.size, entry.size)
    )
    pairs = pair[first]
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    row = np.cumsum(np.diff(pairs, prepend=pairs[0]) != 0)
    block = Rows(position, row, starts, of_cell, incidence, np.zeros(position.size))
    totals = np.asarray(incidence @ counts)
    return block._replace(pooled=block.normalised(totals[:, None])[:, 0])


def _cross(pooled: Floats, values: Floats) -> float:
    """sum_m <pooled, log values_m> over the support of `pooled`."""
    support = pooled > 0.0
    return float(np.sum(pooled[support] @ np.log(values[support])))
