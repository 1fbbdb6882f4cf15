"""The .parquet format of logs: a long table with one row per step.

| column       | type              | meaning                                                     |
|--------------|-------------------|-------------------------------------------------------------|
| `episode`    | int64 (or string) | which episode                                               |
| `t`          | int32             | step within it: 0, 1, 2, ...                                |
| `state`      | int32             | s_t                                                         |
| `action`     | int32             | a_t                                                         |
| `reward`     | float64           | the value of r_t; an index (int32) where values are unknown |
| `next_state` | int32             | s_{t+1}, the state of the following row                     |
| `context`    | int32, optional   | the true context, the same in all rows of an episode        |
| `count`      | int64, optional   | how often the episode occurred, likewise                    |

The file's metadata hold, under the key `latentmdp`, a JSON object with the schema version and
`n_states`, `n_actions` and `reward_values`. A file from elsewhere needs only the first six
columns: rows in any order, other columns ignored, sizes then taken from the data. An episode of no
steps has no row and is refused; the .npz format holds it.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from latentmdp._util import limits
from latentmdp._util.long_table import OPTIONAL, REQUIRED, columns_to_fields
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.io import kinds
from latentmdp.io.json import parse
from latentmdp.trajectories import Trajectories

__all__ = ["check_table", "read", "write"]

KEY = b"latentmdp"
MAX_COLUMNS = 10_000
BYTES_PER_VALUE = 8

_TYPES = {
    "episode": pa.int64(),
    "t": pa.int32(),
    "state": pa.int32(),
    "action": pa.int32(),
    "next_state": pa.int32(),
    "context": pa.int32(),
    "count": pa.int64(),
}


def write(stream: BinaryIO, logs: Trajectories) -> None:
    """Write logs; episodes of no steps are refused."""
    try:
        columns = logs.to_table()
    except TrajectoryError as error:
        raise FormatError(str(error)) from None
    values = logs.reward_values
    types = {**_TYPES, "reward": pa.int32() if values is None else pa.float64()}
    table = pa.table({name: pa.array(c, type=types[name]) for name, c in columns.items()})
    header = {
        **kinds.header_of(kinds.by_name("trajectories")),
        "n_states": logs.n_states,
        "n_actions": logs.n_actions,
        "reward_values": None if values is None else values.tolist(),
    }
    small = table.num_rows * table.num_columns * BYTES_PER_VALUE < limits.ALWAYS
    pq.write_table(
        table.replace_schema_metadata({KEY: json.dumps(header).encode()}),
        stream,
        compression="zstd" if small else "none",
        use_dictionary=small,
        write_page_checksum=True,
    )


def read(stream: BinaryIO) -> Trajectories:
    """Read what `write` wrote, or a foreign table with the same columns."""
    size = limits.file_size(stream)
    file = pq.ParquetFile(stream, page_checksum_verification=True, read_dictionary=["episode"])
    schema = file.schema_arrow
    if len(schema.names) > MAX_COLUMNS:
        raise FormatError(f"has {len(schema.names)} columns, at most {MAX_COLUMNS} are expected")
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in schema.names]
    sizes = _sizes(schema.metadata or {})
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise FormatError(f"has no column {missing[0]!r}; logs need {', '.join(REQUIRED)}")
    check_table(file, names, size)
    table = file.read(columns=names)
    return Trajectories(
        **columns_to_fields({name: _column(name, table[name]) for name in names}, **sizes)
    )


def check_table(file: pq.ParquetFile, names: list[str], size: int) -> None:
    """Refuse a file of `size` bytes whose pages or columns ask for more than it may."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    pages = sum(group.total_byte_size for group in groups)
    limits.check_memory(max(pages, file.metadata.num_rows * len(names) * BYTES_PER_VALUE), size)


def _sizes(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """Sizes from our metadata; a foreign file has none and is taken as it is."""
    if KEY not in metadata:
        return {}
    header = parse(metadata[KEY].decode("utf-8"))
    if isinstance(header, dict) and header.get("kind") == "run":
        raise FormatError("holds a run of a learner: read it with latentmdp.online.Run.load")
    if kinds.check_header(header).name != "trajectories":
        raise FormatError(f"holds a {header['kind']}, not logs")
    for name in ("n_states", "n_actions", "reward_values"):
        if name not in header:
            raise FormatError(f"the metadata lack {name!r}")
    values = header["reward_values"]
    return {
        "n_states": header["n_states"],
        "n_actions": header["n_actions"],
        "reward_values": values,
        "rewards_are_indices": values is None,
    }


def _column(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise FormatError(f"column {name!r} is empty in row {row}")
    if pa.types.is_dictionary(column.type):
        return _labels(name, column.combine_chunks())
    kind = column.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not number and not (name == "reward" and pa.types.is_boolean(kind)):
        raise FormatError(f"column {name!r} must hold numbers, got {kind}")
    values: NDArray[Any] = column.to_numpy()
    return values


def _labels(name: str, column: pa.DictionaryArray) -> NDArray[Any]:
    """A dictionary column as objects that rows share, however long a label is."""
    if name != "episode":
        raise FormatError(f"column {name!r} must hold numbers, got {column.type}")
    labels = np.empty(len(column.dictionary), dtype=object)
    labels[:] = column.dictionary.to_pylist()
    rows: NDArray[Any] = labels[column.indices.to_numpy()]
    return rows
