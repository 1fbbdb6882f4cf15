"""Threads kept between many short calls, which starting them anew would dominate.

What they share is in `latentmdp._kernels.sharing`: here they are started, put to sleep and woken.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread
from typing import Self

from latentmdp._kernels import sharing
from latentmdp._kernels.sharing import Job
from latentmdp.engines.threads import thread_count

__all__ = ["Job", "Team", "run_in_blocks"]

_BLOCKS_A_THREAD, _LEAST_SHARE = 16, 256
"""Blocks that each thread gets, so that all end at about the same time, and how much smaller than
asked they may become: a block costs some hundred nanoseconds."""

_LOOKS = 10_000
"""How long a thread waits for the next call before it sleeps: some milliseconds. Waking it takes as
long as thousands of looks, and all threads need the interpreter for it, one after the other."""


class Team:
    """Threads that share the work of kernels.

    Use as a context manager; not for calls from inside its own work.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = thread_count(threads)
        self._job = sharing.new_job()
        self._bells: list[Lock] = []  # each wakes a thread that waits for it
        self._sleeping: list[bool] = []
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        sharing.end(self._job)
        self._wake(len(self._bells))
        self._bells = []

    def run(
        self,
        work: Callable[[Job], None],
        total: int,
        size: int,
        check: Callable[[], None] | None = None,
        block: int | None = None,
    ) -> None:
        """Call work(job) until all blocks of the job are done, see `run_in_blocks`."""
        job = self._job
        if block is None:
            share = -(-total // (_BLOCKS_A_THREAD * self.threads)) if self.threads > 1 else size
            block = min(size, max(share, size // _LEAST_SHARE, 1))
        helpers = min(self.threads, -(-total // block)) - 1
        sharing.ready(job, 0, total, block, max(1, size // block), helpers > 0)
        self._start(helpers)
        try:
            while sharing.blocks_left(job):
                if check is not None:
                    check()
                self._wake(helpers)
                work(job)
        finally:
            if helpers > 0:
                self._close()
        if sharing.has_failed(job):  # here it is raised as it would have been there
            sharing.ready(job, 0, total, total, 1, False)
            work(job)

    def _start(self, helpers: int) -> None:
        """Start threads, as many as there should be."""
        while len(self._bells) < helpers:
            bell = Lock()
            bell.acquire()
            self._bells.append(bell)
            self._sleeping.append(False)
            Thread(target=self._help, args=(len(self._bells) - 1, bell), daemon=True).start()

    def _wake(self, helpers: int) -> None:
        """Wake those of the first threads that sleep."""
        for place in range(helpers):
            if self._sleeping[place]:
                self._sleeping[place] = False
                self._bells[place].release()

    def _help(self, place: int, bell: Lock) -> None:
        """Serve the job; sleep when nothing comes for long."""
        seen = 0
        while (seen := sharing.serve(self._job, seen, _LOOKS)) >= 0:
            self._sleeping[place] = True
            if self._ended:
                return
            bell.acquire()

    def _close(self) -> None:
        """Wait for the other threads; what interrupts it is raised afterwards."""
        interrupt = None
        while True:
            try:
                sharing.close(self._job)
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


def run_in_blocks(
    team: Team | None,
    work: Callable[[Job], None],
    total: int,
    size: int,
    check: Callable[[], None] | None = None,
    block: int | None = None,
) -> None:
    """Call work(job) until a kernel in it has taken all items of range(total).

    Parameters
    ----------
    size
        Items after which the calling thread comes back and calls `check`, at most.
    check
        What it raises ends the work, and is raised again once no other thread is at work.
    block
        Items that a thread takes at a time: by default as many as leave a few blocks for every
        thread of the team, as long as a block is worth it. Blocks begin in their order.
    """
    (team or Team(1)).run(work, total, size, check, block)
