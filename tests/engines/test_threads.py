"""Blocks of work in threads: everything is done once, whoever does it, and nobody is left over."""

import os
import threading
import time

import numpy as np
import pytest
from numba import njit

from latentmdp.engines import blocks, run_blocks


@njit(nogil=True)
def mark(start, stop, done):
    for i in range(start, stop):
        done[i] += 1


@njit(nogil=True)
def fail_at(start, stop, wrong, done):
    for i in range(start, stop):
        if i == wrong:
            raise ValueError("this item cannot be done")
        done[i] = 1


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 17])
def test_every_item_is_done_once_and_results_are_in_order(threads: int) -> None:
    for total in (0, 1, 2, threads, 5 * threads + 1, 1000):
        for size in (1, 3, 1000):
            done = np.zeros(total, np.int64)
            run_blocks(mark, blocks(total, size), threads, None, done)
            assert (done == 1).all()
            spans = blocks(total, size)
            assert run_blocks(lambda start, stop: (start, stop), spans, threads) == spans


@pytest.mark.parametrize("asleep", [False, True])
def test_all_threads_work_side_by_side_and_are_kept(asleep: bool) -> None:
    before, workers = threading.active_count(), set()
    meeting = threading.Barrier(6, timeout=30.0)

    def meet(start: int, stop: int) -> None:
        meeting.wait()  # until there are six
        workers.add(threading.get_ident())

    for _ in range(3):
        run_blocks(meet, blocks(6, 1), 6)
        time.sleep(0.3 if asleep else 0.0)
    assert len(workers) == 6
    assert threading.active_count() <= before + 6


def test_one_thread_starts_none() -> None:
    before = threading.active_count()
    found = run_blocks(lambda start, stop: threading.get_ident(), blocks(10, 1), 1)
    assert set(found) == {threading.get_ident()}
    assert threading.active_count() == before


def test_blocks_of_blocks_do_not_wait_for_each_other() -> None:
    def outer(start: int, stop: int) -> int:
        return sum(run_blocks(lambda i, j: start, blocks(5, 1), 2))

    assert run_blocks(outer, blocks(20, 1), 2) == [5 * i for i in range(20)]


@pytest.mark.parametrize("threads", [1, 3])
def test_what_the_check_raises_ends_the_work(threads: int) -> None:
    looks = []

    def check() -> None:
        looks.append(threading.get_ident())
        if len(looks) > 2:
            raise KeyboardInterrupt

    def slowly(start: int, stop: int) -> None:
        time.sleep(0.001)
        mark(start, stop, done)

    done = np.zeros(100_000, np.int64)
    with pytest.raises(KeyboardInterrupt):
        run_blocks(slowly, blocks(done.size, 1), threads, check)
    assert set(looks) == {threading.get_ident()}
    assert done.max() <= 1
    so_far = done.sum()
    assert so_far < done.size
    time.sleep(0.05)
    assert done.sum() == so_far  # nobody goes on
    run_blocks(mark, blocks(done.size, done.size), threads, None, done)
    assert done.sum() == so_far + done.size


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("wrong", [0, 7, 39])
def test_an_error_is_raised_whoever_meets_it(threads: int, wrong: int) -> None:
    done = np.zeros(40, np.int64)
    for _ in range(20):
        with pytest.raises(ValueError, match="this item cannot be done"):
            run_blocks(fail_at, blocks(40, 1), threads, None, wrong, done)
    done[:] = 0
    run_blocks(fail_at, blocks(40, 1), threads, None, -1, done)
    assert done.all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    meeting = threading.Barrier(2, timeout=30.0)
    run_blocks(lambda start, stop: meeting.wait(), blocks(2, 1), 2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            meeting = threading.Barrier(2, timeout=30.0)
            run_blocks(lambda start, stop: meeting.wait(), blocks(2, 1), 2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
