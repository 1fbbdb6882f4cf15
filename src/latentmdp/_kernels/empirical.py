"""An empirical model of the contexts from belief-weighted counts [kwon2021, Alg. 1 and 3].

Counts and what is derived from them live in an `Estimate`. Everything derived is a function of the
counts of its own row (m, s, a) alone, so after an episode only the rows it visited are refreshed:
the numbers are those of starting afresh.

Counts have two forms. Small models have arrays over all (s, a, s') and rewards. Large ones have a
table of the cells (s, a, s', z) seen so far, which grows: cell k has the counts `counts[k]` of all
contexts, and the cells of a row s A + a are linked, from `heads[row]` on, in the order in which
they were first seen. Whoever counts an episode must have made room for its cells before. Which form
it is the type of the `Estimate` says, so that each is compiled for itself.

Steps over rows take every `step`-th one from `first` on: the threads of a GPU share the rows of a
run, and one thread takes all. A `product` is one that a GPU must not fuse with a sum.

Steps are inlined by LLVM (`forceinline`): a call that passes a tuple of arrays copies all of it.
Inlined by numba (`inline="always"`), steps lose writes to arrays that nothing reads afterwards,
because it does not see that they belong to an argument.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from latentmdp._kernels.belief import update_belief
from latentmdp._kernels.rows import product

__all__ = [
    "KNOWN",
    "LEARNED",
    "NEXT",
    "ROW",
    "UNIFORM",
    "Cells",
    "Estimate",
    "count",
    "distances",
    "distinct_rows",
    "has_room",
    "in_table",
    "locate",
    "observe",
    "refresh",
    "refresh_rows",
    "refresh_start",
    "support",
    "write_cells",
]

UNIFORM, KNOWN, LEARNED = 0, 1, 2
"""How a belief starts: uniform, the first state ignored [kwon2021, Alg. 3]; from known or from
learned weights, and the learned nu-hat."""

ROW, NEXT, REWARD, LINK = 0, 1, 2, 3
"""Columns of `Estimate.cells`; the last one is the next cell of the same row, -1 at the end."""


TINY = 1e-300
"""Divides nothing by nothing."""


class Cells(NamedTuple):
    """A growing table of the cells (s, a, s', z) seen, with their counts."""

    heads: NDArray[np.int64]  # (S A,): the first cell of each row, -1 where there is none
    cells: NDArray[np.int64]  # (capacity, 4): s A + a, s', z and the next cell of the row
    counts: NDArray[np.float64]  # (capacity, M)
    used: NDArray[np.int64]  # (1,): how many cells there are
    places: NDArray[np.int64]  # (H,), scratch: the cell of every step of an episode


class Estimate(NamedTuple):
    """Belief-weighted counts of an empirical model, and the tables that act and plan on it."""

    sizes: tuple[int, int, int]  # S, A, Z
    transition_rewards: bool  # whether rewards are counted by (s, a, s') rather than (s, a)
    start: int  # how a belief starts: UNIFORM, KNOWN or LEARNED
    reward_values: NDArray[np.float64]  # (Z,)
    smoothing: float  # alpha
    table: Cells | None  # counts of the cells seen, in place of the next two
    transition_counts: NDArray[np.float64]  # (S A, S', M)
    reward_counts: NDArray[np.float64]  # (S A, Z, M), or (S A S', Z, M) by next state
    initial_counts: NDArray[np.float64]  # (S, M)
    visits: NDArray[np.float64]  # (S A, M): sum over s' of transition_counts
    scale: NDArray[np.float64]  # (S A, M): 1 / max(1, visits)
    scratch: NDArray[np.float64]  # (3, M)
    rows: NDArray[np.int64]  # (S A,), scratch
    seen: NDArray[np.bool_]  # (S A,), scratch, all False between episodes
    prior: NDArray[np.float64]  # (M,)
    initial: NDArray[np.float64]  # (S, M)
    transitions: NDArray[np.float64]  # (M, S', A W): T-hat, in lanes
    means: NDArray[np.float64]  # (M, A W): mean of R-hat
    variances: NDArray[np.float64]  # (M, A W): variance of R-hat


def in_table(estimate):
    """Whether a compiled estimate has a table: its type tells, at no cost while running."""
    return not isinstance(estimate.types[estimate.fields.index("table")], types.NoneType)


@njit(cache=True, nogil=True)
def refresh(estimate):
    """Derive every table from the counts."""
    for row in range(estimate.rows.shape[0]):
        estimate.rows[row] = row
    for m in range(estimate.visits.shape[1]):
        refresh_rows(estimate, estimate.rows.shape[0], m, 0, 1)
        refresh_start(estimate, m)


def refresh_rows(estimate, n_rows, m, first, step):
    """T-hat, and mean and variance of R-hat, of the first `n_rows` of `estimate.rows`."""
    raise NotImplementedError


@overload(refresh_rows, jit_options={"forceinline": True})
def _refresh_rows(estimate, n_rows, m, first, step):
    return _refresh_rows_of_table if in_table(estimate) else _refresh_rows_of_arrays


def _refresh_rows_of_arrays(estimate, n_rows, m, first, step):
    S, A, Z = estimate.sizes
    counts, T, paid = estimate.transition_counts, estimate.transitions, estimate.reward_counts
    rows, values, means = estimate.rows, estimate.reward_values, estimate.means
    variances, visits, scales = estimate.variances, estimate.visits, estimate.scale
    width, sources = means.shape[1] // A, S if estimate.transition_rewards else 1
    for i in range(first, n_rows, step):
        row = rows[i]
        s = row // A
        column = (row - s * A) * width + s
        total = 0.0
        for n in range(S):
            total += counts[row, n, m]
        scale = 1.0 / max(1.0, total)
        for n in range(S):
            T[m, n, column] = counts[row, n, m] * scale
        mean, second = 0.0, 0.0
        for source in range(row * sources, (row + 1) * sources):
            for z in range(Z):
                earned: float = product(paid[source, z, m], values[z])
                mean += earned
                second += product(earned, values[z])
        mean *= scale
        means[m, column] = mean
        variances[m, column] = max(0.0, product(second, scale) - product(mean, mean))
        visits[row, m] = total
        scales[row, m] = scale


def _refresh_rows_of_table(estimate, n_rows, m, first, step):
    """Visits, and mean and variance of R-hat, from the cells of each row."""
    A, width = estimate.sizes[1], estimate.means.shape[1] // estimate.sizes[1]
    heads, cells, counts = estimate.table.heads, estimate.table.cells, estimate.table.counts
    rows, values, means = estimate.rows, estimate.reward_values, estimate.means
    variances, visits, scales = estimate.variances, estimate.visits, estimate.scale
    for i in range(first, n_rows, step):
        row = rows[i]
        total, mean, second = 0.0, 0.0, 0.0
        k = heads[row]
        while k >= 0:
            weight, reward = counts[k, m], values[cells[k, REWARD]]
            total += weight
            mean += weight * reward
            second += weight * reward * reward
            k = cells[k, LINK]
        scale = 1.0 / max(1.0, total)
        column = row % A * width + row // A
        mean *= scale
        means[m, column] = mean
        variances[m, column] = max(0.0, second * scale - mean * mean)
        visits[row, m] = total
        scales[row, m] = scale


def support(estimate, row, m):
    """How many next states of a row s A + a context m has counts of."""
    raise NotImplementedError


@overload(support, jit_options={"forceinline": True})
def _support(estimate, row, m):
    return _support_in_table if in_table(estimate) else _support_in_arrays


def _support_in_arrays(estimate, row, m):
    found = 0
    for n in range(estimate.sizes[0]):
        found += estimate.transition_counts[row, n, m] > 0.0
    return found


def _support_in_table(estimate, row, m):
    cells, counts = estimate.table.cells, estimate.table.counts
    found = 0
    k = estimate.table.heads[row]
    while k >= 0:
        is_new = counts[k, m] > 0.0
        j = estimate.table.heads[row]
        while j != k:  # the same state may have come with another reward before
            is_new &= not (counts[j, m] > 0.0 and cells[j, NEXT] == cells[k, NEXT])
            j = cells[j, LINK]
        found += is_new
        k = cells[k, LINK]
    return found


@njit(cache=True, nogil=True, forceinline=True)
def refresh_start(estimate, m):
    """w-hat and nu-hat with one pseudo-count each, so that no context is ruled out unseen.

    w-hat is not normalised: a belief that starts from it is.
    """
    if estimate.start == UNIFORM:
        return
    S = estimate.initial_counts.shape[0]
    episodes = 0.0
    for s in range(S):
        episodes += estimate.initial_counts[s, m]
    scale = 1.0 / (episodes + S)
    for s in range(S):
        estimate.initial[s, m] = (estimate.initial_counts[s, m] + 1.0) * scale
    if estimate.start == LEARNED:
        estimate.prior[m] = episodes + 1.0


@njit(cache=True, nogil=True, forceinline=True)
def distinct_rows(estimate, states, actions, length):
    """Put the rows (s, a) of an episode into `estimate.rows`, each once; how many there are."""
    A, seen, rows = estimate.sizes[1], estimate.seen, estimate.rows
    visited = 0
    for t in range(length):
        row = states[t] * A + actions[t]
        if not seen[row]:
            seen[row] = True
            rows[visited] = row
            visited += 1
    for i in range(visited):
        seen[rows[i]] = False
    return visited


def has_room(estimate, steps):
    """Whether the counts of so many more steps can be kept."""
    raise NotImplementedError


@overload(has_room, jit_options={"forceinline": True})
def _has_room(estimate, steps):
    if in_table(estimate):
        return lambda estimate, steps: (
            estimate.table.used[0] + steps <= estimate.table.cells.shape[0]
        )
    return lambda estimate, steps: True


def locate(estimate, states, actions, rewards, length):
    """Of a table: note the cell of every step; cells seen for the first time join."""
    raise NotImplementedError


@overload(locate, jit_options={"forceinline": True})
def _locate(estimate, states, actions, rewards, length):
    return _locate_in_table if in_table(estimate) else _locate_nothing


def _locate_nothing(estimate, states, actions, rewards, length):
    return


def _locate_in_table(estimate, states, actions, rewards, length):
    A = estimate.sizes[1]
    for t in range(length):
        row = states[t] * A + actions[t]
        estimate.table.places[t] = _cell_of(estimate.table, row, states[t + 1], rewards[t])


@njit(cache=True, nogil=True)
def _cell_of(table, row, n, z):
    """The cell of (row, s', z), a new one at the end of its row if there is none."""
    cells = table.cells
    last, k = np.int64(-1), table.heads[row]
    while k >= 0:
        if cells[k, NEXT] == n and cells[k, REWARD] == z:
            return k
        last, k = k, cells[k, LINK]
    k = table.used[0]
    table.used[0] = k + 1
    cells[k, ROW], cells[k, NEXT], cells[k, REWARD], cells[k, LINK] = row, n, z, -1
    table.counts[k] = 0.0
    if last < 0:
        table.heads[row] = k
    else:
        cells[last, LINK] = k
    return k


@njit(cache=True, nogil=True)
def write_cells(table, rows, next_states, rewards, counts):
    """Make the table that of cells in the order given; `counts` is (n, M)."""
    table.heads[:] = -1
    table.used[0] = 0
    for i in range(rows.shape[0]):
        table.counts[_cell_of(table, rows[i], next_states[i], rewards[i])] = counts[i]


def _count_in_table(estimate, m, weight, states, actions, rewards, length):
    """Add `weight` at the places of an episode's steps; False if all were below rounding."""
    places, counts = estimate.table.places, estimate.table.counts
    changed = False
    for t in range(length):
        k = places[t]
        count = counts[k, m]
        counts[k, m] = count + weight
        changed |= count + weight != count
    return changed


def count(estimate, m, weight, states, actions, rewards, length):
    """Add the steps to the counts of one context; False if all were below their rounding.

    A table must have been told the steps by `locate`.
    """
    raise NotImplementedError


@overload(count, jit_options={"forceinline": True})
def _count(estimate, m, weight, states, actions, rewards, length):
    return _count_in_table if in_table(estimate) else _count_in_arrays


def _count_in_arrays(estimate, m, weight, states, actions, rewards, length):
    S, A, _ = estimate.sizes
    moves, payments, joint = (
        estimate.transition_counts, estimate.reward_counts, estimate.transition_rewards
    )  # fmt: skip
    changed = False
    for t in range(length):
        row, n, z = states[t] * A + actions[t], states[t + 1], rewards[t]
        source = row * S + n if joint else row
        count, paid = moves[row, n, m], payments[source, z, m]
        moves[row, n, m] = count + weight
        payments[source, z, m] = paid + weight
        changed |= count + weight != count or paid + weight != paid
    return changed


def likelihoods(estimate, n_contexts, s, a, n, z):
    """Put the smoothed likelihoods of (s', z) in every context into scratch[0].

    Where a context has less than one visit of the row, what its row lacks is filled by that of all
    contexts together: a row that nobody has seen in a context speaks neither for nor against it.
    """
    raise NotImplementedError


@overload(likelihoods, jit_options={"forceinline": True})
def _likelihoods(estimate, n_contexts, s, a, n, z):
    return _likelihoods_in_table if in_table(estimate) else _likelihoods_in_arrays


@njit(cache=True, nogil=True, forceinline=True)
def observe(estimate, belief, s, a, n, z):
    """Condition a belief on (s', r) by the smoothed likelihoods [kwon2021, Alg. 3]."""
    likelihoods(estimate, belief.shape[1], s, a, n, z)
    update_belief(belief, estimate.scratch, 0)


def _likelihoods_in_arrays(estimate, n_contexts, s, a, n, z):
    S, A, Z = estimate.sizes
    row = s * A + a
    floor, slope = estimate.smoothing, 1.0 - product(estimate.smoothing * S, np.float64(Z))
    moves, paid, scale = estimate.transition_counts, estimate.reward_counts, estimate.scale
    visits, joint, out = estimate.visits, estimate.transition_rewards, estimate.scratch
    source = row * S + n if joint else row
    lacking = False
    for m in range(n_contexts):  # entry by entry: a view of a row would count references
        share = paid[source, z, m] * scale[row, m]
        if not joint:
            share *= moves[row, n, m] * scale[row, m]
        lacking |= visits[row, m] < 1.0
        out[0, m] = floor + product(slope, share)
    if lacking:
        total, arrived, earned = TINY, 0.0, 0.0
        for m in range(n_contexts):
            total += visits[row, m]
            earned += paid[source, z, m]
            if not joint:
                arrived += moves[row, n, m]
        common = earned / total if joint else (earned / total) * (arrived / total)
        for m in range(n_contexts):
            out[0, m] += product(slope * max(0.0, 1.0 - visits[row, m]), common)


def _likelihoods_in_table(estimate, n_contexts, s, a, n, z):
    S, A, Z = estimate.sizes
    row = s * A + a
    moved, paid = estimate.scratch[1], estimate.scratch[2]
    moved[:], paid[:] = 0.0, 0.0
    k = estimate.table.heads[row]
    while k >= 0:
        there, same = estimate.table.cells[k, NEXT] == n, estimate.table.cells[k, REWARD] == z
        if estimate.transition_rewards:
            there = same = there and same
        for m in range(moved.shape[0]):
            if there:
                moved[m] += estimate.table.counts[k, m]
            if same:
                paid[m] += estimate.table.counts[k, m]
        k = estimate.table.cells[k, LINK]
    floor, slope = estimate.smoothing, 1.0 - estimate.smoothing * S * Z
    total, arrived, earned = TINY, 0.0, 0.0
    for m in range(moved.shape[0]):
        total += estimate.visits[row, m]
        arrived += moved[m]
        earned += paid[m]
    common = earned / total
    if not estimate.transition_rewards:
        common *= arrived / total
    for m in range(moved.shape[0]):
        scale = estimate.scale[row, m]
        share = paid[m] * scale
        if not estimate.transition_rewards:
            share *= moved[m] * scale
        missing = max(0.0, 1.0 - estimate.visits[row, m])
        estimate.scratch[0, m] = floor + slope * (share + missing * common)


@njit(cache=True, nogil=True)
def distances(estimate, truth, out):
    """Fill out (M', M) with sum_{s,a} ||P_k - Phat_m||_1, from P (S A S' Z, M') context-last."""
    S, A, Z = estimate.sizes
    moves, paid, visits = estimate.transition_counts, estimate.reward_counts, estimate.visits
    joint, M = estimate.transition_rewards, out.shape[1]
    scale, p = np.empty(M), np.empty(M)
    out[:] = 0.0
    for row in range(S * A):
        for m in range(M):
            scale[m] = 1.0 / visits[row, m] if visits[row, m] > 0.0 else 0.0
        for n in range(S):
            source = row * S + n if joint else row
            for z in range(Z):
                for m in range(M):
                    p[m] = paid[source, z, m] * scale[m]
                    if not joint:
                        p[m] *= moves[row, n, m] * scale[m]
                for k in range(out.shape[0]):
                    true = truth[(row * S + n) * Z + z, k]
                    for m in range(M):
                        out[k, m] += abs(true - p[m])
