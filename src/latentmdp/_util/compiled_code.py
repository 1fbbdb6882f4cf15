"""Compiled code on disk that is valid for exactly the sources it was made from.

Numba keeps the machine code of a loop beside its file, with a stamp of that file. A loop also
contains the loops that it calls, from other files: after an upgrade, or an edit, that changed only
those, numba would run the old ones without a word. So the stamp of every loop of this library is a
digest of all files that hold loops.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba.core import caching


@lru_cache(maxsize=1)
def sources_digest() -> bytes:
    """A digest of the text of all files with compiled loops; some milliseconds, once a process."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted([*package.rglob("kernels*.py"), *package.glob("_kernels/*.py")]):
        digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return digest.digest()


class _StampedLocator:
    """Where numba would keep a loop of this library, with the stamp of all sources."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """One of numba's own locators; None for loops of others, which numba then asks about."""
        if not py_func.__module__.startswith("latentmdp."):
            return None
        for other in _LOCATORS:
            locator = None if other is cls else other.from_function(py_func, py_file)
            if locator is not None:
                locator.get_source_stamp = sources_digest
                return locator
        return None


# The class has another name in older versions; both ask these locators, the first one first.
_IMPLEMENTATION: Any = getattr(caching, "CacheImpl", None) or getattr(caching, "_CacheImpl")  # noqa: B009
_LOCATORS: list[Any] = _IMPLEMENTATION._locator_classes


@lru_cache(maxsize=1)
def stamp_compiled_code() -> None:
    """Let numba tell compiled loops of this library apart by all their sources."""
    _LOCATORS.insert(0, _StampedLocator)
