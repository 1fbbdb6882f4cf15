"""The likelihood of a mixture of MDPs over merged episodes, and its parameters.

With cells x = (s, a, s', z), an episode c_1..c_L that begins in s has

    p(episode) = sum_m w_m nu_m(s) prod_t P_m(c_t),
    P_m(x) = T_m(s'|s,a) R_m(z|s,a), or T_m(s'|s,a) R_m(z|s,a,s').

Where the logger may have known the context, the actions it took are evidence too, and P_m(x) has
the further factor pi_m(a|s). Where its policy does not depend on m, that factor cancels.

The parameters are blocks of rows that sum to one, T, R and pi, then nu and w. A block that all
contexts share says nothing about m: its rows are the pooled ones.

The **pooled** model is the one MDP, and the one logger, that fits all episodes best: its rows are
plain frequencies. Every row of a block has k pseudo-counts of the pooled row: the log-prior

    sum over rows and contexts of k <pooled row, log row>

is added to the log-likelihood. Each block has a strength k of its own, since contexts may share
their dynamics and not their rewards, or the reverse. An infinite strength means that all contexts
share the pooled rows: shared and own are the two ends of one scale.

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
from functools import reduce
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers, normalised
from latentmdp._util.memory import few_entries
from latentmdp.engines import Engine
from latentmdp.estimation.episodes import Episodes
from latentmdp.logs import Logs, WeightModel
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.outcomes import Outcomes, product

Parameters = tuple[Floats, ...]
"""One (entries, M) table for each block of rows, then nu (S, M), and w (M,) or, where individuals
have covariates, the coefficients (1 + d, M) of w_m(x) = softmax(c_m + <beta_m, x>), c first."""

_FLOOR = 1e-9
"""Pseudo-counts of the pooled row that a fit without any adds all the same: too few to change a row
that has data, they decide rows that no episode of a context visits, and keep every observed episode
possible."""

_MIXED = 1e-6
"""Share of the pooled model in a start that comes from elsewhere: enough that no observed episode
has probability zero, which EM could not leave, and too little to move the start."""


Part = Literal["transitions", "rewards", "behaviour", "initial", "weights"]
"""What contexts may share, or have of their own; individuals with different covariates share the
weights of the contexts, or have their own."""


_ROUNDS = 5
"""Rounds of the regression of the weights in one M-step: EM goes on with it from there, so it need
not be exact."""


class PseudoCounts(NamedTuple):
    """Pseudo-counts of the pooled row in the rows of each part; infinite where it is shared.

    That of the weights is the ridge: the log-prior has the term - k / 2 |beta|^2.
    """

    transitions: float = 0.0
    rewards: float = 0.0
    behaviour: float = np.inf
    initial: float = 0.0
    weights: float = np.inf

    def of(self, part: Part) -> float:
        """The strength of one part."""
        return float(getattr(self, part))

    def but(self, part: Part, strength: float) -> PseudoCounts:
        """The same with another strength of one part."""
        return self._replace(**{part: strength})


@dataclass(frozen=True)
class Structure:
    """Which parameters there are, and which are given.

    `parts` are the blocks of rows. `weights` (M,) and `initial` (M, S) are learned
    where None.
    """

    n_contexts: int
    reward_model: RewardModel = "state-action"
    weights: Floats | None = None
    initial: Floats | None = None
    parts: tuple[Part, ...] = ("transitions", "rewards")


class Rows(NamedTuple):
    """A block of distributions: its entries, and how cells map to them.

    `position` is each entry's place in a dense array whose last axis is the distribution; `row`
    numbers the distributions, and `starts` says where each begins. A cell in which the entry is
    missing has the number of entries for `of_cell`. `incidence` (entries, C) adds cells up, and
    `counts` and `pooled` are how often each entry occurs, and its share of its row.
    """

    position: Integers
    row: Integers
    starts: Integers
    of_cell: Integers
    incidence: Any
    counts: Floats
    pooled: Floats

    def factors(self, values: Floats) -> Floats:
        """The values (entries, M) of every cell, (C, M); 1 where the entry is missing."""
        if self.of_cell.max(initial=0) == self.position.size:  # the row of missing entries
            values = np.vstack([values, np.ones(values.shape[1])])
        return np.asarray(values[self.of_cell])

    def normalised(self, table: Floats) -> Floats:
        """`table` (entries, M) with every row of every context summing to one."""
        totals = np.add.reduceat(table, self.starts, axis=0)[self.row]
        return np.divide(table, totals, out=np.zeros_like(table), where=totals > 0.0)

    def counted(self, counts: Floats) -> Rows:
        """The same block, with entries that occur so often."""
        return self._replace(counts=counts, pooled=self.normalised(counts[:, None])[:, 0])

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of one context."""
        return self.position.size - self.starts.size

    def log_likelihood(self) -> float:
        """What the block adds to the log-likelihood where contexts share it."""
        occurs = self.pooled > 0.0
        return float(self.counts[occurs] @ np.log(self.pooled[occurs]))


