"""Coarse-grained threading: kernels release the GIL, so Python threads run them side by side.

Work is cut into blocks, half-open ranges of items, and `run_blocks` runs them. Blocks are fixed by
the work, never by the number of threads, so results do not depend on it. Handing a block over
through the interpreter takes some 10 microseconds, during which no other thread gets in: a block
should take a hundred times as long.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from latentmdp._util import arrays
from latentmdp.engines.base import in_order

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
    return arrays.positive_integer("threads", threads)


def blocks(total: int, size: int) -> list[tuple[int, int]]:
    """Cut range(total) into half-open intervals of at most `size`."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def run_blocks(
    work: Callable[..., T],
    intervals: Iterable[tuple[int, int]],
    threads: int | None = None,
    check: Callable[[], None] | None = None,
    *common: Any,
) -> list[T]:
    """Call `work(start, stop, *common)` for every interval and return the results in order.

    The calling thread takes blocks like every other one, so that a single thread pays for nothing
    and work may itself call `run_blocks`. Blocks begin in their order.

    Parameters
    ----------
    threads
        How many, kept from call to call; None takes every core this process may use.
    check
        Called by the calling thread before each block that it takes. What it raises, an interrupt
        or an error of any block ends the work: no further block begins, and it is raised again
        when those that run have ended.
    """
    pending = list(enumerate(intervals))
    results: list[Any] = [None] * len(pending)
    number = thread_count(threads)
    engine = _KEPT.setdefault(number, Threads(number))
    # One iterator for all threads: taking the next item of it is one step for the interpreter.
    queue, stopped = iter(pending), False

    def share(check: Callable[[], None] | None) -> None:
        nonlocal stopped
        try:
            for i, (start, stop) in queue:
                if stopped:
                    return
                if check is not None:
                    check()
                results[i] = work(start, stop, *common)
        except BaseException:
            stopped = True
            raise

    helpers: list[Future[None]] = []
    try:
        for _ in range(min(engine.threads, len(pending)) - 1):
            helpers.append(engine.submit(share, None))
        share(check)
    finally:
        _settle(helpers)
    for helper in helpers:
        if not helper.cancelled():
            helper.result()  # raises what was raised there
    return results


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
        self._process = 0  # in which the pool was started: a forked child has none of its threads

    def __repr__(self) -> str:
        return f"Threads({self.threads})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def run_length(self, items: int) -> int:
        """One: handing out an item costs nothing beside the work."""
        return 1

    @property
    def within(self) -> Threads:
        """One thread: the others have pieces of their own."""
        return Threads(1)

    def version_of(self, work: Callable[..., Any]) -> Callable[..., Any] | None:
        """None: a loop of the CPU runs as it is."""
        return None

    def run(self, work: Callable[..., R], total: int, size: int, *common: Any) -> list[R]:
        """`work(start, stop, *common)` for all of range(total), in blocks of `size`."""
        return run_blocks(work, blocks(total, size), self.threads, None, *common)

    def map(self, function: Callable[..., R], items: Iterable[T], *common: Any) -> Iterator[R]:
        """`function(item, *common)` of every item, in their order."""
        if self.threads == 1:
            yield from (function(item, *common) for item in items)
            return
        futures = (self.submit(function, item, *common) for item in items)
        yield from in_order(futures, 2 * self.threads + 1, Future.result, _settle)

    def finished(
        self, function: Callable[..., R], items: Iterable[T], *common: Any
    ) -> Iterator[tuple[int, R]]:
        """The results in the order in which they are done, each with its item's number."""
        if self.threads == 1:
            yield from ((i, function(item, *common)) for i, item in enumerate(items))
            return
        number = {self.submit(function, item, *common): i for i, item in enumerate(items)}
        try:
            for future in as_completed(number):
                yield number[future], future.result()
        finally:
            _settle(number)

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """`function(*arguments)` in one of the threads, which are started once and then kept."""
        if self._pool is None or self._process != os.getpid():
            self._pool, self._process = ThreadPoolExecutor(self.threads), os.getpid()
        return self._pool.submit(function, *arguments)


# Kept from call to call, so that a loop of many calls starts its threads once.
_KEPT: dict[int, Threads] = {}
"""The engine whose threads run blocks, by their number."""


def _settle(futures: Iterable[Future[Any]]) -> None:
    """Cancel what has not begun, and wait for what has; an interrupt is raised after that."""
    running, interrupt = [future for future in futures if not future.cancel()], None
    while True:
        try:
            wait(running)
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
