"""Checks of plain values that a file holds."""

from __future__ import annotations

import math
from typing import Any

from latentmdp.errors import FormatError

__all__ = ["flag", "integer", "number", "seconds", "text"]


def number(value: Any, name: str, *, finite: bool = True) -> float:
    """A number; NaN and infinities only where `finite` is False."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"field {name!r} must be a number, got {type(value).__name__}")
    if finite and not -math.inf < value < math.inf:
        raise FormatError(f"field {name!r} must be finite, got {value}")
    return float(value)


def seconds(value: Any) -> float:
    """A length of time."""
    found = number(value, "seconds")
    if found < 0.0:
        raise FormatError(f"field 'seconds' must not be negative, got {found}")
    return found


def integer(value: Any, name: str) -> int:
    """An integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"field {name!r} must be an integer, got {type(value).__name__}")
    return value


def flag(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise FormatError(f"field {name!r} must be true or false, got {type(value).__name__}")
    return value


def text(value: Any, name: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise FormatError(f"field {name!r} must be a string, got {type(value).__name__}")
    return value
