"""Upper bounds on the value from problems with few contexts: vertices, edges, triangles, solids.

V_t(s, ·) is convex and positively homogeneous in the unnormalised belief u, so it is subadditive:
V(u) <= sum_k V(u_k) for every split u = sum_k u_k. A part that lives on one, two or three contexts
is bounded by the value of the problem with those contexts only, kept on a regular grid of its face
of the simplex; linear interpolation of a convex function between grid points stays above it.

A grid has G cells along a side. Points of an edge {i < j} are k/G on i and 1 - k/G on j. Points
of a triangle {i < j < k} are (G - x, x - y, y)/G with G >= x >= y >= 0, interpolated on the
Freudenthal triangulation. A solid is the whole simplex of four contexts, in the same way: points
are (G - x, x - y, y - z, z)/G with G >= x >= y >= z >= 0.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.charts import chart_value
from latentmdp.planning.point_based.kernels.loops import sort_down

_FAINTEST = 1e-300
"""Mass below this is left out: dividing by it might overflow, and it adds nothing."""


class Faces(NamedTuple):
    """Bounds of one time step; what there is not has a grid of one point.

    With three contexts there may be `charts` of the whole triangle instead, see `charts`.
    """

    vertices: np.ndarray  # (S, M)
    edges: np.ndarray  # (S, M (M - 1) / 2, G + 1)
    triangles: np.ndarray  # (S, M (M - 1) (M - 2) / 6, G + 1, G + 1)
    solids: np.ndarray  # (S, G + 1, G + 1, G + 1), with four contexts
    charts: np.ndarray  # (S, F)
    ruler: tuple[int, int, int]  # of the charts, or zeros


@njit(cache=True, nogil=True)
def edge_rank(i, j, M):
    """Position of the pair i < j in lexicographic order."""
    return i * M - i * (i + 1) // 2 + j - i - 1


@njit(cache=True, nogil=True)
def triangle_rank(i, j, k, M):
    """Position of the triple i < j < k in lexicographic order."""
    rank = edge_rank(j, k, M) - edge_rank(i + 1, i + 2, M)
    for first in range(i):
        rest = M - first - 1
        rank += rest * (rest - 1) // 2
    return rank


@njit(cache=True, nogil=True)
def edge_value(edges, s, i, j, M, u, v):
    """Bound for mass u on context i and v on context j."""
    if i > j:
        i, j, u, v = j, i, v, u
    total = u + v
    if total <= 0.0:
        return 0.0
    rank = edge_rank(i, j, M)
    G = edges.shape[2] - 1
    x = u / total * G
    k = min(int(x), G - 1)
    x -= k
    return total * (edges[s, rank, k] * (1.0 - x) + edges[s, rank, k + 1] * x)


@njit(cache=True, nogil=True)
def triangle_value(triangles, s, i, j, k, M, u, v, w):
    """Bound for mass u on context i, v on j and w on k."""
    if i > j:
        i, j, u, v = j, i, v, u
    if j > k:
        j, k, v, w = k, j, w, v
    if i > j:
        i, j, u, v = j, i, v, u
    return _interpolated(triangles, s, triangle_rank(i, j, k, M), u, v, w)


@njit(cache=True, nogil=True)
def _interpolated(triangles, s, rank, u, v, w):
    total = u + v + w
    if total < _FAINTEST:
        return 0.0
    G = triangles.shape[2] - 1
    scale = G / total
    x, y = (v + w) * scale, w * scale
    a, b = min(int(x), G - 1), min(int(y), G - 1)
    x -= a
    y -= b
    low, high = triangles[s, rank, a, b], triangles[s, rank, a + 1, b + 1]
    if x >= y:
        return total * ((1.0 - x) * low + (x - y) * triangles[s, rank, a + 1, b] + y * high)
    return total * ((1.0 - y) * low + (y - x) * triangles[s, rank, a, b + 1] + x * high)


@njit(cache=True, nogil=True)
def solid_value(solids, s, mass):
    """Bound for the mass on four contexts."""
    total = mass[0] + mass[1] + mass[2] + mass[3]
    if total < _FAINTEST:
        return 0.0
    G = solids.shape[1] - 1
    scale = G / total
    z = mass[3]
    y = mass[2] + z
    x, y, z = (mass[1] + y) * scale, y * scale, z * scale
    a, b, c = min(int(x), G - 1), min(int(y), G - 1), min(int(z), G - 1)
    x, y, z = x - a, y - b, z - c
    # From the lowest corner of a cube to the highest, along the largest remainder first.
    if x >= y and x >= z:
        first, one, two, three = solids[s, a + 1, b, c], x, max(y, z), min(y, z)
        second = solids[s, a + 1, b + 1, c] if y >= z else solids[s, a + 1, b, c + 1]
    elif y >= z:
        first, one, two, three = solids[s, a, b + 1, c], y, max(x, z), min(x, z)
        second = solids[s, a + 1, b + 1, c] if x >= z else solids[s, a, b + 1, c + 1]
    else:
        first, one, two, three = solids[s, a, b, c + 1], z, max(x, y), min(x, y)
        second = solids[s, a + 1, b, c + 1] if x >= y else solids[s, a, b + 1, c + 1]
    value = (1.0 - one) * solids[s, a, b, c] + (one - two) * first
    value += (two - three) * second + three * solids[s, a + 1, b + 1, c + 1]
    return total * value


@njit(cache=True, nogil=True)
def split_value(faces, s, mass, order):
    """Bound at an unnormalised belief: the best of a few splits; `order` is room for M integers.

    Contexts are paired, or put in threes, by rank of their mass; or the mass of the likeliest
    context is shared out in a star of pairs with all others.
    """
    if faces.ruler[0] > 0:
        return chart_value(faces.charts, faces.ruler, s, mass)
    vertices, edges, triangles, M = faces.vertices, faces.edges, faces.triangles, mass.shape[0]
    if edges.shape[2] <= 1:
        value = 0.0
        for m in range(M):
            value += mass[m] * vertices[s, m]
        return value
    for m in range(M):
        order[m] = m
    sort_down(order, mass)
    best = _star(vertices, edges, s, mass, order[0])
    best = min(best, _pairs(vertices, edges, s, mass, order, np.int64(0)))
    if M >= 3 and triangles.shape[2] > 1:
        value, k = 0.0, 0
        while k + 3 <= M:
            h, i, j = order[k], order[k + 1], order[k + 2]
            value += triangle_value(triangles, s, h, i, j, M, mass[h], mass[i], mass[j])
            k += 3
        best = min(best, value + _pairs(vertices, edges, s, mass, order, k))
    if M == 4 and faces.solids.shape[1] > 1:
        best = min(best, solid_value(faces.solids, s, mass))
    return best


@njit(cache=True, nogil=True)
def split_values(faces, states, beliefs, out):
    """`split_value` of many points."""
    order = np.empty(beliefs.shape[1], np.int64)
    for i in range(states.shape[0]):
        out[i] = split_value(faces, np.int64(states[i]), beliefs[i], order)


@njit(cache=True, nogil=True)
def _pairs(vertices, edges, s, mass, order, first):
    M = mass.shape[0]
    value = 0.0
    for k in range(first, M - 1, 2):
        i, j = order[k], order[k + 1]
        value += edge_value(edges, s, i, j, M, mass[i], mass[j])
    if (M - first) % 2 == 1:
        value += mass[order[M - 1]] * vertices[s, order[M - 1]]
    return value


@njit(cache=True, nogil=True)
def _star(vertices, edges, s, mass, centre):
    M, rest = mass.shape[0], 0.0
    for m in range(M):
        if m != centre:
            rest += mass[m]
    if rest < _FAINTEST:
        return mass[centre] * vertices[s, centre]
    value, share = 0.0, mass[centre] / rest
    for m in range(M):
        if m != centre and mass[m] > 0.0:
            value += edge_value(edges, s, centre, m, M, share * mass[m], mass[m])
    return value


@njit(cache=True, nogil=True)
def backup_edges(start, stop, table, rewards, allowed, discount, limits, later, out):
    """Back up the two-context values: fill out (S, pairs, G + 1) from the faces of the next step,
    for the states start..stop-1.

    `table` is an outcome table, `rewards` (S, A, M), and `limits` (S, A, M) holds Q-values of the
    single contexts, which rule actions out; `allowed` (S, A) says which there are.
    """
    _, A, M = rewards.shape
    G, edges = out.shape[2] - 1, later.edges
    starts, next_state, probs = table.starts, table.next_state, table.probs
    for s in range(start, stop):
        for i in range(M):
            for j in range(i + 1, M):
                rank = edge_rank(i, j, M)
                for k in range(G + 1):
                    x, y = k / G, (G - k) / G
                    best = -np.inf
                    for a in range(A):
                        if allowed[s, a] and x * limits[s, a, i] + y * limits[s, a, j] > best:
                            value = x * rewards[s, a, i] + y * rewards[s, a, j]
                            begin, end = starts[s * A + a], starts[s * A + a + 1]
                            value += discount * _after_edge(
                                begin, end, next_state, probs, edges, i, j, x, y
                            )
                            best = max(best, value)
                    out[s, rank, k] = best if best > -np.inf else 0.0


@njit(cache=True, nogil=True)
def _after_edge(begin, end, next_state, probs, edges, i, j, x, y):
    """Value of the next step from mass (x, y) on contexts (i, j) after the outcomes of a row."""
    M = probs.shape[1]
    value = 0.0
    for k in range(begin, end):
        value += edge_value(edges, next_state[k], i, j, M, x * probs[k, i], y * probs[k, j])
    return value


@njit(cache=True, nogil=True)
def backup_triangles(start, stop, table, rewards, allowed, discount, limits, later, out):
    """Back up the three-context values, like `backup_edges`: out is (S, triples, G + 1, G + 1)."""
    _, A, M = rewards.shape
    G = out.shape[2] - 1
    starts, next_state, probs = table.starts, table.next_state, table.probs
    vertices, edges, triangles = later.vertices, later.edges, later.triangles
    for s in range(start, stop):
        for i in range(M):
            for j in range(i + 1, M):
                for k in range(j + 1, M):
                    rank = triangle_rank(i, j, k, M)
                    for x in range(G + 1):
                        for y in range(x + 1):
                            u, v, w = (G - x) / G, (x - y) / G, y / G
                            best = -np.inf
                            for a in range(A):
                                limit = u * limits[s, a, i] + v * limits[s, a, j]
                                if allowed[s, a] and limit + w * limits[s, a, k] > best:
                                    value = u * rewards[s, a, i] + v * rewards[s, a, j]
                                    value += w * rewards[s, a, k]
                                    row = s * A + a
                                    value += discount * _after_triangle(
                                        starts[row], starts[row + 1], next_state, probs,
                                        vertices, edges, triangles, i, j, k, u, v, w,
                                    )  # fmt: skip
                                    best = max(best, value)
                            out[s, rank, x, y] = best if best > -np.inf else 0.0


@njit(cache=True, nogil=True)
def _after_triangle(
    begin, end, next_state, probs, vertices, edges, triangles, i, j, k, u, v, w
):  # fmt: skip
    """Value of the next step from mass (u, v, w) on contexts (i, j, k) after a row's outcomes."""
    M = probs.shape[1]
    rank = triangle_rank(i, j, k, M)
    value = 0.0
    for outcome in range(begin, end):
        n = next_state[outcome]
        p, q, o = u * probs[outcome, i], v * probs[outcome, j], w * probs[outcome, k]
        if o <= p and o <= q:
            other = edge_value(edges, n, i, j, M, p, q) + o * vertices[n, k]
        elif q <= p:
            other = edge_value(edges, n, i, k, M, p, o) + q * vertices[n, j]
        else:
            other = edge_value(edges, n, j, k, M, q, o) + p * vertices[n, i]
        value += min(other, _interpolated(triangles, n, rank, p, q, o))
    return value


