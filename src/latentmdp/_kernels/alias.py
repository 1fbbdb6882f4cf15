"""Drawing from finite distributions in constant time by the alias method [walker1977, vose1991].

A row of n probabilities becomes thresholds q and aliases: with x = n u and j = floor(x), entry j
is taken if x - j < q_j, and alias_j otherwise. Entries of probability zero are never drawn.

Rows may differ in length: entries starts[i] .. starts[i + 1] - 1 are row i, and an alias is a place
among all entries.
"""

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import njit
from latentmdp._kernels.rows import product
from latentmdp._util.arrays import read_only


@njit(cache=True, nogil=True, inline="always")
def draw_entry(uniform, threshold, alias, row, begin, end):
    """Entry of begin..end-1 that a uniform number in [0, 1) selects from one row of 2-d tables."""
    n = end - begin
    scaled: float = product(uniform, np.float64(n))
    j = min(np.int64(scaled), n - 1)  # u n can round up to n
    other = np.int64(alias[row, begin + j])
    return begin + j if scaled - j < threshold[row, begin + j] else other


@njit(cache=True, nogil=True, inline="always")
def alias_draw(uniform, threshold, alias, row):
    """Column that a uniform number in [0, 1) selects from one row of 2-d tables."""
    return draw_entry(uniform, threshold, alias, row, 0, threshold.shape[1])


@njit(cache=True, nogil=True)
def _fill_alias_tables(probabilities, starts, threshold, alias):
    """Vose's construction for every row of unnormalised distributions, one for each column."""
    longest = 0
    for i in range(starts.shape[0] - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    mass = np.empty(longest)
    small, large = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for m in range(probabilities.shape[1]):
        for i in range(starts.shape[0] - 1):
            begin, n = starts[i], starts[i + 1] - starts[i]
            total, likeliest = 0.0, 0
            for j in range(n):
                total += probabilities[begin + j, m]
                if probabilities[begin + j, m] > probabilities[begin + likeliest, m]:
                    likeliest = j
            n_small, n_large = 0, 0
            for j in range(n):
                mass[j] = probabilities[begin + j, m] / total * n if total > 0.0 else 1.0
                if mass[j] < 1.0:
                    small[n_small] = j
                    n_small += 1
                else:
                    large[n_large] = j
                    n_large += 1
            while n_small > 0 and n_large > 0:
                n_small -= 1
                below, above = small[n_small], large[n_large - 1]
                threshold[m, begin + below] = mass[below]
                alias[m, begin + below] = begin + above
                mass[above] -= 1.0 - mass[below]
                if mass[above] < 1.0:
                    n_large -= 1
                    small[n_small] = above
                    n_small += 1
            # What is left has mass one up to rounding; a left-over of probability zero stays so.
            for k in range(n_large):
                threshold[m, begin + large[k]] = 1.0
                alias[m, begin + large[k]] = begin + large[k]
            for k in range(n_small):
                j = small[k]
                positive = probabilities[begin + j, m] > 0.0
                threshold[m, begin + j] = 1.0 if positive else 0.0
                alias[m, begin + j] = begin + (j if positive else likeliest)


def ragged_alias_tables(
    probabilities: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Thresholds and aliases (M, n) of the rows that `starts` cuts from probabilities (n, M)."""
    shape = probabilities.shape[::-1]
    threshold, alias = np.empty(shape), np.empty(shape, np.int32)
    _fill_alias_tables(probabilities, starts, threshold, alias)
    return read_only(threshold), read_only(alias)


def alias_tables(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Thresholds and aliases (R, n) of the distributions along the last axis of `rows` (..., n)."""
    n = rows.shape[-1]
    flat = read_only(np.ascontiguousarray(rows).reshape(-1, 1))
    starts = read_only(np.arange(0, flat.size + 1, n))
    threshold, alias = ragged_alias_tables(flat, starts)
    return threshold.reshape(-1, n), read_only(alias.reshape(-1, n) % np.int32(n))
