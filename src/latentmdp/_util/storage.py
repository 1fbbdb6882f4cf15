"""Atomic writes: a file appears whole or not at all, whatever happens to the process."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_write", "require_writable"]


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, and move it to `path` once it is written and synced.

    When the body raises, the temporary file is removed and `path` is left as it was. A symbolic
    link is followed, and a new file gets the permissions that `open` would give it.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(temporary, flags, 0o666)
    except OSError as error:
        error.filename = os.fspath(path)  # the name the caller knows
        raise
    try:
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system can sync a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise unless a file can be written at `path`: before long work, not after.

    Raises
    ------
    OSError
        If `path` is a folder, its folder is missing, or no file can be made there.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder", os.fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(Path(path).parent))
    try:
        handle, probe = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"
        )
    except OSError as error:
        error.filename = os.fspath(path)  # the name the caller knows
        raise
    os.close(handle)
    os.unlink(probe)
