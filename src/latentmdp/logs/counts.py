"""Counting what logs show, by cell.

A *cell* is a combination of what a step shows, such as (s, a) or (s, a, s', r). Everything that is
counted in logs is counted here, each episode with its multiplicity and, where episodes are shared
among contexts, with its share: `cell_counts` as a dense array, `occurring_cells` as a list of the
cells that occur, `dense_counts` whatever a function calls a cell. A step in which a part of the
cell is missing is not counted.

Sums are added up step by step within a batch and then batch by batch, so that they have the same
bits in memory as on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Integers
from latentmdp.logs.base import Logs, Sizes, listed_logs, sizes_of
from latentmdp.logs.trajectories import Trajectories, cell_widths

CellsOf = Callable[[Trajectories], tuple[NDArray[Any], Integers]]
"""What is counted in a batch: cells, -1 for one that is not counted, and the episode of each."""


def cell_counts(
    logs: Logs | Sequence[Logs],
    by: Sequence[str],
    sizes: Sizes | None = None,
    shares: Floats | None = None,
) -> Floats:
    """How often each cell occurs, multiplicities counted.

    Parameters
    ----------
    by
        The columns of a cell, see `Trajectories.cells`; they become the axes of the result.
    sizes
        (S, A, Z); by default no larger than the logs say.
    shares : (N, M) or None
        The share of each context in each episode of all logs, one log after the other: the
        result then has a first axis of M contexts.
    """
    sizes = sizes or sizes_of(logs)
    shape = cell_widths(by, sizes)
    counts = dense_counts(logs, _cells_of_steps(by, sizes), int(np.prod(shape)), shares)
    return counts.reshape(shape if shares is None else (-1, *shape))


def occurring_cells(
    logs: Logs | Sequence[Logs],
    by: Sequence[str],
    sizes: Sizes | None = None,
    shares: Floats | None = None,
) -> tuple[Integers, Floats]:
    """The cells that occur, in order, and how often: (C,) or, with shares, (C, M).

    Arguments as for `cell_counts`; memory follows the number of different cells.
    """
    cells_of = _cells_of_steps(by, sizes or sizes_of(logs))
    cells = np.zeros(0, np.int64)
    counts = np.zeros((0, 1 if shares is None else shares.shape[1]))
    for batch_cells, weights in _weighted_cells(logs, cells_of, shares):
        distinct, index = np.unique(batch_cells, return_inverse=True)
        tallies = [np.bincount(index, column, distinct.size) for column in weights]
        every = np.union1d(cells, distinct)
        total = np.zeros((every.size, counts.shape[1]))
        total[np.searchsorted(every, cells)] = counts
        total[np.searchsorted(every, distinct)] += np.stack(tallies, axis=1)
        cells, counts = every, total
    return cells, counts[:, 0] if shares is None else counts


def first_state_counts(
    logs: Logs | Sequence[Logs], n_states: int | None = None, shares: Floats | None = None
) -> Floats:
    """How often each state comes first, multiplicities counted: (S,) or, with shares, (M, S).

    An individual counts once, however many segments it has; one without a first state does not.
    """
    counts = dense_counts(logs, _first_states, n_states or sizes_of(logs)[0], shares)
    return counts[0] if shares is None else counts


def _cells_of_steps(by: Sequence[str], sizes: Sizes) -> CellsOf:
    return lambda part: (part.cells(by, sizes), np.repeat(np.arange(len(part)), part.lengths))


def _first_states(part: Trajectories) -> tuple[NDArray[Any], Integers]:
    begins = part.beginnings()
    return part.first_states[begins], begins


def dense_counts(
    logs: Logs | Sequence[Logs], cells_of: CellsOf, length: int, shares: Floats | None
) -> Floats:
    """How often each cell below `length` occurs, context by context: (M, length), M = 1 without."""
    counts = np.zeros((1 if shares is None else shares.shape[1], length))
    for cells, weights in _weighted_cells(logs, cells_of, shares):
        for total, column in zip(counts, weights):
            total += np.bincount(cells, column, length)
    return counts


def _weighted_cells(
    logs: Logs | Sequence[Logs], cells_of: CellsOf, shares: Floats | None
) -> Iterator[tuple[NDArray[Any], Iterator[Floats]]]:
    """For each batch, the cells that count, and the weight of each, context by context.

    Weights come one context at a time, so that only one column of them lies in memory.
    """
    before = 0
    for logged in listed_logs(logs):
        for batch in logged.batches():
            part = batch.read()
            cells, episode = cells_of(part)
            each = part.multiplicities().astype(np.float64)[:, None]
            if shares is not None:
                each = each * shares[before + batch.start : before + batch.stop]
            counted = cells >= 0
            if not counted.all():
                cells, episode = cells[counted], episode[counted]
            yield cells, (column[episode] for column in each.T)
        before += len(logged)
