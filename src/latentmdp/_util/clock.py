"""When numba compiles: how long this process has waited for it, and notice of the first time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from numba.core import event

__all__ = ["compile_seconds", "on_first_compilation"]


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


class _Once(event.Listener):
    """Calls a function at the first compilation."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say: Callable[[], None] | None = say

    def on_start(self, event: Any) -> None:
        say, self._say = self._say, None
        if say is not None:
            say()

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def on_first_compilation(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` once if anything is compiled within; what is loaded from disk does not count."""
    with event.install_listener("numba:compile", _Once(say)):
        yield
