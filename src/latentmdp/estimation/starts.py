"""Starts for EM: contexts from pair moments, or at random around the pooled model.

A start is a table of expected counts, of which EM takes the M-step.

**Pair moments.** Write P_m(x) = P(x) (1 + f_m(x)) around the pooled model P, with
sum_m w_m f_m = 0. To second order in f an episode's likelihood, relative to the pooled model's, is
1 + sum_{t<u} K(c_t, c_u) with K(x, y) = sum_m w_m f_m(x) f_m(y), which has rank M - 1. Its score
is the matrix of paired innovations

    U[x, y] = sum over episodes and times t != u of e_t(x) e_u(y),
    e_t(x) = 1[c_t = x] - 1[(s_t, a_t) = (s, a) of x] P(x),

which has mean zero under the pooled model, whatever the policy, and mean about
N[i, j] P(x) P(y) K(x, y) in the mixture, N[i, j] counting pairs of visits to the state-action rows
i of x and j of y. `PairMoments` fits K = F F^T by weighted alternating least squares.

A context is then a point c_m of R^(M-1), f_m = F c_m. To second order an episode's log-likelihood
is c.b - c.A c / 2 with b = sum_t F(c_t) and A = sum_t F(c_t) F(c_t)^T, so a mixture in R^(M-1),
whose EM costs next to nothing, finds the points and the weights from many random beginnings.

Cells are told apart only by what contexts do not share. Where they do not share nu, the first state
of an episode is a cell as well, whose row is that of all first states: what a cue at the beginning
says of rewards much later is a pair like any other. With very many of them the pair matrix is
never written down: an eigensolver, and least squares, need its products with a few vectors only,

    U v = E^T diag(n) E v - (same times),    E (episodes, cells) the summed innovations.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from latentmdp._util.arrays import Floats, Integers
from latentmdp.estimation.episodes import Episodes, ExpectedCounts, Group
from latentmdp.estimation.likelihood import MixtureLikelihood


def own_starts(
    likelihood: MixtureLikelihood, number: int, rng: np.random.Generator, kind: str | None = None
) -> list[ExpectedCounts]:
    """`number` starts: up to half of them from pair moments, the others at random.

    A single context has one start, the pooled model. `kind` asks for one kind only: "random", or
    "pairs", of which there may be fewer.
    """
    if kind not in (None, "pairs", "random"):
        raise ValueError(f'start must be "pairs", "random", a model or labels, got {kind!r}')
    if likelihood.structure.n_contexts == 1:
        beginnings = likelihood.beginning_counts[:, None]
        return [ExpectedCounts(likelihood.cell_counts[:, None], beginnings)]
    n_pairs = {"pairs": number, "random": 0, None: (number + 1) // 2}[kind]
    starts = _pair_starts(likelihood, n_pairs, rng) if n_pairs else []
    if kind == "pairs":
        if not starts:
            raise ValueError('start="pairs" needs more distinct steps than there are contexts')
        return starts
    return starts + [_random_start(likelihood, rng) for _ in range(number - len(starts))]


def _pair_starts(
    likelihood: MixtureLikelihood, most: int, rng: np.random.Generator
) -> list[ExpectedCounts]:
    """The distinct solutions of the mixture in R^(M-1), best first; with too few cells none."""
    cells, M = InformativeCells(likelihood), likelihood.structure.n_contexts
    if cells.number < M - 1:
        return []
    moments = PairMoments(cells.episodes, cells.row)
    F = moments.factor(M - 1)
    mixture = context_points(cells.episodes, F, rng)
    _, distinct = np.unique(np.round(-mixture.log_likelihood, 1), return_index=True)
    return [
        _tilted(likelihood, cells, moments.factors(F, mixture.points[k]), mixture.weights[k])
        for k in distinct[:most]
    ]


def _random_start(likelihood: MixtureLikelihood, rng: np.random.Generator) -> ExpectedCounts:
    """Every cell's count multiplied by a random share in each context."""
    M = likelihood.structure.n_contexts
    cells = InformativeCells(likelihood)
    factors = M * rng.dirichlet(np.ones(M), size=cells.number)
    return _tilted(likelihood, cells, factors, np.full(M, 1.0 / M))


