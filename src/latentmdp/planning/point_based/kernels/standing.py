"""Standing plans: at every time and state one plan for each of a few fixed beliefs.

    alpha_f(m) = R_m(s, a) + discount sum_k P_m(k | s, a) alpha_{j(k)}(m)

as in the alpha backup, where j(k) is the best *standing* plan of the next step, so that standing
plans of all times are complete in themselves: none of them goes on with any other plan. The first M
are the optimal policies of the contexts, which go on with their own kind. Beliefs b_f that leave
every context some weight make plans that are good in all contexts: they change over as the evidence
comes in.
"""

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.alpha import condition
from latentmdp.planning.point_based.kernels.charts import corner_followed
from latentmdp.planning.point_based.kernels.loops import next_action
from latentmdp.planning.point_based.kernels.plans import best_product


@njit(cache=True, nogil=True)
def back_up_contexts(start, stop, successors, rewards, discount, later, actions, own, out, labels):
    """The optimal policies of the contexts at the states start..stop-1.

    `successors` is an outcome table without rewards, `rewards` (S, A, M), `actions` (S, M) the
    action of each context's policy. `later` and `own` are the values of the policies in every
    context, (S, M, M), context last; they are copied to the first of the standing plans out
    (S, M, F) and labels (S, F).
    """
    _, A, M = rewards.shape
    starts, next_state, probs = successors.starts, successors.next_state, successors.probs
    for s in range(start, stop):
        for k in range(M):
            a = actions[s, k]
            value = own[s, k]
            for m in range(M):
                value[m] = 0.0
            for o in range(starts[s * A + a], starts[s * A + a + 1]):
                p, following = probs[o], later[next_state[o], k]
                for m in range(M):
                    value[m] += p[m] * following[m]
            labels[s, k] = a
            for m in range(M):
                value[m] = rewards[s, a, m] + discount * value[m]
                out[s, m, k] = value[m]


@njit(cache=True, nogil=True)
def back_up_standing(
    start, stop, table, rewards, discount, allowed, q, lattice, later, is_last, out, labels
):
    """The standing plans of lattice[M:], beliefs (F, M), at the states start..stop-1.

    `q` (S, A, M) holds Q-values of the single contexts, which rule actions out.
    """
    _, A, M = rewards.shape
    F = lattice.shape[0]
    starts, next_state, probs = table.starts, table.next_state, table.probs
    mass, vector, scores = np.empty(M), np.empty(M), np.empty(F)
    limits, tried = np.empty(A), np.empty(A, np.bool_)
    for s in range(start, stop):
        for f in range(M, F):
            best = -np.inf
            tried[:] = False
            for a in range(A):
                limits[a] = -np.inf
                if allowed[s, a]:
                    limits[a] = 0.0
                    for m in range(M):
                        limits[a] += lattice[f, m] * q[s, a, m]
            for _ in range(A):
                a = next_action(limits, tried)
                if limits[a] <= best:
                    break
                for m in range(M):
                    vector[m] = 0.0
                row = s * A + a
                for k in range(starts[row], starts[row] if is_last else starts[row + 1]):
                    condition(lattice[f], probs, k, mass)
                    n = next_state[k]
                    _, j = best_product(later[n], mass, np.int64(0), F, scores)
                    for m in range(M):
                        vector[m] += probs[k, m] * later[n, m, j]
                value = 0.0
                for m in range(M):
                    vector[m] = rewards[s, a, m] + discount * vector[m]
                    value += lattice[f, m] * vector[m]
                if value > best:
                    best, labels[s, f] = value, a
                    for m in range(M):
                        out[s, m, f] = vector[m]


@njit(cache=True, nogil=True)
def mark_standing(start, stop, table, n_actions, lattice, ruler, later, labels, wanted, out):
    """Mark in out (S, F) what the wanted standing plans (S, F) of states start..stop-1 go on with.

    The policies of the contexts, which go on with their own kind, are left out.
    """
    F, M = lattice.shape
    starts, next_state, probs = table.starts, table.next_state, table.probs
    mass, scores = np.empty(M), np.empty(F)
    for s in range(start, stop):
        for f in range(M, F):
            if not wanted[s, f]:
                continue
            row = s * n_actions + labels[s, f]
            for k in range(starts[row], starts[row + 1]):
                if ruler[0] > 0:
                    j = corner_followed(lattice, f, probs, k, later, next_state[k], ruler, mass)
                else:
                    condition(lattice[f], probs, k, mass)
                    _, j = best_product(later[next_state[k]], mass, np.int64(0), F, scores)
                if not out[next_state[k], j]:  # a write would take the line from other threads
                    out[next_state[k], j] = True


@njit(cache=True, nogil=True)
def follow_standing(start, stop, table, lattice, ruler, later, plans, rows, begins, out):
    """Write what the standing plans start..stop-1 go on with, as -1 - j, at out[begins[i]] on.

    `rows` are those of the table that belong to a plan's state and action. For the policies of the
    contexts, which go on with their own kind, there is nothing to look for.
    """
    F, M = lattice.shape
    starts, next_state, probs = table.starts, table.next_state, table.probs
    mass, scores = np.empty(M), np.empty(F)
    for i in range(start, stop):
        f, begin = plans[i], starts[rows[i]]
        for k in range(begin, starts[rows[i] + 1]):
            if ruler[0] > 0:
                j = corner_followed(lattice, f, probs, k, later, next_state[k], ruler, mass)
            else:
                condition(lattice[f], probs, k, mass)
                _, j = best_product(later[next_state[k]], mass, np.int64(0), F, scores)
            out[begins[i] + k - begin] = -1 - j
