"""The loops of spectral learning: counting windows of episodes, and filtering with a PSR.

Windows: a history, one step in between, and a test. A step (a, z, s') is numbered
x = (a Z + z) S + s', one of `base` = A Z S; a history (s, x_1 .. x_p) and a test (x_1 .. x_q) are
numbered with their steps as digits to that base, so a history ends in the state `number % S`.
`steps` and `weights` hold the number and the importance weight of every logged step.

Filter: b <- B b / (b_inf . B b). Operators are stored by transition, (S A S Z, k, k), in the
numbering of `belief.cell`. A `gate` of 0 stands for the bare formulas: no safeguard at all.
"""

import numpy as np
from numba import njit

from latentmdp._kernels import cell


@njit(cache=True, nogil=True)
def number_steps(states, actions, rewards, offsets, counts, inverse, sizes, steps, weights, visits):
    """Fill `steps` and `weights`, from inverse probabilities 1 / pi_t(a | s), (layers, S, A).

    The columns are those of logs: `states` has an entry more than the others for each episode, so
    step k of episode i goes from states[k + i] to states[k + i + 1]. Adds to `visits`, of the shape
    of `inverse`, how often each action was taken. No two arrays may overlap.
    """
    S, _, Z = sizes
    last = inverse.shape[0] - 1
    for i in range(offsets.shape[0] - 1):
        for k in range(offsets[i], offsets[i + 1]):
            layer = min(k - offsets[i], last)
            s, a = states[k + i], actions[k]
            steps[k] = (np.int64(a) * Z + rewards[k]) * S + states[k + i + 1]
            weights[k] = inverse[layer, s, a]
            visits[layer, s, a] += counts[i]


@njit(cache=True, nogil=True)
def _continued(code, steps, weights, k, length, base):
    """`code` continued by the `length` steps from step k on, and their importance weight.

    The weight is the product in the order of the steps.
    """
    weight = 1.0
    for j in range(k, k + length):
        code = code * base + steps[j]
        weight *= weights[j]
    return code, weight


@njit(cache=True, nogil=True)
def count_windows(
    states, offsets, counts, steps, weights, base, lengths, first_only, summaries,
    histories, joint, through, codes, values,
):  # fmt: skip
    """Add the windows to dense tables: (H,), (H, T) and (H base, T); with p = 0, H is S.

    With p = 0 the history may be the whole past, summarised by k numbers: `summaries` (number of
    states, k) has a row for every state of every episode, number j at state s takes the place of a
    history and is numbered j S + s, and H is k S. Otherwise it is a single one (1, 1), which counts
    every window once. Sums run over episodes, then times, then j; the tables must not overlap.

    Where the tables have no rows, windows are listed instead, in the same order: their codes
    (history, near test, history base + middle, far test) in codes (N, 4), and the count of the
    window and the weighted counts of its two tests in values (N, 3). Returns how many there are.
    """
    p, q = lengths
    dense, row = histories.shape[0] > 0, 0
    stride, last = histories.shape[0] // summaries.shape[1], summaries.shape[0] - 1
    for i in range(offsets.shape[0] - 1):
        windows = max(0, offsets[i + 1] - offsets[i] - p - q)
        for t in range(min(windows, 1) if first_only else windows):
            k = offsets[i] + t
            middle = k + p
            first, _ = _continued(np.int64(states[k + i]), steps, weights, k, p, base)
            near, near_weight = _continued(np.int64(0), steps, weights, middle, q, base)
            far, far_weight = _continued(np.int64(0), steps, weights, middle + 1, q, base)
            far_weight *= weights[middle]  # of the step in between, which is in both
            for j in range(summaries.shape[1]):
                h, value = first + j * stride, counts[i] * summaries[min(k + i, last), j]
                if dense:
                    histories[h] += value
                    joint[h, near] += value * near_weight
                    through[h * base + steps[middle], far] += value * far_weight
                else:
                    codes[row, 0], codes[row, 1] = h, near
                    codes[row, 2], codes[row, 3] = h * base + steps[middle], far
                    values[row, 0], values[row, 1] = value, value * near_weight
                    values[row, 2] = value * far_weight
                row += 1
    return row


@njit(cache=True, nogil=True)
def _apply(operators, row, b, normaliser, out):
    """`out` (k,) becomes operators[row] b; returns its product with the normaliser (k,).

    Sums run over j, then i. `out` must not be `b`, which is read to the end.
    """
    k = b.shape[0]
    value = 0.0
    for i in range(k):
        total = 0.0
        for j in range(k):
            total += operators[row, i, j] * b[j]
        out[i] = total
        value += normaliser[i] * total
    return value


@njit(cache=True, nogil=True)
def _update(b, out, row, pair, n, psr, gate):
    """One step of the filter from b to out; 0 as printed, 1 with a safeguard, -1 if impossible.

    The predicted probability of what happened must lie within a factor `gate` of the pooled one.
    Else the operator pooled over actions and rewards moves the state, and if that fails too, the
    state is forgotten. `psr` is the tuple of `PSR._tables`, `pair` the number s S + s' of an
    operator that is pooled, and `out` must not be `b`. The comparisons are written so that a p that
    is no number fails them.
    """
    operators, pooled_operators, normalisers, pooled, homes = psr
    p = _apply(operators, row, b, normalisers[n], out)
    code = 0
    if gate > 0.0 and not (p * gate > pooled[row] and p < pooled[row] * gate):
        code = 1
        p = _apply(pooled_operators, pair, b, normalisers[n], out)
        if not (p * gate > 1.0 and p < gate):
            out[:] = homes[n]
            p = 1.0
    if p == 0.0 or not np.isfinite(p):
        return -1
    for i in range(out.shape[0]):
        out[i] /= p
    return code


@njit(cache=True, nogil=True)
def filter_states(first, last, psr, starts, gate, sizes, states, actions, rewards, offsets, out):
    """Write the normalised PSR state at every state of the episodes first..last-1.

    `starts` (S, k) holds the normalised states that follow the first observation, `out` (number of
    states, k) gets a row for each entry of `states`: row offsets[i] + i + t at time t of episode i.
    Episodes write to rows of their own, so that blocks of them may run at the same time. Returns
    the number of steps that needed a safeguard and (-1, -1), or the episode and step at which the
    formulas broke down.
    """
    guarded = 0
    for i in range(first, last):
        begin = offsets[i] + i
        out[begin] = starts[states[begin]]
        for t in range(offsets[i + 1] - offsets[i]):
            k = offsets[i] + t
            s, n = states[begin + t], states[begin + t + 1]
            row = cell(s, actions[k], n, rewards[k], sizes)
            pair = np.int64(s) * sizes[0] + n
            code = _update(out[begin + t], out[begin + t + 1], row, pair, n, psr, gate)
            if code < 0:
                return guarded, i, t
            guarded += code
    return guarded, -1, -1


@njit(cache=True, nogil=True)
def sequence_value(operators, normalisers, b, sizes, states, actions, rewards):
    """b_inf · B ... B b, the product of the bare operators along one episode; b (k,) is kept.

    Operators apply from the first step to the last, so that each costs k^2.
    """
    current, updated = b.copy(), np.empty_like(b)
    value = 0.0
    for i in range(b.shape[0]):
        value += normalisers[states[0], i] * b[i]
    for t in range(actions.shape[0]):
        row = cell(states[t], actions[t], states[t + 1], rewards[t], sizes)
        value = _apply(operators, row, current, normalisers[states[t + 1]], updated)
        current, updated = updated, current
    return value
