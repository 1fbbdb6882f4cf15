"""Drawing from finite distributions in constant time by the alias method [walker1977, vose1991].

A row of n probabilities becomes thresholds q and aliases: with x = n u and j = floor(x), outcome j
is taken if x - j < q_j, and alias_j otherwise. Outcomes of probability zero are never drawn.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["alias_draw", "alias_tables"]


@njit(cache=True, nogil=True, inline="always")
def alias_draw(uniform, threshold, alias, row):
    """Outcome that a uniform number in [0, 1) selects from one row of 2-d tables."""
    n = threshold.shape[1]
    scaled = uniform * n
    j = min(int(scaled), n - 1)  # u n can round up to n
    return j if scaled - j < threshold[row, j] else np.int64(alias[row, j])


@njit(cache=True, nogil=True)
def _fill_alias_tables(probabilities, threshold, alias):
    """Vose's construction for every row of a 2-d array of unnormalised distributions."""
    rows, n = probabilities.shape
    mass, small, large = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(rows):
        total, likeliest = 0.0, 0
        for j in range(n):
            total += probabilities[i, j]
            if probabilities[i, j] > probabilities[i, likeliest]:
                likeliest = j
        n_small, n_large = 0, 0
        for j in range(n):
            mass[j] = probabilities[i, j] / total * n if total > 0.0 else 1.0
            if mass[j] < 1.0:
                small[n_small] = j
                n_small += 1
            else:
                large[n_large] = j
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            below, above = small[n_small], large[n_large - 1]
            threshold[i, below] = mass[below]
            alias[i, below] = above
            mass[above] -= 1.0 - mass[below]
            if mass[above] < 1.0:
                n_large -= 1
                small[n_small] = above
                n_small += 1
        # What is left has mass one up to rounding; a left-over of probability zero must stay so.
        for k in range(n_large):
            threshold[i, large[k]] = 1.0
            alias[i, large[k]] = large[k]
        for k in range(n_small):
            j = small[k]
            positive = probabilities[i, j] > 0.0
            threshold[i, j] = 1.0 if positive else 0.0
            alias[i, j] = j if positive else likeliest


def alias_tables(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Thresholds and aliases (R, n) of the distributions along the last axis of `rows` (..., n)."""
    flat = np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])
    threshold, alias = np.empty(flat.shape), np.empty(flat.shape, np.int32)
    _fill_alias_tables(flat, threshold, alias)
    return threshold, alias
