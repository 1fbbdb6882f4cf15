"""The .npz format: one member per array, and `header`, a JSON text with the plain values.

`numpy.load` opens such a file too. Here the archive is read member by member: names, compression
and declared sizes are checked first, then each array's own header, and only then its bytes.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from latentmdp._util import limits
from latentmdp.errors import FormatError
from latentmdp.io import kinds
from latentmdp.io.json import parse

__all__ = ["read", "read_arrays", "write"]

MAX_MEMBERS = 64
MAX_NPY_HEADER = 10_000


def write(stream: BinaryIO, obj: Any) -> None:
    """Write an object of any kind."""
    document = kinds.encode(obj)
    kind = kinds.by_name(document.kind)
    header = json.dumps({**kinds.header_of(kind), "values": document.values})
    arrays = {"header": np.array(header), **document.arrays}
    size = sum(array.nbytes for array in arrays.values())
    method = zipfile.ZIP_DEFLATED if size < limits.ALWAYS else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method, compresslevel=1) as archive:
        for name, array in arrays.items():
            # Opened by name, a member carries no date: equal objects give equal files.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                npy.write_array(out, np.asarray(array, order="C"), allow_pickle=False)


def read(stream: BinaryIO) -> Any:
    """Read what `write` wrote."""
    with _opened(stream) as (archive, members):
        if "header" not in members:
            raise FormatError("not written by latentmdp: it has no member 'header'")
        header = parse(_text(_array(archive, members.pop("header"))))
        kind = kinds.check_header(header)
        unknown = sorted(set(members) - set(kind.arrays))
        if unknown:
            raise FormatError(f"unknown array {unknown[0]!r} in a {kind.name}")
        values = header.get("values")
        if not isinstance(values, dict):
            raise FormatError("the header has no 'values'")
        arrays = {name: _array(archive, member) for name, member in members.items()}
    return kinds.decode(kinds.Document(kind.name, arrays, values))


def read_arrays(stream: BinaryIO) -> dict[str, NDArray[Any]]:
    """Every array of an archive, under the same checks, whatever it stands for."""
    with _opened(stream) as (archive, members):
        return {name: _array(archive, member) for name, member in members.items()}


@contextmanager
def _opened(stream: BinaryIO) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    size = limits.file_size(stream)
    if not zipfile.is_zipfile(stream):
        raise FormatError("not an npz archive, or truncated")
    stream.seek(0)
    with zipfile.ZipFile(stream) as archive:
        yield archive, _members(archive, size)


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by array name, once their declared sizes are plausible."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise FormatError(f"holds {len(infos)} members, at most {MAX_MEMBERS} are expected")
    limits.check_memory(sum(info.file_size for info in infos), size)
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"member {name!r} uses an unknown compression")
        if name in members:
            raise FormatError(f"member {name!r} occurs twice")
        members[name] = info
    return members


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, read no further than its header and the member's declared size allow."""
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
        data = stream.read(expected)
        if len(data) != expected or stream.read(1):
            raise FormatError(f"member {name!r} is truncated or too long for its shape {shape}")
    array: NDArray[Any] = np.frombuffer(data, dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _text(array: NDArray[Any]) -> str:
    if array.dtype.kind != "U" or array.ndim:
        raise FormatError("the member 'header' is not a text")
    return str(array[()])
