"""Coarse-grained threading: kernels release the GIL, so Python threads run them side by side.

Blocks are fixed by the work, never by the number of threads, so results do not depend on it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Threads", "blocks", "one_thread", "run_blocks", "thread_count"]

T = TypeVar("T")
R = TypeVar("R")

_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, `threads=None` is one thread: other work has the other cores."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def thread_count(threads: int | None) -> int:
    """Resolve the `threads` argument: None means every core this process may use.

    A task on a worker of a cluster has one of them (`one_thread`).
    """
    if threads is None:
        if _ALONE.get():
            return 1
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads must be an integer or None, got {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return threads


def blocks(total: int, size: int) -> list[tuple[int, int]]:
    """Cut range(total) into half-open intervals of at most `size`."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def run_blocks(
    work: Callable[[int, int], T], intervals: Iterable[tuple[int, int]], threads: int | None
) -> list[T]:
    """Call `work(start, stop)` for every interval and return the results in order.

    An interrupt cancels the blocks that have not begun and is raised again at once after the
    running ones have ended.
    """
    intervals = list(intervals)
    workers = min(thread_count(threads), len(intervals))
    if workers <= 1:
        return [work(start, stop) for start, stop in intervals]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, start, stop) for start, stop in intervals]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class Threads:
    """Threads of this process, which compiled loops let run side by side.

    Parameters
    ----------
    threads
        How many; None takes every core this process may use.
    scratch
        Folder for temporary files; by default that of the system.
    """

    local = True

    def __init__(
        self, threads: int | None = None, *, scratch: str | os.PathLike[str] | None = None
    ) -> None:
        self.threads = thread_count(threads)
        self.scratch = None if scratch is None else Path(scratch)
        self._pool: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"Threads({self.threads})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def run_length(self, items: int) -> int:
        """One: handing out an item costs nothing beside the work."""
        return 1

    def map(self, function: Callable[..., R], items: Iterable[T], *common: Any) -> Iterator[R]:
        """`function(item, *common)` of every item, in their order."""
        if self.threads == 1:
            yield from (function(item, *common) for item in items)
            return
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(self._started().submit(function, item, *common))
                if len(waiting) > 2 * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            _settle(waiting)

    def finished(
        self, function: Callable[..., R], items: Iterable[T], *common: Any
    ) -> Iterator[tuple[int, R]]:
        """The results in the order in which they are done, each with its item's number."""
        if self.threads == 1:
            yield from ((i, function(item, *common)) for i, item in enumerate(items))
            return
        number = {
            self._started().submit(function, item, *common): i for i, item in enumerate(items)
        }
        try:
            for future in as_completed(number):
                yield number[future], future.result()
        finally:
            _settle(number)

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads)
        return self._pool


def _settle(futures: Iterable[Future[Any]]) -> None:
    """Cancel what has not begun, and wait for what has."""
    wait([future for future in futures if not future.cancel()])
