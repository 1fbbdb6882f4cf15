"""Compilation by numba: the seconds spent in it, a line that says so, and what is kept on disk.

Numba keeps the machine code of a loop beside its file, with a stamp of that file. A loop also
contains the loops that it calls, from other files: after an upgrade, or an edit, that changed only
those, numba would run the old ones without a word. So every loop of this library is kept in a
folder whose name is a digest of all files that hold loops, and of the fields of named tuples, which
loops read by their place. Numba could not even read what was kept for a tuple that has another name
now.
"""

import hashlib
import re
import shutil
import sys
import threading
import time
from functools import cache, lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

from numba.core import caching, event


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


_CLOCK = _CompileClock()
event.register("numba:compiler_lock", _CLOCK)  # type: ignore[no-untyped-call]


def compile_seconds() -> float:
    """Seconds spent compiling since this module was imported."""
    return _CLOCK.seconds


class CompileAnnouncement(event.Listener):
    """Says on stderr, unless `silent`, that loops are compiled: once for each public call."""

    def __init__(self) -> None:
        self.silent = False
        self._announced: set[str] = set()

    def on_start(self, event: Any) -> None:
        kernel = event.data["dispatcher"].py_func
        if self.silent or not kernel.__module__.startswith("latentmdp."):
            return
        # A thread of an engine has only its own stack, so that of the main one comes first.
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        call = _outermost(main) or _outermost(sys._getframe()) or kernel.__name__
        if call not in self._announced:
            self._announced.add(call)
            line = (
                f"latentmdp: compiling {call}, a few seconds to half a minute, once; kept on disk, "
                "so the next start is quick"
            )
            print(line, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


def _outermost(frame: FrameType | None) -> str | None:
    """The outermost function of the library that waits, but for commands and engines."""
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

    What is loaded from disk is not compiled, and is not announced. From then on, too, what is on
    disk is that of these sources.
    """
    _LOCATORS.insert(0, _StampedLocator)
    announcement = CompileAnnouncement()
    event.register("numba:compile", announcement)  # type: ignore[no-untyped-call]
    return announcement


@lru_cache(maxsize=1)
def sources_digest() -> bytes:
    """A digest of all compiled loops and named tuples; some milliseconds, once a process."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        text = file.read_bytes()
        if not (file.name.startswith("kernels") or file.parent.name == "_kernels"):
            text = b"".join(_NAMED_TUPLE.findall(text))
        if text:
            digest.update(f"{file.relative_to(package)}\n".encode() + text)
    return digest.digest()


_NAMED_TUPLE = re.compile(rb"^class \w+\(NamedTuple\):$|^    \w+: .*$", re.MULTILINE)
"""The head of a class, and its fields; those of other classes, too, which does no harm."""


@cache
def _folder_of_sources(parent: str) -> str:
    """The folder for loops of these sources; those of others are removed."""
    folder = Path(parent) / f"latentmdp-{sources_digest().hex()[:16]}"
    for other in Path(parent).glob("latentmdp-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return str(folder)


class _StampedLocator:
    """Where numba would keep a loop of this library, in a folder for its sources."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """One of numba's own locators; None for loops of others, which numba then asks about."""
        if not py_func.__module__.startswith("latentmdp."):
            return None
        for other in _LOCATORS:
            is_own = other.__name__ == cls.__name__  # perhaps of an earlier import of this module
            locator = None if is_own else other.from_function(py_func, py_file)
            if locator is not None:
                locator.get_source_stamp = sources_digest
                locator.get_cache_path = partial(_folder_of_sources, locator.get_cache_path())
                return locator
        return None


# The class has another name in older versions; both ask these locators, the first one first.
_IMPLEMENTATION: Any = getattr(caching, "CacheImpl", None) or getattr(caching, "_CacheImpl")  # noqa: B009
_LOCATORS: list[Any] = _IMPLEMENTATION._locator_classes
