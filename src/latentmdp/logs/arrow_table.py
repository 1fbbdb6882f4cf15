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

from latentmdp._util import file_header
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.logs.base import MissingCells
from latentmdp.logs.long_table import WORDS, TableOptions, fields_of_table
from latentmdp.logs.trajectories import Trajectories

KEY = b"latentmdp"
"""Where the metadata of a table hold the header."""

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
    header: dict[str, Any] = {
        **file_header("trajectories"),
        "n_states": logs.n_states,
        "n_actions": logs.n_actions,
        "reward_values": None if logs.reward_values is None else logs.reward_values.tolist(),
        "state_names": logs.state_names,
        "action_names": logs.action_names,
        "missing": None if logs.missing is None else logs.missing._asdict(),
        "reward_edges": None if logs.reward_edges is None else logs.reward_edges.tolist(),
        "informative_rewards": None if logs.amounts is None else False,
    }
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
    always = ("n_states", "n_actions", "reward_values")
    told = {name: value for name, value in header.items() if value is not None or name in always}
    return pa.table(table).replace_schema_metadata({KEY: json.dumps(told)})


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
    for name in ("n_states", "n_actions", "reward_values"):
        if name not in header:
            raise FormatError(f"the metadata lack {name!r}")
    unseen = header.get("informative_rewards") is False
    names = tuple(header.get("covariates") or ())
    return TableOptions(
        covariates=names,
        informative_rewards=not unseen,
        reward_values=None if unseen else header["reward_values"],
        reward_edges=header.get("reward_edges"),
        n_states=header["n_states"],
        n_actions=header["n_actions"],
        state_names=header.get("state_names"),
        action_names=header.get("action_names"),
        rewards_are_indices=header["reward_values"] is None,
        levels=(header.get("levels") or {}) if names else None,
    )


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
