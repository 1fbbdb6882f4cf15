"""The likelihood of a mixture of MDPs over merged episodes, and its parameters.

With cells x = (s, a, s', z), an episode c_1..c_L that begins in s has

    p(episode) = sum_m w_m nu_m(s) prod_t P_m(c_t),     P_m(x) = T_m(s'|s,a) R_m(z|s,a)

(the policy's factors cancel: they do not depend on m). The parameters are blocks of rows that sum
to one: T and R, or the joint P(s', z | s, a) where a reward depends on the next state; T alone
where rewards are shared by all contexts and therefore say nothing about m; then nu and w.

The **pooled** model is the one MDP that fits all episodes best: its rows are plain frequencies.
Every row of T has k_T pseudo-counts of the pooled row, and every row of R has k_R: the log-prior

    sum over rows and contexts of k <pooled row, log row>

is added to the log-likelihood. There are two strengths, since contexts may share their dynamics
and not their rewards, or the reverse.

Rows that no episode visits cannot be estimated. In a model of dense arrays they become uniform over
next states, with the rewards of all transitions together. Large models are outcome tables of what
the episodes show: there an action that was never tried in a state is not allowed, and a state in
which none was tried, of which nothing is known, stays as it is and pays the least there is, so that
no planner is drawn to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from latentmdp._util.arrays import Floats, Integers, normalised
from latentmdp._util.memory import few_entries
from latentmdp.engines.threads import Team
from latentmdp.estimation.cuda_pass import CudaPass
from latentmdp.estimation.episodes import Episodes
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.outcomes import Outcomes, product
from latentmdp.trajectories import Trajectories, occurring_cells

__all__ = [
    "MixtureLikelihood",
    "Parameters",
    "PseudoCounts",
    "Rows",
    "SharedRewards",
    "Structure",
    "is_large",
    "model_from_parameters",
    "parameters_from_model",
    "reward_values_of",
]

Parameters = tuple[Floats, ...]
"""One (entries, M) table for each block of rows, then nu (S, M) and w (M,)."""

_FLOOR = 1e-9
"""Pseudo-counts of the pooled row that a fit without any adds all the same: too few to change a row
that has data, they decide rows that no episode of a context visits, and keep every observed episode
possible."""

_MIXED = 1e-6
"""Share of the pooled model in a start that comes from elsewhere: enough that no observed episode
has probability zero, which EM could not leave, and too little to move the start."""


class PseudoCounts(NamedTuple):
    """Pseudo-counts of the pooled row: k_T of transitions (or the joint rows), k_R of rewards."""

    transitions: float
    rewards: float


@dataclass(frozen=True)
class Structure:
    """Which parameters there are, and which are given.

    `weights` (M,) and `initial` (M, S) are learned where None; with `shared_initial` all contexts
    have the pooled initial distribution.
    """

    n_contexts: int
    reward_model: RewardModel = "state-action"
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
    """The likelihood of some episodes, with its prior, as a function of `Parameters`.

    Attributes
    ----------
    rows : list of Rows
        The blocks of rows: T and R, or the joint rows, or T alone.
    cell_counts : (C,)
        How often each cell occurs.
    pooled_first : (S,)
        The initial distribution of the pooled model.
    """

    def __init__(
        self,
        episodes: Episodes,
        structure: Structure,
        pseudo_counts: PseudoCounts,
        team: Team | CudaPass | None = None,
    ) -> None:
        self.episodes, self.structure, self.team = episodes, structure, team
        self.pseudo_counts = pseudo_counts
        self.cell_counts = episodes.cell_counts()
        first = episodes.first_counts()
        self.pooled_first = first / first.sum()
        self.rows = self._blocks()

    def _blocks(self) -> list[Rows]:
        Z, S = self.episodes.n_rewards, self.episodes.n_states
        cells = self.episodes.cells
        pair, next_state, z = cells // (S * Z), cells // Z % S, cells % Z
        if self.structure.reward_model == "transition" or Z == 1:
            return [_rows(pair, cells, self.cell_counts)]
        return [
            _rows(pair, pair * S + next_state, self.cell_counts),
            _rows(pair, pair * Z + z, self.cell_counts),
        ]

    def with_pseudo_counts(self, pseudo_counts: PseudoCounts) -> MixtureLikelihood:
        """The same likelihood with another prior."""
        other = copy(self)
        other.pseudo_counts = pseudo_counts
        return other

    def with_own_initial(self) -> MixtureLikelihood:
        """The same likelihood with an initial distribution for each context."""
        other = self.with_pseudo_counts(self.pseudo_counts)
        other.structure = replace(self.structure, shared_initial=False)
        return other

    @property
    def strengths(self) -> tuple[float, ...]:
        """The pseudo-counts of the pooled row in every row of each block."""
        return tuple(max(k, _FLOOR) for k in self.pseudo_counts)[: len(self.rows)]

    @property
    def settled_initial(self) -> Floats | None:
        """Nu (S, M) where it is given or shared by all contexts; None where it is learned."""
        if self.structure.initial is not None:
            return np.ascontiguousarray(self.structure.initial.T)
        if self.structure.shared_initial:
            return np.repeat(self.pooled_first[:, None], self.structure.n_contexts, axis=1)
        return None

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

    def tables(self, parameters: Parameters) -> tuple[Floats, Floats]:
        """P_m(x) of every cell, (C, M), and w_m nu_m(s) of every state, (S, M)."""
        *blocks, initial, weights = parameters
        table = blocks[0][self.rows[0].of_cell]
        for block, values in zip(self.rows[1:], blocks[1:]):
            table = table * values[block.of_cell]
        return table, initial * weights

    def log_likelihood(self, parameters: Parameters) -> float:
        """The sum over episodes of log p(episode)."""
        return self.episodes.expected_counts(*self.tables(parameters), self.team)[1]

    def log_prior(self, parameters: Parameters) -> float:
        """The sum over rows and contexts of k <pooled row, log row>."""
        strengths = self.strengths
        total = sum(
            strength * _cross(block.pooled, values)
            for strength, block, values in zip(strengths, self.rows, parameters)
        )
        if self.structure.initial is None and not self.structure.shared_initial:
            total += strengths[0] * _cross(self.pooled_first, parameters[-2])
        return total

    def prefers_own_initial(self, by_first: Floats) -> bool:
        """Whether BIC prefers an initial distribution for each context, given N_m(s)."""
        totals = by_first.sum(axis=0)
        seen = by_first > 0.0
        expected = totals * self.pooled_first[:, None]
        gain = float(by_first[seen] @ np.log(by_first[seen] / expected[seen]))
        free = (self.structure.n_contexts - 1) * (np.count_nonzero(self.pooled_first) - 1)
        return gain > 0.5 * free * np.log(self.episodes.n_episodes)

    def repaired(self, candidate: Parameters, valid: Parameters) -> Parameters:
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
        initial = self.settled_initial
        if initial is None:
            initial = (1.0 - _MIXED) * parameters[-2] + _MIXED * self.pooled_first[:, None]
            initial = initial / initial.sum(axis=0)
        weights = self.structure.weights
        return (*blocks, initial, parameters[-1] if weights is None else weights)

    def held_out(self, parameters: Parameters, test: Episodes) -> float:
        """Log-likelihood of other episodes; cells that these episodes never show count as one."""
        return test.expected_counts(*self._tables_for_others(parameters), self.team)[1]

    def held_out_by_episode(self, parameters: Parameters, test: Episodes) -> list[Floats]:
        """The same for each merged episode, group by group."""
        return test.log_evidence(*self._tables_for_others(parameters))

    def _tables_for_others(self, parameters: Parameters) -> tuple[Floats, Floats]:
        *blocks, initial, weights = parameters
        initial = initial.copy()
        initial[self.pooled_first == 0.0] = 1.0
        table, first = self.tables((*blocks, initial, weights))
        table[self.cell_counts == 0.0] = 1.0
        return table, first


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


class SharedRewards:
    """Rewards that all contexts share: how often each came, by (s, a) or by (s, a, s').

    Attributes
    ----------
    cells, counts : (C,)
        The rewards that occur, numbered with what they depend on, and how often they do.
    """

    def __init__(
        self, logs: Sequence[Trajectories], sizes: tuple[int, int, int], reward_model: RewardModel
    ) -> None:
        S, A, self.n_rewards = sizes
        given = ("next_state",) if reward_model == "transition" else ()
        self.shape = (S, A, S, self.n_rewards) if given else sizes
        by = ("state", "action", *given, "reward")
        self.cells, self.counts = occurring_cells(logs, by, sizes)
        _, row = np.unique(self.cells // self.n_rewards, return_inverse=True)
        self._totals = np.bincount(row, self.counts)[row]
        self.n_parameters = int(self.cells.size - np.unique(row).size)

    def log_likelihood(self) -> float:
        """Sum over transitions of log R(z | ...) at the maximum."""
        return float(self.counts @ np.log(self.counts / self._totals))

    def shares(self) -> Floats:
        """R(z | ...) of every cell."""
        return self.counts / self._totals

    def probabilities(self) -> Floats:
        """R in its dense shape."""
        dense = np.zeros(int(np.prod(self.shape)))
        dense[self.cells] = self.counts
        rows = dense.reshape(-1, self.n_rewards)
        return normalised(rows, rows.sum(axis=0)).reshape(self.shape)


def reward_values_of(logs: Sequence[Trajectories | LatentMDP]) -> Floats:
    """The reward values that logs or models state, or the indices themselves."""
    for part in logs:
        if part.reward_values is not None:
            return part.reward_values
    return np.arange(max(part.n_rewards for part in logs), dtype=np.float64)


def model_from_parameters(
    likelihood: MixtureLikelihood,
    parameters: Parameters,
    reward_values: ArrayLike,
    shared: SharedRewards | None,
) -> LatentMDP:
    """The latent MDP with these parameters; `shared` rewards where all contexts share them."""
    episodes, structure = likelihood.episodes, likelihood.structure
    M, S, A, Z = structure.n_contexts, episodes.n_states, episodes.n_actions, episodes.n_rewards
    by_transition = structure.reward_model == "transition"
    if is_large(episodes, structure, shared):
        return _table_model(likelihood, parameters, reward_values, shared)
    blocks: list[Floats] = []
    for block, values in zip(likelihood.rows, parameters):
        width = S * Z if by_transition else (S, Z)[len(blocks)]
        dense = np.zeros((S * A * width, M))
        dense[block.position] = values
        blocks.append(np.moveaxis(dense.reshape(S * A, width, M), -1, 0))
    if shared is not None:
        T = normalised(blocks[0], np.ones(S))
        rewards = np.repeat(shared.probabilities()[None], M, axis=0)
    elif by_transition:
        T, rewards = _split(blocks[0].reshape(M, S * A, S, Z))
        rewards = rewards.reshape(M, S, A, S, Z)
    else:
        T = normalised(blocks[0], np.ones(S))
        overall = np.bincount(episodes.cells % Z, weights=likelihood.cell_counts, minlength=Z)
        rewards = normalised(blocks[1], overall.astype(np.float64)).reshape(M, S, A, Z)
    initial, weights = parameters[-2:]
    return LatentMDP(
        T.reshape(M, S, A, S),
        rewards,
        initial=initial.T,
        weights=weights / weights.sum(),
        horizon=episodes.longest,
        reward_values=reward_values,
    )


def is_large(episodes: Episodes, structure: Structure, shared: SharedRewards | None) -> bool:
    """Whether a fitted model is an outcome table, rather than dense arrays."""
    S, A = episodes.n_states, episodes.n_actions
    Z = episodes.n_rewards if shared is None else shared.n_rewards
    joint = structure.reward_model == "transition"
    return not few_entries(float(S) * A * S * (Z if joint else 1))


def _table_model(
    likelihood: MixtureLikelihood,
    parameters: Parameters,
    reward_values: ArrayLike,
    shared: SharedRewards | None,
) -> LatentMDP:
    """`model_from_parameters` as an outcome table of what the episodes show."""
    episodes, structure = likelihood.episodes, likelihood.structure
    S, A = episodes.n_states, episodes.n_actions
    by_transition = structure.reward_model == "transition"
    values = np.asarray(reward_values, np.float64)
    Z, places, first = values.size, likelihood.rows[0].position, parameters[0]
    if not by_transition:
        moves = _table(places * Z, first, (S, A, Z))
        if shared is None:
            pay, shares = likelihood.rows[1].position, parameters[1]
        else:
            pay, shares = shared.cells, np.repeat(shared.shares()[:, None], first.shape[1], axis=1)
        table = product(moves, _table(pay // Z * S * Z + pay % Z, shares, (S, A, Z)))
    elif shared is None:
        table = _table(places, first, (S, A, Z))
    else:
        moved = first[np.searchsorted(places, shared.cells // Z)]
        table = _table(shared.cells, moved * shared.shares()[:, None], (S, A, Z))
    tried = (np.diff(table.starts) > 0).reshape(S, A)
    unknown = np.flatnonzero(~tried.any(axis=1))
    if unknown.size:
        stays = (unknown[:, None] * A + np.arange(A)) * S + unknown[:, None]
        keys = np.concatenate([table.keys(S, Z), stays.ravel() * Z + int(values.argmin())])
        probs = np.concatenate([table.probs, np.ones((stays.size, first.shape[1]))])
        order = np.argsort(keys)
        table = _table(keys[order], probs[order], (S, A, Z))
    initial, weights = parameters[-2:]
    return LatentMDP.from_outcomes(
        *table,
        n_states=S,
        horizon=episodes.longest,
        reward_values=values,
        reward_model=structure.reward_model,
        initial=initial.T,
        weights=weights / weights.sum(),
    )


def _table(keys: Integers, probs: Floats, sizes: tuple[int, int, int]) -> Outcomes:
    """The outcome table of rising numbers ((s A + a) S + s') Z + z, probabilities (n, M)."""
    S, A, Z = sizes
    rows, rest = np.divmod(keys, S * Z)
    starts = np.searchsorted(rows, np.arange(S * A + 1))
    next_state, reward = np.divmod(rest, Z)
    return Outcomes(starts, next_state.astype(np.int32), reward.astype(np.int32), probs)


def _split(joint: Floats) -> tuple[Floats, Floats]:
    """T(s'|s,a) and R(z|s,a,s') from P(s',z|s,a); unseen next states take R(z|s,a)."""
    T = normalised(joint.sum(axis=3), np.ones(joint.shape[2]))
    by_row = normalised(joint.sum(axis=2), np.ones(joint.shape[3]))
    totals = joint.sum(axis=3, keepdims=True)
    fallback = np.broadcast_to(by_row[:, :, None, :], joint.shape)
    return T, np.where(totals > 0.0, joint / np.where(totals > 0.0, totals, 1.0), fallback)


def parameters_from_model(likelihood: MixtureLikelihood, model: LatentMDP) -> Parameters:
    """The blocks of a model, on the cells that the episodes show."""
    Z = likelihood.episodes.n_rewards
    whole = likelihood.structure.reward_model == "transition" and Z > 1
    initial, weights = np.ascontiguousarray(model.initial.T), model.weights
    if model.is_table:
        S, own = model.n_states, model.outcomes
        keys = own.keys(S, model.n_rewards)
        rows, z = own.rows(), own.reward
        numbers = [keys] if whole else [keys // model.n_rewards, rows * model.n_rewards + z]
        blocks = [
            _marginal(number, own.probs, block.position)
            for block, number in zip(likelihood.rows, numbers)
        ]
        return likelihood.mixed((*blocks, initial, weights))
    joint = model.observation_probs()
    parts = [joint] if whole else [joint.sum(axis=4), joint.sum(axis=3)]
    blocks = [
        np.ascontiguousarray(values.reshape(model.n_contexts, -1)[:, block.position].T)
        for block, values in zip(likelihood.rows, parts)
    ]
    return likelihood.mixed((*blocks, initial, weights))


def _marginal(numbers: Integers, probs: Floats, wanted: Integers) -> Floats:
    """Sums of probs (n, M) over equal numbers, for the numbers wanted; 0 where there are none."""
    place = np.searchsorted(wanted, numbers)
    place[place == wanted.size] = 0
    found = wanted[place] == numbers
    sums = [np.bincount(place[found], column[found], wanted.size) for column in probs.T]
    return np.column_stack(sums)
