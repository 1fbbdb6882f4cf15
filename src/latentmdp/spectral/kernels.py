"""Filtering with a PSR: b <- B b / (b_inf . B b).

Operators are stored by transition, (S A S Z, k, k), in the numbering of `belief.cell`. A `gate` of
0 stands for the bare formulas: no safeguard at all.
"""

import numpy as np

from latentmdp._kernels import njit
from latentmdp._kernels.belief import cell


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
