"""A team of threads: everything is done once, whoever does it, and nobody is left waiting."""

import threading
import time

import numpy as np
import pytest
from numba import njit

from latentmdp._kernels.atomic import count_up, counted, wait
from latentmdp._kernels.sharing import alone, invite, items
from latentmdp.engines.team import Team, run_in_blocks


@njit(nogil=True)
def mark(job, done):
    invite(job)
    for i in items(job):
        count_up(done, i)


@njit(nogil=True)
def add_rows(job, tables, out):
    """A kernel that holds references: views, tuples, arrays of its own."""
    invite(job)
    room = np.empty(tables[0].shape[1])
    for i in items(job):
        for table in tables:
            row = table[i]
            room[:] = row
            out[i] += room.sum()


@njit(nogil=True)
def meet(job, here, number):
    """Every item waits until as many threads are here as there are items, but not for ever."""
    invite(job)
    for _ in items(job):
        count_up(here, 0)
        waited = 0
        while counted(here, 0) < number and waited < 20_000_000:
            waited = wait(waited)
        if counted(here, 0) == number:
            count_up(here, 1)


@njit(nogil=True)
def fail_at(job, wrong, done):
    invite(job)
    for i in items(job):
        if i == wrong:
            raise ValueError("this item cannot be done")
        done[i] = 1


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 17])
def test_every_item_is_done_once(threads: int) -> None:
    with Team(threads) as team:
        for total in (0, 1, 2, threads, 5 * threads + 1, 1000):
            for size in (1, 3, 1000):
                done = np.zeros(total, np.int64)
                team.run(lambda job, done=done: mark(job, done), total, size)
                assert (done == 1).all()


def test_without_a_team_and_for_some_items_alone() -> None:
    done = np.zeros(50, np.int64)
    run_in_blocks(None, lambda job: mark(job, done), 50, 7)
    mark(alone(10, 20), done)
    assert done.tolist() == [1] * 10 + [2] * 10 + [1] * 30


def test_many_short_calls_of_changing_size_keep_apart() -> None:
    with Team(6) as team:
        for call in range(3000):
            done = np.zeros(1 + call % 7, np.int64)
            team.run(lambda job, done=done: mark(job, done), done.size, 1)
            assert (done == 1).all()


def test_others_go_on_with_the_arguments_when_the_caller_has_left() -> None:
    rng = np.random.default_rng(0)
    with Team(4) as team:
        for _ in range(300):
            tables = tuple(rng.random((64, 5)) for _ in range(3))
            out = np.zeros(64)
            # A look at the clock after every item: the caller leaves and comes again.
            team.run(lambda job, t=tables, out=out: add_rows(job, t, out), 64, 1, lambda: None)
            np.testing.assert_allclose(out, sum(table.sum(axis=1) for table in tables))


@pytest.mark.parametrize("asleep", [False, True])
def test_all_threads_work_side_by_side(asleep: bool) -> None:
    meet(alone(0, 1), np.zeros(2, np.int64), 1)  # compiled
    with Team(6) as team:
        for _ in range(3):
            here = np.zeros(2, np.int64)
            team.run(lambda job, here=here: meet(job, here, 6), 6, 6, block=1)
            assert here.tolist() == [6, 6]
            time.sleep(0.3 if asleep else 0.0)


def test_no_more_threads_than_blocks_and_they_end_with_the_team() -> None:
    before = set(threading.enumerate())
    with Team(8) as team:
        done = np.zeros(3, np.int64)
        team.run(lambda job: mark(job, done), 3, 3, block=1)
        helpers = set(threading.enumerate()) - before
        assert len(helpers) == 2
    for helper in helpers:
        helper.join(timeout=30.0)
        assert not helper.is_alive()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_the_check_raises_ends_the_work(threads: int) -> None:
    looks = []

    def check() -> None:
        looks.append(1)
        if len(looks) > 2:
            raise KeyboardInterrupt

    with Team(threads) as team:
        done = np.zeros(100_000, np.int64)
        with pytest.raises(KeyboardInterrupt):
            team.run(lambda job: mark(job, done), done.size, 1, check)
        assert done.max() <= 1
        so_far = done.sum()
        assert so_far < done.size
        time.sleep(0.05)
        assert done.sum() == so_far  # nobody goes on
        team.run(lambda job: mark(job, done), done.size, done.size)
        assert done.sum() == so_far + done.size


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("wrong", [0, 7, 39])
def test_an_error_is_raised_whoever_meets_it(threads: int, wrong: int) -> None:
    with Team(threads) as team:
        for _ in range(20):
            done = np.zeros(40, np.int64)
            with pytest.raises(ValueError, match="this item cannot be done"):
                team.run(lambda job, d=done: fail_at(job, wrong, d), 40, 40, block=1)
        team.run(lambda job, d=done: fail_at(job, -1, d), 40, 40, block=1)
        assert done.all()
