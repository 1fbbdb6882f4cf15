"""Work in blocks, shared among threads, that a look at the clock may end."""

from collections.abc import Callable
from typing import TypeVar

from latentmdp.engines.threads import Team, blocks

__all__ = ["run_in_blocks"]

T = TypeVar("T")

_BLOCKS_A_THREAD, _LEAST_SHARE = 4, 16
"""Blocks that each thread gets, so that all end at about the same time, and how much smaller than
asked they may become: handing out a block costs some twenty microseconds."""


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
    if team is not None and team.threads > 1:
        share = -(-total // (_BLOCKS_A_THREAD * team.threads))
        size = min(size, max(share, size // _LEAST_SHARE, 1))
    if 0 < total <= size:
        if check is not None:
            check()
        return [work(0, total)]
    jobs = blocks(total, size)
    failed: list[BaseException] = []
    results: list[T] = []

    def run(i: int) -> T | None:
        if failed:
            return None
        try:
            if check is not None:
                check()
            return work(*jobs[i])
        except BaseException as error:
            failed.append(error)
            return None

    mapper = map if team is None else team.mapper(len(jobs))
    for result in mapper(run, range(len(jobs))):
        results.append(result)  # type: ignore[arg-type]
    if failed:
        raise failed[0]
    return results
