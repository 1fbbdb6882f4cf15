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

__all__ = ["Moves", "action_values", "gains", "policy_value", "push", "sweep", "switch"]


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
    S, A, M = q.shape
    for s in range(S):
        for a in range(A):
            for m in range(M):
                q[s, a, m] = rewards[s, a, m]
            for k in range(moves.starts[s * A + a], moves.starts[s * A + a + 1]):
                n = moves.next_state[k]
                for m in range(M):
                    q[s, a, m] += discount * moves.probs[k, m] * later[n, m]


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
def gains(moves, rewards, discount, start, horizon, policy, found):
    """Fill found (S, A) with sum_{t,m} y_t(s, m) (Q_{t,m}(s, a) - V_{t,m}(s)) of a policy (1, S).

    What a small share of an action would gain, at all times at once.
    """
    S, A, M = rewards.shape
    V = np.zeros((horizon + 1, S, M))
    q = np.empty((S, A, M))
    for t in range(horizon - 1, -1, -1):
        action_values(moves, rewards, discount, V[t + 1], q)
        for s in range(S):
            for m in range(M):
                V[t, s, m] = q[s, policy[0, s], m]
    for s in range(S):
        for a in range(A):
            found[s, a] = 0.0
    y, later = start.copy(), np.empty((S, M))
    for t in range(horizon):
        action_values(moves, rewards, discount, V[t + 1], q)
        for s in range(S):
            for a in range(A):
                found[s, a] += _product(y[s], q[s, a]) - _product(y[s], V[t, s])
        push(moves, rewards, discount, policy[0], y, later)
        copy(later, y)
