"""How many singular values of a table of counts stand out of sampling noise.

A table counts how often row i and column j occurred together in n independent draws from a matrix P
of probabilities. With D_r and D_c its row and column sums, the balanced matrix
D_r^{-1/2} N D_c^{-1/2} has singular values 1 = sigma_1 >= sigma_2 >= ... (canonical correlations).
If P has rank k, then sigma_{k+1} is noise. How large noise makes it is not read off the table, where
it may be zero by chance or because rows are few, but simulated: tables of n draws from the
approximation of P of rank k. From k = 1 on, rank k + 1 is claimed if sigma_{k+1} exceeds their mean
by `STDEVS` standard deviations.

Adding up rows, or columns, does not raise the rank of P, so rare ones are put together.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from latentmdp._util.arrays import Floats, Integers

__all__ = ["Evidence", "evident_rank"]

STDEVS = 5.0
"""By which a singular value must exceed what noise makes of it. Among a thousand tables of one
context none showed a second one at 5, and 3 in a thousand at 3 (`tests/spectral/test_noise.py`)."""

_DRAWS = 40
"""Simulated tables: their standard deviation is then known to about 11 %."""

_LONGEST_SIDE = 32
"""Rows and columns that are kept apart: more would show more contexts, and cost their cube."""


class Evidence(NamedTuple):
    """How many singular values stand out, all of them, and what the next one would have to be."""

    rank: int
    singular_values: Floats
    noise: float


def evident_rank(counts: Any, most: int, rng: np.random.Generator) -> Evidence:
    """The rank that a table of counts (rows, columns) shows, `most` at most; 0 if it is empty."""
    table = _merged(counts, max(_LONGEST_SIDE, 2 * most))
    total = round(float(table.sum()))
    if total == 0:
        return Evidence(0, np.zeros(1), np.inf)
    left, values, right = np.linalg.svd(_balanced(table), full_matrices=False)
    rows, columns = np.sqrt(table.sum(axis=1)), np.sqrt(table.sum(axis=0))
    rank, level = 1, np.inf
    while rank < min(most, values.size):
        part = (left[:, :rank] * values[:rank]) @ right[:rank]
        law = np.maximum(rows[:, None] * part * columns, 0.0)
        drawn = rng.multinomial(total, law.ravel() / law.sum(), _DRAWS)
        noise = np.linalg.svd(_balanced(drawn.reshape(-1, *table.shape)), compute_uv=False)
        level = float(noise[:, rank].mean() + STDEVS * noise[:, rank].std(ddof=1))
        if not values[rank] > max(level, 1e-9):
            break
        rank += 1
    return Evidence(rank, values, level)


def _balanced(tables: Any) -> Floats:
    """Tables (..., R, C), each divided by the roots of its row and column sums."""
    tables = np.asarray(tables, dtype=np.float64)
    rows, columns = tables.sum(axis=-1, keepdims=True), tables.sum(axis=-2, keepdims=True)
    scale = np.sqrt(rows * columns)
    return np.divide(tables, scale, out=np.zeros_like(tables), where=scale > 0.0)


def _merged(counts: Any, side: int) -> Floats:
    """The table without empty rows and columns, the rarest of more than `side` put together."""
    for _ in range(2):
        places = _places(np.asarray(counts.sum(axis=1)).ravel(), side)
        kept = np.flatnonzero(places >= 0)
        size = int(places.max(initial=-1)) + 1
        onto = csr_array((np.ones(kept.size), (places[kept], kept)), (size, places.size))
        counts = (onto @ counts).T
    return np.asarray(counts.toarray() if hasattr(counts, "toarray") else counts, np.float64)


def _places(totals: Floats, side: int) -> Integers:
    """Where each row goes: -1 for an empty one, the last place for the rarest."""
    order = np.argsort(-totals, kind="stable")
    places = np.empty(totals.size, np.int64)
    places[order] = np.minimum(np.arange(totals.size), side - 1)
    places[~(totals > 0.0)] = -1
    return places
