"""Time and memory limits of planners that can stop at any moment, and the bounds they record."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from typing import Any

from latentmdp._util.clock import compile_seconds
from latentmdp._util.memory import give_memory_back
from latentmdp.engines import thread_count

MIB = float(1 << 20)

Check = Callable[[], None]
"""What long work calls now and then; it raises `LimitReached` where the work must end."""

_USABLE_SHARE = 0.97
"""Of the time limit, for the search: the rest is for the policy, which takes longer the more was
found. A larger share would end after the limit, a smaller one searches less."""


class LimitReached(Exception):  # noqa: N818, it is no error, and the text says which limit
    """The search ends here, with what it has found."""


@contextmanager
def held_interrupts(noted: threading.Event) -> Iterator[None]:
    """Hold interrupts (Ctrl-C) back: the first is only noted, a second one is raised at once.

    An exception in the middle of compiled code would surface as an internal error of numba. Where
    Python's own handler is not in charge, or in another thread, nothing is changed.
    """
    previous = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or previous is not signal.default_int_handler:
        yield
        return

    def note(number: int, frame: object) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


class PlanningClock:
    """The clock of one planning run, its limits (seconds, MiB), and the bounds it has reached.

    Compilation, which only the first run on a machine waits for, does not count. `on_progress` is
    called with (seconds, lower, upper) at every record.
    """

    def __init__(
        self,
        time_limit: float | None,
        memory_limit: float | None = None,
        on_progress: Callable[[float, float, float], None] | None = None,
    ) -> None:
        self.time_limit, self.memory_limit = time_limit, memory_limit
        self.history: list[tuple[float, float, float]] = []
        self._on_progress = on_progress
        self.stopped: str | None = None
        self._interrupted = threading.Event()
        self._start = time.perf_counter() - compile_seconds()

    @property
    def seconds(self) -> float:
        """Seconds since the start, less those spent compiling."""
        return time.perf_counter() - compile_seconds() - self._start

    @property
    def remaining(self) -> float:
        """Seconds until the time limit, less what it takes to put the policy together.

        In the first third of the time it is infinite: a search that looks ahead then sees no limit,
        and what converges in that time is the same, bit for bit, however fast the machine is. (A
        round takes less than three times what those before it took, so it ends in time.)
        """
        limit, seconds = math.inf if self.time_limit is None else self.time_limit, self.seconds
        return math.inf if 3.0 * seconds < limit else _USABLE_SHARE * limit - seconds

    @property
    def memory(self) -> float:
        """The memory limit in bytes."""
        return math.inf if self.memory_limit is None else self.memory_limit * MIB

    def check(self) -> None:
        """Raise `LimitReached` once the time is over or an interrupt has come."""
        if self._interrupted.is_set():
            raise LimitReached("interrupted")
        if self.remaining <= 0.0:
            raise LimitReached(
                f"stopped at the time limit of {self.time_limit:g} s: {self.seconds:.3g} s are used"
            )

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Run a search; what ends it early, a limit or an interrupt, is noted as `stopped`."""
        try:
            yield
        except LimitReached as limit:
            self.stopped = str(limit)
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    def interruptible(self) -> AbstractContextManager[None]:
        """Hold interrupts (Ctrl-C) back until the next `check`, see `held_interrupts`.

        What earlier plans left is given back first: a service that plans all day stays small.
        """
        give_memory_back()
        return held_interrupts(self._interrupted)

    def with_time_left(self) -> PlanningClock:
        """The same clock, and if little or no time is left a tenth of what was used, and .1 s more.

        So the least that a plan says is there where set-up alone took longer than the limit.
        """
        other = copy(self)
        if self.time_limit is not None:
            other.time_limit = max(self.time_limit, (1.1 * self.seconds + 0.1) / _USABLE_SHARE)
        return other

    def require_memory(self, needed: float, used: float | None = None) -> None:
        """Raise `LimitReached` if more bytes would be needed than allowed."""
        if needed > self.memory:
            now = "" if used is None else f"{used / MIB:.0f} MiB are used, and "
            raise LimitReached(
                f"stopped at the memory limit of {self.memory_limit:g} MiB: {now}going on would "
                f"need about {needed / MIB:.0f} MiB"
            )

    def silent(self) -> PlanningClock:
        """The same clock, limits and interrupts, with a record of its own that is not shown."""
        other = copy(self)
        other.history, other._on_progress = [], None
        return other

    def record(self, lower: float, upper: float) -> None:
        """Note bounds that hold now."""
        self.history.append((self.seconds, lower, upper))
        if self._on_progress is not None:
            self._on_progress(*self.history[-1])


def check_limit(name: str, value: float | None, zero: bool = False) -> None:
    """Refuse a limit that is not None or a positive (or, if `zero`, non-negative) number."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number or None, got {type(value).__name__}")
    if math.isnan(value) or value < 0.0 or (value == 0.0 and not zero):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'positive'}, got {value}")


def check_limits(planner: Any) -> None:
    """Refuse gaps, limits and threads of a planner that mean nothing."""
    for name in ("gap", "absolute_gap", "spacing", "time_limit", "memory_limit"):
        check_limit(name, getattr(planner, name, None), zero=name.endswith("gap"))
    thread_count(planner.threads)
