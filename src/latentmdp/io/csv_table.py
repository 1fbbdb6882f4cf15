"""The .csv format of models: a long table with one row per outcome that is possible in a context.

A table with a column of episodes and none of probabilities is read as logs, by
`Trajectories.from_table`.

`LatentMDP.from_table` says what the columns `context`, `state`, `action`, `next_state`,
`probability` and `reward` are; a file of others needs no more, under any names. What a model has
besides is written in further columns, so that `load` finds it:

| column          | meaning                                      | the same in all rows of   |
|-----------------|----------------------------------------------|---------------------------|
| `weight`        | w_m                                          | a context                 |
| `initial`       | nu_m(s)                                      | a context and state       |
| `horizon`       | H; 0 for no end                              | the table                 |
| `discount`      |                                              | the table                 |
| `bonus`         | hidden reward of (s, a), where there is one  | a context, state, action  |
| `initial_bonus` | earned at the start, where there is one      | a context                 |

They count only where the first four are all there, and none of them is given to `load`. What no
row can say is refused by `save`: a state that is never reached and has no action, an episode that
begins in a terminal state, rows never visited. Names of states and actions come back in
natural order, those of contexts as the file lists them.
"""

from __future__ import annotations

import io
import warnings
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from latentmdp._model_table import COLUMNS, model_columns
from latentmdp._util import names
from latentmdp._util.words import did_you_mean
from latentmdp.errors import FormatError
from latentmdp.logs import Trajectories, frames
from latentmdp.model import LatentMDP

_NEEDED = ("weight", "initial", "horizon", "discount")
_BONUSES = ("bonus", "initial_bonus")


def write(stream: BinaryIO, model: LatentMDP) -> None:
    """Write a model as a long table."""
    _require_rows(model)
    columns = model.to_table()
    outcome, m = np.nonzero(model.outcomes.probs.T)[::-1]
    s, a = np.divmod(model.outcomes.rows()[outcome], model.n_actions)
    columns["weight"] = model.weights[m]
    columns["initial"] = model.initial[m, s]
    columns["horizon"] = np.full(m.size, model.horizon or 0)
    columns["discount"] = np.full(m.size, model.discount)
    if model.bonus is not None:
        columns["bonus"] = model.bonus[m, s, a]
    if model.initial_bonus is not None:
        columns["initial_bonus"] = model.initial_bonus[m]
    csv.write_csv(pa.table(columns), stream)


def _require_rows(model: LatentMDP) -> None:
    """Refuse a model that has something of which no row of its table could speak."""
    if model.allow_unvisited:
        raise FormatError("a .csv table has no rows never visited: save the model as .npz")
    lost = model.terminal & (model.initial > 0.0).any(axis=0)
    why = "episodes begin in {}, which is terminal"
    if not lost.any():
        lost = model.terminal.copy()
        lost[model.outcomes.next_state] = False
        why = "{} has no action and is never reached"
    if lost.any():
        s = int(np.argmax(lost))
        name = names.called("state", s, model.state_names)
        raise FormatError(f"{why.format(name)}: a .csv table cannot say it, save as .npz")
    for what in ("context", "state", "action"):
        words = list(names.names_of(model, what) or ())
        for word, again in zip(words, _read_again(words)):
            if word != again or not word:
                raise FormatError(
                    f"the {what} {word!r} would be {again!r} when a .csv table is read again: save "
                    "as .npz"
                )
    unused = ~model.allowed.any(axis=0)
    if unused.any():
        raise FormatError(
            f"action {int(np.argmax(unused))} is allowed nowhere: a .csv table cannot name it"
        )


def _read_again(words: list[str]) -> list[str]:
    """What a column of names is after it was written and read: columns of numbers lose zeros."""
    room = io.BytesIO()
    csv.write_csv(pa.table({"name": pa.array(words, pa.string())}), room)
    column = csv.read_csv(io.BytesIO(room.getvalue())).column("name")
    return [str(cell) for cell in column.cast(pa.string()).to_pylist()]


def read(stream: BinaryIO, **arguments: Any) -> LatentMDP | Trajectories:
    """Read a long table of a model or of logs; see `model_or_logs`."""
    return model_or_logs(stream, arguments)


