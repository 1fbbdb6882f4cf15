"""The belief update b'(m) ∝ b(m) P_m(o | s, a), exact at any horizon.

A belief is an array (3, M). Row AWAKE is the belief as plain numbers. A context whose belief has
become too small for a double is zero there and sleeps instead of underflowing: its belief is
mantissa 2^(-512 level), kept in rows MANTISSA and LEVEL, and it wakes up if later observations
favour it. Nearly always nobody sleeps and the update is a plain product and sum.

`update_belief` is Bayes' rule, the only one: whoever conditions a belief on likelihoods calls it,
on a CPU or from a kernel of a GPU. Likelihoods are those of an outcome table: `find_outcome` looks
up the outcome of a step. One that the table does not list has the same likelihood in every
context, so it leaves the belief alone.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import njit
from latentmdp._kernels.rows import product
from latentmdp._util.arrays import read_only

AWAKE, MANTISSA, LEVEL = 0, 1, 2

# What a level of a sleeper stands for, in powers of two: its mantissa lies between 1 and 2^512.
_LEVEL_BITS = 512
# A context sleeps when it is less likely than the likeliest by so many powers of two: half of what
# a double reaches, so that the product of one that is awake with a likelihood is still normal.
_SLEEP_BITS = 500
_FAINT = 2.0**-_SLEEP_BITS
# The exponent of zero: below any that levels can add up to.
_NEVER = -(2**62)


class Filter(NamedTuple):
    """What a filter knows: the likelihoods of outcomes, and where episodes begin.

    By default what stands for the filter of a policy that needs none.
    """

    sizes: tuple[int, int, int] = (1, 1, 1)  # S, A, Z
    smoothing: float = 0.0  # alpha: the likelihood of what the table does not list
    starts: NDArray[np.int64] = read_only(np.arange(2))  # (S A + 1,)
    next_state: NDArray[np.int32] = read_only(np.zeros(1, np.int32))  # (n,)
    reward: NDArray[np.int32] = read_only(np.zeros(1, np.int32))  # (n,)
    pattern: NDArray[np.int32] = read_only(np.zeros(1, np.int32))  # (n,): row of `likelihood`
    likelihood: NDArray[np.float64] = read_only(np.ones((1, 1)))  # (P, M)
    prior: NDArray[np.float64] = read_only(np.ones(1))  # (M,)
    initial: NDArray[np.float64] = read_only(np.ones((1, 1)))  # (Q, M): P(s_1 = s | m)
    begins: NDArray[np.int64] = read_only(np.zeros(1, np.int64))  # (S,): row of `initial`


@njit(cache=True, nogil=True, forceinline=True)
def update_belief(belief, table, row):
    """Condition a belief on the likelihoods in one row of a (rows, M) table, in place.

    Returns False, and changes nothing, if the observation is impossible. Products are added in the
    order of the contexts and each is rounded by itself, so the bits are the same on a GPU. Nothing
    is allocated; `table` must not overlap `belief`.
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
            faintest = 0.0  # the product itself underflowed
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
            shift = exponent - highest + _LEVEL_BITS * level
            belief[MANTISSA, m] = math.ldexp(mantissa, shift)
            belief[LEVEL, m] = level
    for m in range(M):
        belief[AWAKE, m] /= total
        belief[MANTISSA, m] /= total
    return True


@njit(cache=True, nogil=True, inline="always")
def _product(belief, table, row, m):
    """Mantissa and binary exponent of b(m) times its likelihood; (0, _NEVER) if it is zero."""
    level = int(belief[LEVEL, m])
    # Two loads from known rows: a row that is chosen would keep beliefs out of a GPU's registers.
    weight, bits = math.frexp(belief[AWAKE, m] if level == 0 else belief[MANTISSA, m])
    likelihood, likelihood_bits = math.frexp(table[row, m])
    if weight == 0.0 or likelihood == 0.0:
        return 0.0, _NEVER
    return weight * likelihood, bits + likelihood_bits - _LEVEL_BITS * level


@njit(cache=True, nogil=True, inline="always")
def set_prior(belief, prior):
    """The belief before anything was seen."""
    # Loops go by the width of the belief, a constant on a GPU, so that it stays in registers there.
    for m in range(belief.shape[1]):
        belief[AWAKE, m] = prior[m]
        belief[MANTISSA, m] = belief[LEVEL, m] = 0.0


@njit(cache=True, nogil=True)
def reset_belief(belief, prior, initial, row):
    """Start from the prior and condition on a first state, a row of likelihoods in `initial`.

    False if it is impossible.
    """
    set_prior(belief, prior)
    return update_belief(belief, initial, row)


