"""The pass of EM on a GPU: the episodes lie there, tables go in, expected counts come out.

Episodes are sorted by length and `_LANES` of them laid side by side, so that the threads of a warp
read neighbouring entries. Where a cell occurs is listed once for all passes; the lists run over
`_CHUNK` episodes at a time, whose shares stay in the GPU's cache while they are read, and are cut
into segments of at most `_SEGMENT` entries. All of this is fixed by the episodes, so a pass gives
the same bits every time; from those of the CPU they differ by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp.engines.base import Engine
from latentmdp.engines.cuda import even_width, gpu, widened
from latentmdp.engines.threads import Threads, blocks, run_blocks
from latentmdp.errors import DeviceError

if TYPE_CHECKING:
    from latentmdp.estimation.episodes import Episodes, Group

__all__ = ["CudaPass"]

_Key = tuple[int, ...]
"""The ids of arrays that are held."""

_LANES = 32
_CHUNK = 1 << 18
_SEGMENT = 1 << 12
_STREAM_THREADS = 512
_TOTAL_PART = 1 << 12
_MULTIPLICITIES = 11
"""How often an episode came: in all logs, and in both parts of up to five folds."""


class CudaPass(Threads):
    """Threads of this process that leave the passes over episodes to a GPU, which keeps them.

    Parameters
    ----------
    threads
        How many prepare what goes to the GPU.
    engine
        What else was asked for: there is nothing to share out.
    """

    def __init__(self, threads: int | None = None, engine: Engine | None = None) -> None:
        super().__init__(threads)
        if engine is not None:
            raise DeviceError('device="cuda" makes the passes on one GPU: leave out engine')
        self._gpu = gpu()
        self._layouts: dict[_Key, _Layout] = {}
        self._counts: dict[_Key, tuple[list[Floats], Any]] = {}
        self._rooms: dict[_Key, tuple[tuple[tuple[int, ...], ...], list[Any]]] = {}

    @property
    def bytes_read(self) -> int:
        """Bytes of cells and lists that one pass reads."""
        held = [array for one in self._layouts.values() for array in (*one.episodes, *one.lists)]
        return sum(int(array.nbytes) for array in held)

    def require_memory(self, episodes: Episodes, n_contexts: int) -> None:
        """Raise `DeviceError` if the GPU cannot hold the episodes and what a pass writes."""
        if not episodes.held:
            raise DeviceError(
                f"{episodes.n_steps:,} steps in files are more than is held in memory at once: "
                'they are fitted with device="cpu"'
            )
        width, needed, total = even_width(n_contexts), 0.0, 0
        for group in episodes.groups:
            steps, N = float(group.offsets[-1]), group.first.size
            longest = _side_by_side(np.diff(group.offsets))[1]
            laid = _LANES * float(longest.sum()) * _cell_type(episodes.cells.size).itemsize
            lists = 4.0 * (steps + N)
            each = 8.0 * (width + 1) + 8.0 * _MULTIPLICITIES + 8.0  # shares, log; length, first
            needed, total = needed + laid + lists + each * N, total + N
        self._gpu.require_memory(needed, f"the passes of EM over {total:,} different episodes")

    def expected_counts(
        self, groups: Sequence[Group], table: Floats, first: Floats
    ) -> tuple[Floats, Floats, float]:
        """N_m(x), (C, M); N_m(s), (S, M); and the log-likelihood of all episodes."""
        from latentmdp._kernels.cuda import mixture

        (C, M), B, device = table.shape, len(first), self._gpu
        width = even_width(M)
        P, W = device.put((widened(table, width), widened(first, width)))
        key = tuple(id(group.cells) for group in groups)
        layout = self._layout(key, groups, C, B)
        N = layout.order.size
        parts = -(-N // _TOTAL_PART)
        shares, logs, sums, out, totals = self._room(
            key, ((N, width), (N,), (layout.n_segments, width), (C + B, width), (parts,))
        )
        held = (*layout.episodes, self._multiplicities(groups, layout), P, W, shares, logs)
        device.launch(mixture.weigh_kernel(width, _LANES), N, mixture.WeighedEpisodes(*held))
        streams = _streams(width, device.simulated)
        index, begins, order, ends = layout.lists
        listed = mixture.Listed(index, begins, shares, sums, order, ends, out)
        kernel = mixture.gather_kernel(width, streams)
        device.launch_blocks(kernel, layout.n_segments, width * streams, listed)
        device.launch(mixture.add_segments, out.shape[0] * width, listed)
        threads = 2 if device.simulated else 256
        add = mixture.total_kernel(threads)
        device.launch_blocks(add, parts, threads, (logs, totals), _TOTAL_PART)
        counts = device.fetch(out)
        return counts[:C, :M], counts[C:, :M], float(np.sum(device.fetch(totals)))

    def _room(self, key: _Key, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
        """Arrays that a pass writes to; taking memory for every pass would cost as much as it."""
        if key not in self._rooms or self._rooms[key][0] != shapes:
            self._rooms[key] = (shapes, [self._gpu.empty(shape, np.float64) for shape in shapes])
        return self._rooms[key][1]

    def _layout(
        self, key: _Key, groups: Sequence[Group], n_cells: int, n_beginnings: int
    ) -> _Layout:
        """The groups on the GPU; those that differ in multiplicities alone share it."""
        if key not in self._layouts:
            self._layouts[key] = _laid_out(groups, n_cells, n_beginnings)
        return self._layouts[key]

    def _multiplicities(self, groups: Sequence[Group], layout: _Layout) -> Any:
        key = tuple(id(group.counts) for group in groups)
        if key not in self._counts:
            counts = [group.counts for group in groups]
            self._counts[key] = (counts, self._gpu.put(np.concatenate(counts)[layout.order]))
        return self._counts[key][1]


class _Layout(NamedTuple):
    """A group of episodes on the GPU."""

    cells: list[NDArray[Any]]  # of the groups: while held, no other array has their id
    order: Integers
    episodes: tuple[Any, ...]  # cells, base, lengths, first of `WeighedEpisodes`
    lists: tuple[Any, ...]  # index, begins, order, ends of `Listed`
    n_segments: int


class _Concatenated(NamedTuple):
    """The episodes of several groups, as in `Group`."""

    cells: NDArray[Any]
    offsets: Integers
    first: Indices


def _laid_out(groups: Sequence[Group], n_cells: int, n_beginnings: int) -> _Layout:
    from latentmdp._kernels.mixture import interleave

    lengths = np.concatenate([np.diff(group.offsets) for group in groups])
    held = _Concatenated(
        np.concatenate([group.cells for group in groups]),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([group.first for group in groups]),
    )
    order, longest = _side_by_side(lengths)
    base = np.concatenate([[0], np.cumsum(_LANES * longest)])
    cells = np.zeros(max(int(base[-1]), 1), _cell_type(n_cells))
    interleave(held.cells, held.offsets, order, base[:-1], _LANES, cells)
    index, begins, places = _lists(held, order, n_cells, n_beginnings)
    by_cell = np.argsort(places, kind="stable").astype(np.int32)
    ends = np.searchsorted(places[by_cell], np.arange(n_cells + n_beginnings + 1)).astype(np.int32)
    episodes = (cells, base[:-1], lengths[order].astype(np.int32), held.first[order])
    put = gpu().put
    lists = put((index, begins, by_cell, ends))
    return _Layout([group.cells for group in groups], order, put(episodes), lists, places.size)


def _side_by_side(lengths: Integers) -> tuple[Integers, Integers]:
    """The order of episodes, longest first, and the longest of each `_LANES` of them."""
    order = np.argsort(-lengths, kind="stable")
    return order, lengths[order[::_LANES]]


def _cell_type(n_cells: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if n_cells < 1 << 16 else np.int32)


def _lists(
    group: _Concatenated, order: Integers, n_cells: int, n_states: int
) -> tuple[NDArray[np.int32], Integers, Integers]:
    """Where each cell occurs, chunk by chunk; where segments begin; and the cell of each."""
    from latentmdp._kernels.mixture import list_occurrences

    chunks = blocks(order.size, _CHUNK)
    steps = np.concatenate([[0], np.cumsum(np.diff(group.offsets)[order] + 1)])
    index = np.empty(int(steps[-1]), np.int32)
    ends = np.empty((len(chunks), n_cells + n_states), np.int64)

    def work(start: int, stop: int) -> None:
        part = index[steps[start] : steps[stop]]
        held = (group.cells, group.offsets, group.first, order, start, stop, n_cells)
        list_occurrences(*held, ends[start // _CHUNK], part)

    run_blocks(work, chunks, None)
    begins = np.concatenate([np.zeros((len(chunks), 1), np.int64), ends], axis=1)
    begins += steps[[start for start, _ in chunks]][:, None]
    sizes = np.diff(begins, axis=1).ravel()
    pieces = -(-sizes // _SEGMENT)
    row = np.repeat(np.arange(sizes.size), pieces)
    piece = np.arange(row.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = begins[:, :-1].ravel()[row] + piece * _SEGMENT
    return index, np.append(first, index.size), row % (n_cells + n_states)


def _streams(width: int, simulated: bool) -> int:
    return 2 if simulated else max(1, _STREAM_THREADS // width)
