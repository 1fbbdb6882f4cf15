"""Backward induction in each context: Q_t(s,a) = R(s,a) + discount sum_s' T(s'|s,a) max_a' Q_{t+1}.

Arrays are in lanes: transitions (M, S', n), rewards (M, n) and values (M, H, n) with n = A W, where
entry a W + s stands for (s, a) and W is S rounded up to full vectors (`padded_states`); what is
beyond S is zero. So the inner loop is q(a, s) += V(s') T(s' | s, a) over long contiguous rows.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.simd import LANES, discounted_maxima, expected_values

__all__ = [
    "context_q_values",
    "informed_value",
    "interleave",
    "padded_states",
    "q_values",
    "to_lanes",
]


def padded_states(S: int) -> int:
    """W: S rounded up to full vectors."""
    return -(-S // LANES) * LANES


def to_lanes(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy an array (..., S, A) into lanes (..., A W)."""
    S, A = array.shape[-2:]
    lanes = np.zeros((*array.shape[:-2], A, padded_states(S)))
    lanes[..., :S] = np.swapaxes(array, -1, -2)
    return lanes.reshape(*array.shape[:-2], -1)


@njit(cache=True, nogil=True)
def context_q_values(transitions, rewards, m, n_actions, discount, values):
    """Fill values[m] (H, n) for one context."""
    value = np.zeros(rewards.shape[1] // n_actions)
    for t in range(values.shape[1] - 1, -1, -1):
        expected_values(transitions, rewards, value, values, m, t)
        discounted_maxima(values, m, t, n_actions, discount, value)


@njit(cache=True, nogil=True)
def q_values(transitions, rewards, n_actions, discount, values):
    """Fill values (M, H, n) for all contexts."""
    for m in range(transitions.shape[0]):
        context_q_values(transitions, rewards, m, n_actions, discount, values)


@njit(cache=True, nogil=True)
def interleave(values, out):
    """Rearrange values in lanes (M, H, n) as alpha vectors (H, S, A, M)."""
    M = values.shape[0]
    H, S, A, _ = out.shape
    W = values.shape[2] // A
    for t in range(H):
        for a in range(A):
            for m in range(M):
                for s in range(S):
                    out[t, s, a, m] = values[m, t, a * W + s]


@njit(cache=True, nogil=True)
def informed_value(values, weights, initial):
    """sum_m w_m sum_s nu_m(s) max_a Q_m(s, a) at the start, from values in lanes (M, H, n)."""
    M, S = initial.shape
    n = values.shape[2]
    W = -(-S // LANES) * LANES
    total = 0.0
    for m in range(M):
        for s in range(S):
            best = values[m, 0, s]
            for column in range(W + s, n, W):
                best = max(best, values[m, 0, column])
            total += weights[m] * initial[m, s] * best
    return total
