"""One EM pass over episodes of a mixture: evidence, shares and expected counts, fused.

An episode is a list of cells (rows of the table P (cells, M)) and a first state (a row of
W (S, M) = w_m nu_m(s)). Its evidence is Z = sum_m W[s, m] prod_t P[c_t, m], its share of context m
is that context's term over Z, and shares are added up per cell.

The kernels multiply probabilities instead of adding logarithms, which saves M exponentials per
episode; the rare episode whose product leaves the range of a double is redone in log space.
`kernels(width)` builds them for a fixed number of contexts: with the inner loops unrolled a pass
costs about as much as reading the table.
"""

import math
from functools import cache

import numpy as np

from latentmdp._kernels import njit

# Shares that add up to less are scaled up; below the square of it, 1e-300, digits may be lost and
# the episode is done again with logarithms.
_TINY = 1e-150
# Steps between two looks at that sum. More would send more episodes to the logarithms, fewer cost
# a sum over the contexts each.
_STRIDE = 16


@njit(cache=True, nogil=True)
def _log_shares(cells, begin, length, stride, first, P, W, shares):
    """Fill `shares` with the normalised shares of one episode in log space; return log Z."""
    M = shares.shape[0]
    highest = -np.inf
    for m in range(M):
        total = math.log(W[first, m])
        for t in range(length):
            total += math.log(P[cells[begin + t * stride], m])
        shares[m] = total
        highest = max(highest, total)
    if highest == -np.inf:
        for m in range(M):
            shares[m] = 0.0
        return -np.inf
    norm = 0.0
    for m in range(M):
        shares[m] = math.exp(shares[m] - highest)
        norm += shares[m]
    for m in range(M):
        shares[m] /= norm
    return highest + math.log(norm)


@njit(cache=True, nogil=True)
def _hand_up(cells, begin, deep, shallow, pending, by_cell):
    """Give the shares pending at depths deep..shallow+1 to their cells and their parents."""
    for d in range(deep, shallow, -1):
        c = cells[begin + d - 1]
        for m in range(pending.shape[1]):
            share = pending[d, m]
            by_cell[c, m] += share
            pending[d - 1, m] += share
            pending[d, m] = 0.0


@njit(cache=True, nogil=True, inline="always")
def weigh_episode(cells, begin, length, first, P, W, share, width, stride):
    """Fill share (width,) with the terms of an episode's evidence, over a scale.

    Its cells lie at begin, begin + stride, ... Returns the logarithm of the scale and the sum.
    Callers give `width` and `stride` as constants, for which the loops are then compiled. With a
    stride, episodes lie side by side for the threads of a GPU.
    """
    for m in range(width):
        share[m] = W[first, m]
    scale, lost = 0.0, False
    t, end = begin, begin + stride * length
    while t < end:
        pause = min(t + stride * _STRIDE, end)
        for k in range(t, pause, stride):
            c = cells[k]
            for m in range(width):
                share[m] *= P[c, m]
        t = pause
        total = 0.0
        for m in range(width):
            total += share[m]
        if total < _TINY:
            if total < _TINY * _TINY:
                lost = True
                break
            for m in range(width):
                share[m] /= total
            scale += math.log(total)
    if lost:
        scale = _log_shares(cells, begin, length, stride, first, P, W, share)
    total = 0.0
    for m in range(width):
        total += share[m]
    return scale, total


@cache
def kernels(width):
    """The compiled passes for tables with exactly `width` contexts: (episodes, prefixes)."""

    @njit(cache=True, nogil=True)
    def episodes(cells, offsets, first, counts, start, stop, P, W, by_cell, by_first, evidence):
        """Add the shares of episodes start..stop-1 to `by_cell` and `by_first`.

        `evidence[i]` becomes Z_i over a scale; returns sum_i counts[i] log(scale_i). An episode
        that counts zero times is passed over, and may be impossible.
        """
        share = np.empty(width)
        shift = 0.0
        for i in range(start, stop):
            begin, end, s, count = offsets[i], offsets[i + 1], first[i], counts[i]
            evidence[i] = 1.0
            if count == 0.0:
                continue
            scale, total = weigh_episode(cells, begin, end - begin, s, P, W, share, width, 1)
            evidence[i] = total
            shift += count * scale
            factor = count / total if total > 0.0 else 0.0
            for m in range(width):
                share[m] *= factor
                by_first[s, m] += share[m]
            for k in range(begin, end):
                c = cells[k]
                for m in range(width):
                    by_cell[c, m] += share[m]
        return shift

    @njit(cache=True, nogil=True)
    def prefixes(
        cells, length, common, first, counts, start, stop, P, W, by_cell, by_first, evidence
    ):
        """The same for episodes of one length in lexicographic order, sharing their prefixes.

        common[i] is the number of leading steps episode i shares with episode i-1, or -1 if their
        first states differ. Products along the current path are kept on a stack, and shares are
        handed up the path when the path is left, so each node of the prefix tree is visited once.
        """
        product = np.empty((length, width))
        pending = np.zeros((length, width))
        leaf, gathered = np.empty(width), np.empty(width)
        last = length - 1
        shift = 0.0
        i = start
        while i < stop:
            depth = common[i] if i > start else -1
            if i > start:
                _hand_up(cells, (i - 1) * length, last, max(depth, 0), pending, by_cell)
            if depth < 0:
                if i > start:
                    for m in range(width):
                        by_first[first[i - 1], m] += pending[0, m]
                for m in range(width):
                    product[0, m] = W[first[i], m]
                    pending[0, m] = 0.0
                depth = 0
            for d in range(depth, last):
                c = cells[i * length + d]
                for m in range(width):
                    product[d + 1, m] = product[d, m] * P[c, m]
            for m in range(width):
                gathered[m] = 0.0
            while True:
                evidence[i] = 1.0
                if counts[i] > 0.0:
                    c = cells[i * length + last]
                    total = 0.0
                    for m in range(width):
                        leaf[m] = product[last, m] * P[c, m]
                        total += leaf[m]
                    if total < _TINY * _TINY:
                        begin = i * length
                        log_scale = _log_shares(cells, begin, length, 1, first[i], P, W, leaf)
                        shift += counts[i] * log_scale
                        total = 1.0 if log_scale > -np.inf else 0.0
                    evidence[i] = total
                    factor = counts[i] / total if total > 0.0 else 0.0
                    for m in range(width):
                        share = factor * leaf[m]
                        gathered[m] += share
                        by_cell[c, m] += share
                i += 1
                if i >= stop or common[i] < last:
                    break
            for m in range(width):
                pending[last, m] += gathered[m]
        _hand_up(cells, (stop - 1) * length, last, np.int64(0), pending, by_cell)
        for m in range(width):
            by_first[first[stop - 1], m] += pending[0, m]
        return shift

    return episodes, prefixes


@njit(cache=True, nogil=True)
def interleave_lanes(cells, offsets, order, base, lanes, out):
    """Copy the cells of episodes order[0], order[1], ... so that `lanes` of them lie side by side.

    Step t of the p-th goes to base[p // lanes] + t lanes + p % lanes.
    """
    for p in range(order.shape[0]):
        begin, end = offsets[order[p]], offsets[order[p] + 1]
        place = base[p // lanes] + p % lanes
        for k in range(begin, end):
            out[place] = cells[k]
            place += lanes