@njit(cache=True, nogil=True, inline="always")
def write_belief(belief, out, row):
    """The belief as plain numbers, contexts asleep included as far as a double reaches."""
    for m in range(out.shape[1]):
        out[row, m] = belief[AWAKE, m]
        if belief[LEVEL, m] > 0.0:
            out[row, m] = math.ldexp(belief[MANTISSA, m], -_LEVEL_BITS * int(belief[LEVEL, m]))


@njit(cache=True, nogil=True)
def cell(s, a, n, z, sizes):
    """Row of the transition (s, a, s', z) in a packed table; `sizes` is (S, A, Z)."""
    S, A, Z = sizes
    return ((np.int64(s) * A + a) * S + n) * Z + z


@njit(cache=True, nogil=True)
def find_outcome(sizes, starts, next_state, reward, s, a, n, z):
    """The outcome of a step in the rows of a table; -1 if it is not listed.

    Takes the fields of a `Filter` one by one: a loop that reads them once, and not at every step,
    saves the counting of references, which would take longer than the search.
    """
    S, A, Z = sizes
    row = np.int64(s) * A + a
    begin, end = starts[row], starts[row + 1]
    wanted = np.int64(n) * Z + z
    if end - begin == S * Z:
        return begin + wanted
    last = end
    while begin < end:
        middle = (begin + end) // 2
        if np.int64(next_state[middle]) * Z + reward[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    if begin < last and np.int64(next_state[begin]) * Z + reward[begin] == wanted:
        return begin
    return np.int64(-1)


@njit(cache=True, nogil=True)
def observe_step(belief, table, s, a, n, z):
    """Condition on a step by the likelihoods of a `Filter`, in place.

    Returns False, and changes nothing, if the step is impossible.
    """
    k = find_outcome(table.sizes, table.starts, table.next_state, table.reward, s, a, n, z)
    if k < 0:
        return table.smoothing > 0.0
    return update_belief(belief, table.likelihood, np.int64(table.pattern[k]))


@njit(cache=True, nogil=True, inline="always")
def sum_likelihoods(table, s, a, n, z, out):
    """The likelihoods (1, M) of a step of which the next state, the reward or both are missing.

    What is missing is summed over: its outcomes, and alpha for each that the table does not list.
    """
    S, A, Z = table.sizes
    row = np.int64(s) * A + a
    listed, M = 0, out.shape[1]
    for m in range(M):
        out[0, m] = 0.0
    for k in range(table.starts[row], table.starts[row + 1]):
        if (n < 0 or table.next_state[k] == n) and (z < 0 or table.reward[k] == z):
            listed += 1
            row_of_k = table.pattern[k]
            for m in range(M):
                out[0, m] += table.likelihood[row_of_k, m]
    possible = (S if n < 0 else 1) * (Z if z < 0 else 1)
    for m in range(M):
        out[0, m] += table.smoothing * (possible - listed)


@njit(cache=True, nogil=True)
def posteriors(start, stop, table, states, actions, rewards, offsets, begins, along, missing, out):
    """Posteriors of the individuals start..stop-1: a row of `out` an episode, or `along` a state.

    Individual i has the episodes begins[i]..begins[i + 1] - 1, each of which goes on with the
    belief of the one before. Returns (-1, -1), or the episode and step (0 for the first state) of
    the first observation that is impossible in every context. `table` is a `Filter`. States and
    rewards of -1 are missing, unless `missing` is None: then this half of the kernel is not
    compiled.
    """
    # Fields are read once, see `find_outcome`.
    starts, next_state, reward = table.starts, table.next_state, table.reward
    likelihood, prior, initial, sizes = table.likelihood, table.prior, table.initial, table.sizes
    pattern, first_rows = table.pattern, table.begins
    belief, tolerant = np.empty((3, prior.shape[0])), table.smoothing > 0.0
    scratch = np.empty((1, prior.shape[0]))
    for individual in range(start, stop):
        for i in range(begins[individual], begins[individual + 1]):
            first = offsets[i] + i
            possible = True
            if i == begins[individual]:
                if states[first] >= 0:
                    row = first_rows[states[first]]
                    possible = reset_belief(belief, prior, initial, row)
                else:
                    set_prior(belief, prior)
            for t in range(offsets[i + 1] - offsets[i] + 1):
                if t > 0:
                    j, s, n = offsets[i] + t - 1, states[first + t - 1], states[first + t]
                    a, z = actions[j], rewards[j]
                    if missing is not None and (n < 0 or z < 0):
                        sum_likelihoods(table, s, a, n, z, scratch)
                        possible = update_belief(belief, scratch, np.int64(0))
                    else:
                        k = find_outcome(sizes, starts, next_state, reward, s, a, n, z)
                        possible = tolerant
                        if k >= 0:
                            possible = update_belief(belief, likelihood, np.int64(pattern[k]))
                if not possible:
                    return i, t
                if along:
                    write_belief(belief, out, first + t)
            if not along:
                write_belief(belief, out, i)
    return -1, -1