def split_starts(
    likelihood: MixtureLikelihood, counts: ExpectedCounts, rng: np.random.Generator
) -> list[ExpectedCounts]:
    """Starts with one context more than some expected counts have: each context cut in two.

    Every cell's count in the context is divided at random.
    """
    informative, starts = InformativeCells(likelihood), []
    even = likelihood.fixed_initial is not None  # first states tell nothing: half of each
    for m in range(counts.by_first.shape[1]):
        share = rng.uniform(size=informative.number)
        shares = (share[informative.of_cell], 0.5 if even else share[informative.of_first])
        by_cell, by_first = (
            np.column_stack([count, count[:, m] * (1.0 - kept)])
            for count, kept in zip(counts, shares)
        )
        by_cell[:, m], by_first[:, m] = (count[:, m] * kept for count, kept in zip(counts, shares))
        starts.append(ExpectedCounts(by_cell, by_first))
    return starts


class InformativeCells:
    """What tells contexts apart in some episodes: cells of the parts that contexts do not share.

    Attributes
    ----------
    number
        How many such cells there are, first states included.
    of_cell, of_first
        For each cell, and each beginning, of the likelihood the one here; `of_first` is empty where
        contexts share the initial states.
    row : (number,)
        The row of each such cell: what its probability is conditional on.
    """

    def __init__(self, likelihood: MixtureLikelihood) -> None:
        self._whole = likelihood.episodes
        pair, next_state, z = self._whole.parts_of_cells()
        parts, Z = likelihood.own_parts, self._whole.n_rewards
        by_transition = likelihood.structure.reward_model == "transition"
        moves = "transitions" in parts or ("rewards" in parts and by_transition)
        moved_to = next_state if moves else np.zeros_like(next_state)
        paid = z if "rewards" in parts else np.zeros_like(z)
        # what is missing has a place of its own, the last
        wide, high = self._whole.n_states + 1, Z + 1
        moved_to, paid = np.where(moved_to < 0, wide - 1, moved_to), np.where(paid < 0, Z, paid)
        keys = (pair * wide + moved_to) * high + paid
        self._cells, self.of_cell = np.unique(keys, return_inverse=True)
        self.number = self._cells.size
        row = self._cells // (wide * high)
        if "behaviour" in parts:
            row = row // self._whole.n_actions
        elif "transitions" not in parts and moves:
            row = self._cells // high
        _, self.row = np.unique(row, return_inverse=True)
        self.of_first = np.zeros(0, np.int64)
        if likelihood.fixed_initial is None:
            states, of_first = np.unique(self._whole.first_state, return_inverse=True)
            self.of_first = self.number + of_first
            self.number += states.size
            self.row = np.append(self.row, np.full(states.size, self.row.max(initial=-1) + 1))
            self._cells = np.append(self._cells, -1 - states)  # no number of a step

    @cached_property
    def episodes(self) -> Episodes:
        """Enough episodes for a start, in terms of these cells."""
        return self._whole.sample().renumbered(self._cells, self.of_cell, self.of_first)


def _tilted(
    likelihood: MixtureLikelihood, cells: InformativeCells, factors: Floats, weights: Floats
) -> ExpectedCounts:
    """The counts shared out by the weights, with P_m(x) multiplied by factors[x, m]."""
    first = likelihood.beginning_counts[:, None] * weights
    return ExpectedCounts(
        likelihood.cell_counts[:, None] * factors[cells.of_cell] * weights,
        first * factors[cells.of_first] if cells.of_first.size else first,
    )


class ContextPoints(NamedTuple):
    """Candidates for the contexts' positions: (B, M, M-1), (B, M) weights, best first."""

    points: Floats
    weights: Floats
    log_likelihood: Floats


