"""A team of threads: everything is done once, whoever does it, and nobody is left waiting."""

import signal
import threading
import time
from itertools import count

import pytest

from latentmdp.engines.threads import Team


def taking(jobs: int, done: list[int], pause: float = 0.0):
    """A worker that takes jobs until none is left."""
    numbers = count()

    def worker() -> None:
        while (i := next(numbers)) < jobs:
            time.sleep(pause)
            done.append(i)

    return worker


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 17])
def test_every_job_is_done_once(threads: int) -> None:
    with Team(threads) as team:
        for jobs in (1, 2, threads, 5 * threads + 1):
            done: list[int] = []
            team.share(taking(jobs, done), jobs)
            assert sorted(done) == list(range(jobs))


def test_many_short_calls_of_changing_size_keep_apart() -> None:
    with Team(6) as team:
        for call in range(3000):
            jobs, done = 1 + call % 7, list[int]()
            team.share(taking(jobs, done), jobs)
            assert sorted(done) == list(range(jobs))


def test_all_threads_work_side_by_side() -> None:
    meeting = threading.Barrier(6, timeout=30.0)
    with Team(6) as team:
        for _ in range(3):
            team.share(meeting.wait, 6)
        assert not meeting.broken


def test_no_more_threads_than_jobs() -> None:
    names = set[str]()
    with Team(8) as team:
        team.share(lambda: names.add(threading.current_thread().name), 3)
    assert len(names) <= 3


def test_the_threads_end_with_the_team() -> None:
    before = set(threading.enumerate())
    with Team(5) as team:
        team.share(lambda: None, 5)
        helpers = set(threading.enumerate()) - before
        assert len(helpers) == 4
    for helper in helpers:
        helper.join(timeout=30.0)
        assert not helper.is_alive()


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="signals cannot be raised here")
def test_an_interrupt_is_raised_after_the_others_have_ended() -> None:
    main, done = threading.main_thread(), list[int]()

    def worker() -> None:
        if threading.current_thread() is main:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        done.append(1)

    with Team(3) as team:
        with pytest.raises(KeyboardInterrupt):
            team.share(worker, 3)
        assert len(done) == 2
        team.share(taking(10, done), 10)
    assert len(done) == 12
