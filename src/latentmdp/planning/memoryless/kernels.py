"""Memoryless policies over the occupancy y_t(s, m) = w_m discount^t P_m^pi(s_t = s).

Tables are context-last, with one row s A + a for every (s, a): `steps` what may follow a row, and
rewards (S A, M). `rows` (S A,) is the number of each row that may be taken, -1 for the others. A
policy is an array (L, S) of actions with L = H, or L = 1 for a stationary one. In a terminal state
action 0 stands for the end: it earns nothing and leads nowhere. Values are backed up by
`latentmdp._kernels.bellman`.
"""

import numpy as np
from numba import njit

from latentmdp._kernels import follow


@njit(cache=True, nogil=True)
def _push(steps, discount, row, m, mass, later):
    """Add where mass of context m is one step after a row to later (S, M), outcome by outcome."""
    for k in range(steps.starts[row], steps.starts[row + 1]):
        later[steps.next_state[k], m] += discount * mass * steps.probs[k, m]


@njit(cache=True, nogil=True)
def _total(start, values):
    """sum_{s,m} y_0(s, m) V_m(s), state by state."""
    total = 0.0
    for s in range(start.shape[0]):
        total += _product(start[s], values[s])
    return total


@njit(cache=True, nogil=True)
def _product(mass, vector):
    """sum_m mass_m vector_m, in the order of the contexts."""
    total = 0.0
    for m in range(mass.shape[0]):
        total += mass[m] * vector[m]
    return total


@njit(cache=True, nogil=True)
def sweep(steps, rewards, discount, start, rows, policy):
    """One round of coordinate ascent on a policy (H, S), in place; returns its value.

    The rules improve from the last to the first under the occupancies of the policy as it was. The
    action in force is kept unless another is better, so the value never falls. Sums run over next
    states, then contexts. The policy must not share memory with the other arrays.
    """
    H, S = policy.shape
    A, M = rewards.shape[0] // S, rewards.shape[1]
    y = np.zeros((H, S, M))
    y[0, :, :] = start
    for t in range(H - 1):
        for s in range(S):
            for m in range(M):
                if y[t, s, m] > 0.0:
                    _push(steps, discount, s * A + policy[t, s], m, y[t, s, m], y[t + 1])
    later, q = np.zeros((S, M)), np.empty((S * A, M))
    for t in range(H - 1, -1, -1):
        follow(0, S * A, steps, rewards, rows.reshape((-1, 1)), discount * later, q)
        for s in range(S):
            best = _product(y[t, s], q[s * A + policy[t, s]])
            for row in range(s * A, s * A + A):
                if rows[row] >= 0:
                    score = _product(y[t, s], q[row])
                    if score > best:
                        best, policy[t, s] = score, row - s * A
            later[s] = q[s * A + policy[t, s]]
    return _total(start, later)


@njit(cache=True, nogil=True)
def relax(steps, rewards, discount, start, rows, horizon, rules, excluded, q, gains):
    """Solve each context alone, where rules (L, S) holds some actions fixed and -1 where free.

    A free (l, s) takes the action that is best for the context and the time, so the answer,
    sum_{s,m} y_0(s, m) V_{0,m}(s), is at least the value of any policy with these rules; with all
    of them fixed it is the value. Fills gains (L, S, A) with

        sum_m y_t(s, m) (Q_{t,m}(s, a) - V_{t,m}(s)),    summed over t where L = 1,

    under the occupancies of the contexts' own solutions: at most 0 for an action that the rules
    permit, and what a little of it would earn more for one that they exclude, which counts only if
    `excluded`, else it is -inf, as it is where an action may not be taken. q (H, S A, M) is
    overwritten. Sums run over next states, then contexts, then times.
    """
    S, M = start.shape
    L, A = rules.shape[0], rewards.shape[0] // S
    V = np.full((horizon + 1, S, M), -np.inf)
    V[horizon] = 0.0
    counted = np.empty((L, S * A, 1), np.int64)  # rows whose values count, -1 for others
    for t in range(L):
        for s in range(S):
            for row in range(s * A, s * A + A):
                permitted = excluded or rules[t, s] < 0 or rules[t, s] == row - s * A
                counted[t, row, 0] = rows[row] if permitted else -1
    for t in range(horizon - 1, -1, -1):
        layer = t % L
        follow(0, counted.shape[1], steps, rewards, counted[layer], discount * V[t + 1], q[t])
        for s in range(S):
            fixed = rules[layer, s]
            for row in range(s * A, s * A + A):
                if rows[row] >= 0 and (fixed < 0 or fixed == row - s * A):
                    for m in range(M):
                        V[t, s, m] = max(V[t, s, m], q[t, row, m])
    for layer in range(L):
        for row in range(S * A):
            gains[layer, row // A, row % A] = 0.0 if counted[layer, row, 0] >= 0 else -np.inf
    y, later = start.copy(), np.empty((S, M))
    for t in range(horizon):
        layer = t % L
        later[:] = 0.0
        for s in range(S):
            fixed = rules[layer, s]
            for m in range(M):
                if y[s, m] > 0.0:
                    best = -1  # the first row that attains the value
                    for row in range(s * A, s * A + A):
                        if counted[layer, row, 0] < 0:
                            continue
                        gains[layer, s, row - s * A] += y[s, m] * (q[t, row, m] - V[t, s, m])
                        is_permitted = fixed < 0 or fixed == row - s * A
                        if best < 0 and is_permitted and q[t, row, m] == V[t, s, m]:
                            best = row
                    _push(steps, discount, best, m, y[s, m], later)
        y[:, :] = later
    return _total(start, V[0])
