"""Episodes as a long table, one row per step: the form in which logs come and go.

`Trajectories.from_table` says what the columns are; `context` and `count`, where given, are the
same in every row of an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import validation
from latentmdp._util.arrays import Integers
from latentmdp.errors import TrajectoryError

__all__ = ["OPTIONAL", "REQUIRED", "columns_to_fields"]

REQUIRED = ("episode", "t", "state", "action", "reward", "next_state")
OPTIONAL = ("context", "count")


def columns_to_fields(
    table: Mapping[str, ArrayLike],
    *,
    n_states: int | None = None,
    n_actions: int | None = None,
    reward_values: ArrayLike | None = None,
    rewards_are_indices: bool = False,
) -> dict[str, Any]:
    """The arguments of `Trajectories` that a long table describes.

    See `Trajectories.from_table`; with `rewards_are_indices` the column `reward` holds indices, and
    their values are unknown.

    Raises
    ------
    TrajectoryError
        Naming the column, or the episode and the step.
    """
    rows = _sorted_rows(_read_columns(table))
    states, next_states = rows.integers("state"), rows.integers("next_state")
    rows.require_linked(states, next_states)
    ends = rows.offsets[1:]
    if rewards_are_indices:
        rewards, values = rows.integers("reward"), None
    else:
        rewards, values = _reward_indices(rows, reward_values)
    return {
        "states": np.insert(states, ends, next_states[ends - 1]),
        "actions": rows.integers("action"),
        "rewards": rewards,
        "offsets": rows.offsets,
        "contexts": rows.constant("context"),
        "counts": rows.constant("count"),
        "n_states": n_states,
        "n_actions": n_actions,
        "reward_values": values,
    }


@dataclass(frozen=True)
class _Rows:
    """A table sorted by (episode, t), with the offset of each episode's first row."""

    columns: dict[str, NDArray[Any]]
    offsets: Integers
    labels: NDArray[Any]

    def place(self, row: int) -> str:
        episode = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"episode {self.labels[episode]}, step {row - int(self.offsets[episode])}"

    def refuse(self, wrong: NDArray[np.bool_], column: str, why: str) -> None:
        """Raise for the first row marked wrong."""
        if wrong.any():
            row = int(np.argmax(wrong))
            value = self.columns[column][row]
            raise TrajectoryError(f"{self.place(row)}: {column} is {value}, {why}")

    def integers(self, column: str, dtype: type[np.signedinteger[Any]] = np.int32) -> Integers:
        """A column as non-negative integers; floats pass where they are whole."""
        values = self.columns[column]
        if values.dtype.kind == "f":
            self.refuse(values != np.rint(values), column, "must be an integer")
        self.refuse(values < 0, column, "must not be negative")
        self.refuse(values > np.iinfo(dtype).max, column, f"larger than {np.dtype(dtype)} holds")
        return values.astype(np.int64)

    def constant(self, column: str) -> Integers | None:
        """A column that says one thing per episode, as one value per episode."""
        if column not in self.columns:
            return None
        values = self.integers(column, np.int64 if column == "count" else np.int32)
        first = values[self.offsets[:-1]]
        expected = np.repeat(first, np.diff(self.offsets))
        self.refuse(values != expected, column, "but another value earlier in the episode")
        return first

    def require_linked(self, states: Integers, next_states: Integers) -> None:
        """Within an episode the next state of one row is the state of the row after it."""
        inside = np.ones(states.size, dtype=bool)
        inside[self.offsets[:-1]] = False
        broken = inside[1:] & (next_states[:-1] != states[1:])
        if broken.any():
            row = int(np.argmax(broken))
            raise TrajectoryError(
                f"{self.place(row)}: next_state is {next_states[row]}, but the state of the "
                f"following step is {states[row + 1]}"
            )


def _read_columns(table: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    columns = {}
    for name in (*REQUIRED, *OPTIONAL):
        try:
            values = table[name]
        except KeyError:
            if name in REQUIRED:
                raise TrajectoryError(
                    f"the table has no column {name!r}; it needs {', '.join(REQUIRED)}"
                ) from None
            continue
        columns[name] = _column(name, values)
    size = columns["episode"].size
    for name, column in columns.items():
        if column.size != size:
            raise TrajectoryError(
                f"column {name!r} has {column.size} rows, column 'episode' has {size}"
            )
    return columns


def _column(name: str, values: ArrayLike) -> NDArray[Any]:
    column = np.asarray(values)
    if column.ndim != 1:
        raise TrajectoryError(f"column {name!r} must be one-dimensional, got shape {column.shape}")
    if name == "episode" and column.dtype.kind in "OTU":
        return _strings(column)
    kinds = "iufb" if name == "reward" else "iuf"
    if column.size and column.dtype.kind not in kinds:
        raise TypeError(f"column {name!r} must hold numbers, got dtype {column.dtype}")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        row = int(np.argmax(~np.isfinite(column)))
        raise TrajectoryError(f"column {name!r} is {column[row]} in row {row}: must be finite")
    return column


def _strings(column: NDArray[Any]) -> NDArray[Any]:
    names = column.astype(object)
    odd = np.fromiter((not isinstance(name, str) for name in names), dtype=bool, count=names.size)
    if odd.any():
        row = int(np.argmax(odd))
        raise TypeError(
            f"column 'episode' is {names[row]!r} in row {row}: episodes are called by integers or "
            "by strings"
        )
    return names


def _sorted_rows(columns: dict[str, NDArray[Any]]) -> _Rows:
    episode, t = columns["episode"], columns["t"]
    if episode.dtype == object:
        labels, episode = np.unique(episode, return_inverse=True)
        columns = {**columns, "episode": labels[episode]}
    same = episode[1:] == episode[:-1]
    in_order = (episode[1:] > episode[:-1]) | (same & (t[1:] > t[:-1]))
    if not in_order.all():
        order = np.lexsort((t, episode))
        columns = {name: column[order] for name, column in columns.items()}
        same = episode[order][1:] == episode[order][:-1]
    first = np.flatnonzero(np.concatenate([[True], ~same]))[: episode.size]
    offsets = np.concatenate([first, [episode.size]]).astype(np.int64)
    rows, t = _Rows(columns, offsets, columns["episode"][first]), columns["t"]
    expected = np.arange(t.size) - np.repeat(offsets[:-1], np.diff(offsets))
    wrong = t != expected
    if wrong.any():
        row = int(np.argmax(wrong))
        repeated = expected[row] > 0 and t[row] == t[row - 1]
        why = "occurs twice" if repeated else f"but step {expected[row]} is missing"
        raise TrajectoryError(f"{rows.place(row)}: t is {t[row]}, {why}; t must count 0, 1, 2, ...")
    return rows


def _reward_indices(
    rows: _Rows, reward_values: ArrayLike | None
) -> tuple[Integers, NDArray[np.float64]]:
    rewards = rows.columns["reward"].astype(np.float64)
    if reward_values is None:
        seen = np.unique(rewards)
        seen = np.array([0.0, 1.0]) if np.isin(seen, (0.0, 1.0)).all() else seen
        return np.searchsorted(seen, rewards), seen
    values = validation.reward_values(reward_values)
    order = np.argsort(values)
    nearest = np.minimum(np.searchsorted(values[order], rewards), values.size - 1)
    rows.refuse(
        values[order][nearest] != rewards, "reward", f"not one of the values {values.tolist()}"
    )
    return order[nearest], values
