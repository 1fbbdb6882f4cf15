"""States, actions and contexts by name: from names to indices and back, and in messages."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Indices
from latentmdp._util.words import listed

Names = Sequence[str] | None

NOT_MET = "(not met)"
"""The name that stands for whatever has none, where a model says so by having it."""


def called(what: str, index: int, names: Names) -> str:
    """How a message calls one of them: "state 3", or "state 'sold out'" where it has a name."""
    return f"{what} {int(index)}" if names is None else f"{what} {names[index]!r}"


def label(what: str, index: int, names: Names) -> str:
    """How a text or a table calls one of them: "state 3", or "sold out" where it has a name."""
    return f"{what} {int(index)}" if names is None else str(names[index])


def labels(what: str, names: Names, size: int) -> list[str]:
    """The labels of all of them."""
    return [label(what, index, names) for index in range(size)]


def forbidden(state: int, action: int, world: Any) -> str:
    """That an action is not allowed in a state, by the names of a model if it has them."""
    state_names, action_names = names_of(world, "state"), names_of(world, "action")
    it, where = called("action", action, action_names), called("state", state, state_names)
    return f"{it} is not allowed in {where}"


def names_of(world: Any, what: str) -> Names:
    """The names of the states or actions of a model; None where it, or a space, has none."""
    names: Names = getattr(world, f"{what}_names", None)
    return names


def listing(what: str, values: ArrayLike) -> NDArray[Any]:
    """Names or indices as an array; a list may mix them, so names stay objects."""
    if isinstance(values, list | tuple) and any(isinstance(word, str) for word in values):
        return np.array(values, dtype=object)
    return arrays.to_array(what, values)


def to_indices(what: str, values: ArrayLike, names: Names, size: int) -> Indices:
    """Names or indices below `size` as indices; `what` is the argument in messages, "states"."""
    words = listing(what, values)
    if words.dtype.kind not in "OU":
        indices: Indices = arrays.as_integers(what, words, np.int32)
        if indices.size and int(indices.max()) >= size:
            worst = int(np.argmax(indices))
            raise ValueError(f"{what}[{worst}] is {indices[worst]}: must be below n_{what}={size}")
        return indices
    if words.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, got shape {words.shape}")
    index_of = {name: i for i, name in enumerate(names or ())}
    where = (f"{what}[{i}]" for i in range(words.size))
    return np.array(
        [_index(*pair, index_of, size) for pair in zip(where, words.tolist())], np.int32
    )


def to_index(what: str, value: Any, names: Names, size: int) -> int:
    """One name, or one index below `size`, as an index; `what` is the argument in messages."""
    return _index(what, value, {name: i for i, name in enumerate(names or ())}, size)


def _index(where: str, word: Any, index_of: dict[str, int], size: int) -> int:
    if isinstance(word, str):
        if not index_of:
            raise ValueError(f"{where} is {word!r}, but the model has no names: give an index")
        if word not in index_of and NOT_MET in index_of:
            return index_of[NOT_MET]
        if word not in index_of:
            similar = get_close_matches(word, index_of, n=3, cutoff=0.5) or list(index_of)[:3]
            meant = listed([repr(name) for name in similar])
            raise ValueError(f"{where} is {word!r}, which the model does not know; near: {meant}")
        return index_of[word]
    if isinstance(word, bool) or not isinstance(word, int | np.integer):
        raise TypeError(f"{where} must be an index or a name, got {word!r}")
    if not 0 <= word < size:
        raise ValueError(f"{where} is {word}: must lie in [0, {size})")
    return int(word)
