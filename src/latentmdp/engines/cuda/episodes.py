"""Episodes played, summed up and filtered on a GPU: the versions of the loops of the CPU.

Each takes the number of items and of threads here, and then what the loop takes after its range.
What does not fit into memory is done in pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp.engines.cuda.device import gpu
from latentmdp.engines.threads import blocks, run_blocks
from latentmdp.errors import DeviceError

if TYPE_CHECKING:
    from latentmdp._kernels.belief import Filter
    from latentmdp._kernels.rollout import ContextRuns, Earning, Playing
    from latentmdp.engines.cuda.kernels_episodes import RolloutKind

_PIECE = 1 << 21
"""Episodes that a GPU plays or filters at a time: many times what it runs at once."""


def play_episodes(
    total: int, threads: int, playing: Playing, contexts: Indices, lengths: Integers, *logs: Any
) -> list[None]:
    """`play_episodes` of the CPU, for episodes whose contexts are drawn and which are all noted."""
    from latentmdp.engines.cuda.kernels_episodes import Noted, rollout_kernel

    device, kernel, horizon = gpu(), rollout_kernel(_kind(playing)), playing.horizon
    tables = _tables(playing)
    # The narrowest integers: what takes longest is the way to this machine.
    kinds = [np.dtype(np.min_scalar_type(-most)) for most in playing.chances.sizes]
    bytes_each = sum(kind.itemsize for kind in kinds) * (horizon + 1) + 16.0
    for start, stop in device.pieces(total, bytes_each, _PIECE):
        n = stop - start
        parts = zip((horizon + 1, horizon, horizon), kinds)
        noted = Noted(
            device.empty(n, np.int32),
            device.empty(n, np.int32),
            *(device.empty((height, n), kind) for height, kind in parts),
        )
        where = (playing.key, playing.first_episode + start, horizon)
        device.launch(kernel, n, *tables, *where, noted)
        contexts[start:stop] = device.fetch(noted.contexts)
        lengths[start:stop] = device.fetch(noted.lengths)
        for log, target in zip(noted[2:], logs):
            both = (device.fetch(log), target[start:stop])
            run_blocks(_transpose, blocks(n, 1 << 8), threads, None, *both)
    return []


def sum_returns(
    total: int, threads: int, playing: Playing, earning: Earning, runs: ContextRuns, sums: Floats
) -> list[None]:
    """`sum_returns` of the CPU: the returns never leave the block of threads that earned them."""
    from latentmdp._kernels.rollout import SUMMED
    from latentmdp.engines.cuda.kernels_episodes import returns_kernel

    device = gpu()
    block = 2 if device.simulated else SUMMED
    kernel, tables = returns_kernel(_kind(playing), block), _tables(playing)
    earning, runs = device.put((earning, runs))
    for start, stop in blocks(total, max(1, _PIECE // SUMMED)):
        out = device.empty((stop - start, 2), np.float64)
        where = (*playing[4:], earning, runs, out)  # key, first episode and horizon
        device.launch_blocks(kernel, stop - start, block, start, *tables, *where)
        sums[start:stop] = device.fetch(out)
    return []


def posteriors(
    total: int,
    threads: int,
    table: Filter,
    states: Indices,
    actions: Indices,
    rewards: Indices,
    offsets: Integers,
    begins: Integers,
    along: bool,
    missing: Flags | None,
    out: Floats,
) -> list[tuple[int, int]]:
    """`posteriors` of the CPU, for complete episodes that begin anew each."""
    from latentmdp.engines.cuda.kernels_episodes import Logged, filter_kernel

    if missing is not None or total < offsets.size - 1:
        raise DeviceError(
            'posterior on device="cuda" needs complete episodes: logs with missing cells or '
            'continued episodes are filtered with device="cpu"'
        )
    device, M, wrong_steps = gpu(), out.shape[1], []
    table = device.put(table)
    longest = int(np.diff(offsets).max(initial=0)) + 1
    bytes_each = longest * (12.0 + 8.0 * M * along) + 8.0 * M + 12.0
    for start, stop in device.pieces(total, bytes_each, _PIECE):
        cuts = offsets[start : stop + 1]
        steps = slice(int(cuts[0]), int(cuts[-1]))
        visited = slice(steps.start + start, steps.stop + stop)
        rows = visited if along else slice(start, stop)
        flat = (states[visited], actions[steps], rewards[steps], cuts - cuts[0])
        room = device.empty((rows.stop - rows.start, M), np.float64)
        logged = Logged(*device.put(flat), room, device.empty(stop - start, np.int32))
        device.launch(filter_kernel(M, along), stop - start, table, logged)
        step = device.fetch(logged.step)
        out[rows] = device.fetch(room)
        wrong = np.flatnonzero(step >= 0)[:1]
        wrong_steps += [(start + int(i), int(step[i])) for i in wrong]
    return wrong_steps


def _transpose(start: int, stop: int, log: Indices, target: Indices) -> None:
    """target[i, t] = log[t, i] for some episodes, few enough to stay in a core's cache."""
    target[start:stop] = log[:, start:stop].T


def _kind(playing: Playing) -> RolloutKind:
    from latentmdp.engines.cuda.kernels_episodes import RolloutKind

    chances, acting, rows, *_ = playing
    if acting.follows:
        raise DeviceError(
            'device="cuda" does not follow policy graphs and their mixtures yet: they run with '
            'device="cpu"'
        )
    return RolloutKind(
        width=acting.filter.prior.size,
        stochastic=acting.stochastic,
        filters=acting.filters,
        layered=acting.n_layers > 1,
        partial=bool((rows < 0).any()),
        n_vectors=_equal_steps(acting.offsets),
        n_outcomes=_equal_steps(chances.starts),
        ragged=bool(chances.terminal.any()),
    )


def _equal_steps(starts: Integers) -> int:
    """How long every row is that `starts` cuts out; 0 where lengths differ."""
    lengths = np.diff(starts)
    return int(lengths[0]) if (lengths == lengths[0]).all() else 0


def _tables(playing: Playing) -> Any:
    """What is read at every step, on the GPU; rows of likelihoods by the outcomes of the world."""
    filter_of_world = playing.acting.filter._replace(pattern=playing.rows)
    return gpu().put((playing.chances, playing.acting._replace(filter=filter_of_world)))
