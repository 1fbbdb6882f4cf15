"""Named arrays on disk: written whole or not at all, by one writer at a time, and read with care.

Locks. That of `run.npz` is `run.npz.lock`, a file that the writer has locked with the system and
that names the process and its machine. It goes when the writer is done, also by an error. A writer
that was killed leaves the file behind, but no lock on it: the next one takes it over.

Archives. A .npz file has a member for each array, and `header`, a JSON text. It is read member by
member: names, compression and declared sizes are checked first, then each array's own header, and
only then its bytes. No pickle is read or written.

Limits. A small file can declare, or decompress to, far more than the memory there is:
`check_memory` refuses what is out of proportion. What is written here stays within the limits,
because large data are not compressed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import socket
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from latentmdp._util.arrays import Arrays
from latentmdp._version import __version__
from latentmdp.errors import FormatError, LatentMDPError

PathLike = str | os.PathLike[str]

FORMAT = "latentmdp"

# ---------------------------------------------------------------------------------------- writing


@contextmanager
def atomic_write(path: PathLike) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, and move it to `path` once it is written and synced.

    When the body raises, the temporary file is removed and `path` is left as it was. A symbolic
    link is followed, and a new file gets the permissions that `open` would give it. An `OSError`
    names `path`, also where the system names no file, as when the disk is full.
    """
    _require_place(path)
    target = Path(os.path.realpath(path))
    with _naming(path):
        temporary, handle = _created_beside(target)
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


def require_writable(path: PathLike) -> None:
    """Raise an `OSError` that names `path` unless a file can be written there, now.

    Its folder must exist and take a new file, and `path` must not be a folder itself.
    """
    _require_place(path)
    with _naming(path):
        temporary, handle = _created_beside(Path(os.path.realpath(path)))
        os.close(handle)
        os.unlink(temporary)


def _require_place(path: PathLike) -> None:
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    _require_folder(Path(path).parent)


def _require_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(folder))
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))


def _created_beside(target: Path) -> tuple[Path, int]:
    """A new temporary file in the folder of `target`, open for writing."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    return temporary, os.open(temporary, flags, 0o666)


@contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Let an `OSError` name the file that the caller knows, not a temporary one or none at all."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).endswith((".tmp", ".lock")):
            error.filename = os.fspath(path)
        raise


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system can sync a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ------------------------------------------------------------------------------------------ locks


class LockedError(LatentMDPError):
    """Another process writes there."""


@contextmanager
def one_writer(path: PathLike | None) -> Iterator[None]:
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
    _require_folder(Path(path).parent)
    name = f"{os.path.realpath(path)}.lock"
    with _naming(path):
        handle = _locked(name)
    try:
        yield
    finally:
        # Removed while it is held, so that nobody removes the lock of the next writer.
        with suppress(OSError):
            os.unlink(name)
        os.close(handle)


def _locked(name: str) -> int:
    """The lock file, open and locked; it names its writer."""
    handle = os.open(name, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        _lock(handle)
        os.truncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(name)):
                return handle
    except BlockingIOError:
        who = os.read(handle, 200).decode(errors="replace") or "another writer"
        os.close(handle)
        raise LockedError(f"{name} is held by {who}") from None
    except OSError:
        os.close(handle)
        raise
    # A writer that ended meanwhile has removed the file that was opened here.
    os.close(handle)
    return _locked(name)


def _lock(handle: int) -> None:
    """Lock an open file for this handle alone, or raise `BlockingIOError`.

    The system forgets the lock when the handle is closed, also by the death of its process.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            os.lseek(handle, 1 << 20, os.SEEK_SET)  # behind the name, which others may read
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        except OSError as error:
            os.lseek(handle, 0, os.SEEK_SET)
            raise BlockingIOError(*error.args) from None
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---------------------------------------------------------------------------------------- digests


