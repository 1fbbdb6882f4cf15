"""Memoryless policies over the occupancy y_t(s, m) = w_m discount^t P_m^pi(s_t = s).

Tables are context-last: `Moves` and rewards (S, A, M); a policy is an array (L, S) of actions with
L = H, or L = 1 for a stationary one. In a terminal state action 0 stands for the end: it earns
nothing and leads nowhere.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.loops import copy

__all__ = ["Moves", "action_values", "policy_value", "relax", "sweep", "switch"]


class Moves(NamedTuple):
    """What may follow row s A + a: its n possible next states, and which actions may be taken."""

    starts: NDArray[np.int64]  # (S A + 1,): first step of each row
    next_state: NDArray[np.int32]  # (n,)
    probs: NDArray[np.float64]  # (n, M): T_m(s' | s, a)
    open: NDArray[np.bool_]  # (S, A)


@njit(cache=True, nogil=True)
def push(moves, rewards, discount, rule, y, later):
    """Fill `later` with y_{t+1} from y_t under one rule; return what the step earns."""
    S, A, M = rewards.shape
    for n in range(S):
        for m in range(M):
            later[n, m] = 0.0
    earned = 0.0
    for s in range(S):
        a = rule[s]
        row = s * A + a
        reached = False
        for m in range(M):
            reached = reached or y[s, m] > 0.0
            earned += y[s, m] * rewards[s, a, m]
        if reached:
            for k in range(moves.starts[row], moves.starts[row + 1]):
                n = moves.next_state[k]
                for m in range(M):
                    later[n, m] += discount * y[s, m] * moves.probs[k, m]
    return earned


@njit(cache=True, nogil=True)
def policy_value(moves, rewards, discount, start, horizon, policy):
    """The value of a policy (H, S) or (1, S) from the weighted start y_0 (S, M)."""
    S, M = start.shape
    y = np.empty((2, S, M))
    copy(start, y[0])
    value = 0.0
    for t in range(horizon):
        rule = policy[t if policy.shape[0] > 1 else 0]
        value += push(moves, rewards, discount, rule, y[t % 2], y[1 - t % 2])
    return value


@njit(cache=True, nogil=True)
def action_values(moves, rewards, discount, later, q):
    """Fill q (S, A, M) with R_m(s, a) + discount sum_s' T_m(s' | s, a) later_m(s')."""
    for s in range(q.shape[0]):
        for a in range(q.shape[1]):
            _action_value(moves, rewards, discount, later, s, a, q[s, a])


@njit(cache=True, nogil=True)
def _action_value(moves, rewards, discount, later, s, a, q):
    """`action_values` of one (s, a): fill q (M,)."""
    A, M = rewards.shape[1:]
    for m in range(M):
        q[m] = rewards[s, a, m]
    for k in range(moves.starts[s * A + a], moves.starts[s * A + a + 1]):
        n = moves.next_state[k]
        for m in range(M):
            q[m] += discount * moves.probs[k, m] * later[n, m]


@njit(cache=True, nogil=True)
def sweep(moves, rewards, discount, start, policy):
    """One round of coordinate ascent on a policy (H, S), in place; returns its value.

    The rules improve from the last to the first under the occupancies of the policy as it was.
    """
    H, S = policy.shape
    A, M = rewards.shape[1:]
    y = np.empty((H, S, M))
    copy(start, y[0])
    for t in range(H - 1):
        push(moves, rewards, discount, policy[t], y[t], y[t + 1])
    later, q = np.zeros((S, M)), np.empty((S, A, M))
    for t in range(H - 1, -1, -1):
        action_values(moves, rewards, discount, later, q)
        for s in range(S):
            best = _product(y[t, s], q[s, policy[t, s]])
            for a in range(A):
                if moves.open[s, a]:
                    score = _product(y[t, s], q[s, a])
                    if score > best:
                        best, policy[t, s] = score, a
            for m in range(M):
                later[s, m] = q[s, policy[t, s], m]
    total = 0.0
    for s in range(S):
        total += _product(start[s], later[s])
    return total


@njit(cache=True, nogil=True)
def _product(left, right):
    total = 0.0
    for m in range(left.shape[0]):
        total += left[m] * right[m]
    return total


@njit(cache=True, nogil=True)
def switch(moves, rewards, discount, start, horizon, policy, s, value, tolerance):
    """Give state s of a policy (1, S) its best action, at all times at once; returns the value."""
    kept = policy[0, s]
    for a in range(rewards.shape[1]):
        if moves.open[s, a] and a != kept:
            before = policy[0, s]
            policy[0, s] = a
            x = policy_value(moves, rewards, discount, start, horizon, policy)
            if x > value + tolerance:
                value = x
            else:
                policy[0, s] = before
    return value


@njit(cache=True, nogil=True)
def relax(moves, rewards, discount, start, horizon, rules, excluded, q, gains):
    """Solve each context alone, where rules (L, S) holds some actions fixed and -1 where free.

    A free (l, s) takes the action that is best for the context and the time, so the answer,
    sum_{s,m} y_0(s, m) V_{0,m}(s), is at least the value of any policy with these rules; with all
    of them fixed it is the value. Fills gains (L, S, A) with

        sum_m y_t(s, m) (Q_{t,m}(s, a) - V_{t,m}(s)),    summed over t where L = 1,

    under the occupancies of the contexts' own solutions: at most 0 for an action that may be
    taken, and what a little of it would earn more for one that the rules exclude, which counts
    only if `excluded`, else it is -inf. q (H, S, A, M) is overwritten. Sums run over next states,
    then contexts, then times.
    """
    S, A, M = rewards.shape
    L = rules.shape[0]
    V = np.zeros((horizon + 1, S, M))
    for t in range(horizon - 1, -1, -1):
        layer = t if L > 1 else 0
        for s in range(S):
            fixed = rules[layer, s]
            V[t, s, :] = -np.inf
            for a in range(A):
                if not moves.open[s, a] or not (excluded or fixed < 0 or fixed == a):
                    continue
                _action_value(moves, rewards, discount, V[t + 1], s, a, q[t, s, a])
                if fixed < 0 or fixed == a:
                    for m in range(M):
                        V[t, s, m] = max(V[t, s, m], q[t, s, a, m])
    gains[:] = -np.inf
    y, later = start.copy(), np.empty((S, M))
    for t in range(horizon):
        layer = t if L > 1 else 0
        later[:] = 0.0
        for s in range(S):
            fixed = rules[layer, s]
            for a in range(A):
                if not moves.open[s, a] or not (excluded or fixed < 0 or fixed == a):
                    continue
                if gains[layer, s, a] == -np.inf:
                    gains[layer, s, a] = 0.0
                for m in range(M):
                    gains[layer, s, a] += y[s, m] * (q[t, s, a, m] - V[t, s, m])
            for m in range(M):
                if y[s, m] > 0.0:
                    a = fixed if fixed >= 0 else _attaining(moves, q[t, s], V[t, s, m], s, m)
                    for k in range(moves.starts[s * A + a], moves.starts[s * A + a + 1]):
                        later[moves.next_state[k], m] += discount * y[s, m] * moves.probs[k, m]
        copy(later, y)
    total = 0.0
    for s in range(S):
        total += _product(start[s], V[0, s])
    return total


@njit(cache=True, nogil=True)
def _attaining(moves, q, value, s, m):
    """The first action that may be taken in s and is worth `value` in context m."""
    for a in range(q.shape[0]):
        if moves.open[s, a] and q[a, m] == value:
            return a
    return 0
