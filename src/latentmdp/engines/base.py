"""What an engine is: a place where pieces of work run, and the one order in which sums are added.

An engine maps a function over items and gives the results in their order. Which items there are is
decided by the data, never by the engine, so results do not depend on where the work ran.

Sums over items are added in a binary tree over their numbers: items 0 and 1, items 2 and 3, then
both pairs, and so on; the last of an odd number waits for the next round. A run of 2^k neighbours
that begins at a multiple of 2^k is a whole branch of that tree, so an engine may hand out runs of
any such length, and the sum is the same to the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp._util.validation import require_choice

F = TypeVar("F")
T = TypeVar("T")
R = TypeVar("R")

Parts = tuple[Any, ...]
"""Arrays and numbers that are added up side by side."""


@runtime_checkable
class Engine(Protocol):
    """Where pieces of work run.

    Attributes
    ----------
    local : bool
        Whether work runs in this process, and sees its memory.
    scratch : Path or None
        Folder for temporary files, which every worker must be able to read and write; None is
        the system's own.
    """

    local: bool
    scratch: Path | None

    def map(self, function: Callable[..., R], items: Iterable[T], *common: Any) -> Iterator[R]:
        """`function(item, *common)` of every item, in their order, a few ahead of the reader."""

    def finished(
        self, function: Callable[..., R], items: Iterable[T], *common: Any
    ) -> Iterator[tuple[int, R]]:
        """The same in the order in which they are done, each with its item's number."""

    def run_length(self, items: int) -> int:
        """How many neighbours, a power of two, are best handed out together."""

    def version_of(self, work: Callable[..., Any]) -> Callable[..., Any] | None:
        """What stands here for a loop of the CPU; None where it is that loop itself."""

    @property
    def within(self) -> Engine:
        """Where a piece of work that runs here has its own pieces run."""


def as_engine(
    engine: Engine | None = None, threads: int | None = None, device: str = "cpu"
) -> Engine:
    """The one engine that is asked for: threads of this process by default.

    `threads=n` is short for `engine=Threads(n)`, and `device="cuda"` for `engine=Cuda()`.

    Raises
    ------
    ValueError
        More than one is given, and they are not the same.
    DeviceError
        A GPU is asked for, and there is none that works.
    """
    from latentmdp.engines.cuda import Cuda
    from latentmdp.engines.threads import Threads

    require_choice("device", device, ("cpu", "cuda"))
    if engine is None:
        return Cuda(threads) if device == "cuda" else Threads(threads)
    if not isinstance(engine, Engine):
        raise TypeError(
            "engine must be one of latentmdp.engines, such as Threads(4) or Dask(address), got "
            f"{type(engine).__name__}"
        )
    if device == "cuda" and not isinstance(engine, Cuda):
        raise ValueError(f'device="cuda" and engine={engine!r} are two places: give one of them')
    if threads is not None and threads != getattr(engine, "threads", None):
        raise ValueError(f"threads={threads} and engine={engine!r} differ: give one of them")
    return engine


def in_order(
    futures: Iterable[F],
    ahead: int,
    result: Callable[[F], R],
    cancel: Callable[[Iterable[F]], None],
) -> Iterator[R]:
    """The results of futures in their order; those that are not read in the end are cancelled.

    Futures are begun as they are taken from the iterable: at most `ahead` before one is waited for.
    """
    waiting: deque[F] = deque()
    try:
        for future in futures:
            waiting.append(future)
            if len(waiting) >= ahead:
                yield result(waiting.popleft())
        while waiting:
            yield result(waiting.popleft())
    finally:
        cancel(waiting)


def tree_sum(parts: Iterable[Parts], run: int = 1) -> Parts:
    """The sum of tuples in the order of the tree; each is already that of `run` items."""
    waiting: list[tuple[int, Parts]] = []
    for part in parts:
        size = run
        while waiting and waiting[-1][0] == size:
            _, before = waiting.pop()
            part, size = _added(before, part), 2 * size
        waiting.append((size, part))
    if not waiting:
        raise ValueError("there is nothing to add")
    _, total_parts = waiting.pop()
    while waiting:
        total_parts = _added(waiting.pop()[1], total_parts)
    return total_parts


def tree_total(values: Floats) -> float:
    """The sum of an array (n,) in the order of the tree, all pairs of a round at once."""
    while values.size > 1:
        even = values.size // 2 * 2
        values = np.concatenate([values[:even:2] + values[1:even:2], values[even:]])
    return float(values[0])


def total(
    engine: Engine, function: Callable[..., Parts], items: Sequence[Any], *common: Any
) -> Parts:
    """The sum of `function(item, *common)` over all items, in the order of the tree."""
    run = engine.run_length(len(items))
    runs = [items[i : i + run] for i in range(0, len(items), run)]
    return tree_sum(engine.map(partial(_branch, function), runs, *common), run)


def _branch(function: Callable[..., Parts], items: Sequence[Any], *common: Any) -> Parts:
    return tree_sum(function(item, *common) for item in items)


def _added(one: Parts, other: Parts) -> Parts:
    return tuple(a + b for a, b in zip(one, other, strict=True))
