"""Outcome tables made from dense arrays, and outcomes that say the same about the context."""

import numpy as np
from numba import njit

__all__ = ["count_outcomes", "fill_outcomes", "leaders", "merge"]


@njit(cache=True, nogil=True)
def count_outcomes(transitions, rewards, counts):
    """Fill counts (R,) with the outcomes of each row that are possible in some context.

    `transitions` is (M, R, S), `rewards` (M, R, S or 1, Z).
    """
    M, R, S = transitions.shape
    _, _, U, Z = rewards.shape
    for row in range(R):
        counts[row] = 0
        for n in range(S):
            for z in range(Z):
                for m in range(M):
                    if transitions[m, row, n] * rewards[m, row, min(n, U - 1), z] > 0.0:
                        counts[row] += 1
                        break


@njit(cache=True, nogil=True)
def fill_outcomes(transitions, rewards, starts, next_state, reward, probs):
    """Write the outcomes counted by `count_outcomes`, those of a row by (s', z)."""
    M, R, S = transitions.shape
    _, _, U, Z = rewards.shape
    for row in range(R):
        k = starts[row]
        for n in range(S):
            u = min(n, U - 1)
            for z in range(Z):
                possible = False
                for m in range(M):
                    if transitions[m, row, n] * rewards[m, row, u, z] > 0.0:
                        possible = True
                        break
                if possible:
                    next_state[k], reward[k] = n, z
                    for m in range(M):
                        probs[k, m] = transitions[m, row, n] * rewards[m, row, u, z]
                    k += 1


@njit(cache=True, nogil=True)
def leaders(starts, next_state, probs, tolerance, out):
    """Fill out (n,) with the first outcome of the same row and s' that leads to the same belief.

    Beliefs are the same whose entries differ by no more than `tolerance`, whatever the prior is.
    Returns how many outcomes are led by others.
    """
    n, M = probs.shape
    totals, led = np.empty(n), 0
    for k in range(n):
        totals[k] = 0.0
        for m in range(M):
            totals[k] += probs[k, m]
    for row in range(starts.shape[0] - 1):
        for k in range(starts[row], starts[row + 1]):
            out[k] = k
            j = k - 1
            while j >= starts[row] and next_state[j] == next_state[k]:
                if out[j] == j:
                    same, slack = True, tolerance * totals[j] * totals[k]
                    for m in range(M):
                        if abs(probs[k, m] * totals[j] - probs[j, m] * totals[k]) > slack:
                            same = False
                            break
                    if same:
                        out[k] = j
                        led += 1
                        break
                j -= 1
    return led


@njit(cache=True, nogil=True)
def merge(probs, leader, place, out):
    """Add the probabilities of outcomes (n, M) to those of their leaders: out[place[leader]]."""
    for k in range(probs.shape[0]):
        for m in range(probs.shape[1]):
            out[place[leader[k]], m] += probs[k, m]
