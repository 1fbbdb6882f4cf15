"""The belief update b'(m) ∝ b(m) P_m(o | s, a), exact at any horizon.

A belief is an array (3, M). Row AWAKE is the belief as plain numbers. A context whose belief has
become too small for a double is zero there and sleeps instead of underflowing: its belief is
mantissa 2^(-512 level), kept in rows MANTISSA and LEVEL, and it wakes up if later observations
favour it. Nearly always nobody sleeps and the update is a plain product and sum.
"""

import math

import numpy as np
from numba import njit

__all__ = ["AWAKE", "cell", "posteriors", "reset_belief", "update_belief"]

AWAKE, MANTISSA, LEVEL = 0, 1, 2

_LEVEL_BITS = 512
_SLEEP_BITS = 500
_FAINT = 2.0**-_SLEEP_BITS
_NEVER = -(2**62)


@njit(cache=True, nogil=True, inline="always")
def update_belief(belief, table, row):
    """Condition on the likelihoods in one row of a (rows, M) table, in place.

    Returns False, and changes nothing, if the observation is impossible.
    """
    M = belief.shape[1]
    total, faintest, asleep = 0.0, 1.0, 0.0
    for m in range(M):
        product = belief[AWAKE, m] * table[row, m]
        total += product
        asleep += belief[LEVEL, m]
        if product > 0.0:
            faintest = min(faintest, product)
        elif belief[AWAKE, m] > 0.0 and table[row, m] > 0.0:
            faintest = 0.0
    if asleep > 0.0 or total < _FAINT or faintest < _FAINT * total:
        return _update_sleepers(belief, table, row)
    scale = 1.0 / total
    for m in range(M):
        belief[AWAKE, m] = belief[AWAKE, m] * table[row, m] * scale
    return True


@njit(cache=True, nogil=True)
def _update_sleepers(belief, table, row):
    """The update with mantissas and integer exponents, so that nothing can underflow."""
    M = belief.shape[1]
    highest = _NEVER
    for m in range(M):
        highest = max(highest, _product(belief, table, row, m)[1])
    if highest == _NEVER:
        return False
    total = 0.0
    for m in range(M):
        mantissa, exponent = _product(belief, table, row, m)
        belief[AWAKE, m] = belief[MANTISSA, m] = belief[LEVEL, m] = 0.0
        if exponent == _NEVER:
            continue
        if exponent - highest > -_SLEEP_BITS:
            belief[AWAKE, m] = math.ldexp(mantissa, exponent - highest)
            total += belief[AWAKE, m]
        else:
            level = (highest - exponent) // _LEVEL_BITS + 1
            belief[MANTISSA, m] = math.ldexp(mantissa, exponent - highest + _LEVEL_BITS * level)
            belief[LEVEL, m] = level
    for m in range(M):
        belief[AWAKE, m] /= total
        belief[MANTISSA, m] /= total
    return True


@njit(cache=True, nogil=True)
def _product(belief, table, row, m):
    """Mantissa and binary exponent of b(m) times its likelihood; (0, _NEVER) if it is zero."""
    level = int(belief[LEVEL, m])
    weight, bits = math.frexp(belief[AWAKE, m] if level == 0 else belief[MANTISSA, m])
    likelihood, likelihood_bits = math.frexp(table[row, m])
    if weight == 0.0 or likelihood == 0.0:
        return 0.0, _NEVER
    return weight * likelihood, bits + likelihood_bits - _LEVEL_BITS * level


@njit(cache=True, nogil=True)
def reset_belief(belief, prior, initial, state):
    """Start from the prior over contexts and condition on the first state; False if impossible."""
    for m in range(prior.shape[0]):
        belief[AWAKE, m] = prior[m]
        belief[MANTISSA, m] = belief[LEVEL, m] = 0.0
    return update_belief(belief, initial, state)


@njit(cache=True, nogil=True)
def _write_belief(belief, out):
    """The belief as plain numbers, contexts asleep included as far as a double reaches."""
    for m in range(belief.shape[1]):
        out[m] = belief[AWAKE, m]
        if belief[LEVEL, m] > 0.0:
            out[m] = math.ldexp(belief[MANTISSA, m], -_LEVEL_BITS * int(belief[LEVEL, m]))


@njit(cache=True, nogil=True, inline="always")
def cell(s, a, n, z, sizes):
    """Row of the transition (s, a, s', z) in a packed table; `sizes` is (S, A, Z)."""
    S, A, Z = sizes
    return ((np.int64(s) * A + a) * S + n) * Z + z


@njit(cache=True, nogil=True)
def posteriors(
    table, sizes, prior, initial, states, actions, rewards, offsets, first, last, along, out
):
    """Posterior for the episodes first..last-1: a row of `out` per episode, or `along` per state.

    Returns (-1, -1), or the episode and step (0 for the first state) of the first observation that
    is impossible in every context. `table` is (S A S Z, M) and `initial` (S, M).
    """
    belief = np.empty((3, prior.shape[0]))
    for i in range(first, last):
        begin = offsets[i] + i
        possible = reset_belief(belief, prior, initial, states[begin])
        for t in range(offsets[i + 1] - offsets[i] + 1):
            if t > 0:
                k = offsets[i] + t - 1
                row = cell(states[begin + t - 1], actions[k], states[begin + t], rewards[k], sizes)
                possible = update_belief(belief, table, row)
            if not possible:
                return i, t
            if along:
                _write_belief(belief, out[begin + t])
        if not along:
            _write_belief(belief, out[i])
    return -1, -1
