"""Many runs of L-UCRL in one world, one a seed, on the cores of this machine or on a GPU.

Run i has the seed `first_seed` + i and is the run that `LUCRL.run` makes with this seed, bit for
bit, wherever it is made. On a GPU a group of threads makes a run (`_kernels/cuda/lucrl.py`); all
runs go on side by side, a few episodes at a time.

What is kept of a run is little: its returns, or their means over windows of episodes, and its
counts. Whoever wants all of one run plays it again by its seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.memory import require_memory
from latentmdp._util.progress import Move, progress_bar
from latentmdp._util.random import philox_key
from latentmdp._util.results import Result
from latentmdp._util.words import plural
from latentmdp.engines.cuda import Gpu, gpu
from latentmdp.engines.threads import blocks, run_blocks
from latentmdp.errors import DeviceError
from latentmdp.metrics import last_tenth
from latentmdp.online.base import next_chunk
from latentmdp.online.empirical_model import AnyCounts, Counts, EmpiricalModel
from latentmdp.online.run import Run
from latentmdp.worlds import ModelWorld, Space

if TYPE_CHECKING:
    from latentmdp._kernels.cuda.lucrl import BatchKind, Learners

__all__ = ["GROUPING", "Grouping", "ManyRuns", "gpu_runs", "played_runs"]

_SHARED_BYTES = 40_000
"""Of the memory that a block of threads shares, what runs may take: 48 KiB are always there."""

_MOST_RUNS = 1 << 20
"""Runs that a GPU makes side by side at most, if its memory allows."""

_OF_RUN = {
    "estimate": (
        *("transition_counts", "reward_counts", "initial_counts", "visits", "scale", "rows"),
        *("seen", "prior", "initial", "transitions", "means", "variances"),
    ),
    "optimistic": (
        *("values", "bonus", "rewards", "slopes", "shares", "unseen", "inverse", "outside"),
        *("spread", "planned_visits", "changes", "stale", "due"),
    ),
}
"""Arrays of `EmpiricalModel` that every run has for itself."""


@dataclass(frozen=True, eq=False)
class ManyRuns(Result):
    """Many runs of one learner in one world.

    Attributes
    ----------
    returns : (R, K / window)
        The mean return of every `window` episodes in a row, exploration included; of what is left
        at the end. With a window of 1, the return of each episode.
    beliefs : (R, K / window)
        The same of the belief in the true context at the end of an episode.
    counts
        What each run had counted in the end; `counts[i].model(space)` is its empirical model.
    space
        Sizes, reward values, horizon and discount, as the learner knew them.
    episodes
        K, of each run.
    window
        Number of episodes that an entry of `returns` is the mean of.
    first_seed
        Run i has the seed first_seed + i.
    settings
        Of the learner and its world, as in `Run`.
    seconds
        Wall-clock time of all runs.
    """

    returns: Floats
    beliefs: Floats
    counts: tuple[AnyCounts, ...]
    space: Space
    episodes: int
    window: int
    first_seed: int
    settings: dict[str, Any]
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        for array in (self.returns, self.beliefs):
            arrays.frozen(array)

    def __len__(self) -> int:
        return len(self.counts)

    def trailing_return(self) -> float:
        """Mean return at the end: of the windows that hold the last tenth of the episodes."""
        first = (self.episodes - last_tenth(self.episodes)) // self.window
        sizes = _window_sizes(self.episodes, self.window)[first:]
        return float(np.average(self.returns[:, first:].mean(axis=0), weights=sizes))

    def facts(self) -> Iterator[tuple[str, Any]]:
        """What a reader wants to know first, by name."""
        yield "learner", self.settings.get("learner")
        yield "runs", f"{len(self):,}"
        yield "episodes", f"{self.episodes:,}"
        yield "return in the last tenth", f"{self.trailing_return():.4g}"
        yield "seconds", f"{self.seconds:.3g}"

    def __repr__(self) -> str:
        learner = self.settings.get("learner", "a learner")
        return f"ManyRuns({plural(len(self), 'run')} of {learner}, {self.episodes} episodes each)"


def window_means(values: Floats, window: int) -> Floats:
    """Means of every `window` entries of a row in their order, the last of what is left."""
    starts = np.arange(0, values.shape[-1], window)
    sums = np.zeros((*values.shape[:-1], starts.size))
    for j in range(min(window, values.shape[-1])):  # in the order of a GPU, which adds as it plays
        part = values[..., j::window]
        sums[..., : part.shape[-1]] += part
    return sums / _window_sizes(values.shape[-1], window)


def _window_sizes(episodes: int, window: int) -> Floats:
    starts = np.arange(0, episodes, window)
    return np.minimum(window, episodes - starts).astype(np.float64)


def played_runs(
    play: Callable[[int], Run], seeds: range, window: int, threads: int, progress: bool
) -> tuple[Floats, Floats, tuple[AnyCounts, ...]]:
    """Returns, beliefs and counts of the runs that `play` makes by their seeds."""
    with progress_bar(progress, "runs", len(seeds)) as advance:

        def work(start: int, stop: int) -> tuple[Floats, Floats, AnyCounts]:
            run = play(seeds[start])
            advance(stop - start)
            assert run.counts is not None
            earned, believed = (window_means(v, window) for v in (run.returns, run.beliefs))
            return earned, believed, run.counts

        kept = run_blocks(work, blocks(len(seeds), 1), threads)
    returns, beliefs, counts = zip(*kept)
    return np.stack(returns), np.stack(beliefs), tuple(counts)


class Grouping(NamedTuple):
    """How runs are laid out on a GPU; no result depends on it.

    `lanes` threads make a run, a power of two, and a block has `threads`, or one run where that
    needs more; `registers` limits those of a thread.
    """

    lanes: int
    threads: int
    registers: int | None = None


GROUPING = Grouping(32, 32, 128)
"""The fastest on an H200, by 6 % over 8 lanes: a warp for every run at (7, 15, 3, 30)."""


def gpu_runs(
    world: ModelWorld,
    empirical: EmpiricalModel,
    revealed: bool,
    episodes: int,
    seeds: range,
    window: int,
    progress: bool = False,
    grouping: Grouping | None = None,
) -> tuple[Floats, Floats, tuple[AnyCounts, ...]]:
    """Returns, beliefs and counts of runs on the GPU that all begin as `empirical`."""
    grouping = grouping or GROUPING
    device, kind = gpu(), kind_of(empirical, revealed, grouping)
    windows = -(-episodes // window)
    require_memory(
        (16.0 * windows + _count_bytes(empirical)) * len(seeds),
        f"{len(seeds):,} runs of {episodes:,} episodes",
        "a larger window keeps fewer returns",
    )
    keys = np.array([philox_key(seed) for seed in seeds], np.uint64)
    chances = device.put(world.chances)
    kept: list[tuple[Any, ...]] = []
    with progress_bar(progress, "runs", len(seeds) * episodes) as advance:
        each = _run_bytes(empirical) + 16.0 * windows
        for start, stop in device.pieces(len(seeds), each, _MOST_RUNS, "run"):
            learners = learners_on(device, empirical, keys[start:stop])
            batch = _Batch(device, kind, grouping, chances, learners, window)
            kept.append(batch.play(episodes, advance))
    sizes = _window_sizes(episodes, window)
    returns, beliefs = (np.concatenate(part) / sizes for part in list(zip(*kept))[:2])
    counts = tuple(own for _, _, *packed in kept for own in _counts_of(empirical, *packed))
    return returns, beliefs, counts


class _Batch:
    """Runs that a GPU makes side by side."""

    def __init__(
        self,
        device: Gpu,
        kind: BatchKind,
        grouping: Grouping,
        chances: Any,
        learners: Learners,
        window: int,
    ) -> None:
        self._gpu, self._kind, self._registers = device, kind, grouping.registers
        self._chances, self._learners, self._window = chances, learners, window

    def play(self, episodes: int, advance: Move) -> tuple[NDArray[Any], ...]:
        """Sums of returns and of beliefs over windows, and the packed counts in the end."""
        from latentmdp._kernels.cuda.lucrl import Earned, lucrl_kernel

        kind, kernel = self._kind, lucrl_kernel(self._kind, self._registers)
        R = self._learners.keys.shape[0]
        shape = (R, -(-episodes // self._window))
        earned = Earned(self._window, *(self._gpu.put(np.zeros(shape)) for _ in range(2)))
        done, chunk = 0, 1
        while done < episodes:
            began, count = time.monotonic(), min(chunk, episodes - done)
            arguments = (self._chances, self._learners, done, count, earned)
            blocks_needed = -(-R // kind.runs)
            self._gpu.launch_blocks(kernel, blocks_needed, kind.runs * kind.lanes, *arguments)
            self._gpu.wait()
            done += count
            advance(R * count)
            chunk = next_chunk(chunk, count, time.monotonic() - began)
        e = self._learners.estimate
        wanted = (*earned[1:], e.transition_counts, e.reward_counts, e.initial_counts)
        return tuple(map(self._gpu.fetch, wanted))


def kind_of(empirical: EmpiricalModel, revealed: bool, grouping: Grouping) -> BatchKind:
    """What the kernel is compiled for; raises where runs do not fit a GPU."""
    from latentmdp._kernels.cuda.lucrl import BatchKind, shared_bytes

    estimate, optimistic, space = empirical.estimate, empirical.optimistic, empirical.space
    if estimate.table is not None:
        raise DeviceError(
            f'device="cuda" keeps counts of all (s, a, s\'), and {space.n_states} states with '
            f'{space.n_actions} actions are too many; device="cpu" counts what occurs'
        )
    simulated = gpu().simulated
    lanes, threads, _ = grouping
    if lanes < 1 or lanes & (lanes - 1) or lanes > 1024 or not 1 <= threads <= 1024:
        raise ValueError(
            f"lanes must be a power of two up to 1024 and threads at most 1024, got {lanes} and "
            f"{threads}"
        )
    lanes = min(lanes, 2) if simulated else lanes
    kind = BatchKind(
        sizes=space.dimensions,
        horizon=space.required_horizon(),
        width=optimistic.outside.shape[1],
        transition_rewards=estimate.transition_rewards,
        start=estimate.start,
        bonus=optimistic.kind,
        adaptive=optimistic.adaptive,
        revealed=revealed,
        lanes=lanes,
        runs=1,
    )
    fitting = _SHARED_BYTES // shared_bytes(kind)
    if fitting < 1:
        raise DeviceError(
            f'device="cuda" has no room for episodes of {kind.horizon} steps in {space.n_states} '
            'states; device="cpu" has'
        )
    together = 1 if simulated or lanes > 32 else max(1, threads // lanes)
    return kind._replace(runs=min(together, fitting))


def learners_on(device: Gpu, empirical: EmpiricalModel, keys: NDArray[np.uint64]) -> Learners:
    """Runs with these keys that all begin alike, on the GPU."""
    from latentmdp._kernels.cuda.lucrl import Learners

    parts = {}
    for part, names in _OF_RUN.items():
        one = getattr(empirical, part)
        own = {name: _repeated(device, getattr(one, name), keys.size) for name in names}
        shared = {
            name: device.put(value if value.size else np.zeros(1, value.dtype))
            for name, value in one._asdict().items()
            if name not in own and isinstance(value, np.ndarray)
        }
        parts[part] = one._replace(**own, **shared)
    # A kernel takes no None; what has no table on the CPU is built without one there.
    parts["estimate"] = parts["estimate"]._replace(table=0)
    missing = empirical.optimistic.missing.size
    return Learners(device.put(keys), parts["estimate"], parts["optimistic"], missing)


def _repeated(device: Gpu, array: NDArray[Any], times: int) -> Any:
    """One row a run."""
    return device.put(np.tile(array.reshape(1, -1), (times, 1)))


def _run_bytes(empirical: EmpiricalModel) -> float:
    return float(
        sum(
            getattr(getattr(empirical, part), name).nbytes
            for part, names in _OF_RUN.items()
            for name in names
        )
    )


def _count_bytes(empirical: EmpiricalModel) -> float:
    e = empirical.estimate
    return float(e.transition_counts.nbytes + e.reward_counts.nbytes + e.initial_counts.nbytes)


def _counts_of(empirical: EmpiricalModel, *packed: NDArray[Any]) -> Iterator[Counts]:
    """The counts of each run, context first, from those of the GPU, (R, ...) packed."""
    M, S, A, Z = empirical.space.dimensions
    joint = empirical.estimate.transition_rewards
    shapes = ((S, A, S, M), (S, A, S, Z, M) if joint else (S, A, Z, M), (S, M))
    parts = (
        np.ascontiguousarray(np.moveaxis(array.reshape(len(array), *shape), -1, 1))
        for array, shape in zip(packed, shapes)
    )
    return (Counts(*own) for own in zip(*parts))
