"""The alpha backup [pineau2006]: the best plan at a belief, from the plans of the next step.

    alpha_a(m) = R_m(s, a) + discount sum_k P_m(k | s, a) alpha_{j(k)}(m)
    j(k) = argmax_j sum_m b(m) P_m(k | s, a) alpha_j(m),    alpha = argmax_a <b, alpha_a>

where k runs over the outcomes (s', z) that can follow (s, a), and j over the plans of s'. Every
vector is the exact value, context by context, of a plan that can be followed, so any choice of j
gives a lower bound.
"""

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.loops import next_action
from latentmdp.planning.point_based.kernels.plans import scores_room, search


@njit(cache=True, nogil=True)
def alpha_backup(
    start, stop, table, rewards, discount, later, breadth, states, beliefs, limits, out, labels
):
    """Back up the points start..stop-1 into out (n, M) and labels (n,).

    `limits` (n, A) holds upper bounds of the action values: actions whose bound does not exceed
    the best value found are not tried. `later` are the `StepBounds` of the next step, of which
    `breadth` cells are searched for each successor; 0 means that there is no next step.
    """
    _, A, M = rewards.shape
    starts, groups, leaders = later.starts, later.groups, later.leaders
    columns, rows, standing = later.columns, later.rows, later.standing
    n_standing, ruler = later.standing_labels.shape[1], later.ruler
    first_outcome, next_state, probs = table.starts, table.next_state, table.probs
    vector, mass, tried = np.empty(M), np.empty(M), np.empty(A, np.bool_)
    cells, scores = np.empty(breadth, np.int64), scores_room(later)
    for i in range(start, stop):
        s, best = states[i], -np.inf
        tried[:] = False
        for _ in range(A):
            a = next_action(limits[i], tried)
            if limits[i, a] <= best:
                break
            row = s * A + a
            _extend(
                first_outcome[row], first_outcome[row + 1], next_state, probs, rewards[s, a],
                discount, starts, groups, leaders, columns, rows, standing, n_standing,
                ruler, beliefs[i], cells, scores, mass, vector,
            )  # fmt: skip
            value = 0.0
            for m in range(M):
                value += beliefs[i, m] * vector[m]
            if value > best:
                best, labels[i] = value, a
                for m in range(M):
                    out[i, m] = vector[m]


@njit(cache=True, nogil=True)
def _extend(
    begin, end, next_state, probs, earned, discount, starts, groups, leaders, columns, rows,
    standing, n_standing, ruler, belief, cells, scores, mass, vector,
):  # fmt: skip
    """The plan that earns `earned` and goes on with the best plan after each outcome of a row."""
    M = belief.shape[0]
    for m in range(M):
        vector[m] = earned[m]
    if cells.shape[0] == 0:
        return
    for k in range(begin, end):
        condition(belief, probs, k, mass)
        n = next_state[k]
        j, _, _ = search(
            starts, groups, leaders, columns, standing, n_standing, ruler, n, mass, scores, cells
        )
        if j >= 0:
            for m in range(M):
                vector[m] += discount * probs[k, m] * rows[j, m]
        else:
            for m in range(M):
                vector[m] += discount * probs[k, m] * standing[n, m, -1 - j]


@njit(cache=True, nogil=True)
def posterior_mass(belief, probs, k, mass):
    """Fill mass (M,) with the unnormalised posterior after outcome k; return its sum."""
    total = 0.0
    for m in range(belief.shape[0]):
        mass[m] = belief[m] * probs[k, m]
        total += mass[m]
    return total


@njit(cache=True, nogil=True)
def condition(belief, probs, k, mass):
    """The unnormalised posterior after outcome k.

    A plan must go on somehow also where its own belief excludes the outcome: then every context
    counts equally.
    """
    if posterior_mass(belief, probs, k, mass) <= 0.0:
        for m in range(belief.shape[0]):
            mass[m] = probs[k, m]


@njit(cache=True, nogil=True)
def mark_followers(
    start,
    stop,
    table,
    n_actions,
    later,
    breadth,
    states,
    beliefs,
    labels,
    wanted,
    out,
    standing_out,
):
    """Mark the plans of the next step that the wanted ones of start..stop-1 go on with.

    Items are marked in out (n',), standing plans in standing_out (S, F).
    """
    starts, groups, leaders, columns = later.starts, later.groups, later.leaders, later.columns
    standing, n_standing = later.standing, later.standing_labels.shape[1]
    ruler = later.ruler
    next_state, probs = table.next_state, table.probs
    mass = np.empty(probs.shape[1])
    cells, scores = np.empty(breadth, np.int64), scores_room(later)
    for i in range(start, stop):
        if not wanted[i]:
            continue
        row = states[i] * n_actions + labels[i]
        for k in range(table.starts[row], table.starts[row + 1]):
            condition(beliefs[i], probs, k, mass)
            n = next_state[k]
            j, _, _ = search(
                starts,
                groups,
                leaders,
                columns,
                standing,
                n_standing,
                ruler,
                n,
                mass,
                scores,
                cells,
            )
            # A write where nothing changes would take the cache line from other threads.
            if j >= 0 and not out[j]:
                out[j] = True
            elif j < 0 and not standing_out[n, -1 - j]:
                standing_out[n, -1 - j] = True
