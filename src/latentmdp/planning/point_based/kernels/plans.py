"""Plans (alpha vectors) of one time step, arranged so that the best at a belief is found quickly.

Standing plans are the same number at every state. A search multiplies all of them or, where they
are on a grid, those around the belief. The plans of the points of a state are cut into some sqrt(n)
cells, each led by one plan; a plan is put to the leader that is best at the plan's own belief. A
search multiplies the leaders, then the plans of the few best cells. It may miss the maximum, which
costs tightness and never validity: any plan gives a lower bound. With one cell to a state the
search is exact.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.charts import best_corner

_FEW = 32
"""So many plans of a state are searched without cells: one cell costs as much as its leaders."""


class StepBounds(NamedTuple):
    """The lower and the upper bound of one time step, arranged for search.

    Each of the n items is a belief of a state with the plan backed up there, for the lower bound,
    and the upper bound there. Items are grouped by state, then by cell; in a cell those come first
    whose upper bounds are of use. Besides, every state has F standing plans, perhaps none.
    """

    starts: np.ndarray  # (cells + 1,): first item of each cell
    groups: np.ndarray  # (S + 1,): first cell of each state
    leaders: np.ndarray  # (M, cells): plans that lead a cell
    columns: np.ndarray  # (M, n): all plans, context-major
    rows: np.ndarray  # (n, M): all plans
    labels: np.ndarray  # (n,): the action each plan begins with
    order: np.ndarray  # (n,): which of the points each item is
    beliefs: np.ndarray  # (M, n)
    inverses: np.ndarray  # (M, n): 1 / beliefs, infinite where a belief is zero
    uppers: np.ndarray  # (n,): upper bounds at the beliefs
    gains: np.ndarray  # (n,): by how much they improve on the best split of the belief
    tops: np.ndarray  # (cells,): end of the items of a cell that have a gain
    least: np.ndarray  # (S, M): value of the worst policy in each context
    is_vertex: np.ndarray  # (n,): whether the plan is the optimal policy of one context
    breadth: int  # cells searched for the successors of these plans
    standing: np.ndarray  # (S, M, F): the standing plans
    standing_labels: np.ndarray  # (S, F): the action each of them begins with
    lattice: np.ndarray  # (F, M): their beliefs, up to a factor
    ruler: tuple[int, int, int]  # of the grid they are, see `charts`, or zeros


@njit(cache=True, nogil=True, fastmath={"contract"})
def products(columns, mass, begin, end, out):
    """Set out[i] = sum_m mass[m] columns[m, begin + i] for i < end - begin.

    Contexts are added one after the other, in their order, each to all plans: so the inner loop
    runs in vector registers. A product and the sum it goes into may be rounded once.
    """
    for m in range(mass.shape[0]):
        factor, row = mass[m], columns[m, begin:end]
        if m == 0:
            for i in range(row.shape[0]):
                out[i] = factor * row[i]
        else:
            for i in range(row.shape[0]):
                out[i] += factor * row[i]


@njit(cache=True, nogil=True)
def best_product(columns, mass, begin, end, scores):
    """The largest of the `products`, and the first place begin..end-1 that has it; else (-inf, -1).

    `scores` is room for them, see `scores_room`. Four maxima side by side do not wait for each
    other, as one would; the place is looked for afterwards.
    """
    n = end - begin
    if n <= 0:
        return -np.inf, -1
    products(columns, mass, begin, end, scores)
    one, two, three, four = scores[0], scores[0], scores[0], scores[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        one = scores[i] if scores[i] > one else one
        two = scores[i + 1] if scores[i + 1] > two else two
        three = scores[i + 2] if scores[i + 2] > three else three
        four = scores[i + 3] if scores[i + 3] > four else four
    best = max(max(one, two), max(three, four))
    for i in range(whole, n):
        best = max(best, scores[i])
    where = 0
    while scores[where] < best:
        where += 1
    return best, begin + where


@njit(cache=True, nogil=True)
def scores_room(step):
    """Room for the products of a search: of the leaders, of a cell, or of the standing plans."""
    n = max(step.leaders.shape[1], step.standing_labels.shape[1])
    for cell in range(step.starts.shape[0] - 1):
        n = max(n, step.starts[cell + 1] - step.starts[cell])
    return np.empty(n)


@njit(cache=True, nogil=True)
def search(starts, groups, leaders, columns, standing, n_standing, ruler, s, mass, scores, cells):
    """A plan of state s that is about the best at `mass`, its value, and how many cells were read.

    The plan is an item, or standing plan -1 - j if j is negative.
    """
    if ruler[0] > 0:
        value, f = best_corner(standing, ruler, s, mass)
    else:
        value, f = best_product(standing[s], mass, np.int64(0), n_standing, scores)
    count = best_cells(starts, groups, leaders, s, mass, scores, cells)
    j, other = best_plan(starts, columns, mass, cells, count, scores)
    if other > value:
        return j, other, count
    return -1 - f, value, count


@njit(cache=True, nogil=True)
def best_cells(starts, groups, leaders, s, mass, scores, cells):
    """Write the cells of state s whose leaders are best at `mass`, best first; return how many.

    A cell is empty where other leaders are better even at its own leader's belief. If all the best
    are, the last of them gives way to the best that is not.
    """
    begin, end = groups[s], groups[s + 1]
    if end - begin <= 1 and cells.shape[0] > 0:
        cells[0] = begin
        return end - begin
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
        value, i = best_product(columns, mass, starts[cells[q]], starts[cells[q] + 1], scores)
        if value > best:
            best, where = value, i
    return where, best


@njit(cache=True, nogil=True)
def best_plans(step, states, beliefs, values, out):
    """The best of all plans at each of some beliefs, as `search` numbers them, and its value."""
    starts, groups, columns, standing = step.starts, step.groups, step.columns, step.standing
    n_standing = step.standing_labels.shape[1]
    scores = np.empty(n_standing)
    for i in range(states.shape[0]):
        s = states[i]
        begin, end = starts[groups[s]], starts[groups[s + 1]]
        if scores.shape[0] < end - begin:
            scores = np.empty(end - begin)
        value, f = best_product(standing[s], beliefs[i], np.int64(0), n_standing, scores)
        other, j = best_product(columns, beliefs[i], begin, end, scores)
        values[i], out[i] = max(value, other), j if other > value else -1 - f


@njit(cache=True, nogil=True)
def group_states(states, S, exact):
    """Plans by state: (member, offsets, groups).

    Those of state s are member[offsets[s] : offsets[s + 1]], in their order, and get the cells
    groups[s] .. groups[s + 1] - 1.
    """
    n = states.shape[0]
    offsets = np.zeros(S + 1, np.int64)
    for i in range(n):
        offsets[states[i] + 1] += 1
    groups = np.zeros(S + 1, np.int64)
    for s in range(S):
        size = offsets[s + 1]
        few = exact or size <= _FEW
        groups[s + 1] = groups[s] + (min(size, 1) if few else int(np.ceil(np.sqrt(size))))
        offsets[s + 1] += offsets[s]
    place, member = offsets[:-1].copy(), np.empty(n, np.int64)
    for i in range(n):
        member[place[states[i]]] = i
        place[states[i]] += 1
    return member, offsets, groups


@njit(cache=True, nogil=True)
def cut_states(start, stop, member, offsets, groups, beliefs, vectors, order, starts, leaders):
    """Cut the plans of the states start..stop-1 into cells; the first plans of a state lead."""
    for s in range(start, stop):
        begin, end = groups[s], groups[s + 1]
        for k in range(begin, end):
            for m in range(vectors.shape[1]):
                leaders[m, k] = vectors[member[offsets[s] + k - begin], m]
        _cut(
            member[offsets[s] : offsets[s + 1]], beliefs, leaders, begin, end, offsets[s],
            starts, order[offsets[s] : offsets[s + 1]],
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _cut(member, beliefs, leaders, begin, end, first, starts, order):
    """Put each plan of one state into the cell begin..end-1 whose leader is best at its belief."""
    n = member.shape[0]
    if end - begin <= 1:
        for k in range(begin, end):
            starts[k] = first
        for i in range(n):
            order[i] = member[i]
        return
    owner, sizes = np.zeros(n, np.int64), np.zeros(end - begin + 1, np.int64)
    scores = np.empty(end - begin)
    for i in range(n):
        _, k = best_product(leaders, beliefs[member[i]], begin, end, scores)
        owner[i] = k - begin
        sizes[owner[i] + 1] += 1
    place = np.cumsum(sizes)
    for k in range(end - begin):
        starts[begin + k] = first + place[k]
    for i in range(n):
        order[place[owner[i]]] = member[i]
        place[owner[i]] += 1


@njit(cache=True, nogil=True)
def put_gainful_first(starts, gains, order, tops):
    """In every cell, put the items with a gain first, otherwise as they were; tops is their end."""
    spare = np.empty(order.shape[0], np.int64)
    for cell in range(tops.shape[0]):
        place, others = starts[cell], 0
        for i in range(starts[cell], starts[cell + 1]):
            if gains[order[i]] > 0.0:
                order[place] = order[i]
                place += 1
            else:
                spare[others] = order[i]
                others += 1
        tops[cell] = place
        for i in range(others):
            order[place + i] = spare[i]


@njit(cache=True, nogil=True)
def put_plans(start, stop, order, beliefs, vectors, out_columns, out_rows, out_beliefs, inverses):
    """Write the plans and beliefs start..stop-1 where a search reads them."""
    M = vectors.shape[1]
    for i in range(start, stop):
        for m in range(M):
            belief = beliefs[order[i], m]
            out_rows[i, m] = vectors[order[i], m]
            out_columns[m, i] = vectors[order[i], m]
            out_beliefs[m, i] = belief
            inverses[m, i] = 1.0 / belief if belief > 0.0 else np.inf


@njit(cache=True, nogil=True)
def put_wanted(start, stop, step, standing, wanted, offsets, vectors, labels):
    """Copy the wanted plans of states start..stop-1: standing ones (S, F), then items (n,).

    Those of state s go to vectors (n', M) and labels (n',) from offsets[s] on.
    """
    M = vectors.shape[1]
    for s in range(start, stop):
        k = offsets[s]
        for f in range(standing.shape[1]):
            if standing[s, f]:
                labels[k] = step.standing_labels[s, f]
                for m in range(M):
                    vectors[k, m] = step.standing[s, m, f]
                k += 1
        for i in range(step.starts[step.groups[s]], step.starts[step.groups[s + 1]]):
            if wanted[i]:
                labels[k] = step.labels[i]
                for m in range(M):
                    vectors[k, m] = step.rows[i, m]
                k += 1
