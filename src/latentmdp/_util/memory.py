"""How much memory there is, and a refusal, before any work, of what would not fit into it."""

import ctypes
import os
from pathlib import Path

from latentmdp.errors import TooLargeError

_FEW = 1 << 17
"""Entries of an array over all (s, a, s') of one context, 1 MB, that a learner reads as fast as a
table of those that occur: they stay in the cache of a core."""

ALWAYS_FITS = float(1 << 26)
"""Bytes that are never refused: to ask the system for what is free takes longer than their use."""

_CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where containers state their limit and what they use of it (the two generations of Linux)."""


def free_memory() -> float:
    """Bytes that this process may still take; infinite where the system does not say."""
    return min(_system_memory(), *(_container_memory(*files) for files in _CGROUPS))


def give_memory_back() -> None:
    """Return what is free, but kept for what comes next, to the system; less than a millisecond.

    After arrays of many sizes the GNU allocator would keep more and more of it.
    """
    getattr(ctypes.CDLL(None) if os.name == "posix" else None, "malloc_trim", int)(0)


def few_entries(number: float) -> bool:
    """Whether a learner keeps an array with so many entries for each context, rather than a table.

    The array is over all (s, a, s'), or (s, a, s', z); the table is of those that occur.
    """
    return number <= _FEW


def require_memory(needed: float, what: str, advice: str = "") -> None:
    """Raise `TooLargeError` if `needed` bytes are not free; `what` says what they are for."""
    if needed <= ALWAYS_FITS:
        return
    free = free_memory()
    if needed > free:
        more = f": {advice}" if advice else ""
        raise TooLargeError(
            f"{what} needs {memory_text(needed)}, but only {memory_text(free)} are free{more}"
        )


def memory_text(size: float) -> str:
    """A number of bytes for people."""
    for unit, bytes_ in (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20)):
        if size >= bytes_:
            return f"{size / bytes_:,.3g} {unit}"
    return f"{size / 1024.0:.3g} KiB"


def _system_memory() -> float:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * float(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_AVPHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _container_memory(folder: str, limit: str, used: str) -> float:
    try:
        most = Path(folder, limit).read_text().strip()
        if most == "max":
            return float("inf")
        in_use = float(Path(folder, used).read_text())
        stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
        return float(most) - in_use + float(stat.get("inactive_file", 0.0))  # a cache that can go
    except (OSError, ValueError):
        return float("inf")