def digest_of(arrays: Mapping[str, NDArray[Any]], text: str = "") -> str:
    """BLAKE2b, 128 bits, of the text and of the names, types, shapes and bytes of the arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).data)
    digest.update(text.encode())
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------- limits

ALWAYS = 2**30
"""A file may always ask for this many bytes; beyond it, data are not compressed."""

FACTOR = 4
"""Beyond `ALWAYS`, a file may ask for this many times its own size: more than an uncompressed
file needs, and too little for a bomb."""

MAX_TEXT = 2**26
"""Length of a JSON text that is read: many times that of the largest readable model."""

MAX_CONTAINERS = 2_000_000
"""Lists and objects in a JSON text: each costs some hundred bytes, however little text it takes."""

MAX_MEMBERS = 64
"""Arrays in an archive; the richest kind has some forty."""

MAX_NPY_HEADER = 10_000
"""Length of the header of one array, as in NumPy."""


def file_size(stream: BinaryIO) -> int:
    """The size of an open file, in bytes; the position is left at the start."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def file_stamp(path: PathLike) -> tuple[int, int]:
    """Size and time of a file, which change when it is written anew."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


_FEW_ROWS = 1 << 26
"""Bytes of an array that is kept in memory, however long the logs that it is made from."""


def rows_on_disk(parts: Iterable[NDArray[np.float64]], rows: int, width: int) -> Any:
    """Arrays (n_i, width) one below the other; in a temporary file where they are very many."""
    if 8 * rows * width <= _FEW_ROWS:
        return np.concatenate([np.empty((0, width)), *parts])
    with TemporaryFile(prefix="latentmdp-") as stream:
        for part in parts:
            stream.write(np.ascontiguousarray(part, np.float64).tobytes())
        stream.flush()
        return np.memmap(stream, np.float64, "r+", shape=(rows, width))


def check_memory(declared: int, size: int) -> None:
    """Refuse a file of `size` bytes that would need `declared` bytes of memory."""
    limit = max(ALWAYS, FACTOR * size)
    if declared > limit:
        raise FormatError(
            f"declares {declared:,} bytes of data in a file of {size:,} bytes; refused, since at "
            f"most {limit:,} are believed"
        )


def check_text(text: str, reason: str) -> None:
    """Refuse a JSON text that would need too much memory, for this reason."""
    containers = text.count("[") + text.count("{")
    if len(text) > MAX_TEXT or containers > MAX_CONTAINERS:
        raise FormatError(f"{reason} ({len(text):,} characters, {containers:,} lists)")


# --------------------------------------------------------------------------------------- archives


def write_archive(
    stream: BinaryIO, header: Mapping[str, Any], arrays: Arrays, *, compressed: bool = True
) -> None:
    """Write arrays and a JSON header; equal contents give equal bytes.

    NaN and infinities in the header are written as Python reads them. Beyond `ALWAYS` bytes
    nothing is compressed.
    """
    members = {"header": np.array(json.dumps(header)), **arrays}
    small = sum(array.nbytes for array in members.values()) < ALWAYS
    method = zipfile.ZIP_DEFLATED if compressed and small else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method, compresslevel=1) as archive:
        for name, array in members.items():
            # Opened by name, a member carries no date.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                npy.write_array(out, np.asarray(array, order="C"), allow_pickle=False)


def read_archive(stream: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of what `write_archive` wrote."""
    size = file_size(stream)
    if not zipfile.is_zipfile(stream):
        raise FormatError("not an npz archive, or truncated")
    stream.seek(0)
    with zipfile.ZipFile(stream) as archive:
        members = _members(archive, size)
        if "header" not in members:
            raise FormatError("not written by latentmdp: it has no member 'header'")
        text = _array(archive, members.pop("header"), size)
        if text.dtype.kind != "U" or text.ndim:
            raise FormatError("the member 'header' is not a text")
        header = parse(str(text[()]), finite=False)
        if not isinstance(header, dict):
            raise FormatError("the member 'header' is not a JSON object")
        read, widened = {}, 0
        for name, member in members.items():
            read[name] = _array(archive, member, size, widened)
            widened += 8 * read[name].size
        return header, read


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by array name, once their declared sizes are plausible."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise FormatError(f"holds {len(infos)} members, at most {MAX_MEMBERS} are expected")
    check_memory(sum(info.file_size for info in infos), size)
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"member {name!r} uses an unknown compression")
        if name in members:
            raise FormatError(f"member {name!r} occurs twice")
        members[name] = info
    return members