def model_or_logs(table: Any, arguments: dict[str, Any]) -> LatentMDP | Trajectories:
    """The logs in a long table with a column of episodes and none of probabilities, or the model.

    The arguments are those of `Trajectories.from_table` or of `LatentMDP.from_table`.
    """
    called = {**(arguments.get("columns") or {}), **arguments}
    names = frames.column_names(table)
    if called.get("probability", "probability") in names:
        return model_of(table, arguments)
    if called.get("episode", "episode") in names:
        return Trajectories.from_table(table, **arguments)
    listed = f"it has {', '.join(map(repr, names[:20])) or 'none'}"
    for name in (arguments.get("columns") or {}).values():
        if name not in names:
            raise FormatError(f"has no column {name!r}{did_you_mean(name, names)}; {listed}")
    needed = ("state", "action", "next_state", "probability")
    lacking = next(word for word in needed if called.get(word, word) not in names)
    raise FormatError(
        f"has no column {called.get('episode', 'episode')!r} (episode), as logs have, and no "
        f"column {called.get(lacking, lacking)!r} ({lacking}), as a model has; {listed}; `columns` "
        "says which is which"
    )


def model_of(table: Any, arguments: dict[str, Any]) -> LatentMDP:
    """The model in a long table, with what its further columns say."""
    further = {"horizon", "discount", "weights", "initial", "bonus", "initial_bonus"}
    if not further & set(arguments) and {*_NEEDED, *COLUMNS} <= set(frames.column_names(table)):
        return _own(table, arguments)
    arguments = dict(arguments)
    if "horizon" not in arguments and "discount" not in arguments:
        arguments["discount"] = 0.95
        warnings.warn(
            "the table has no horizon and no discount: the model has no end and discount 0.95; "
            "horizon= and discount= say otherwise",
            stacklevel=4,
        )
    arguments.setdefault("horizon", None)
    return LatentMDP.from_table(table, **arguments)


def _own(table: Any, arguments: dict[str, Any]) -> LatentMDP:
    """The model in a table that has the columns which `write` adds."""
    words = (*COLUMNS, *_NEEDED, *_BONUSES)
    columns = model_columns(table, {word: word for word in words}, _BONUSES)
    for word in ("horizon", "discount"):
        _require_same(word, columns[word], np.zeros(columns[word].size, np.int64))
    horizon, discount = columns["horizon"][0], float(columns["discount"][0])
    if horizon != np.rint(horizon) or not 0.0 <= horizon < 2.0**31:
        raise FormatError(f"column 'horizon' is {horizon:g}: must be a whole number, or 0")
    rows, H = {word: columns[word] for word in COLUMNS}, int(horizon) or None
    model = LatentMDP.from_table(rows, horizon=H, discount=discount, **arguments)
    M, S, A, _ = model.dimensions
    (m,), _, _ = frames.numbered(columns["context"])
    (s, _), _, _ = frames.numbered(columns["state"], columns["next_state"])
    (a,), _, _ = frames.numbered(columns["action"])
    further = {
        "weights": _spread("weight", columns, m, (M,)),
        "initial": _spread("initial", columns, m * S + s, (M, S)),
        "bonus": _spread("bonus", columns, (m * S + s) * A + a, (M, S, A)),
        "initial_bonus": _spread("initial_bonus", columns, m, (M,)),
    }
    if further["bonus"] is not None and model.bonus is not None:
        further["bonus"] += model.bonus
    return model.replace(**{name: value for name, value in further.items() if value is not None})


def _spread(word: str, columns: dict[str, Any], cells: NDArray[Any], shape: tuple[int, ...]) -> Any:
    """A column that says one thing for each cell, as an array over the cells."""
    if word not in columns:
        return None
    _require_same(word, columns[word], cells)
    values = np.zeros(int(np.prod(shape)))
    values[cells] = columns[word]
    return values.reshape(shape)


def _require_same(word: str, values: NDArray[Any], cells: NDArray[Any]) -> None:
    """One value in all rows of a cell."""
    first = np.zeros(int(cells.max()) + 1)
    first[cells[::-1]] = values[::-1]
    wrong = first[cells] != values
    if wrong.any():
        row = int(np.argmax(wrong))
        raise FormatError(
            f"column {word!r} is {values[row]:g} in row {row}, but {first[cells][row]:g} in an "
            "earlier row that it must agree with"
        )
