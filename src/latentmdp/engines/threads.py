"""Coarse-grained threading: kernels release the GIL, so Python threads run them side by side.

Blocks are fixed by the work, never by the number of threads, so results do not depend on it.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

__all__ = ["Team", "blocks", "run_blocks", "thread_count"]

T = TypeVar("T")


def thread_count(threads: int | None) -> int:
    """Resolve the `threads` argument: None means every core this process may use."""
    if threads is None:
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


class Team:
    """Threads kept between many short calls, which starting them anew would dominate.

    Use as a context manager; not for calls from inside its own work.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = thread_count(threads)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.threads > 1:
            self._pool = ThreadPoolExecutor(self.threads)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def share(self, worker: Callable[[], None], number: int) -> None:
        """Run the same worker in `number` threads at most, the calling one among them.

        Workers take pieces of work from each other until none is left, which costs far less than
        handing every piece to a thread. A worker must not raise.
        """
        others = 0 if self._pool is None else min(self.threads, number) - 1
        futures = [self._pool.submit(worker) for _ in range(others)] if self._pool else []
        worker()
        for future in futures:
            future.result()

    def mapper(self, number: int) -> Callable[[Callable[[int], T], range], Iterable[T]]:
        """What maps a function over `number` jobs, results in order: `map`, or the threads' own."""
        return map if self._pool is None or number <= 1 else self._pool.map
