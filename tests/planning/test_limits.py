"""The clock of anytime planners."""

import types

import pytest
from numba.core import event

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
    assert planning.remaining == pytest.approx(0.97 * 10.0 - 3.0)


def test_limits_say_what_was_reached(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(limits, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    planning = limits.PlanningClock(time_limit=10.0, memory_limit=2.0)
    planning.check()
    planning.require_memory(2.0 * limits.MIB)
    with pytest.raises(limits.LimitReached, match="memory limit of 2 MiB: going on would need"):
        planning.require_memory(3.0 * limits.MIB)
    now[0] += 11.0
    with pytest.raises(limits.LimitReached, match="time limit of 10 s"):
        planning.check()
    unlimited = limits.PlanningClock(time_limit=None)
    unlimited.check()
    unlimited.require_memory(1e30)
