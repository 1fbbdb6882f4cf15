"""Compilation by numba: the seconds that this process has spent in it, and a line that says so."""

import sys
import threading
import time
from functools import lru_cache
from types import FrameType
from typing import Any

from numba.core import event


class _CompileClock(event.Listener):
    """Seconds that numba has spent compiling, or loading compiled code, in this process."""

    def __init__(self) -> None:
        self._done, self._depth, self._since = 0.0, 0, 0.0

    @property
    def seconds(self) -> float:
        """Those of compilations that have ended, and of one that goes on, in any thread."""
        since = self._since
        return self._done + (time.perf_counter() - since if self._depth > 0 else 0.0)

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._since = time.perf_counter()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._done += time.perf_counter() - self._since


def compile_seconds() -> float:
    """Seconds spent compiling since the first call."""
    return _clock().seconds


@lru_cache(maxsize=1)
def _clock() -> _CompileClock:
    clock = _CompileClock()
    event.register("numba:compiler_lock", clock)  # type: ignore[no-untyped-call]
    return clock


class CompileAnnouncement(event.Listener):
    """Says on stderr, unless `silent`, that loops are compiled: once for each public call."""

    def __init__(self) -> None:
        self.silent = False
        self._announced: set[str] = set()

    def on_start(self, event: Any) -> None:
        kernel = event.data["dispatcher"].py_func
        if self.silent or not kernel.__module__.startswith("latentmdp."):
            return
        call = _public_call() or kernel.__name__
        if call not in self._announced:
            self._announced.add(call)
            line = f"latentmdp: compiling {call}, once; kept on disk, so the next start is quick"
            print(line, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


def _public_call() -> str | None:
    """The outermost function of the library that waits, but for commands and engines.

    A thread of an engine has only its own stack, so that of the main thread is looked at first.
    """
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    return _outermost(main) or _outermost(sys._getframe())


def _outermost(frame: FrameType | None) -> str | None:
    outermost = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        part = module.split(".")[1:2]
        if module.startswith("latentmdp.") and part not in (["cli"], ["engines"], ["_util"]):
            outermost = frame.f_code.co_qualname
        frame = frame.f_back
    return outermost


@lru_cache(maxsize=1)
def compile_announcement() -> CompileAnnouncement:
    """What says, from the first call on, when loops of the library are compiled.

    What is loaded from disk is not compiled, and is not announced.
    """
    announcement = CompileAnnouncement()
    event.register("numba:compile", announcement)  # type: ignore[no-untyped-call]
    return announcement