class PairMoments:
    """Paired innovations of some episodes, and their factorisation.

    Parameters
    ----------
    row : (C,)
        The row of each cell, what its probability is conditional on; the state and the action by
        default.
    dense_cells
        Up to here the pair matrix is dense, 32 MB, and a product with it costs little. Beyond it
        products are taken through the episodes themselves.
    most_visits
        Steps that are looked at: of more, every second episode, or every third, says as much as a
        start needs.
    """

    def __init__(
        self,
        episodes: Episodes,
        row: Integers | None = None,
        dense_cells: int = 2_000,
        most_visits: int = 1_000_000,
    ) -> None:
        self.episodes = episodes
        counts = episodes.cell_counts()
        if row is None:
            _, row = np.unique(episodes.parts_of_cells().pair, return_inverse=True)
        self.row, self.n_rows = row, int(row.max()) + 1
        totals = np.asarray(np.bincount(self.row, weights=counts), np.float64)
        # A fold may hold no visit of a row that other episodes visit.
        self.root = np.sqrt(counts / np.maximum(totals, 1e-300)[self.row])
        shape, steps = (self.n_rows, counts.size), sum(g.cells.size for g in episodes.groups)
        member = (np.ones(counts.size), (self.row, np.arange(counts.size)))
        self._member: Any = sp.csr_matrix(member, shape=shape)
        every = slice(None, None, max(1, -(-steps // most_visits)))
        visited = [_table_of(group, counts.size)[every] for group in episodes.groups]
        self._times = np.concatenate([group.counts[every] for group in episodes.groups])
        self._visited: Any = sp.vstack(visited).tocsr()
        self._rows: Any = (self._visited @ self._member.T).tocsr()
        few, sparse = counts.size <= dense_cells, self.n_rows**2 > self._rows.nnz
        self._pairs = pair_counts(self._visited, self._times) if few else None
        self._visits = None if sparse and not few else pair_counts(self._rows, self._times)

    def product(self, vectors: Floats) -> Floats:
        """The whitened pair matrix times vectors (C, r)."""
        # of a cell that a fold lacks the root is 0, and its products stay 0
        root, P = np.maximum(self.root, 1e-150)[:, None], (self.root**2)[:, None]
        v = vectors / root
        centred = v - (self._member @ (P * v))[self.row]
        product = self._through(self._pairs, self._visited, centred)
        return np.asarray((product - P * (self._member @ product)[self.row]) / root)

    def _through(self, written: Floats | None, table: Any, vectors: Floats) -> Floats:
        """Pairs of what a table of the episodes counts times vectors, as they were written down.

        Otherwise through the episodes themselves.
        """
        if written is not None:
            return np.asarray(written @ vectors)
        product = table.T @ (self._times[:, None] * (table @ vectors))
        return np.asarray(product - (table.T @ self._times)[:, None] * vectors)

    def _by_visits(self, table: Floats) -> Floats:
        """The visits N of pairs of rows times a table (rows, k)."""
        return self._through(self._visits, self._rows, table)

    def _scale(self) -> Floats:
        """V with v_i^2 v_j^2 about the visits N[i, j]: exact where visits are independent."""
        margin = self._by_visits(np.ones((self.n_rows, 1)))[:, 0]
        return np.asarray(np.sqrt(np.maximum(margin, 1e-12) / np.sqrt(max(margin.sum(), 1e-12))))

    def factor(self, rank: int, sweeps: int = 40) -> Floats:
        """F (C, rank), with F F^T the best weighted fit to the pair moments.

        Each sweep of the alternating least squares is taken half-way, so that they do not
        oscillate; it costs little beside the pair matrix itself.
        """
        scale = self._scale()[self.row][:, None]

        def scaled(v: Floats) -> Floats:
            return (self.product(v.reshape(len(scale), -1) / scale) / scale).reshape(v.shape)

        shape = (len(scale), len(scale))
        matrix = LinearOperator(shape, matvec=scaled, matmat=scaled, dtype=np.float64)
        values, vectors = leading_eigenvectors(matrix, rank)
        G = vectors * np.sqrt(np.maximum(values, 1e-12)) / scale
        for _ in range(sweeps):
            G = 0.5 * (G + self._regressed(G))
        return G / np.maximum(self.root, 1e-150)[:, None]

    def _regressed(self, G: Floats) -> Floats:
        """Least squares for each cell's factor given all others', weighted by visits."""
        rank = G.shape[1]
        outer = self._member @ (G[:, :, None] * G[:, None, :]).reshape(-1, rank**2)
        # plus one pair of visits: cells with fewer keep a factor near zero
        normal = self._by_visits(outer).reshape(-1, rank, rank) + np.eye(rank)
        solved = np.linalg.solve(normal[self.row], self.product(G)[:, :, None])
        return np.asarray(solved[:, :, 0], dtype=np.float64)

    def factors(self, F: Floats, points: Floats) -> Floats:
        """1 + F c_m for every cell and context, (C, M), kept positive.

        The linear model may say otherwise: no probability of a start is less than a twentieth of
        the pooled one, so that EM can still raise it.
        """
        return np.maximum(1.0 + F @ points.T, 0.05)


def pair_counts(table: Any, times: Floats) -> Floats:
    """(C, C): how often cells x and y occur at two different times of an episode.

    The table (episodes, cells) says how often each episode shows each cell, `times` how often the
    episode occurred.
    """
    pairs = np.asarray((table.T @ sp.diags(times) @ table).toarray())
    pairs[np.diag_indices(len(pairs))] -= table.T @ times  # the same time twice
    return pairs


def leading_eigenvectors(matrix: Any, rank: int) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a symmetric matrix and their vectors, best first."""
    # up to this size a dense eigensolver is as fast as an iterative one, and exact
    if matrix.shape[0] <= 200 or rank >= matrix.shape[0] - 1:
        values, vectors = np.linalg.eigh(matrix @ np.eye(matrix.shape[0]))
        return values[::-1][:rank], vectors[:, ::-1][:, :rank]
    # not ones: innovations sum to zero in every row
    begin = np.random.default_rng(0).normal(size=matrix.shape[0])
    if not (matrix @ begin).any():
        return np.zeros(rank), np.eye(matrix.shape[0], rank)
    values, vectors = eigsh(matrix, k=rank, which="LA", v0=begin)
    return values[::-1], vectors[:, ::-1]


def context_points(
    episodes: Episodes, F: Floats, rng: np.random.Generator, beginnings: int = 16, rounds: int = 30
) -> ContextPoints:
    """The mixture in R^(M-1), by EM from random beginnings, over the longest episodes.

    All are done at once in one product of matrices; more beginnings find a better maximum, at a
    cost in proportion.
    """
    rank = F.shape[1]
    upper = np.triu_indices(rank)
    products = F[:, upper[0]] * F[:, upper[1]]
    b, A, counts = _features(episodes, F, products)
    halves = np.where(upper[0] == upper[1], 0.5, 1.0)
    design = np.column_stack([np.ones(counts.size), b, -A * halves])
    # contexts come first: reductions over a short last axis are slow
    points = rng.normal(size=(rank + 1, beginnings, rank))
    weights = np.full((rank + 1, beginnings), 1.0 / (rank + 1))
    value = np.zeros(beginnings)
    for _ in range(rounds):
        quadratic = points[..., upper[0]] * points[..., upper[1]]
        coefficients = np.concatenate([np.log(weights)[..., None], points, quadratic], axis=2)
        scores = design @ coefficients.reshape(-1, design.shape[1]).T
        scores = scores.reshape(counts.size, rank + 1, beginnings)
        top = scores.max(axis=1, keepdims=True)
        shares = np.exp(scores - top)
        norm = shares.sum(axis=1, keepdims=True)
        value = counts @ (np.log(norm) + top)[:, 0]
        shares *= counts[:, None, None] / norm
        flat = shares.reshape(counts.size, -1)
        weights = np.maximum(shares.sum(axis=0) / counts.sum(), 1e-6)
        weights /= weights.sum(axis=0)
        points = _best_points(flat.T @ b, flat.T @ A, upper).reshape(points.shape)
    order = np.argsort(-value, kind="stable")
    return ContextPoints(points[:, order].swapaxes(0, 1), weights[:, order].T, value[order])


def _best_points(b: Floats, A: Floats, upper: tuple[Any, Any]) -> Floats:
    """argmax_c of c.b - c.A c / 2 - c.c / 2, for every row; A is given by its upper triangle."""
    rank = b.shape[1]
    normal = np.zeros((b.shape[0], rank, rank))
    normal[:, upper[0], upper[1]] = A
    normal[:, upper[1], upper[0]] = A
    return np.asarray(np.linalg.solve(normal + np.eye(rank), b[:, :, None])[:, :, 0])


def _features(episodes: Episodes, F: Floats, products: Floats) -> tuple[Floats, Floats, Floats]:
    """b, A and the counts of about 2,000 episodes of each length, the longest first.

    A thousand are enough: more would cost time, and the start need not be exact.
    """
    parts: list[tuple[Floats, Floats, Floats]] = []
    n_episodes = 0
    lengths = [float(np.diff(group.offsets).mean()) for group in episodes.groups]
    for k in np.argsort(lengths)[::-1]:
        group = episodes.groups[k]
        stride = -(-group.first.size // 2_000)
        X = _table_of(group, F.shape[0])[::stride]
        parts.append((X @ F, X @ products, group.counts[::stride]))
        n_episodes += X.shape[0]
        if n_episodes >= 1_000:
            break
    b, A, counts = (np.concatenate(column) for column in zip(*parts))
    return b, A, counts


def _table_of(group: Group, n_cells: int) -> Any:
    """How often each episode shows each cell, sparse (episodes, cells)."""
    return sp.csr_matrix(
        (np.ones(group.cells.size), group.cells, group.offsets), shape=(group.first.size, n_cells)
    )
