"""The belief update b'(m) ∝ b(m) P_m(o | s, a), exact at any horizon.

A belief is an array (3, M). Row AWAKE is the belief as plain numbers. A context whose belief has
become too small for a double is zero there and sleeps instead of underflowing: its belief is
mantissa 2^(-512 level), kept in rows MANTISSA and LEVEL, and it wakes up if later observations
favour it. Nearly always nobody sleeps and the update is a plain product and sum.

Likelihoods are those of an outcome table: `find_outcome` looks up the outcome of a step. One that
the table does not list has the same likelihood in every context, so it leaves the belief alone.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.rows import product, set_products, weigh_row

__all__ = [
    "AWAKE",
    "Filter",
    "cell",
    "find_outcome",
    "observe_seen",
    "observe_step",
    "posteriors",
    "reset_belief",
    "reset_belief_at_once",
    "update_belief",
    "update_belief_at_once",
    "write_belief",
]

AWAKE, MANTISSA, LEVEL = 0, 1, 2

_LEVEL_BITS = 512
_SLEEP_BITS = 500
_FAINT = 2.0**-_SLEEP_BITS
_NEVER = -(2**62)


class Filter(NamedTuple):
    """What a filter knows: the likelihoods of outcomes, and where episodes begin."""

    sizes: tuple[int, int, int]  # S, A, Z
    smoothing: float  # alpha: the likelihood of what the table does not list
    starts: NDArray[np.int64]  # (S A + 1,)
    next_state: NDArray[np.int32]  # (n,)
    reward: NDArray[np.int32]  # (n,)
    likelihood: NDArray[np.float64]  # (n, M)
    prior: NDArray[np.float64]  # (M,)
    initial: NDArray[np.float64]  # (S, M)


@njit(cache=True, nogil=True, inline="always")
def update_belief(belief, table, row, at=0):
    """Condition on the likelihoods in one row of a (rows, M) table, in place.

    The belief is rows at, at + 1 and at + 2 of an array that may hold several. Returns False, and
    changes nothing, if the observation is impossible.
    """
    weighed: tuple[float, bool] = weigh_row(belief, at + AWAKE, table, row, at + LEVEL, _FAINT)
    total, care = weighed[0], weighed[1]
    if care or total < _FAINT:
        return _update_sleepers(belief, table, row, at)
    set_products(belief, at + AWAKE, table, row, 1.0 / total)
    return True


@njit(cache=True, nogil=True, inline="always")
def update_belief_at_once(belief, table, row):
    """`update_belief` by likelihoods that were just computed entry by entry.

    Read back as a vector they would have to wait until all are written.
    """
    M = belief.shape[1]
    total, faintest, asleep = 0.0, 1.0, 0.0
    for m in range(M):
        share: float = product(belief[AWAKE, m], table[row, m])
        total += share
        asleep += belief[LEVEL, m]
        if share > 0.0:
            faintest = min(faintest, share)
        elif belief[AWAKE, m] > 0.0 and table[row, m] > 0.0:
            faintest = 0.0
    if asleep > 0.0 or total < _FAINT or faintest < _FAINT * total:
        return _update_sleepers(belief, table, row, 0)
    scale = 1.0 / total
    for m in range(M):
        belief[AWAKE, m] = belief[AWAKE, m] * table[row, m] * scale
    return True


@njit(cache=True, nogil=True)
def _update_sleepers(belief, table, row, at):
    """The update with mantissas and integer exponents, so that nothing can underflow."""
    M = belief.shape[1]
    awake, mantissas, levels = belief[at + AWAKE], belief[at + MANTISSA], belief[at + LEVEL]
    highest = _NEVER
    for m in range(M):
        highest = max(highest, _product(awake, mantissas, levels, table, row, m)[1])
    if highest == _NEVER:
        return False
    total = 0.0
    for m in range(M):
        mantissa, exponent = _product(awake, mantissas, levels, table, row, m)
        awake[m] = mantissas[m] = levels[m] = 0.0
        if exponent == _NEVER:
            continue
        if exponent - highest > -_SLEEP_BITS:
            awake[m] = math.ldexp(mantissa, exponent - highest)
            total += awake[m]
        else:
            level = (highest - exponent) // _LEVEL_BITS + 1
            mantissas[m] = math.ldexp(mantissa, exponent - highest + _LEVEL_BITS * level)
            levels[m] = level
    for m in range(M):
        awake[m] /= total
        mantissas[m] /= total
    return True


@njit(cache=True, nogil=True)
def _product(awake, mantissas, levels, table, row, m):
    """Mantissa and binary exponent of b(m) times its likelihood; (0, _NEVER) if it is zero."""
    level = int(levels[m])
    weight, bits = math.frexp(awake[m] if level == 0 else mantissas[m])
    likelihood, likelihood_bits = math.frexp(table[row, m])
    if weight == 0.0 or likelihood == 0.0:
        return 0.0, _NEVER
    return weight * likelihood, bits + likelihood_bits - _LEVEL_BITS * level


@njit(cache=True, nogil=True)
def reset_belief(belief, prior, initial, state, at=0):
    """Start from the prior over contexts and condition on the first state; False if impossible."""
    _set_prior(belief, prior, at)
    return update_belief(belief, initial, state, at)


@njit(cache=True, nogil=True, inline="always")
def reset_belief_at_once(belief, prior, initial, state):
    """`reset_belief` entry by entry, for tables of any width on a GPU too."""
    _set_prior(belief, prior, 0)
    return update_belief_at_once(belief, initial, state)


@njit(cache=True, nogil=True, inline="always")
def _set_prior(belief, prior, at):
    for m in range(prior.shape[0]):
        belief[at + AWAKE, m] = prior[m]
        belief[at + MANTISSA, m] = belief[at + LEVEL, m] = 0.0


@njit(cache=True, nogil=True)
def write_belief(belief, out, row):
    """The belief as plain numbers, contexts asleep included as far as a double reaches."""
    for m in range(out.shape[1]):
        out[row, m] = belief[AWAKE, m]
        if belief[LEVEL, m] > 0.0:
            out[row, m] = math.ldexp(belief[MANTISSA, m], -_LEVEL_BITS * int(belief[LEVEL, m]))


@njit(cache=True, nogil=True, inline="always")
def cell(s, a, n, z, sizes):
    """Row of the transition (s, a, s', z) in a packed table; `sizes` is (S, A, Z)."""
    S, A, Z = sizes
    return ((np.int64(s) * A + a) * S + n) * Z + z


@njit(cache=True, nogil=True, inline="always")
def find_outcome(table, s, a, n, z):
    """The outcome of a step in the rows of a `Filter`; -1 if it is not listed."""
    S, A, Z = table.sizes
    row = np.int64(s) * A + a
    begin, end = table.starts[row], table.starts[row + 1]
    wanted = np.int64(n) * Z + z
    if end - begin == S * Z:
        return begin + wanted
    last = end
    while begin < end:
        middle = (begin + end) // 2
        if np.int64(table.next_state[middle]) * Z + table.reward[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    if begin < last and np.int64(table.next_state[begin]) * Z + table.reward[begin] == wanted:
        return begin
    return np.int64(-1)


@njit(cache=True, nogil=True, inline="always")
def observe_step(belief, table, s, a, n, z):
    """Condition on a step by the likelihoods of a `Filter`, in place.

    Returns False, and changes nothing, if the step is impossible.
    """
    k = find_outcome(table, s, a, n, z)
    if k < 0:
        return table.smoothing > 0.0
    return update_belief(belief, table.likelihood, k)


@njit(cache=True, nogil=True)
def observe_seen(belief, table, s, a, n, z):
    """`observe_step` where the next state, the reward or both may be missing (-1).

    What is missing is summed over: its outcomes, and alpha for each that the table does not list.
    """
    if n >= 0 and z >= 0:
        return observe_step(belief, table, s, a, n, z)
    S, A, Z = table.sizes
    row = np.int64(s) * A + a
    total, listed = np.zeros((1, belief.shape[1])), 0
    for k in range(table.starts[row], table.starts[row + 1]):
        if (n < 0 or table.next_state[k] == n) and (z < 0 or table.reward[k] == z):
            listed += 1
            for m in range(belief.shape[1]):
                total[0, m] += table.likelihood[k, m]
    possible = (S if n < 0 else 1) * (Z if z < 0 else 1)
    total += table.smoothing * (possible - listed)
    return update_belief(belief, total, 0)


@njit(cache=True, nogil=True)
def posteriors(table, states, actions, rewards, offsets, continues, first, last, along, out):
    """Posterior for the episodes first..last-1: a row of `out` per episode, or `along` per state.

    An episode that `continues` the one before goes on with its belief; the first of them does not.
    Returns (-1, -1), or the episode and step (0 for the first state) of the first observation that
    is impossible in every context. `table` is a `Filter`; -1 is a state or reward that is missing.
    """
    belief = np.zeros((3, table.prior.shape[0]))
    for i in range(first, last):
        begin = offsets[i] + i
        possible = True
        if not continues[i]:
            if states[begin] >= 0:
                possible = reset_belief(belief, table.prior, table.initial, states[begin])
            else:
                belief[:] = 0.0
                belief[AWAKE] = table.prior
        for t in range(offsets[i + 1] - offsets[i] + 1):
            if t > 0:
                k, before = offsets[i] + t - 1, states[begin + t - 1]
                possible = observe_seen(
                    belief, table, before, actions[k], states[begin + t], rewards[k]
                )
            if not possible:
                return i, t
            if along:
                write_belief(belief, out, begin + t)
        if not along:
            write_belief(belief, out, i)
    return -1, -1