class MixtureLikelihood:
    """The likelihood of some episodes, with its prior, as a function of `Parameters`.

    Attributes
    ----------
    rows : list of Rows
        The blocks of rows, in the order of `structure.parts`.
    cell_counts : (C,)
        How often each cell occurs.
    beginning_counts : (B,)
        How often each beginning occurs.
    pooled_first : (S,)
        The initial distribution of the pooled model.
    """

    def __init__(
        self,
        episodes: Episodes,
        structure: Structure,
        pseudo_counts: PseudoCounts,
        engine: Engine | None = None,
    ) -> None:
        self.structure, self.engine, self.pseudo_counts = structure, engine, pseudo_counts
        self.rows = [_rows(*self._entries_of_cells(episodes, part)) for part in structure.parts]
        self._count(episodes)

    def _entries_of_cells(self, episodes: Episodes, part: Part) -> tuple[Integers, int]:
        """The entry of every cell in a block, -1 where it is missing, and the width of a row."""
        S, A, Z = episodes.n_states, episodes.n_actions, episodes.n_rewards
        pair, next_state, z = episodes.parts_of_cells()
        if part == "behaviour":
            return pair, A
        if part == "transitions":
            return np.where(next_state < 0, -1, pair * S + next_state), S
        observed = z >= 0
        if self.structure.reward_model == "transition":
            observed &= next_state >= 0
            pair = pair * S + next_state
        return np.where(observed, pair * Z + z, -1), Z

    def _count(self, episodes: Episodes) -> None:
        """Take over the frequencies of some episodes, whose cells are those of the blocks."""
        self.episodes = episodes
        self.cell_counts = episodes.cell_counts()
        self.beginning_counts = episodes.beginning_counts()
        first = episodes.by_state(self.beginning_counts)
        self.pooled_first = first / max(first.sum(), 1e-300)
        self.rows = [block.counted(block.incidence @ self.cell_counts) for block in self.rows]

    def of(self, episodes: Episodes) -> MixtureLikelihood:
        """The same likelihood of other episodes with the same cells, such as those of a fold."""
        other = copy(self)
        other._count(episodes)
        return other

    def block(self, part: Part) -> Rows:
        """The rows of a part."""
        return self.rows[self.structure.parts.index(part)]

    def values(self, parameters: Parameters, part: Part) -> Floats:
        """The values of the entries of a part in every context, (entries, M)."""
        return parameters[self.structure.parts.index(part)]

    def with_contexts(self, n_contexts: int) -> MixtureLikelihood:
        """The same likelihood for another number of contexts."""
        other = copy(self)
        other.structure = replace(self.structure, n_contexts=n_contexts)
        return other

    def with_pseudo_counts(self, pseudo_counts: PseudoCounts) -> MixtureLikelihood:
        """The same likelihood with another prior."""
        other = copy(self)
        other.pseudo_counts = pseudo_counts
        return other

    @property
    def strengths(self) -> tuple[float, ...]:
        """The pseudo-counts of the pooled row in every row of each block."""
        return tuple(max(self.pseudo_counts.of(part), _FLOOR) for part in self.structure.parts)

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """The blocks that contexts have of their own."""
        return tuple(p for p, k in zip(self.structure.parts, self.strengths) if np.isfinite(k))

    @property
    def initial_strength(self) -> float:
        """Pseudo-counts of the pooled initial distribution."""
        return max(self.pseudo_counts.initial, _FLOOR)

    @property
    def fixed_initial(self) -> Floats | None:
        """Nu (S, M) where it is given or shared by all contexts; None where it is learned."""
        if self.structure.initial is not None:
            return np.ascontiguousarray(self.structure.initial.T)
        if np.isinf(self.pseudo_counts.initial):
            return np.repeat(self.pooled_first[:, None], self.structure.n_contexts, axis=1)
        return None

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of the contexts, the weights and the initial distributions."""
        M, structure = self.structure.n_contexts, self.structure
        free = sum(
            (M if np.isfinite(k) else 1) * block.n_parameters
            for k, block in zip(self.strengths, self.rows)
        )
        if structure.initial is None:
            free += (M if np.isfinite(self.pseudo_counts.initial) else 1) * int(
                np.count_nonzero(self.pooled_first) - 1
            )
        columns = 1
        if self.episodes.design is not None and np.isfinite(self.pseudo_counts.weights):
            columns += self.episodes.design.shape[1]
        return int(free + ((M - 1) * columns if structure.weights is None else 0))

    @property
    def is_large(self) -> bool:
        """Whether a fitted model is an outcome table, rather than dense arrays."""
        S, A, Z = self.episodes.n_states, self.episodes.n_actions, self.episodes.n_rewards
        joint = self.structure.reward_model == "transition"
        return not few_entries(float(S) * A * S * (Z if joint else 1))

    def tables(self, parameters: Parameters) -> tuple[Floats, Floats]:
        """P_m(x) of every cell, (C, M), and w_m nu_m(s) of every beginning, (B, M)."""
        *blocks, initial, weights = parameters
        factors = (block.factors(values) for block, values in zip(self.rows, blocks))
        table: Floats = reduce(np.multiply, factors)
        return table, self._initial_factors(initial) * self.weight_rows(weights)

    def _initial_factors(self, initial: Floats) -> Floats:
        """nu_m(s) of every beginning; 1 where the state is missing."""
        states = self.episodes.first_state
        if self.episodes.design is None and states.size == initial.shape[0]:
            return initial
        return np.where(states[:, None] < 0, 1.0, initial[np.maximum(states, 0)])

    def weight_rows(self, weights: Floats) -> Floats:
        """w_m of every beginning: (M,), or (B, M) where individuals have covariates."""
        if weights.ndim == 1:
            return weights
        design = self.episodes.design
        assert design is not None
        scores = weights[0] + design @ weights[1:]
        return arrays.shares_of_logs(scores)

    def mean_weights(self, weights: Floats) -> Floats:
        """The weights of the contexts among all individuals, (M,)."""
        if weights.ndim == 1:
            return np.asarray(weights / weights.sum())
        shares = self.beginning_counts @ self.weight_rows(weights)
        return np.asarray(shares / shares.sum())

    def regressed(self, counts: Floats, before: Floats | None) -> Floats:
        """Coefficients of w_m(x), a step closer to the maximum for shares (B, M) of beginnings.

        Each round maximises a quadratic bound of the ridge regression's objective, whose curvature
        is at most half that of least squares [bohning1992]: the objective never falls.
        """
        design, k = self.episodes.design, self.pseudo_counts.weights
        assert design is not None
        totals = np.maximum(counts.sum(axis=0), 1e-12)
        beta = np.zeros((1 + design.shape[1], counts.shape[1]))
        beta[0] = np.log(totals / totals.sum())
        if np.isinf(k):
            return beta - beta.mean(axis=1, keepdims=True)
        if before is not None and before.ndim == 2 and before.shape == beta.shape:
            beta = before.copy()
        X = np.column_stack([np.ones(len(design)), design])
        ridge = np.full(X.shape[1], max(k, _FLOOR))
        ridge[0] = 0.0  # c_m is free; the 1e-9 below keeps the system solvable all the same
        each = counts.sum(axis=1)
        bound = 0.5 * X.T @ (each[:, None] * X) + np.diag(ridge + 1e-9)
        for _ in range(_ROUNDS):
            shares = each[:, None] * self.weight_rows(beta)
            beta = beta + np.linalg.solve(bound, X.T @ (counts - shares) - ridge[:, None] * beta)
        return np.asarray(beta - beta.mean(axis=1, keepdims=True))

    def log_likelihood(self, parameters: Parameters) -> float:
        """The sum over episodes of log p(episode)."""
        return self.episodes.expected_counts(*self.tables(parameters), self.engine)[1]

    def log_prior(self, parameters: Parameters) -> float:
        """The sum over rows and contexts of k <pooled row, log row>, over what is not shared."""
        total = sum(
            strength * _cross(block.pooled, values)
            for strength, block, values in zip(self.strengths, self.rows, parameters)
            if np.isfinite(strength)
        )
        if self.fixed_initial is None:
            total += self.initial_strength * _cross(self.pooled_first, parameters[-2])
        if parameters[-1].ndim == 2 and np.isfinite(self.pseudo_counts.weights):
            ridge = max(self.pseudo_counts.weights, _FLOOR)
            total -= 0.5 * ridge * float(np.sum(parameters[-1][1:] ** 2))
        return total

    def repaired(self, candidate: Parameters, valid: Parameters) -> Parameters:
        """Pull entries that left the simplex back towards a valid point, and renormalise."""
        inside = [np.where(x > 0.0, x, 0.1 * y) for x, y in zip(candidate, valid)]
        blocks = [b.normalised(x) for b, x in zip(self.rows, inside)]
        initial, weights = inside[-2:]
        initial = initial / np.maximum(initial.sum(axis=0), 1e-300)
        if candidate[-1].ndim == 2:
            return (*blocks, initial, candidate[-1])
        return (*blocks, initial, weights / weights.sum())

    def mixed(self, parameters: Parameters) -> Parameters:
        """A little of the pooled model mixed in, so that no observed episode is impossible.

        What contexts share becomes the pooled model itself.
        """
        shares = [1.0 if np.isinf(k) else _MIXED for k in self.strengths]
        blocks = [
            block.normalised((1.0 - share) * values + share * block.pooled[:, None])
            for share, block, values in zip(shares, self.rows, parameters)
        ]
        initial = self.fixed_initial
        if initial is None:
            initial = (1.0 - _MIXED) * parameters[-2] + _MIXED * self.pooled_first[:, None]
            initial = initial / np.maximum(initial.sum(axis=0), 1e-300)
        fixed_weights, weights = self.structure.weights, parameters[-1]
        if fixed_weights is not None:
            return (*blocks, initial, fixed_weights)
        if self.episodes.design is not None:
            if weights.ndim == 1:
                flat = np.zeros((1 + self.episodes.design.shape[1], weights.size))
                flat[0] = np.log(np.maximum(weights, 1e-12))
                weights = flat
            elif np.isinf(self.pseudo_counts.weights):
                average = np.log(np.maximum(self.mean_weights(weights), 1e-12))
                weights = np.vstack([average, np.zeros_like(weights[1:])])
        return (*blocks, initial, weights)

    def held_out(self, parameters: Parameters, test: Episodes) -> list[Floats]:
        """Log-likelihood of each merged episode of others, group by group.

        Cells that these episodes never show count as one.
        """
        return test.log_evidence(*self._tables_for_others(parameters))

    def held_out_actions(self, parameters: Parameters, test: Episodes) -> list[Floats]:
        """Of the same scores, what predicting each action from the history before it adds.

        sum_t log sum_m p(m | h_t) pi_m(a_t | s_t); the rest of a score is what outcomes add.
        """
        table, first = self._tables_for_others(parameters)
        block = self.block("behaviour")
        values = np.where(block.pooled[:, None] == 0.0, 1.0, self.values(parameters, "behaviour"))
        with np.errstate(divide="ignore"):
            steps, begin = np.log(table), np.log(first)
            log_policy = np.log(block.factors(values))
        gains = []
        for group in test.groups:
            lengths = np.diff(group.offsets)
            episode = np.repeat(np.arange(lengths.size), lengths)
            log_steps = steps[group.cells]
            before = np.cumsum(log_steps, axis=0) - log_steps
            # an empty last episode would begin beyond the end; it has no step that reads its start
            starts = np.minimum(group.offsets[:-1], max(len(before) - 1, 0))
            before = before - (before[starts] - begin[group.first])[episode]
            log_history = np.logaddexp.reduce(before, axis=1)
            both = np.logaddexp.reduce(before + log_policy[group.cells], axis=1)
            sums = np.bincount(episode, both - log_history, lengths.size)
            gains.append(np.asarray(sums, np.float64))
        return gains

    def _tables_for_others(self, parameters: Parameters) -> tuple[Floats, Floats]:
        """The tables, with 1 for what these episodes never show."""
        pooled = [*(block.pooled for block in self.rows), self.pooled_first]
        tables = [np.where(p[:, None] == 0.0, 1.0, x) for p, x in zip(pooled, parameters)]
        return self.tables((*tables, parameters[-1]))


def _rows(entry: Integers, width: int) -> Rows:
    """The block whose entries are the distinct values of `entry`, `width` to a row at most.

    Cells with entry -1 are not in the block. Nothing is counted yet.
    """
    counted = np.flatnonzero(entry >= 0)
    position, entry_of = np.unique(entry[counted], return_inverse=True)
    of_cell = np.full(entry.size, position.size)
    of_cell[counted] = entry_of
    incidence = sp.csr_matrix(
        (np.ones(counted.size), (entry_of, counted)), shape=(position.size, entry.size)
    )
    rows = position // width
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    row = np.cumsum(np.diff(rows, prepend=rows[:1]) != 0)  # nothing, where all is missing
    nothing = np.zeros(position.size)
    return Rows(position, row, starts, of_cell, incidence, nothing, nothing)


def _cross(pooled: Floats, values: Floats) -> float:
    """sum_m <pooled, log values_m> over the support of `pooled`."""
    support = pooled > 0.0
    return float(np.sum(pooled[support] @ np.log(values[support])))


def reward_values_of(logs: Sequence[Logs | LatentMDP]) -> Floats:
    """The reward values that logs or models state, or the indices themselves."""
    for part in logs:
        if part.reward_values is not None:
            return part.reward_values
    return np.arange(max(part.n_rewards for part in logs), dtype=np.float64)


def model_from_parameters(
    likelihood: MixtureLikelihood, parameters: Parameters, reward_values: ArrayLike
) -> LatentMDP:
    """The latent MDP with these parameters; a table where arrays would be large."""
    episodes, structure = likelihood.episodes, likelihood.structure
    M, S, A = structure.n_contexts, episodes.n_states, episodes.n_actions
    values = np.asarray(reward_values, np.float64)
    fields: dict[str, Any] = {
        "initial": parameters[-2].T,
        "weights": likelihood.mean_weights(parameters[-1]),
        "horizon": episodes.longest,
        "reward_values": values,
    }
    if likelihood.is_large:
        table = _table_model(likelihood, parameters, int(values.argmin()))
        form = structure.reward_model
        return LatentMDP.from_outcomes(*table, n_states=S, reward_model=form, **fields)
    T = normalised(_dense(likelihood, parameters, "transitions", S), np.ones(S))
    rewards = _dense(likelihood, parameters, "rewards", values.size)
    if structure.reward_model == "transition":
        rewards = _completed(
            rewards.reshape(M, S * A, S, values.size),
            T.reshape(M, S * A, S),
            "rewards" not in likelihood.own_parts,
        )
        rewards = rewards.reshape(M, S, A, S, values.size)
    else:
        block = likelihood.block("rewards")
        overall = np.bincount(block.position % values.size, block.counts, values.size)
        rewards = normalised(rewards, overall.astype(np.float64)).reshape(M, S, A, values.size)
    return LatentMDP(T.reshape(M, S, A, S), rewards, **fields)


def behaviour_from_parameters(
    likelihood: MixtureLikelihood, parameters: Parameters
) -> Floats | None:
    """pi_m(a | s), (M, S, A), uniform in states that do not occur; None where it is shared."""
    if "behaviour" not in likelihood.own_parts:
        return None
    rows = _dense(likelihood, parameters, "behaviour", likelihood.episodes.n_actions)
    return normalised(rows, np.ones(likelihood.episodes.n_actions))


def weight_model_from_parameters(
    likelihood: MixtureLikelihood, parameters: Parameters
) -> WeightModel | None:
    """w_m(x) of individuals; None where their covariates do not matter."""
    encoder = likelihood.episodes.encoder
    if encoder is None or np.isinf(likelihood.pseudo_counts.weights):
        return None
    return WeightModel(encoder, parameters[-1][0], parameters[-1][1:].T)


def _dense(likelihood: MixtureLikelihood, parameters: Parameters, part: Part, width: int) -> Floats:
    """A block as an array (M, rows, width); rows that do not occur are zero."""
    episodes, M = likelihood.episodes, likelihood.structure.n_contexts
    rows = episodes.n_states * (1 if part == "behaviour" else episodes.n_actions)
    if part == "rewards" and likelihood.structure.reward_model == "transition":
        rows *= episodes.n_states
    dense = np.zeros((rows * width, M))
    dense[likelihood.block(part).position] = likelihood.values(parameters, part)
    return np.moveaxis(dense.reshape(rows, width, M), -1, 0)


def _table_model(likelihood: MixtureLikelihood, parameters: Parameters, least: int) -> Outcomes:
    """The outcome table of what the episodes show; `least` is the number of the lowest reward."""
    episodes, structure = likelihood.episodes, likelihood.structure
    S, A, Z = episodes.n_states, episodes.n_actions, episodes.n_rewards
    move, pay = (likelihood.block(part).position for part in ("transitions", "rewards"))
    moved, shares = (likelihood.values(parameters, part) for part in ("transitions", "rewards"))
    if structure.reward_model == "transition":
        table = _table(pay, moved[np.searchsorted(move, pay // Z)] * shares, (S, A, Z))
    else:
        moves = _table(move * Z, moved, (S, A, Z))
        table = product(moves, _table(pay // Z * S * Z + pay % Z, shares, (S, A, Z)))
    tried = (np.diff(table.starts) > 0).reshape(S, A)
    unknown = np.flatnonzero(~tried.any(axis=1))
    if unknown.size:
        stays = (unknown[:, None] * A + np.arange(A)) * S + unknown[:, None]
        keys = np.concatenate([table.keys(S, Z), stays.ravel() * Z + least])
        probs = np.concatenate([table.probs, np.ones((stays.size, moved.shape[1]))])
        order = np.argsort(keys)
        table = _table(keys[order], probs[order], (S, A, Z))
    return table


def _table(keys: Integers, probs: Floats, sizes: tuple[int, int, int]) -> Outcomes:
    """The outcome table of rising numbers ((s A + a) S + s') Z + z, probabilities (n, M)."""
    S, A, Z = sizes
    rows, rest = np.divmod(keys, S * Z)
    starts = np.searchsorted(rows, np.arange(S * A + 1))
    next_state, reward = np.divmod(rest, Z)
    return Outcomes.each(starts, next_state.astype(np.int32), reward.astype(np.int32), probs)


def _completed(rewards: Floats, T: Floats, shared: bool) -> Floats:
    """R(z|s,a,s') with R(z|s,a) for next states that never came, shapes (M, pairs, S, Z).

    Where contexts share R, that is R(z|s,a) of all of them together.
    """
    by_row = np.einsum("mps,mpsz->mpz", T, rewards)
    if shared:
        by_row = np.repeat(by_row.mean(axis=0, keepdims=True), by_row.shape[0], axis=0)
    by_row = normalised(by_row, np.ones(rewards.shape[3]))
    return np.where(rewards.sum(axis=3, keepdims=True) > 0.0, rewards, by_row[:, :, None, :])


def parameters_from_model(
    likelihood: MixtureLikelihood, model: LatentMDP, behaviour: Floats | None = None
) -> Parameters:
    """The blocks of a model and of a logger (M, S, A), on the cells that the episodes show.

    The logger is the pooled one where none is given.
    """
    joint = likelihood.structure.reward_model == "transition"
    blocks = []
    for part, block in zip(likelihood.structure.parts, likelihood.rows):
        if part == "behaviour" and behaviour is None:
            values = np.repeat(block.pooled[:, None], model.n_contexts, axis=1)
        elif part == "behaviour":
            assert behaviour is not None
            values = behaviour.reshape(model.n_contexts, -1)[:, block.position].T
        else:
            values = _block_of(model, part, joint, block.position)
        blocks.append(np.ascontiguousarray(values))
    initial = np.ascontiguousarray(model.initial.T)
    return likelihood.mixed((*blocks, initial, model.weights))


def _block_of(model: LatentMDP, part: Part, joint: bool, position: Integers) -> Floats:
    """Entries of T, R(z|s,a) or R(z|s,a,s') of a model, (n, M), at their places."""
    table, Z = model.outcomes, model.n_rewards
    keys = table.keys(model.n_states, Z)
    if part == "transitions":
        return _marginal(keys // Z, table.probs, position)
    if not joint:
        return _marginal(table.rows() * Z + table.reward, table.probs, position)
    moves, move_of = np.unique(position // Z, return_inverse=True)
    chance = _marginal(keys // Z, table.probs, moves)[move_of]
    both = _marginal(keys, table.probs, position)
    return np.divide(both, chance, out=np.zeros_like(both), where=chance > 0.0)


def _marginal(numbers: Integers, probs: Floats, targets: Integers) -> Floats:
    """Sums of probs (n, M) over equal numbers, for the numbers wanted; 0 where there are none."""
    position = np.searchsorted(targets, numbers)
    position[position == targets.size] = 0  # any: the comparison below leaves it out
    hit = targets[position] == numbers
    sums = [np.bincount(position[hit], column[hit], targets.size) for column in probs.T]
    return np.column_stack(sums)
