"""Logs as a table of Arrow with a header: what a Parquet file of logs holds.

The rows are those of `Trajectories.to_table`; what columns cannot say (sizes, reward values, names
without a row, levels) lies in a header, a JSON object under the key `latentmdp` of the table's
metadata. `latentmdp.io.parquet` describes the columns and their types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from latentmdp._util import file_header, plain
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.logs.base import MissingCells
from latentmdp.logs.long_table import WORDS, TableOptions, fields_of_table
from latentmdp.logs.trajectories import Trajectories

KEY = b"latentmdp"
"""Where the metadata of a table hold the header."""

_SIZES = ("n_states", "n_actions", "reward_values")
"""Fields that every header has."""

_DETAILS = ("state_names", "action_names", "missing", "reward_edges")
"""Fields that a header has where the logs have them."""

_SMALL = ("t", "state", "action", "next_state", "context")
"""Columns of 32-bit integers, unless they hold names."""


def to_arrow(logs: Trajectories) -> pa.Table:
    """The table of logs with its header.

    Raises
    ------
    FormatError
        If an episode has no steps, and so no row, or a covariate is called as a column is.
    """
    try:
        columns = logs.to_table()
    except TrajectoryError as error:
        raise FormatError(str(error)) from None
    fields = {name: plain(getattr(logs, name)) for name in (*_SIZES, *_DETAILS)}
    header = {n: value for n, value in fields.items() if value is not None or n in _SIZES}
    header = {**file_header("trajectories"), **header}
    if logs.amounts is not None and logs.reward_edges is None:
        header["informative_rewards"] = False
    if logs.covariates is not None:
        header |= {"covariates": logs.covariates.names, "levels": logs.covariates.levels}
        for name in logs.covariates.names:
            if name in (*WORDS, "episode_name"):
                raise FormatError(f"a covariate is called {name!r}, as a column is: save as .npz")
    if logs.episode_names is not None:
        columns["episode_name"] = columns["episode"]
        columns["episode"] = np.cumsum(columns["t"] == 0) - 1
    small = (*_SMALL, *(("reward",) if logs.reward_values is None else ()))
    table = {name: _cells(column, name in small) for name, column in columns.items()}
    return pa.table(table).replace_schema_metadata({KEY: json.dumps(header)})


def _cells(column: NDArray[Any], small: bool) -> pa.Array:
    """A column of a table; NaN and None become null."""
    if column.dtype == object:
        return pa.array(column, pa.string()).dictionary_encode()
    kind = pa.int32() if small else None
    if small and column.dtype.kind == "f":
        return pa.array(np.nan_to_num(column).astype(np.int64), kind, mask=np.isnan(column))
    return pa.array(column, kind, from_pandas=True)


def options_of(header: Mapping[str, Any]) -> TableOptions:
    """How a table with this header becomes logs."""
    for name in _SIZES:
        if name not in header:
            raise FormatError(f"the metadata lack {name!r}")
    options = {n: header[n] for n in TableOptions._fields if header.get(n) is not None}
    options["rewards_are_indices"] = header["reward_values"] is None
    if header.get("informative_rewards") is False:
        options.pop("reward_values", None)  # amounts, which have none
    if header.get("covariates"):
        options |= {"covariates": tuple(header["covariates"]), "levels": header.get("levels") or {}}
    return TableOptions(**options)


def logs_of_arrow(table: pa.Table, header: Mapping[str, Any]) -> Trajectories:
    """The logs that `to_arrow` made a table of."""
    fields = fields_of_table(table, {word: word for word in WORDS}, options_of(header))
    missing = header.get("missing")
    fields["missing"] = None if missing is None else MissingCells(**missing)
    fields["episode_names"] = None
    logs = Trajectories(**fields)
    if "episode_name" not in table.column_names:
        return logs
    first = np.flatnonzero(table["t"].to_numpy() == 0)
    names = np.array(table["episode_name"].combine_chunks().take(first).to_pylist(), dtype=object)
    return Trajectories(**{**fields, "episode_names": names[logs.individuals()]})
