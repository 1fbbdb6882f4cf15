"""The pass of EM on a GPU: the episodes lie there, tables go in, expected counts come out.

Episodes are sorted by length and `_LANES` of them laid side by side, so that the threads of a warp
read neighbouring entries. Where a cell occurs is listed once for all passes; the lists run over
`_CHUNK` episodes at a time, whose shares stay in the GPU's cache while they are read, and are cut
into segments of at most `_SEGMENT` entries. All of this is fixed by the episodes, so a pass gives
the same bits every time; from those of the CPU they differ by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Indices, Integers, segments
from latentmdp.engines.cuda.device import gpu

# Episodes side by side: the threads of a warp.
_LANES = 32
# Episodes whose shares are read together: they fit into the cache that all threads have.
_CHUNK = 1 << 18
# Entries that a block of threads adds up: enough to outweigh its start, few enough that the lists
# of frequent cells are shared out.
_SEGMENT = 1 << 12


class EpisodePass:
    """Passes over episodes that a GPU holds.

    Parameters
    ----------
    groups
        The cells, offsets and beginnings of episodes; they are copied to the GPU once.
    sizes
        (C, B, M): numbers of cells, of beginnings, and of contexts, for which memory is asked.

    Raises
    ------
    DeviceError
        The GPU cannot hold the episodes and what a pass writes.
    """

    def __init__(
        self, groups: Sequence[tuple[NDArray[Any], Integers, Indices]], sizes: tuple[int, int, int]
    ) -> None:
        from latentmdp._kernels.mixture import interleave_lanes

        self._gpu = gpu()
        n_cells, n_beginnings, n_contexts = sizes
        cells, offsets, first = zip(*groups)
        lengths = np.concatenate([np.diff(part) for part in offsets])
        order = np.argsort(-lengths, kind="stable")  # longest first
        longest = lengths[order[::_LANES]]  # of each `_LANES` episodes side by side
        base = np.concatenate([[0], np.cumsum(_LANES * longest)])
        kind = np.dtype(np.uint16 if n_cells < 1 << 16 else np.int32)
        # Of an episode: shares and log; length and first; how often it came, in all logs and in
        # both parts of up to five folds.
        each = 8.0 * (n_contexts + 1) + 8.0 + 8.0 * 11
        needed = kind.itemsize * float(base[-1]) + 4.0 * float((lengths + 1).sum())
        needed += each * lengths.size
        what = f"the passes of EM over {lengths.size:,} different episodes"
        self._gpu.require_memory(needed, what)
        ends, joined = np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(cells)
        beginnings, sizes_in_order = np.concatenate(first)[order], lengths[order]
        laid_out = np.zeros(max(int(base[-1]), 1), kind)
        interleave_lanes(joined, ends, order, base[:-1], _LANES, laid_out)
        put = self._gpu.put
        held = (laid_out, base[:-1], sizes_in_order.astype(np.int32), beginnings)
        self._order, self._episodes = order, put(held)
        _, step = segments(ends, order)
        occurring = np.concatenate([joined[step].astype(np.int64), n_cells + beginnings])
        episode = np.repeat(np.arange(order.size, dtype=np.int32), sizes_in_order)
        episode = np.concatenate([episode, np.arange(order.size, dtype=np.int32)])
        lists, self._n_segments = _lists(occurring, episode, n_cells + n_beginnings)
        self._lists = put(lists)
        self._counts: dict[tuple[int, ...], tuple[Sequence[Floats], Any]] = {}
        self._rooms: tuple[Any, list[Any]] = (None, [])

    def __call__(
        self, counts: Sequence[Floats], table: Floats, first: Floats
    ) -> tuple[Floats, Floats, float]:
        """N_m(x), (C, M); N_m(s), (B, M); and the log-likelihood of all episodes.

        `counts` says how often each episode of a group came, `table` (C, M) and `first` (B, M) are
        the probabilities of cells and of beginnings.
        """
        from latentmdp.engines.cuda import kernels_mixture as kernels

        (C, M), B, device, N = table.shape, len(first), self._gpu, self._order.size
        P, W = device.put((np.ascontiguousarray(table), np.ascontiguousarray(first)))
        shapes = ((N, M + 1), (self._n_segments, M + 1), (C + B, M + 1))
        shares, sums, out = self._room(shapes)
        held = (*self._episodes, self._multiplicities(counts), P, W, shares)
        device.launch(kernels.weigh_kernel(M, _LANES), N, kernels.WeighedEpisodes(*held))
        streams = 2 if device.simulated else max(1, 512 // (M + 1))  # a block of 512 threads, about
        index, begins, order, ends = self._lists
        listed = kernels.Listed(index, begins, shares, sums, order, ends, out)
        gather = kernels.gather_kernel(M + 1, streams)
        device.launch_blocks(gather, self._n_segments, (M + 1) * streams, listed)
        device.launch(kernels.add_segments, (C + B) * (M + 1), listed)
        rows = device.fetch(out)
        return rows[:C, :M], rows[C:, :M], float(rows[C:, M].sum())

    def _room(self, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
        """Arrays that a pass writes to; taking memory for every pass would cost as much as it."""
        if self._rooms[0] != shapes:
            self._rooms = (shapes, [self._gpu.empty(shape, np.float64) for shape in shapes])
        return self._rooms[1]

    def _multiplicities(self, counts: Sequence[Floats]) -> Any:
        """The counts on the GPU, in its order; while they are held, no other array has their id."""
        key = tuple(map(id, counts))
        if key not in self._counts:
            self._counts[key] = (counts, self._gpu.put(np.concatenate(counts)[self._order]))
        return self._counts[key][1]


def _lists(occurring: Integers, episode: Indices, n: int) -> tuple[tuple[NDArray[Any], ...], int]:
    """Index, begins, order and ends of `Listed`, and how many segments there are.

    `occurring` are the cells (0 .. n - 1) that occur, and `episode` says where. The lists run
    chunk by chunk over the episodes.
    """
    chunk = episode // _CHUNK
    sizes = np.bincount(chunk * np.int64(n) + occurring, minlength=n)
    # By chunk, then by cell: numbers of 16 bits are sorted in linear time.
    narrow = [keys.astype(np.min_scalar_type(keys.max(initial=0))) for keys in (occurring, chunk)]
    index = episode[np.lexsort(narrow)]
    pieces = -(-sizes // _SEGMENT)
    row = np.repeat(np.arange(sizes.size), pieces)
    piece = np.arange(row.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = (np.cumsum(sizes) - sizes)[row] + piece * _SEGMENT
    cell = row % n
    by_cell = np.argsort(cell, kind="stable").astype(np.int32)
    last = np.searchsorted(cell[by_cell], np.arange(n + 1)).astype(np.int32)
    return (index, np.append(first, index.size), by_cell, last), row.size
