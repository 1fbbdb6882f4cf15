"""Plans (alpha vectors) of one time step, arranged so that the best at a belief is found quickly.

The plans of a state are cut into about sqrt(n) cells, each led by one plan; a plan belongs to the
leader that is best at the plan's own belief. A search multiplies the leaders, then the plans of the
few best cells. The search may miss the maximum, which costs tightness and never validity: any plan
gives a lower bound. With one cell to a state the search is exact.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from latentmdp._kernels.simd import LANES, block_products

__all__ = ["StepBounds", "arrange", "best_cells", "best_plan", "products"]

_FEW = 32
"""So many plans of a state are searched without cells: one cell costs as much as its leaders."""


class StepBounds(NamedTuple):
    """The lower and the upper bound of one time step, arranged for search.

    Each of the n items is a belief of a state with the plan backed up there, for the lower bound,
    and the upper bound there. Items are grouped by state, then by cell.
    """

    starts: np.ndarray  # (cells + 1,): first item of each cell
    groups: np.ndarray  # (S + 1,): first cell of each state
    leaders: np.ndarray  # (M, cells + LANES): plans that lead a cell; the last LANES are zero
    columns: np.ndarray  # (M, n + LANES): all plans, context-major; the last LANES are zero
    rows: np.ndarray  # (n, M): all plans
    labels: np.ndarray  # (n,): the action each plan begins with
    order: np.ndarray  # (n,): s M + m for the optimal policy of context m in s, S M + i for point i
    beliefs: np.ndarray  # (M, n)
    inverses: np.ndarray  # (M, n): 1 / beliefs, infinite where a belief is zero
    uppers: np.ndarray  # (n,): upper bounds at the beliefs
    gains: np.ndarray  # (n,): by how much they improve on the best split of the belief
    least: np.ndarray  # (S, M): value of the worst policy in each context
    is_vertex: np.ndarray  # (n,): whether the plan is the optimal policy of one context
    breadth: int  # cells searched for the successors of these plans


@njit(cache=True, nogil=True)
def products(columns, mass, begin, end, out):
    """out[i] = sum_m mass[m] columns[m, begin + i] up to end; both have LANES entries to spare."""
    for i in range(0, end - begin, LANES):
        block_products(columns, mass, begin + i, out, i)


@njit(cache=True, nogil=True)
def best_cells(starts, groups, leaders, s, mass, scores, cells):
    """Write the cells of state s whose leaders are best at `mass`, best first; return how many.

    A cell is empty where other leaders are better even at its own leader's belief. If all the best
    are, the last of them gives way to the best that is not.
    """
    begin, end = groups[s], groups[s + 1]
    products(leaders, mass, begin, end, scores)
    count, found = min(cells.shape[0], end - begin), False
    for q in range(end - begin):
        best, where = scores[0], 0
        for k in range(1, end - begin):
            if scores[k] > best:
                best, where = scores[k], k
        cells[min(q, count - 1)] = begin + where
        scores[where] = -np.inf
        found |= starts[begin + where + 1] > starts[begin + where]
        if found and q >= count - 1:
            break
    return count


@njit(cache=True, nogil=True)
def best_plan(starts, columns, mass, cells, count, scores):
    """The best plan in the given cells at `mass`, and its value."""
    best, where = -np.inf, -1
    for q in range(count):
        begin, end = starts[cells[q]], starts[cells[q] + 1]
        products(columns, mass, begin, end, scores)
        for i in range(end - begin):
            if scores[i] > best:
                best, where = scores[i], begin + i
    return where, best


@njit(cache=True, nogil=True)
def arrange(states, beliefs, vectors, S, exact):
    """Order plans by state and cell: (order, starts, groups, leaders); the first plans lead."""
    n, M = vectors.shape
    counts = np.zeros(S + 1, np.int64)
    for i in range(n):
        counts[states[i] + 1] += 1
    offsets = np.cumsum(counts)
    place, member = offsets[:-1].copy(), np.empty(n, np.int64)
    for i in range(n):
        member[place[states[i]]] = i
        place[states[i]] += 1
    groups = np.zeros(S + 1, np.int64)
    for s in range(S):
        size = counts[s + 1]
        few = exact or size <= _FEW
        groups[s + 1] = groups[s] + (1 if few else int(np.ceil(np.sqrt(size))))
    order, starts = np.empty(n, np.int64), np.empty(groups[S] + 1, np.int64)
    leaders = np.zeros((M, groups[S] + LANES))
    for s in range(S):
        begin, end = groups[s], groups[s + 1]
        for k in range(begin, end):
            leaders[:, k] = vectors[member[offsets[s] + k - begin]]
        _cut(
            member[offsets[s] : offsets[s + 1]], beliefs, leaders, begin, end, offsets[s],
            starts, order[offsets[s] : offsets[s + 1]],
        )  # fmt: skip
    starts[groups[S]] = n
    return order, starts, groups, leaders


@njit(cache=True, nogil=True)
def _cut(member, beliefs, leaders, begin, end, first, starts, order):
    """Put each plan of one state into the cell begin..end-1 whose leader is best at its belief."""
    n, scores = member.shape[0], np.empty(end - begin + LANES)
    owner, sizes = np.zeros(n, np.int64), np.zeros(end - begin + 1, np.int64)
    for i in range(n):
        products(leaders, beliefs[member[i]], begin, end, scores)
        owner[i] = np.argmax(scores[: end - begin])
        sizes[owner[i] + 1] += 1
    place = np.cumsum(sizes)
    for k in range(end - begin):
        starts[begin + k] = first + place[k]
    for i in range(n):
        order[place[owner[i]]] = member[i]
        place[owner[i]] += 1
