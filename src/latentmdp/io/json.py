"""The .json format: readable, versioned and exact, as floats are written to their last digit.

    {
      "format": "latentmdp",
      "kind": "model",
      "schema": 1,
      "written_by": "latentmdp 0.1.0",
      "model": {"horizon": 10, "discount": 1.0, ..., "transitions": [[[[0.5, 0.5], ...]]], ...}
    }

Arrays are nested lists. NaN, infinities, duplicate keys and fields that the schema does not know
are refused.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import limits
from latentmdp.errors import FormatError
from latentmdp.io import kinds

__all__ = ["from_bytes", "parse", "read", "to_bytes", "write"]

MAX_BYTES = 2**26
MAX_CONTAINERS = 2_000_000
"""Each list costs some hundred bytes of memory, however little text it takes."""


def write(stream: BinaryIO, obj: Any) -> None:
    """Write an object of any kind."""
    stream.write(to_bytes(obj))


def to_bytes(obj: Any) -> bytes:
    """An object of any kind as JSON text in ASCII."""
    document = kinds.encode(obj)
    kind = kinds.by_name(document.kind)
    arrays = {name: array.tolist() for name, array in document.arrays.items()}
    text = _pretty({**kinds.header_of(kind), kind.name: {**document.values, **arrays}}) + "\n"
    data = text.encode()
    _check_size(data, "too large for JSON: save it as .npz")
    return data


def read(stream: BinaryIO) -> Any:
    """Read what `write` wrote."""
    size = limits.file_size(stream)
    if size > MAX_BYTES:
        raise FormatError(f"{size:,} bytes of JSON; at most {MAX_BYTES:,} are read")
    return from_bytes(stream.read())


def from_bytes(data: bytes) -> Any:
    """The object of a JSON text."""
    _check_size(data, "too many lists for a JSON file")
    top = parse(data.decode("utf-8"))
    kind = kinds.check_header(top)
    unknown = sorted(set(top) - set(kinds.header_of(kind)) - {kind.name})
    if unknown:
        raise FormatError(f"unknown field {unknown[0]!r}")
    body = top.get(kind.name)
    if not isinstance(body, dict):
        raise FormatError(f"field {kind.name!r} must be an object, got {type(body).__name__}")
    arrays = {name: _array(name, body[name]) for name in kind.arrays if name in body}
    values = {name: value for name, value in body.items() if name not in kind.arrays}
    return kinds.decode(kinds.Document(kind.name, arrays, values))


def parse(text: str) -> Any:
    """Parse JSON strictly: no NaN or infinity, no key twice, no nesting without end."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise FormatError(f"not valid JSON, or truncated: {error}") from error
    except RecursionError as error:
        raise FormatError("the JSON is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"{name} is not a JSON number; every number must be finite")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FormatError(f"key {key!r} occurs twice")
            seen.add(key)
    return found


def _check_size(data: bytes, reason: str) -> None:
    containers = data.count(b"[") + data.count(b"{")
    if len(data) > MAX_BYTES or containers > MAX_CONTAINERS:
        raise FormatError(f"{reason} ({len(data):,} bytes, {containers:,} lists)")


def _array(name: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, list):
        raise FormatError(f"field {name!r} must be a list, got {type(value).__name__}")
    try:
        return np.array(value)
    except ValueError:
        raise FormatError(f"field {name!r}: rows differ in length") from None


def _pretty(value: Any, indent: int = 0) -> str:
    """JSON with one line per innermost list, which is one row of an array."""
    pad = "  " * (indent + 1)
    if isinstance(value, dict):
        inner = (f"{pad}{json.dumps(k)}: {_pretty(v, indent + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(inner) + "\n" + "  " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        inner = (pad + _pretty(v, indent + 1) for v in value)
        return "[\n" + ",\n".join(inner) + "\n" + "  " * indent + "]"
    return json.dumps(value, allow_nan=False)
