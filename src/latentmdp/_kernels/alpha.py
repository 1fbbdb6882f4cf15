"""The alpha backup [pineau2006]: the best plan at a belief, from the plans of the next step.

    alpha_a(m) = R_m(s, a) + discount sum_{s', z} P_m(s', z | s, a) alpha_{j(a, s', z)}(m)
    j(a, s', z) = argmax_j sum_m b(m) P_m(s', z | s, a) alpha_j(m),    alpha = argmax_a <b, alpha_a>

Every vector is the exact value, context by context, of a plan that can be followed, so any choice
of j gives a lower bound.
"""

import numpy as np
from numba import njit

from latentmdp._kernels.plans import best_cells, best_plan

__all__ = ["alpha_backup", "mark_followers", "next_action", "posterior_mass"]


@njit(cache=True, nogil=True)
def alpha_backup(
    table, rewards, discount, later, breadth, states, beliefs, limits, first, last, out, labels
):
    """Back up the points first..last-1 into out (n, M) and labels (n,).

    `limits` (n, A) holds upper bounds of the action values: actions whose bound does not exceed
    the best value found are not tried. `later` are the `StepBounds` of the next step, of which
    `breadth` cells are searched for each successor; 0 means that there is no next step.
    """
    _, A, _, _, M = table.shape
    starts, groups, leaders = later.starts, later.groups, later.leaders
    columns, rows = later.columns, later.rows
    vector, mass, tried = np.empty(M), np.empty(M), np.empty(A, np.bool_)
    cells, scores = np.empty(breadth, np.int64), np.empty(columns.shape[1])
    for i in range(first, last):
        s, best = states[i], -np.inf
        tried[:] = False
        for _ in range(A):
            a = next_action(limits[i], tried)
            if limits[i, a] <= best:
                break
            _extend(
                table, rewards, discount, starts, groups, leaders, columns, rows, s, a, beliefs[i],
                cells, scores, mass, vector,
            )  # fmt: skip
            value = 0.0
            for m in range(M):
                value += beliefs[i, m] * vector[m]
            if value > best:
                best, labels[i] = value, a
                for m in range(M):
                    out[i, m] = vector[m]


@njit(cache=True, nogil=True)
def next_action(limits, tried):
    """The untried action with the largest bound, marked as tried."""
    best = -1
    for a in range(limits.shape[0]):
        if not tried[a] and (best < 0 or limits[a] > limits[best]):
            best = a
    tried[best] = True
    return best


@njit(cache=True, nogil=True)
def _extend(
    table, rewards, discount, starts, groups, leaders, columns, rows, s, a, belief,
    cells, scores, mass, vector,
):  # fmt: skip
    """The plan that plays a in s and goes on with the best plan after each observation."""
    _, _, S, Z, M = table.shape
    for m in range(M):
        vector[m] = rewards[s, a, m]
    if cells.shape[0] == 0:
        return
    for n in range(S):
        for z in range(Z):
            if _condition(belief, table, s, a, n, z, mass):
                count = best_cells(starts, groups, leaders, n, mass, scores, cells)
                j, _ = best_plan(starts, columns, mass, cells, count, scores)
                for m in range(M):
                    vector[m] += discount * table[s, a, n, z, m] * rows[j, m]


@njit(cache=True, nogil=True)
def posterior_mass(belief, table, s, a, n, z, mass):
    """Fill mass (M,) with the unnormalised posterior after (s', z) = (n, z); return its sum."""
    total = 0.0
    for m in range(belief.shape[0]):
        mass[m] = belief[m] * table[s, a, n, z, m]
        total += mass[m]
    return total


@njit(cache=True, nogil=True)
def _condition(belief, table, s, a, n, z, mass):
    """The unnormalised posterior; False if the observation is impossible in every context.

    A plan must go on somehow also where its own belief excludes the observation: then every
    context counts equally.
    """
    if posterior_mass(belief, table, s, a, n, z, mass) > 0.0:
        return True
    possible = False
    for m in range(belief.shape[0]):
        mass[m] = table[s, a, n, z, m]
        possible |= mass[m] > 0.0
    return possible


@njit(cache=True, nogil=True)
def mark_followers(table, later, breadth, states, beliefs, labels, wanted, out):
    """Mark in out (n',) the plans of the next step that the wanted plans of this one go on with."""
    S, _, _, Z, M = table.shape
    starts, groups, leaders, columns = later.starts, later.groups, later.leaders, later.columns
    mass = np.empty(M)
    cells, scores = np.empty(breadth, np.int64), np.empty(columns.shape[1])
    for i in range(states.shape[0]):
        if not wanted[i]:
            continue
        for n in range(S):
            for z in range(Z):
                if _condition(beliefs[i], table, states[i], labels[i], n, z, mass):
                    count = best_cells(starts, groups, leaders, n, mass, scores, cells)
                    j, _ = best_plan(starts, columns, mass, cells, count, scores)
                    out[j] = True
