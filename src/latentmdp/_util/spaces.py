"""Finite Gymnasium spaces as numbers 0, ..., n - 1: one number for each combination of parts.

A Discrete space has one part, a MultiDiscrete, a MultiBinary or a bounded Box of integers one for
each entry, a Tuple or Dict space those of its members in order. The number of an element has its
parts as digits, the last one running fastest:

    index = (...(d_1 n_2 + d_2) n_3 + ...) n_k + d_k,    d_i = part i minus the part's first value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

LARGEST = 2**31 - 1
"""Logs keep states and actions as 32-bit integers."""


class FiniteSpace:
    """The elements of a finite Gymnasium space, numbered.

    Parameters
    ----------
    name
        What the space is called in messages: "observation_space" or "action_space".
    space
        Discrete, MultiDiscrete, MultiBinary, a bounded Box of integers, or a Tuple or Dict of such.

    Attributes
    ----------
    n
        The number of elements.
    has_parts
        Whether an element is more than a number.
    """

    def __init__(self, name: str, space: Any) -> None:
        from gymnasium import spaces

        self.name, self.space = name, space
        self._parts = list(_parts(name, space, space))
        self.n = math.prod(size for _, size in self._parts)
        if self.n > LARGEST:
            raise ValueError(
                f"env has {name} {space} with {self.n:.3g} combinations, more than can be "
                f"numbered ({LARGEST:,}): leave out or merge parts of it"
            )
        self.has_parts = not isinstance(space, spaces.Discrete)
        self._start = 0 if self.has_parts else self._parts[0][0]

    def index(self, element: Any) -> int:
        """The number of an element."""
        if not self.has_parts:
            number = int(element) - self._start
            if not 0 <= number < self.n:
                raise ValueError(f"the world gave state {element}: not in {self.space}")
            return number
        index, parts = 0, list(_values(self.space, element))
        if len(parts) != len(self._parts):
            raise ValueError(f"the world gave {element!r}: not in {self.space}")
        for value, (start, size) in zip(parts, self._parts):
            digit = int(value) - start
            if not 0 <= digit < size:
                raise ValueError(f"the world gave {element!r}: not in {self.space}")
            index = index * size + digit
        return index

    def element(self, index: int) -> Any:
        """The element with a number, in the form that the space has."""
        if not self.has_parts:
            return np.int64(index + self._start)
        values = []
        for start, size in reversed(self._parts):
            index, digit = divmod(index, size)
            values.append(start + digit)
        return _element(self.space, iter(reversed(values)))

    def names(self, among: Iterable[int] | None = None) -> tuple[str, ...] | None:
        """`element_name` of all elements, or of some; None where they are numbered from 0."""
        if not self.has_parts and self._start == 0:
            return None
        indices = range(self.n) if among is None else among
        return tuple(str(element_name(self.element(index))) for index in indices)


def element_name(element: Any) -> Any:
    """The name that an element of several parts has among `FiniteSpace.names`; others unchanged.

    It follows from the element alone: whoever has the names needs no space to find its number.
    """
    if not isinstance(element, dict | tuple | list) and np.ndim(element) == 0:
        return element
    parts = list(_labelled(element))
    if any(label for label, _ in parts):
        return ", ".join(f"{label} {value}".strip() for label, value in parts)
    return "(" + ", ".join(str(value) for _, value in parts) + ")"


def known_as(element: Any, names: Sequence[str] | None) -> Any:
    """What a world with these names calls an element of its space: a name, or a number from 0.

    Where the names are numbers, as of a space that begins at 1, a number is a name.
    """
    name = element_name(element)
    numbers = names is not None and re.fullmatch(r"-?\d+", names[0]) is not None
    return str(name) if numbers else name


def element_of(index: int, names: Sequence[str] | None) -> Any:
    """The element, number `index` of those with these names, as an environment takes it.

    One that is named by several numbers is an array; where names are others, it is the index.
    """
    found = None if names is None else re.fullmatch(r"\(?(-?\d+(, -?\d+)*)\)?", names[index])
    if names is None or found is None:
        return index
    parts = np.array(found[1].split(", "), np.int64)
    return parts if names[index].startswith("(") else int(parts[0])


def _labelled(element: Any, label: str = "") -> Iterator[tuple[str, int]]:
    """The label and the value of every part of an element; labels only below a Dict.

    Its keys are sorted, so that the name does not depend on the order in which they are given.
    """
    if isinstance(element, dict):
        for key, member in sorted(element.items()):
            yield from _labelled(member, f"{label}.{key}" if label else str(key))
    elif isinstance(element, tuple | list):
        for i, member in enumerate(element):
            yield from _labelled(member, f"{label}[{i}]" if label else "")
    elif np.ndim(element) == 0:
        yield label, int(element)
    else:
        for i, value in enumerate(np.ravel(element).tolist()):
            yield f"{label}[{i}]" if label else "", int(value)


def _parts(name: str, whole: Any, space: Any) -> Iterator[tuple[int, int]]:
    """(first value, number of values) of every part."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        yield int(space.start), int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        starts = np.ravel(getattr(space, "start", np.zeros_like(space.nvec)))
        yield from zip(starts.tolist(), np.ravel(space.nvec).tolist())
    elif isinstance(space, spaces.MultiBinary):
        yield from [(0, 2)] * math.prod(space.shape)
    elif isinstance(space, spaces.Box) and space.is_bounded() and space.dtype.kind in "iu":
        low, high = (np.ravel(bound).astype(np.int64) for bound in (space.low, space.high))
        yield from zip(low.tolist(), (high - low + 1).tolist())
    elif isinstance(space, spaces.Tuple | spaces.Dict):
        members = space.spaces
        for member in members.values() if isinstance(members, dict) else members:
            yield from _parts(name, whole, member)
    else:
        where = "" if space is whole else f", of which {space} is a part"
        wrapper = "TransformObservation" if name == "observation_space" else "TransformAction"
        raise TypeError(
            f"env must have a Discrete {name}, or a MultiDiscrete, MultiBinary, Tuple or Dict "
            f"space of finitely many values, got {whole}{where}: cut it into finitely many "
            f"values, for instance with gymnasium.wrappers.{wrapper} and a Discrete space"
        )


def _values(space: Any, element: Any) -> Iterator[Any]:
    """The value of every part of an element, in the order of `_parts`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Tuple):
        for member, value in zip(space.spaces, element):
            yield from _values(member, value)
    elif isinstance(space, spaces.Dict):
        for key, member in space.spaces.items():
            yield from _values(member, element[key])
    else:
        yield from np.ravel(element).tolist()


def _element(space: Any, values: Iterator[int]) -> Any:
    """The element whose parts have these values."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return np.int64(next(values))
    if isinstance(space, spaces.Tuple):
        return tuple(_element(member, values) for member in space.spaces)
    if isinstance(space, spaces.Dict):
        return {key: _element(member, values) for key, member in space.spaces.items()}
    size = math.prod(space.shape)
    parts = [next(values) for _ in range(size)]
    return np.array(parts, dtype=space.dtype).reshape(space.shape)