@njit(cache=True, nogil=True)
def fill_triangles(vertices, out):
    """Values of triangles out (S, triples, G + 1, G + 1) that are flat between their vertices."""
    S, M = vertices.shape
    G = out.shape[2] - 1
    for s in range(S):
        for i in range(M):
            for j in range(i + 1, M):
                for k in range(j + 1, M):
                    rank = triangle_rank(i, j, k, M)
                    for x in range(G + 1):
                        for y in range(x + 1):
                            value = (G - x) * vertices[s, i] + (x - y) * vertices[s, j]
                            out[s, rank, x, y] = (value + y * vertices[s, k]) / G


@njit(cache=True, nogil=True)
def backup_solids(start, stop, table, rewards, allowed, discount, limits, later, out):
    """Back up the four-context values, like `backup_edges`: out is (S, G + 1, G + 1, G + 1)."""
    A, G = rewards.shape[1], out.shape[1] - 1
    starts, next_state, probs = table.starts, table.next_state, table.probs
    belief, mass = np.empty(4), np.empty(4)
    for s in range(start, stop):
        for x in range(G + 1):
            for y in range(x + 1):
                for z in range(y + 1):
                    belief[0], belief[1] = (G - x) / G, (x - y) / G
                    belief[2], belief[3] = (y - z) / G, z / G
                    best = -np.inf
                    for a in range(A):
                        limit, value = 0.0, 0.0
                        for m in range(4):
                            limit += belief[m] * limits[s, a, m]
                            value += belief[m] * rewards[s, a, m]
                        if not allowed[s, a] or limit <= best:
                            continue
                        for k in range(starts[s * A + a], starts[s * A + a + 1]):
                            for m in range(4):
                                mass[m] = belief[m] * probs[k, m]
                            value += discount * solid_value(later.solids, next_state[k], mass)
                        best = max(best, value)
                    out[s, x, y, z] = best if best > -np.inf else 0.0


@njit(cache=True, nogil=True)
def refine_solids(solids, out):
    """Interpolate solids at the points of a finer grid out (S, G + 1, G + 1, G + 1)."""
    G, mass = out.shape[1] - 1, np.empty(4)
    for s in range(out.shape[0]):
        for x in range(G + 1):
            for y in range(x + 1):
                for z in range(y + 1):
                    mass[0], mass[1] = (G - x) / G, (x - y) / G
                    mass[2], mass[3] = (y - z) / G, z / G
                    out[s, x, y, z] = solid_value(solids, s, mass)
