"""The result of one setting as a Parquet file.

The columns that `work` returned, and in the metadata, under the key `latentmdp`, a JSON object: the
setting's id and values, the version, the wall-clock `seconds` it took, and `digest`, of everything
but the version and the time. A file that is damaged is refused; one without digest is read as it
is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from latentmdp._util import storage
from latentmdp._version import __version__
from latentmdp.errors import FormatError
from latentmdp.io.parquet import check_table

__all__ = ["Result", "read_result", "write_result"]

KEY = b"latentmdp"

Columns = Mapping[str, ArrayLike]


class Result(NamedTuple):
    """The columns, and the seconds they took; None where the file does not tell."""

    table: pa.Table
    seconds: float | None


def write_result(
    path: str | os.PathLike[str],
    name: str,
    setting: Mapping[str, Any],
    columns: Columns,
    seconds: float,
) -> None:
    """Write the result of the setting with this id (`name`) and values, all or nothing."""
    table = pa.table({key: np.asarray(column) for key, column in columns.items()})
    told = {"id": name, "values": dict(setting)}
    signed = {**told, "version": __version__, "seconds": seconds, "digest": _digest(told, table)}
    with storage.atomic_write(path) as stream:
        described = table.replace_schema_metadata({KEY: json.dumps(signed).encode()})
        pq.write_table(described, stream, write_page_checksum=True)


def read_result(path: str | os.PathLike[str]) -> Result:
    """Read what `write_result` wrote."""
    with open(path, "rb") as stream:
        try:
            size = storage.file_size(stream)
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            check_table(file, file.schema_arrow.names, size)
            table = file.read()
            header = storage.parse((table.schema.metadata or {})[KEY].decode())
            table = table.replace_schema_metadata(None)
            told = {name: header[name] for name in ("id", "values")}
            if "digest" in header and header["digest"] != _digest(told, table):
                raise FormatError("its contents are not those that were written")
            seconds = header.get("seconds")
            return Result(table, None if seconds is None else storage.as_seconds(seconds))
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise FormatError(
                f"{path} is damaged ({reason}); remove it to run this setting again"
            ) from None


def _digest(told: Mapping[str, Any], table: pa.Table) -> str:
    """Of the setting and of every value of the table, which is small."""
    return storage.digest_of({}, json.dumps([told, table.to_pydict()], sort_keys=True))
