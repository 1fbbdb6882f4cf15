"""Three contexts: both bounds on a grid of odds, which Bayes' rule maps nearly into itself.

Divide a mass u on three contexts by its largest entry, that of context c: the two others become
odds (y, z) in [0, 1] x [0, 1], with (c + 1, c + 2) modulo 3 in this order. These three squares, the
charts, cover the triangle of beliefs. Levels of y and z are 0, 2^-E, ..., 1/2, 1; an octave
[2^-e, 2^-(e-1)] is cut into `cuts` equal cells if it is one of the `fine` uppermost ones: the
`ruler` of a grid is (octaves E, fine, cuts). An observation moves odds by a factor, wherever they
are, so levels go by factors too. Point (c, i, j) has number (c L + i) L + j, with L levels.

V is convex and homogeneous, so in the cell of (y, z) linear interpolation between three corners,
along either diagonal, is an upper bound; the best at u of the plans of the four corners is a lower
one. The values and plans of all points are backed up together, as the upper bound of an action
tells where its plan is not needed.
"""

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.loops import next_action

_MANTISSA, _ONE = 0xFFFFFFFFFFFFF, 0x3FF0000000000000
"""Of a float: the bits of its mantissa, and those of 1."""

_BELOW_ONE = 1.0 - 2.0**-53
"""The largest float below 1, which belongs to the last cell."""

_FAINTEST = 1e-300
"""Mass below this is left out: dividing by it might overflow, and it adds nothing."""


@njit(cache=True, nogil=True)
def _level(y, octaves, fine, cuts):
    """The level below y in [0, 1] and how far it is from there to the next, from 0 to 1.

    Written without branches, which could not be foreseen.
    """
    bits = np.float64(min(y, _BELOW_ONE)).view(np.int64)
    octave = (bits >> 52) - 1023 + octaves
    beyond = octave - octaves + fine
    cells = cuts if beyond >= 0 else 1
    x = (np.int64((bits & _MANTISSA) | _ONE).view(np.float64) - 1.0) * cells
    k = int(x)
    scale = np.int64((1023 + octaves) << 52).view(np.float64)
    level = 1 + octave + max(beyond, 0) * (cuts - 1) + k
    return level if octave >= 0 else 0, x - k if octave >= 0 else y * scale


@njit(cache=True, nogil=True)
def _levels(ruler):
    octaves, fine, cuts = ruler
    return octaves + fine * (cuts - 1) + 2


@njit(cache=True, nogil=True)
def _locate(u, v, w, ruler):
    """Where mass (u, v, w) lies: its largest entry, the lowest corner of its cell, its place there.

    `ruler` is (octaves, fine, cuts).
    """
    octaves, fine, cuts = ruler
    c = 0 if u >= v and u >= w else (1 if v >= w else 2)
    top = max(u, max(v, w))
    y = v if c == 0 else (w if c == 1 else u)
    z = w if c == 0 else (u if c == 1 else v)
    L = _levels(ruler)
    inverse = 1.0 / top
    i, y = _level(y * inverse, octaves, fine, cuts)
    j, z = _level(z * inverse, octaves, fine, cuts)
    return top, (c * L + i) * L + j, y, z


@njit(cache=True, nogil=True)
def _interpolated(values, s, L, k, y, z):
    """The upper bound at the place (y, z) of the cell of state s whose lowest corner is k."""
    low, right, left, high = values[s, k], values[s, k + L], values[s, k + 1], values[s, k + L + 1]
    larger, smaller, side = max(y, z), min(y, z), right if y >= z else left
    one = (1.0 - larger) * low + (larger - smaller) * side + smaller * high
    upon = y + z > 1.0
    tip, p, q = high if upon else low, 1.0 - z if upon else y, 1.0 - y if upon else z
    two = (1.0 - p - q) * tip + p * right + q * left
    return min(one, two)


@njit(cache=True, nogil=True)
def _best_of_cell(plans, s, L, k, u, v, w):
    """The best at mass (u, v, w) of the plans at the corners of a cell: its value, and which."""
    best, where = -np.inf, k + 3
    for j in (k + 3, k + 4, k + L + 3, k + L + 4):
        value = u * plans[s, 0, j] + v * plans[s, 1, j] + w * plans[s, 2, j]
        if value > best:
            best, where = value, j
    return best, where


@njit(cache=True, nogil=True)
def chart_value(values, ruler, s, mass):
    """The upper bound at `mass` (3,) in state s, from values (S, F) at the points of the grid."""
    if mass[0] + mass[1] + mass[2] < _FAINTEST:
        return 0.0
    top, k, y, z = _locate(mass[0], mass[1], mass[2], ruler)
    return top * _interpolated(values, s, _levels(ruler), k, y, z)


