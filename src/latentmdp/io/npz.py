"""The .npz format: one member per array, and `header`, a JSON text with everything else.

`numpy.load` opens such a file too; here it is read under the checks of `latentmdp._util.storage`.
"""

from __future__ import annotations

from typing import Any, BinaryIO

from latentmdp._util import storage
from latentmdp.io import kinds


def write(stream: BinaryIO, obj: Any) -> None:
    """Write an object of any kind."""
    document = kinds.encode(obj)
    storage.write_archive(stream, kinds.signed_header(document), document.arrays)


def read(stream: BinaryIO) -> Any:
    """Read what `write` wrote."""
    header, arrays = storage.read_archive(stream)
    return kinds.decode(kinds.document_of(header, arrays))
