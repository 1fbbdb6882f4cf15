"""A digest of arrays and text, by which a file is known to be as it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["digest_of"]


def digest_of(arrays: Mapping[str, NDArray[Any]], text: str = "") -> str:
    """BLAKE2b, 128 bits, of the text and of the names, types, shapes and bytes of the arrays."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    found.update(text.encode())
    return found.hexdigest()
