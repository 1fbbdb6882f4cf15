"""Backward induction of one context with vector instructions, for L-UCRL."""

import numpy as np
from numba import njit

from latentmdp._kernels.simd import discounted_maxima, expected_values

__all__ = ["context_q_values"]


@njit(cache=True, nogil=True)
def context_q_values(transitions, rewards, m, n_actions, discount, values):
    """Fill values[m] (H, n) for one context."""
    value = np.zeros(rewards.shape[1] // n_actions)
    for t in range(values.shape[1] - 1, -1, -1):
        expected_values(transitions, rewards, value, values, m, t)
        discounted_maxima(values, m, t, n_actions, discount, value)
