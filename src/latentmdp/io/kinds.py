"""The kinds of objects that can be saved, and how each becomes named arrays and plain values.

A kind is data: its schema says which arrays and values a file holds, and two functions turn an
object into them and back. Each format (npz, JSON) writes any kind, so a new kind needs one entry:

    register(Kind("model", LatentMDP, encode=..., decode=..., arrays={...}, values={...}))

The entries are in `latentmdp.io.schemas`; kinds that parts above this one own are registered by the
modules named in `ELSEWHERE`, imported when a file of such a kind is met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp.errors import FormatError

__all__ = [
    "FORMAT",
    "Document",
    "Kind",
    "by_name",
    "by_type",
    "check_header",
    "decode",
    "encode",
    "header_of",
    "register",
]

FORMAT = "latentmdp"

Fields = dict[str, Any]


@dataclass(frozen=True)
class Document:
    """What a file holds: its kind, arrays by name, and plain values (numbers, strings, lists)."""

    kind: str
    arrays: dict[str, NDArray[Any]]
    values: dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of object in a file.

    Parameters
    ----------
    name : str
        What the file calls it.
    owner : type
        The class that is saved.
    encode : callable
        From an object to its fields by name; a field that is None is left out.
    decode : callable
        From the fields to the object; missing optional ones are left out. Errors it raises
        are reported with the name of the file.
    arrays : mapping
        Name of each array field to "float" or "integer".
    values : mapping
        Name of each other field to the type it must have (list: a list of strings).
    optional : set
        Fields that may be missing.
    schema : int
        Version of this layout; a file with a higher one is refused.
    suffixes : tuple
        The formats it may be saved in.
    """

    name: str
    owner: type
    encode: Callable[[Any], Fields]
    decode: Callable[[Fields], Any]
    arrays: Mapping[str, str]
    values: Mapping[str, type]
    optional: frozenset[str] = field(default_factory=frozenset)
    schema: int = 1
    suffixes: tuple[str, ...] = (".npz",)


_KINDS: dict[str, Kind] = {}

ELSEWHERE = {"learned": "latentmdp.io.outcomes", "solved": "latentmdp.io.outcomes"}
"""Kinds that are registered by importing a module: a file chooses a name here, and no other."""


def register(kind: Kind) -> None:
    """Make `save` and `load` know a kind."""
    if kind.name in _KINDS:
        raise ValueError(f"a kind named {kind.name!r} is registered already")
    _KINDS[kind.name] = kind


def by_name(name: object) -> Kind:
    """The kind that a file calls `name`."""
    if isinstance(name, str) and name in ELSEWHERE:
        import_module(ELSEWHERE[name])
    if not isinstance(name, str) or name not in _KINDS:
        known = sorted({*_KINDS, *ELSEWHERE})
        raise FormatError(f"unknown kind {name!r}; known: {', '.join(known)}")
    return _KINDS[name]


def by_type(owner: type) -> Kind:
    """The kind of the objects of a class."""
    for kind in _KINDS.values():
        if issubclass(owner, kind.owner):
            return kind
    known = ", ".join(kind.owner.__name__ for kind in _KINDS.values())
    raise TypeError(f"cannot save a {owner.__name__}; what can be saved: {known}")


def check_header(header: object) -> Kind:
    """The kind a file's header declares; refuse other formats and newer schemas."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FormatError(f'not a {FORMAT} file: it does not say "format": "{FORMAT}"')
    kind = by_name(header.get("kind"))
    schema = header.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise FormatError(f"schema version {schema!r} is not a positive integer")
    if schema > kind.schema:
        raise FormatError(
            f"schema version {schema} of {kind.name} is newer than {kind.schema}, the newest this "
            f"version of {FORMAT} reads: upgrade {FORMAT}"
        )
    return kind


def header_of(kind: Kind) -> dict[str, Any]:
    """The header that `check_header` accepts."""
    from latentmdp._version import __version__

    return {
        "format": FORMAT,
        "kind": kind.name,
        "schema": kind.schema,
        "written_by": f"{FORMAT} {__version__}",
    }


def encode(obj: object) -> Document:
    """The document of an object."""
    kind = by_type(type(obj))
    fields = {name: value for name, value in kind.encode(obj).items() if value is not None}
    arrays = {name: np.asarray(fields[name]) for name in kind.arrays if name in fields}
    values = {name: fields[name] for name in kind.values if name in fields}
    return Document(kind.name, arrays, values)


def decode(document: Document) -> Any:
    """The object of a document, after a check of its fields against the kind's schema."""
    kind = by_name(document.kind)
    fields = {**document.arrays, **document.values}
    known = {*kind.arrays, *kind.values}
    for name in fields:
        if name not in known:
            raise FormatError(f"unknown field {name!r} in a {kind.name}")
    for name in sorted(known - kind.optional - set(fields)):
        raise FormatError(f"field {name!r} is missing")
    for name, array in document.arrays.items():
        _check_array(name, array, kind.arrays.get(name))
    for name, value in document.values.items():
        _check_value(name, value, kind.values.get(name))
    return kind.decode(fields)


def _check_array(name: str, array: NDArray[Any], declared: str | None) -> None:
    allowed = {"float": "fiu", "integer": "iu"}.get(declared or "", "")
    if array.dtype.kind not in allowed and array.size:
        wanted = f"an array of {declared}s" if declared else "not an array"
        raise FormatError(f"field {name!r} must be {wanted}, got dtype {array.dtype}")


def _check_value(name: str, value: object, declared: type | None) -> None:
    fits = declared is not None and isinstance(
        value, (int, float) if declared is float else declared
    )
    if isinstance(value, bool) and declared is not bool:
        fits = False
    if fits and declared is list:
        fits = all(isinstance(item, str) for item in value)  # type: ignore[attr-defined]
    if not fits:
        wanted = (
            "a list of strings"
            if declared is list
            else declared.__name__
            if declared
            else "an array"
        )
        raise FormatError(f"field {name!r} must be {wanted}, got {type(value).__name__}")
