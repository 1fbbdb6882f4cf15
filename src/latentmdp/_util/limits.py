"""How much a file may ask for before it is believed.

A small file can declare, or decompress to, far more than the memory there is. What `save` writes
stays within these limits, because large data are written uncompressed.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from latentmdp.errors import FormatError

__all__ = ["ALWAYS", "check_memory", "file_size"]

ALWAYS = 2**30
"""A file may always ask for this many bytes; beyond it, `save` does not compress."""

FACTOR = 4
"""Beyond `ALWAYS`, a file may ask for this many times its own size."""


def file_size(stream: BinaryIO) -> int:
    """The size of an open file, in bytes; the position is left at the start."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def check_memory(declared: int, size: int) -> None:
    """Refuse a file of `size` bytes that would need `declared` bytes of memory."""
    limit = max(ALWAYS, FACTOR * size)
    if declared > limit:
        raise FormatError(
            f"declares {declared:,} bytes of data in a file of {size:,} bytes; refused, since at "
            f"most {limit:,} are believed"
        )
