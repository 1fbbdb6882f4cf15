"""The clock of anytime planners."""

import types

from numba.core import event

from latentmdp._util import clock as compile_clock
from latentmdp._util import progress as limits


def test_compilation_does_not_count(monkeypatch) -> None:
    now = [100.0]
    clock = types.SimpleNamespace(perf_counter=lambda: now[0])
    for module in (limits, compile_clock):
        monkeypatch.setattr(module, "time", clock)
    progress = limits.Progress(time_limit=10.0)
    now[0] += 2.0
    with event.trigger_event("numba:compiler_lock"):
        now[0] += 3.0
        with event.trigger_event("numba:compiler_lock"):
            now[0] += 50.0
    now[0] += 1.0
    assert progress.seconds == 3.0
    assert 0.0 < progress.remaining < 7.0
