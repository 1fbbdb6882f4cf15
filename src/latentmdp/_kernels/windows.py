"""Counting windows of episodes: a history, one step in between, and a test.

A step (a, z, s') is numbered x = (a Z + z) S + s', one of `base` = A Z S; a history (s, x_1 .. x_p)
and a test (x_1 .. x_q) are numbered with their steps as digits to that base, so a history ends in
the state `number % S`. `steps` and `weights` hold the number and the importance weight of every
logged step.
"""

import numpy as np
from numba import njit

__all__ = ["count_summaries", "count_windows", "number_steps", "number_windows"]


@njit(cache=True, nogil=True)
def number_steps(states, actions, rewards, offsets, counts, inverse, sizes, steps, weights, taken):
    """Fill `steps` and `weights`, from inverse probabilities 1 / pi_t(a | s), (layers, S, A).

    Adds to `taken`, of the same shape, how often each action was taken.
    """
    S, _, Z = sizes
    last = inverse.shape[0] - 1
    for i in range(offsets.shape[0] - 1):
        for k in range(offsets[i], offsets[i + 1]):
            layer = min(k - offsets[i], last)
            s, a = states[k + i], actions[k]
            steps[k] = (np.int64(a) * Z + rewards[k]) * S + states[k + i + 1]
            weights[k] = inverse[layer, s, a]
            taken[layer, s, a] += counts[i]


@njit(cache=True, nogil=True)
def _continued(code, steps, weights, k, length, base):
    """`code` continued by the `length` steps from step k on, and their importance weight."""
    weight = 1.0
    for j in range(k, k + length):
        code = code * base + steps[j]
        weight *= weights[j]
    return code, weight


@njit(cache=True, nogil=True)
def _tests(steps, weights, k, length, base):
    """The tests from step k and from the step after it, each with its weight; step k in both."""
    near, near_weight = _continued(np.int64(0), steps, weights, k, length, base)
    far, far_weight = _continued(np.int64(0), steps, weights, k + 1, length, base)
    return near, near_weight, far, far_weight * weights[k]


@njit(cache=True, nogil=True)
def _n_offsets(length, lengths, first_only):
    """How many windows an episode holds."""
    total = max(0, length - lengths[0] - lengths[1])
    return min(total, 1) if first_only else total


@njit(cache=True, nogil=True)
def count_windows(
    states, offsets, counts, steps, weights, base, lengths, first_only, histories, joint, through
):
    """Add the windows to dense tables: (H,), (H, T) and (H base, T); with p = 0, H is S."""
    p, q = lengths
    for i in range(offsets.shape[0] - 1):
        count = counts[i]
        for t in range(_n_offsets(offsets[i + 1] - offsets[i], lengths, first_only)):
            k = offsets[i] + t
            h, _ = _continued(np.int64(states[k + i]), steps, weights, k, p, base)
            near, near_weight, far, far_weight = _tests(steps, weights, k + p, q, base)
            histories[h] += count
            joint[h, near] += count * near_weight
            through[h * base + steps[k + p], far] += count * far_weight


@njit(cache=True, nogil=True)
def number_windows(
    states, offsets, counts, steps, weights, base, lengths, first_only, codes, values
):
    """The windows as codes (history, near test, history base + middle, far test) and values.

    The values are the count of the window, and the weighted counts of its two tests; returns how
    many windows there are. `codes` (N, 4) and `values` (N, 3) must be long enough.
    """
    p, q = lengths
    row = 0
    for i in range(offsets.shape[0] - 1):
        for t in range(_n_offsets(offsets[i + 1] - offsets[i], lengths, first_only)):
            k = offsets[i] + t
            h, _ = _continued(np.int64(states[k + i]), steps, weights, k, p, base)
            near, near_weight, far, far_weight = _tests(steps, weights, k + p, q, base)
            codes[row, 0], codes[row, 1] = h, near
            codes[row, 2], codes[row, 3] = h * base + steps[k + p], far
            values[row, 0] = counts[i]
            values[row, 1] = counts[i] * near_weight
            values[row, 2] = counts[i] * far_weight
            row += 1
    return row


@njit(cache=True, nogil=True)
def count_summaries(
    states, offsets, counts, steps, weights, sizes, q, summaries, histories, joint, through
):
    """Add windows whose history is the whole past, summarised by k numbers, to dense tables.

    `summaries` (number of states, k) has a row for every state of every episode; number i at state
    s takes the place of a history and is numbered i S + s. Returns how many windows there are.
    """
    S, base, total = sizes[0], sizes[0] * sizes[1] * sizes[2], 0
    for i in range(offsets.shape[0] - 1):
        for k in range(offsets[i], offsets[i + 1] - q):
            near, near_weight, far, far_weight = _tests(steps, weights, k, q, base)
            total += counts[i]
            for j in range(summaries.shape[1]):
                h, value = j * S + states[k + i], counts[i] * summaries[k + i, j]
                histories[h] += value
                joint[h, near] += value * near_weight
                through[h * base + steps[k], far] += value * far_weight
    return total
