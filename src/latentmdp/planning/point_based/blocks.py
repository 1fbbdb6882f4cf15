"""Work in blocks, shared among threads, that a look at the clock may end."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from latentmdp.engines.threads import Team, blocks

__all__ = ["run_in_blocks"]

T = TypeVar("T")

_BLOCKS_A_THREAD, _LEAST_SHARE = 2, 16
"""Blocks that each thread gets, so that all end at about the same time, and how much smaller than
asked they may become: a block costs some ten microseconds, in which no other can begin."""


def run_in_blocks(
    team: Team | None,
    work: Callable[[int, int], T],
    total: int,
    size: int,
    check: Callable[[], None] | None = None,
) -> list[T]:
    """Call work(first, last) for blocks of at most `size` and return the results in order.

    Several threads get smaller blocks, a few for each of them as long as a block is worth handing
    out. So no result may depend on how the work is cut.

    `check` is called before every block; what it raises ends the work, and is raised again once no
    block runs any more.
    """
    threads = 1 if team is None else team.threads
    if threads > 1:
        share = -(-total // (_BLOCKS_A_THREAD * threads))
        size = min(size, max(share, size // _LEAST_SHARE, 1))
    jobs = blocks(total, size)
    results: list[Any] = [None] * len(jobs)
    if team is None or threads == 1 or len(jobs) <= 1:
        for i, job in enumerate(jobs):
            if check is not None:
                check()
            results[i] = work(*job)
        return results
    numbers, failed = count(), list[BaseException]()

    def worker() -> None:
        while not failed and (i := next(numbers)) < len(jobs):
            try:
                if check is not None:
                    check()
                results[i] = work(*jobs[i])
            except BaseException as error:
                failed.append(error)

    team.share(worker, len(jobs))
    if failed:
        raise failed[0]
    return results