@njit(cache=True, nogil=True)
def best_corner(plans, ruler, s, mass):
    """The best at `mass` (3,) of the plans (S, 3, 3 + F) around it: its value, and which one it is.

    The plans of the grid are those from the fourth on.
    """
    _, k, _, _ = _locate(mass[0], mass[1], mass[2], ruler)
    return _best_of_cell(plans, s, _levels(ruler), k, mass[0], mass[1], mass[2])


@njit(cache=True, nogil=True)
def back_up_charts(
    start, stop, table, most, rewards, discount, allowed, q, grid, ruler, later, later_plans,
    is_last, out, out_plans, labels,
):  # fmt: skip
    """Values out (S, F), plans out_plans (S, 3, 3 + F), labels (S, 3 + F) of states start..stop-1.

    `grid` (F, 3) holds the points, largest entry 1. `later` and `later_plans` are those of the next
    step, on a grid of its own `ruler`; `q` (S, A, 3) holds Q-values of the single contexts, which
    rule actions out. A row of the table has `most` outcomes at most.
    """
    A = rewards.shape[1]
    room = np.empty((most, 3)), np.empty(most, np.int64)
    vector, limits, tried = np.empty(3), np.empty(A), np.empty(A, np.bool_)
    for s in range(start, stop):
        for f in range(grid.shape[0]):
            best, upper = -np.inf, -np.inf
            for a in range(A):
                tried[a] = False
                limits[a] = _dot(grid, f, q, s, a) if allowed[s, a] else -np.inf
            for _ in range(A):
                a = next_action(limits, tried)
                if limits[a] <= best:
                    break
                begin, end = table.starts[s * A + a], table.starts[s * A + a + 1]
                if is_last:
                    end = begin
                value = discount * _upper_value(
                    begin, end, table.next_state, table.probs, grid, f, ruler, later, room
                )
                value = min(_dot(grid, f, rewards, s, a) + value, limits[a])
                upper = max(upper, value)
                if value <= best:
                    continue
                _extend(begin, end, table.next_state, table.probs, ruler, later_plans, room, vector)
                value = 0.0
                for m in range(3):
                    vector[m] = rewards[s, a, m] + discount * vector[m]
                    value += grid[f, m] * vector[m]
                if value > best:
                    best, labels[s, 3 + f] = value, a
                    for m in range(3):
                        out_plans[s, m, 3 + f] = vector[m]
            out[s, f] = upper if upper > -np.inf else 0.0


@njit(cache=True, nogil=True)
def _dot(grid, f, values, s, a):
    value = 0.0
    for m in range(3):
        value += grid[f, m] * values[s, a, m]
    return value


@njit(cache=True, nogil=True)
def _upper_value(begin, end, next_state, probs, grid, f, ruler, later, room):
    """The upper bound of what follows the outcomes begin..end-1; their masses and cells in room."""
    L, value = _levels(ruler), 0.0
    masses, cells = room
    for k in range(begin, end):
        i, total = k - begin, 0.0
        for m in range(3):
            masses[i, m] = grid[f, m] * probs[k, m]
            total += masses[i, m]
        if total < _FAINTEST:  # a plan must go on somehow: then every context counts equally
            for m in range(3):
                masses[i, m] = probs[k, m]
        top, cells[i], y, z = _locate(masses[i, 0], masses[i, 1], masses[i, 2], ruler)
        if total >= _FAINTEST:
            value += top * _interpolated(later, next_state[k], L, cells[i], y, z)
    return value


@njit(cache=True, nogil=True)
def _extend(begin, end, next_state, probs, ruler, later, room, vector):
    """What the best plans of the next step earn after the outcomes begin..end-1, by context."""
    L = _levels(ruler)
    masses, cells = room
    vector[0], vector[1], vector[2] = 0.0, 0.0, 0.0
    for k in range(begin, end):
        i, n = k - begin, next_state[k]
        _, j = _best_of_cell(later, n, L, cells[i], masses[i, 0], masses[i, 1], masses[i, 2])
        for m in range(3):
            vector[m] += probs[k, m] * later[n, m, j]


@njit(cache=True, nogil=True)
def corner_followed(grid, f, probs, k, later, n, ruler, mass):
    """The plan of state n that the plan of point f goes on with after outcome k, as backed up."""
    total = 0.0
    for m in range(3):
        mass[m] = grid[f, m] * probs[k, m]
        total += mass[m]
    if total < _FAINTEST:
        for m in range(3):
            mass[m] = probs[k, m]
    return best_corner(later, ruler, n, mass)[1]
