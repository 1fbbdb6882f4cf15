"""The clock of anytime planners."""

import gc
import types
from pathlib import Path

import pytest
from numba.core import event

import latentmdp as lm
from latentmdp._util import clock as compile_clock
from latentmdp.planning import limits


def test_compilation_does_not_count(monkeypatch) -> None:
    now = [100.0]
    clock = types.SimpleNamespace(perf_counter=lambda: now[0])
    for module in (limits, compile_clock):
        monkeypatch.setattr(module, "time", clock)
    planning = limits.PlanningClock(time_limit=10.0)
    now[0] += 2.0
    with event.trigger_event("numba:compiler_lock"):
        now[0] += 3.0
        with event.trigger_event("numba:compiler_lock"):
            now[0] += 50.0
    now[0] += 1.0
    assert planning.seconds == 3.0
    assert planning.remaining == float("inf")  # nobody plans by the clock in the first third
    now[0] += 1.0
    assert planning.remaining == pytest.approx(0.97 * 10.0 - 4.0)


def test_limits_say_what_was_reached(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(limits, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    planning = limits.PlanningClock(time_limit=10.0, memory_limit=2.0)
    planning.check()
    planning.require_memory(2.0 * limits.MIB)
    with pytest.raises(limits.LimitReached, match="memory limit of 2 MiB: going on would need"):
        planning.require_memory(3.0 * limits.MIB)
    with pytest.raises(limits.LimitReached, match="1 MiB are used, and going on"):
        planning.require_memory(3.0 * limits.MIB, 1.0 * limits.MIB)
    now[0] += 11.0
    with pytest.raises(limits.LimitReached, match="time limit of 10 s: 11 s are used"):
        planning.check()
    unlimited = limits.PlanningClock(time_limit=None)
    unlimited.check()
    unlimited.require_memory(1e30)


def test_an_interrupt_reaches_every_copy_of_a_clock() -> None:
    planning = limits.PlanningClock(time_limit=None)
    silent = planning.silent()
    silent.record(0.0, 1.0)
    assert planning.history == []
    silent.check()
    planning._interrupted.set()
    with pytest.raises(limits.LimitReached, match="interrupted"):
        silent.check()


def _used() -> tuple[float, int]:
    """MiB of resident size, and how many files are open."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / limits.MIB, len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux")
def test_neither_memory_nor_open_files_grow_with_the_plans() -> None:
    """200 plans, 50 evaluations, sessions and fits: 20 KiB kept by each plan would be seen."""
    ending = lm.make("random", contexts=2, states=3, actions=2, horizon=4, rng=0)
    models = ending, ending.replace(horizon=None, discount=0.8)
    logs = lm.simulate(ending, lm.UniformPolicy(), 50, rng=0)
    planners = (lm.HSVI(gap=0.1), lm.PBVI(beliefs=10), lm.Robust(gap=0.2), lm.Memoryless())

    def work(rounds: int) -> None:
        for i in range(rounds):
            model = models[i % 2]
            policies = [planner.plan(model).policy for planner in planners]
            lm.evaluate(model, policies[0], 100, rng=0, method="monte-carlo")
            session = policies[0].session()
            session.observe(0)
            session.act()
            lm.EM(1, restarts=1).fit(logs, rng=0)

    work(6)
    memory, files = _used()
    work(50)
    grown, now = _used()
    assert now <= files
    assert grown - memory < 4.0
