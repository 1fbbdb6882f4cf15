"""Backward induction in each context: Q_t(s,a) = R(s,a) + discount sum_s' T(s'|s,a) max_a' Q_{t+1}.

Transitions come next-state-major, (M, S', A, S), so that the inner loop is a sum of long contiguous
rows: q(a, s) += V(s') T(s' | s, a).
"""

import numpy as np
from numba import njit

__all__ = ["context_q_values", "q_values"]


@njit(cache=True, nogil=True)
def q_values(transitions, rewards, discount, out):
    """Fill out (H, S, A, M) for all contexts from T (M, S', A, S) and R (M, A, S)."""
    for m in range(transitions.shape[0]):
        context_q_values(transitions[m], rewards[m], discount, m, out)


@njit(cache=True, nogil=True)
def context_q_values(transitions, rewards, discount, m, out):
    """Fill out[..., m] for one context from T (S', A, S) and R (A, S)."""
    S, A, _ = transitions.shape
    T, R = transitions.reshape(S, A * S), rewards.reshape(A * S)
    q, value = np.empty(A * S), np.zeros(S)
    for t in range(out.shape[0] - 1, -1, -1):
        _backup(T, R, value, q)
        for s in range(S):
            best = q[s]
            out[t, s, 0, m] = best
            for a in range(1, A):
                x = q[a * S + s]
                out[t, s, a, m] = x
                best = max(best, x)
            value[s] = discount * best


@njit(cache=True, nogil=True)
def _backup(T, R, value, q):
    """Set q = R + value T, four rows of T at a time to spare loads and stores of q."""
    S, n = T.shape
    for i in range(n):
        q[i] = R[i]
    tail = S - S % 4
    for x in range(0, tail, 4):
        v0, v1, v2, v3 = value[x], value[x + 1], value[x + 2], value[x + 3]
        row0, row1, row2, row3 = T[x], T[x + 1], T[x + 2], T[x + 3]
        for i in range(n):
            q[i] += (v0 * row0[i] + v1 * row1[i]) + (v2 * row2[i] + v3 * row3[i])
    for x in range(tail, S):
        v0, row0 = value[x], T[x]
        for i in range(n):
            q[i] += v0 * row0[i]
