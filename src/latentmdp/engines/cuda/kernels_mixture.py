"""One EM pass on a GPU, its sums in a fixed order.

Sums over episodes that threads add up as they come would differ from run to run. So the pass goes
in two steps: every thread weighs an episode and writes down its shares of the contexts; then, for
every cell, the shares of the episodes where it occurs are read by a list made beforehand, and
added. A list is cut into segments, a block of threads each: threads lie side by side along the
contexts, and each `stream` of them adds every n-th entry. First states are cells as well, and the
logarithm of an episode's evidence is one more share: summed over all first states it is the
log-likelihood.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from latentmdp._kernels.mixture import weigh_episode


class WeighedEpisodes(NamedTuple):
    """Episodes as a GPU reads them, and what it writes down about each."""

    cells: NDArray[np.integer]  # `lanes` episodes side by side, see `interleave`
    base: NDArray[np.int64]  # (N / lanes,)
    lengths: NDArray[np.int32]  # (N,)
    first: NDArray[np.int32]  # (N,)
    counts: NDArray[np.float64]  # (N,)
    P: NDArray[np.float64]  # (C, width)
    W: NDArray[np.float64]  # (S, width)
    shares: NDArray[np.float64]  # (N, width + 1): of the contexts, and the logarithm


class Listed(NamedTuple):
    """Where the cells occur, and the sums over segments of these lists."""

    places: NDArray[np.int32]  # the lists, one after the other
    begins: NDArray[np.int64]  # (segments + 1,)
    shares: NDArray[np.float64]  # (N, columns)
    sums: NDArray[np.float64]  # (segments, columns)
    order: NDArray[np.int32]  # (segments,): those of a cell together
    ends: NDArray[np.int32]  # (cells + 1,)
    out: NDArray[np.float64]  # (cells, columns)


@cuda.jit(device=True)
def add_halves(room, active, first, step, stride, lane):
    """Add up `active` entries of shared memory, lane + i stride, into the first, by halves.

    Entries i and i + half are added, the last of an odd number waiting for the next round. A thread
    takes i = first, first + step, ...: the order does not depend on the number of threads.
    """
    while active > 1:
        cuda.syncthreads()
        half = (active + 1) // 2
        for i in range(first, active - half, step):
            room[lane + i * stride] += room[lane + (i + half) * stride]
        active = half


@cache
def weigh_kernel(width, lanes):
    """The compiled shares of episodes in `width` contexts, a thread an episode.

    Thread p fills shares[p] (width + 1,). `lanes` neighbours lie interleaved, so that the threads
    of a warp read neighbouring cells at every step. An episode that did not come (count 0) has
    shares and a log of zero; one that no context explains has a log of minus infinity.
    """

    @cuda.jit
    def weigh(weighed):
        p = cuda.grid(1)
        if p >= weighed.first.shape[0]:
            return
        share = cuda.local.array(width, np.float64)
        cells, base, lengths, first, counts, P, W, shares = weighed
        count, factor, log = counts[p], 0.0, 0.0
        if count > 0.0:
            begin = base[p // lanes] + p % lanes
            scale, total = weigh_episode(
                cells, begin, lengths[p], first[p], P, W, share, width, lanes
            )
            log = -math.inf
            if total > 0.0:
                factor, log = count / total, count * (scale + math.log(total))
        shares[p, width] = log
        for m in range(width):
            shares[p, m] = share[m] * factor if factor > 0.0 else 0.0

    return weigh


@cache
def gather_kernel(width, streams):
    """The compiled sums of shares over segments, by blocks of width times streams threads.

    Block b fills sums[b] (width,) of segment b. Stream i adds the entries i, i + streams, ... of
    the list in their order; then the streams are added by halves. The order is fixed by the list
    and by `streams`.
    """
    threads = width * streams

    @cuda.jit
    def gather(listed):
        room = cuda.shared.array(threads, np.float64)
        thread = cuda.threadIdx.x
        segment, stream, m = cuda.blockIdx.x, thread // width, thread % width
        total = 0.0
        begin, end = listed.begins[segment], listed.begins[segment + 1]
        for k in range(begin + stream, end, streams):
            total += listed.shares[listed.places[k], m]
        room[thread] = total
        add_halves(room, streams, stream, streams, width, m)
        if stream == 0:
            listed.sums[segment, m] = room[thread]

    return gather


@cuda.jit
def add_segments(listed):
    """Add the sums over the segments of each cell, in their order.

    A thread an entry of listed.out (cells, width); the segments of cell x are
    order[ends[x]] .. order[ends[x + 1] - 1].
    """
    width = listed.out.shape[1]
    entry = cuda.grid(1)
    if entry >= listed.out.shape[0] * width:
        return
    x, m = entry // width, entry % width
    total = 0.0
    for k in range(listed.ends[x], listed.ends[x + 1]):
        total += listed.sums[listed.order[k], m]
    listed.out[x, m] = total