def _array(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int, widened: int = 0
) -> NDArray[Any]:
    """One array, read no further than its header and the member's declared size allow.

    `size` is that of the file, and `widened` what the arrays before it take as 64-bit numbers.
    """
    name = member.filename
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise FormatError(f"member {name!r} is in the unknown npy version {version}")
        shape, fortran, dtype = readers[version](stream, max_header_size=MAX_NPY_HEADER)
        if dtype.hasobject or dtype.kind not in "biufU":
            raise FormatError(f"member {name!r} holds dtype {dtype}: only plain numbers are read")
        expected = math.prod(shape) * dtype.itemsize
        if any(n < 0 for n in shape) or expected > member.file_size:
            raise FormatError(
                f"member {name!r} declares shape {shape} of {dtype}, more than its "
                f"{member.file_size:,} bytes hold"
            )
        # Numbers of 8 bits become numbers of 64 where they are used; flags stay what they are.
        wide = expected if dtype.kind == "b" else max(expected, 8 * math.prod(shape))
        check_memory(widened + wide, size)
        data = stream.read(expected)
        if len(data) != expected or stream.read(1):
            raise FormatError(f"member {name!r} is truncated or too long for its shape {shape}")
    array: NDArray[Any] = np.frombuffer(data, dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def write_table(stream: BinaryIO, table: Any) -> None:
    """Write a table of pyarrow as Parquet, in row groups that a reader of some rows takes whole.

    Beyond `ALWAYS` bytes, at 8 a cell, nothing is compressed.
    """
    import pyarrow.parquet as pq

    small = 8 * table.num_rows * table.num_columns < ALWAYS
    packing = {"compression": "zstd" if small else "none", "use_dictionary": small}
    pq.write_table(table, stream, write_page_checksum=True, row_group_size=1 << 18, **packing)


# ------------------------------------------------------------------------- JSON and plain values


def file_header(kind: str, schema: int = 1) -> dict[str, Any]:
    """What every file begins with: the format, what kind of object it holds in which layout."""
    version = f"{FORMAT} {__version__}"
    return {"format": FORMAT, "kind": kind, "schema": schema, "written_by": version}


def parse(text: str, *, finite: bool = True) -> Any:
    """Parse JSON strictly: no key twice, no nesting without end, nothing too large.

    NaN and infinities are no JSON; they are read only where `finite` is False.
    """
    check_text(text, "too many lists, or too long, for a JSON text")
    constant = _refuse_constant if finite else None
    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise FormatError(f"not valid JSON, or truncated: {error}") from error
    except RecursionError as error:
        raise FormatError("the JSON is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"{name} is not a JSON number; every number must be finite")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise FormatError(f"key {key!r} occurs twice")
    return content


def as_number(value: Any, name: str, *, finite: bool = True) -> float:
    """The field `name` as a number; NaN and infinities only where `finite` is False."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"field {name!r} must be a number, got {type(value).__name__}")
    if finite and not -math.inf < value < math.inf:
        raise FormatError(f"field {name!r} must be finite, got {value}")
    return float(value)


def as_seconds(value: Any) -> float:
    """The field `seconds` as a length of time."""
    seconds = as_number(value, "seconds")
    if seconds < 0.0:
        raise FormatError(f"field 'seconds' must not be negative, got {seconds}")
    return seconds


def _plain(value: Any, name: str, *, kind: type, words: str) -> Any:
    """The field `name`, which must be of this very type: True is no integer."""
    if type(value) is not kind:
        raise FormatError(f"field {name!r} must be {words}, got {type(value).__name__}")
    return value


as_integer = partial(_plain, kind=int, words="an integer")
as_flag = partial(_plain, kind=bool, words="true or false")
as_text = partial(_plain, kind=str, words="a string")
as_object = partial(_plain, kind=dict, words="an object")
