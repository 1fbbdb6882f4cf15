"""The .json format: readable, versioned and exact, as floats are written to their last digit.

    {
      "format": "latentmdp",
      "kind": "model",
      "schema": 1,
      "written_by": "latentmdp 0.3.0",
      "model": {"horizon": 10, "discount": 1.0, ..., "transitions": [[[[0.5, 0.5], ...]]], ...}
    }

Arrays are nested lists. NaN, infinities, duplicate keys and fields that the kind does not know are
refused. There is no digest: such a file may be written and changed by hand.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import storage
from latentmdp.errors import FormatError
from latentmdp.io import kinds


def write(stream: BinaryIO, obj: Any) -> None:
    """Write an object of any kind that has no parts."""
    stream.write(to_text(obj).encode())


def to_text(obj: Any) -> str:
    """An object as JSON text in ASCII."""
    document = kinds.encode(obj)
    kind = document.kind
    arrays = {name: array.tolist() for name, array in document.arrays.items()}
    text = _pretty({**kinds.header_of(kind), kind.name: {**document.values, **arrays}}) + "\n"
    storage.check_text(text, "too large for JSON: save it as .npz")
    return text


def read(stream: BinaryIO) -> Any:
    """Read what `write` wrote."""
    size = storage.file_size(stream)
    if size > storage.MAX_TEXT:
        raise FormatError(f"{size:,} bytes of JSON; at most {storage.MAX_TEXT:,} are read")
    return from_text(stream.read().decode("utf-8"))


def from_text(text: str) -> Any:
    """The object of a JSON text."""
    top = storage.parse(text)
    kind = kinds.check_header(top)
    unknown = sorted(set(top) - set(kinds.header_of(kind)) - {kind.name})
    if unknown:
        raise FormatError(f"unknown field {unknown[0]!r}")
    body = top.get(kind.name)
    if not isinstance(body, dict):
        raise FormatError(f"field {kind.name!r} must be an object, got {type(body).__name__}")
    arrays = {name: _array(name, body[name]) for name in body if kinds.is_array(kind, name)}
    values = {name: value for name, value in body.items() if name not in arrays}
    return kinds.decode(kinds.Document(kind, arrays, values))


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
