"""Memoryless policies over the occupancy y_t(s, m) = w_m discount^t P_m^pi(s_t = s).

Tables are context-last, with one row for every (s, a) that may be taken, as in
`latentmdp.planning.qmdp.PlanningRows`: `steps` what may follow a row, rewards (R, M), and number
(S, A), the row of an action, -1 where it is not allowed. A policy is an array (L, S) of actions
with L = H, or L = 1 for a stationary one; what it says in a terminal state, which has no rows, is
ignored. Every loop over time does the layers first..last-1 only, so that the clock can be looked at
in between. Values are backed up by `latentmdp._kernels.bellman`.
"""

import numpy as np

from latentmdp._kernels import njit
from latentmdp._kernels.bellman import follow


@njit(cache=True, nogil=True)
def _push(steps, discount, row, m, mass, later):
    """Add where mass of context m is one step after a row to later (S, M), outcome by outcome."""
    for k in range(steps.starts[row], steps.starts[row + 1]):
        later[steps.next_state[k], m] += discount * mass * steps.probs[k, m]


@njit(cache=True, nogil=True)
def _product(mass, vector):
    """sum_m mass_m vector_m, in the order of the contexts."""
    total = 0.0
    for m in range(mass.shape[0]):
        total += mass[m] * vector[m]
    return total


@njit(cache=True, nogil=True)
def occupy(first, last, steps, discount, number, policy, y):
    """Fill y (H, S, M) for the times first+1..last, where it is zero before, from y_first."""
    _, S, M = y.shape
    for t in range(first, last):
        for s in range(S):
            row = number[s, policy[t, s]]
            for m in range(M):
                if row >= 0 and y[t, s, m] > 0.0:
                    _push(steps, discount, row, m, y[t, s, m], y[t + 1])


@njit(cache=True, nogil=True)
def improve(first, last, steps, rewards, discount, number, y, later, q, policy):
    """The way back of a round of coordinate ascent on a policy (H, S), in place.

    The rules improve from the last to the first under the occupancies y of the policy as it was.
    The action in force is kept unless another is better, so the value never falls. `later` (S, M)
    holds the values of layer `last` and then those of `first`; q (R, M) is overwritten. Sums run
    over next states, then contexts. The policy must not share memory with the other arrays.
    """
    S, A = number.shape
    rows = np.arange(q.shape[0]).reshape((-1, 1))
    for t in range(last - 1, first - 1, -1):
        follow(0, q.shape[0], steps, rewards, rows, discount * later, q)
        for s in range(S):
            own = number[s, policy[t, s]]
            if own < 0:
                continue  # a terminal state is worth 0
            best = _product(y[t, s], q[own])
            for a in range(A):
                row = number[s, a]
                if row >= 0:
                    score = _product(y[t, s], q[row])
                    if score > best:
                        best, policy[t, s], own = score, a, row
            later[s] = q[own]


@njit(cache=True, nogil=True)
def relax(first, last, steps, rewards, discount, number, rules, excluded, q, V, gains):
    """Solve each context alone, where rules (L, S) holds some actions fixed and -1 where free.

    A free (l, s) takes the action that is best for the context and the time, so
    sum_{s,m} y_0(s, m) V_{0,m}(s) is at least the value of any policy with these rules; with all
    of them fixed it is the value. Fills V (H + 1, S, M), which is 0 before, and q (H, R, M), of
    what the rules exclude only if `excluded`; gains (L, S, A) become 0 where there is a q and for
    action 0 of a terminal state, which is the end, -inf elsewhere. Sums run over next states.
    """
    S, A = number.shape
    L, R, M = rules.shape[0], q.shape[1], q.shape[2]
    counted = np.empty((R, 1), np.int64)  # rows whose values count, -1 for others
    for t in range(last - 1, first - 1, -1):
        for s in range(S):
            fixed = rules[t % L, s]
            is_terminal = True
            for a in range(A):
                row, counts = number[s, a], excluded or fixed < 0 or fixed == a
                if row >= 0:
                    counted[row, 0], is_terminal = row if counts else -1, False
                gains[t % L, s, a] = 0.0 if row >= 0 and counts else -np.inf
            if is_terminal:
                gains[t % L, s, 0] = 0.0
        follow(0, R, steps, rewards, counted, discount * V[t + 1], q[t])
        for s in range(S):
            fixed, is_first = rules[t % L, s], True
            for a in range(A):
                row = number[s, a]
                if row >= 0 and (fixed < 0 or fixed == a):
                    for m in range(M):
                        V[t, s, m] = q[t, row, m] if is_first else max(V[t, s, m], q[t, row, m])
                    is_first = False


@njit(cache=True, nogil=True)
def disagree(first, last, steps, discount, number, rules, excluded, q, V, y, gains):
    """What the contexts lose by a common action, under the occupancies of their own solutions.

    Adds to gains (L, S, A)

        sum_m y_t(s, m) (Q_{t,m}(s, a) - V_{t,m}(s)),    summed over t where L = 1:

    at most 0 for an action that the rules permit, and what a little of it would earn more for one
    that they exclude, which counts only if `excluded`. y (2, S, M) holds the occupancies of layer t
    at t % 2. Sums run over contexts, then times. q and V are those of `relax`.
    """
    S, A = number.shape
    L, M = rules.shape[0], q.shape[2]
    for t in range(first, last):
        now, later = y[t % 2], y[(t + 1) % 2]
        later[:] = 0.0
        for s in range(S):
            fixed = rules[t % L, s]
            for m in range(M):
                if now[s, m] > 0.0:
                    best = -1  # the first row that attains the value
                    for a in range(A):
                        row, permitted = number[s, a], fixed < 0 or fixed == a
                        if row >= 0 and (excluded or permitted):
                            gains[t % L, s, a] += now[s, m] * (q[t, row, m] - V[t, s, m])
                            if best < 0 and permitted and q[t, row, m] == V[t, s, m]:
                                best = row
                    if best >= 0:
                        _push(steps, discount, best, m, now[s, m], later)
