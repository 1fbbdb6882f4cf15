"""One writer at a time: a lock file beside what is written.

The lock of `run.npz` is `run.npz.lock`, created so that only one process can; it names the process
and its machine. It goes when the writer is done, also by an error. A writer that was killed leaves
it behind: the next one on the same machine sees that the process is gone and takes over. On another
machine nobody can tell, and the message says which file to remove.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from latentmdp.errors import LatentMDPError

__all__ = ["LockedError", "one_writer"]

_held: set[str] = set()
"""Locks of this very process: one that names it without being here is left from a namesake."""

_acquiring = Lock()

_YOUNG = 10.0
"""Seconds within which a lock without a name may still get one."""


class LockedError(LatentMDPError):
    """Another process writes there."""


@contextmanager
def one_writer(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Hold the lock of `path` for the body; None holds nothing.

    Raises
    ------
    LockedError
        If another process, or another thread of this one, holds it.
    OSError
        If no file can be made there.
    """
    if path is None:
        yield
        return
    lock = Path(f"{os.path.realpath(path)}.lock")
    with _acquiring:
        while not _created(lock):
            _take_over(lock)
        _held.add(str(lock))
    try:
        yield
    finally:
        _held.discard(str(lock))
        with suppress(FileNotFoundError):
            lock.unlink()


def _created(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as stream:
        json.dump({"pid": os.getpid(), "host": socket.gethostname()}, stream)
    return True


def _take_over(lock: Path) -> None:
    """Remove a lock whose writer is gone; raise if it may still be there."""
    try:
        text = lock.read_text()
        age = time.time() - lock.stat().st_mtime
    except FileNotFoundError:
        return
    if not _abandoned(lock, text, age):
        raise LockedError(f"{lock} is held by {_holder(text)}; remove it if that one is gone")
    # Renamed first: of two that find the same abandoned lock, one must not remove the other's.
    aside = lock.with_name(f".{lock.name}.{secrets.token_hex(6)}.tmp")
    try:
        os.rename(lock, aside)
    except FileNotFoundError:
        return
    if aside.read_text() == text:
        aside.unlink()
    else:
        os.rename(aside, lock)


def _abandoned(lock: Path, text: str, age: float) -> bool:
    found = _parsed(text)
    if found is None:
        return age > _YOUNG
    if found["host"] != socket.gethostname():
        return False
    if found["pid"] == os.getpid():
        return str(lock) not in _held
    return not _alive(found["pid"])


def _parsed(text: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict) and isinstance(found.get("pid"), int) and "host" in found:
            return found
    return None


def _holder(text: str) -> str:
    found = _parsed(text)
    return "another writer" if found is None else f"process {found['pid']} on {found['host']}"


def _alive(pid: int) -> bool:
    if os.name == "nt":  # there, signal 0 would end the process
        import ctypes

        kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009
        handle = kernel.OpenProcess(0x1000, False, pid)
        if handle:
            kernel.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
