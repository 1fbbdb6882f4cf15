"""The .parquet format of logs and runs: tables that any tool can read.

Logs are a long table with one row per step:

| column         | type              | meaning                                                     |
|----------------|-------------------|-------------------------------------------------------------|
| `episode`      | int64             | which episode                                               |
| `t`            | int32             | step within it: 0, 1, 2, ...                                |
| `state`        | int32 or string   | s_t, by its name if it has one                              |
| `action`       | int32 or string   | a_t, likewise                                               |
| `reward`       | float64           | the value of r_t; an index (int32) where values are unknown |
| `next_state`   | int32 or string   | s_{t+1}, the state of the following row                     |
| `context`      | int32, optional   | the true context, the same in all rows of an episode        |
| `count`        | int64, optional   | how often the episode occurred, likewise                    |
| `propensity`   | float64, optional | probability of the action under the logger                  |
| `episode_name` | string, optional  | what the episode is called                                  |

and a column for each covariate. A missing reward or next state is null; steps that were lost are a
row without an action. The file's metadata hold, under the key `latentmdp`, a JSON object with the
schema version, `n_states`, `n_actions`, `reward_values` and, where there are any, names, reward
edges and what else the columns do not say. A file from elsewhere needs none of this: what
`Trajectories.from_table` reads is read. An episode of no steps has no row and is refused; the .npz
format holds it.

Other kinds that have columns (`Kind.columns`), such as runs, are a table with one row per episode:
`episode`, and each of these arrays. Everything else lies in the metadata: under `latentmdp` the
header that an .npz file has, with the type and shape of each other array in `arrays`, and the bytes
of the array NAME under `latentmdp.array.NAME`. Reading gives back every array bit for bit.
"""

from __future__ import annotations

import json
import math
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from latentmdp._util import storage
from latentmdp._util.arrays import Arrays
from latentmdp.errors import FormatError
from latentmdp.io import csv_table, kinds
from latentmdp.logs import KEY, Trajectories, frames, logs_of_arrow, to_arrow


def write(stream: BinaryIO, obj: Any) -> None:
    """Write logs, or an object whose kind has columns."""
    logs = isinstance(obj, Trajectories)
    storage.write_table(stream, to_arrow(obj) if logs else _episode_table(kinds.encode(obj)))


def read(stream: BinaryIO, **arguments: Any) -> Any:
    """Read what `write` wrote, or a foreign table with the columns of logs or of a model.

    A foreign table is read by `Trajectories.from_table` where it has a column of episodes and none
    of probabilities, and by `LatentMDP.from_table` otherwise, with the arguments of either.
    """
    size = storage.file_size(stream)
    limits = {
        "page_checksum_verification": True,
        # No text or list in the metadata is longer than the file.
        "thrift_string_size_limit": min(size, 2**31 - 1),
        "thrift_container_size_limit": min(size, 2**31 - 1),
    }
    file = pq.ParquetFile(stream, **limits)
    names = file.schema_arrow.names
    texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
    if texts:
        file = pq.ParquetFile(stream, read_dictionary=texts, **limits)
    frames.require_few_columns(names)
    metadata = file.schema_arrow.metadata or {}
    if KEY not in metadata:
        check_table(file, names, size)
        return csv_table.model_or_logs(file.read(), arguments)
    if arguments:
        raise FormatError(f"holds everything already: load takes no {min(arguments)!r} for it")
    header = storage.parse(metadata[KEY].decode("utf-8"), finite=False)
    kind = kinds.check_header(header)
    if kind.name == "trajectories":
        check_table(file, names, size)
        return logs_of_arrow(file.read(), header)
    if not kind.columns:
        raise FormatError(f"holds a {kind.name}, not logs or a run")
    columns = list(kind.columns.values())
    check_table(file, columns, size)
    table = file.read(columns=columns)
    # what is not a number, or empty, is found by the digest and by the check of every field
    arrays = {field: table[name].to_numpy() for field, name in kind.columns.items()}
    arrays |= _metadata_arrays(header.get("arrays"), metadata)
    return kinds.decode(kinds.document_of(header, arrays))


def check_table(file: pq.ParquetFile, names: list[str], size: int) -> None:
    """Refuse a file of `size` bytes whose pages or columns ask for more than it may."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    pages = sum(group.total_byte_size for group in groups)
    # a column of numbers takes 8 bytes a row
    storage.check_memory(max(pages, 8 * file.metadata.num_rows * len(names)), size)


# --------------------------------------------------------------------------- one row per episode


def _episode_table(document: kinds.Document) -> pa.Table:
    """A table of the kind's columns, and metadata with everything else."""
    columns = document.kind.columns
    others = {name: a for name, a in document.arrays.items() if name not in columns}
    layouts = {name: [a.dtype.str, list(a.shape)] for name, a in others.items()}
    header = {**kinds.signed_header(document), "arrays": layouts}
    metadata = {KEY: json.dumps(header).encode()}
    for name, array in others.items():
        metadata[_key(name)] = np.ascontiguousarray(array).tobytes()
    first = document.arrays[next(iter(columns))]
    table = {"episode": pa.array(np.arange(first.size))}
    for name, column in columns.items():
        table[column] = pa.array(document.arrays[name], from_pandas=False)
    return pa.table(table).replace_schema_metadata(metadata)


def _metadata_arrays(layouts: Any, metadata: dict[bytes, bytes]) -> Arrays:
    if not isinstance(layouts, dict):
        raise FormatError("the metadata lack 'arrays'")
    arrays = {}
    for name, (dtype, shape) in layouts.items():
        data, kind = metadata[_key(name)], np.dtype(storage.as_text(dtype, name))
        sizes = [storage.as_integer(size, name) for size in shape]
        fits = min(sizes, default=0) >= 0 and math.prod(sizes) * kind.itemsize == len(data)
        if kind.kind not in "biuf" or not fits:
            raise FormatError(f"array {name!r} is not {dtype} of shape {shape}")
        arrays[name] = np.frombuffer(data, dtype=kind).reshape(sizes)
    return arrays


def _key(name: str) -> bytes:
    return KEY + b".array." + name.encode()
