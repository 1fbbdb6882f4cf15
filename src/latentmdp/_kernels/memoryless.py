"""Memoryless policies over the occupancy y_t(s, m) = w_m discount^t P_m^pi(s_t = s).

Tables are context-last: transitions (S, A, S', M), rewards (S, A, M); a policy is an array (L, S)
with L = H, or L = 1 for a stationary one.
"""

import numpy as np
from numba import njit

from latentmdp._kernels.loops import copy

__all__ = ["ascend", "ascend_stationary", "policy_value", "push"]


@njit(cache=True, nogil=True)
def push(transitions, rewards, discount, rule, y, later):
    """Fill `later` with y_{t+1} from y_t under one rule; return what the step earns."""
    S, _, _, M = transitions.shape
    for n in range(S):
        for m in range(M):
            later[n, m] = 0.0
    earned = 0.0
    for s in range(S):
        a = rule[s]
        for m in range(M):
            mass = y[s, m]
            if mass > 0.0:
                earned += mass * rewards[s, a, m]
                for n in range(S):
                    later[n, m] += discount * mass * transitions[s, a, n, m]
    return earned


@njit(cache=True, nogil=True)
def policy_value(transitions, rewards, discount, start, horizon, policy):
    """The value of a policy (H, S) or (1, S) from the weighted start y_0 (S, M)."""
    S, M = start.shape
    y = np.empty((2, S, M))
    copy(start, y[0])
    value = 0.0
    for t in range(horizon):
        rule = policy[t if policy.shape[0] > 1 else 0]
        value += push(transitions, rewards, discount, rule, y[t % 2], y[1 - t % 2])
    return value


@njit(cache=True, nogil=True)
def ascend(transitions, rewards, discount, start, policy, tolerance):
    """Coordinate ascent from a policy (H, S), in place; returns its value and the sweeps made."""
    H, S = policy.shape
    M = start.shape[1]
    y = np.empty((H + 1, S, M))
    copy(start, y[0])
    value, sweeps = -np.inf, 0
    while True:
        for t in range(H):
            push(transitions, rewards, discount, policy[t], y[t], y[t + 1])
        improved = _sweep(transitions, rewards, discount, y, policy)
        sweeps += 1
        if improved <= value + tolerance:
            return max(improved, value), sweeps
        value = improved


@njit(cache=True, nogil=True)
def _sweep(transitions, rewards, discount, y, policy):
    """Improve the rules from the last to the first; return the value."""
    H, S = policy.shape
    A, M = rewards.shape[1:]
    values, q = np.zeros((H + 1, S, M)), np.empty(M)
    for t in range(H - 1, -1, -1):
        for s in range(S):
            best = _score(transitions, rewards, discount, values[t + 1], y[t], s, policy[t, s], q)
            for a in range(A):
                score = _score(transitions, rewards, discount, values[t + 1], y[t], s, a, q)
                if score > best:
                    best, policy[t, s] = score, a
            _score(transitions, rewards, discount, values[t + 1], y[t], s, policy[t, s], q)
            for m in range(M):
                values[t, s, m] = q[m]
    total = 0.0
    for s in range(S):
        for m in range(M):
            total += y[0, s, m] * values[0, s, m]
    return total


@njit(cache=True, nogil=True)
def _score(transitions, rewards, discount, later, y, s, a, q):
    """Fill q with Q_m(s, a); return sum_m y(s, m) Q_m(s, a)."""
    S, M = later.shape
    score = 0.0
    for m in range(M):
        q[m] = rewards[s, a, m]
        for n in range(S):
            q[m] += discount * transitions[s, a, n, m] * later[n, m]
        score += y[s, m] * q[m]
    return score


@njit(cache=True, nogil=True)
def ascend_stationary(transitions, rewards, discount, start, horizon, policy, tolerance):
    """Like `ascend` from a policy (1, S): one state at a time, at all times at once."""
    S, A, _ = rewards.shape
    value = policy_value(transitions, rewards, discount, start, horizon, policy)
    sweeps = 0
    while True:
        before = value
        for s in range(S):
            kept = policy[0, s]
            for a in range(A):
                policy[0, s] = a
                x = policy_value(transitions, rewards, discount, start, horizon, policy)
                if x > value + tolerance:
                    value, kept = x, a
            policy[0, s] = kept
        sweeps += 1
        if value <= before + tolerance:
            return value, sweeps
