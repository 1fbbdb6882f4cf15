"""Objects made of named fields: compared by content, and turned into files by `latentmdp.io`.

`to_fields` gives the fields of an object by name: arrays, plain values (numbers, flags, strings,
lists and objects of JSON) and other such objects; None stands for a field that is left out.
`from_fields` makes the object again and raises where the fields do not fit. Only `latentmdp.io`
knows how fields are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Integers, as_floats, frozen, same_content
from latentmdp._util.storage import digest_of


class Fielded:
    """Base of classes whose objects are equal where their types and all their fields are."""

    def to_fields(self) -> dict[str, Any]:
        """The fields by name, by default the arguments of the class; None for one left out."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The object with these fields, by default as arguments; raises where they do not fit."""
        return cls(**fields)

    def fingerprint(self) -> str:
        """A hexadecimal digest of the type and every field: equal objects have equal ones."""
        arrays: dict[str, NDArray[Any]] = {}
        plain: dict[str, Any] = {}
        for name, value in self.to_fields().items():
            if isinstance(value, np.ndarray):
                arrays[name] = value + 0.0 if value.dtype.kind == "f" else value
            else:
                plain[name] = value.fingerprint() if hasattr(value, "fingerprint") else value
        return digest_of(arrays, type(self).__name__ + json.dumps(plain, sort_keys=True))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Fielded):
            return NotImplemented
        return self is other or same_content(self.to_fields(), other.to_fields())

    def __hash__(self) -> int:
        return hash(self.fingerprint())


def float_field(
    fields: Mapping[str, Any], name: str, *shape: int | None, finite: bool = True
) -> Floats:
    """An array of floats, read-only, of this shape; None stands for any size.

    NaN and infinities are refused unless `finite` is False.
    """
    array = np.array(fields[name], dtype=np.float64)
    _require_shape(name, array, shape)
    if finite:
        as_floats(name, array)
    return frozen(array)


def integer_field(
    fields: Mapping[str, Any], name: str, *shape: int | None, low: int = 0, below: int | None = None
) -> Integers:
    """An array of integers from `low` on and below `below`, read-only, of this shape."""
    array = np.asarray(fields[name])
    _require_shape(name, array, shape)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}")
    highest = np.iinfo(np.int64).max if below is None else below - 1
    if array.size and not low <= int(array.min()) <= int(array.max()) <= highest:
        raise ValueError(
            f"{name} must lie from {low} to {highest}, got {array.min()} to {array.max()}"
        )
    return frozen(np.array(array, dtype=np.int64))


def _require_shape(name: str, array: NDArray[Any], shape: tuple[int | None, ...]) -> None:
    fits = len(array.shape) == len(shape) and all(
        expected in (None, size) for expected, size in zip(shape, array.shape)
    )
    if not fits:
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({sizes}), got {array.shape}")
