"""A model as a long table: one row for each outcome that is possible in a context.

| column        | meaning                                                        |
|---------------|----------------------------------------------------------------|
| `context`     | m; one context where the table has no such column              |
| `state`       | s                                                              |
| `action`      | a                                                              |
| `next_state`  | s'                                                             |
| `probability` | of s', and of the reward where several are possible            |
| `reward`      | the amount that is paid; 0 where the table has no such column  |

Rows that agree in all but the probability add up. An action is allowed in a state where the pair is
listed, in every context; a state that occurs as a next state only is terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import names
from latentmdp._util.arrays import ROW_TOLERANCE, Flags, Floats, Integers
from latentmdp._util.memory import require_memory
from latentmdp.outcomes import Outcomes, distinct_amounts, outcomes_from_entries, row_totals

__all__ = ["COLUMNS", "by_name", "model_columns", "read_model_table"]

COLUMNS = ("context", "state", "action", "next_state", "probability", "reward")
_LABELS = ("context", "state", "action", "next_state")
_OPTIONAL = ("context", "reward")
Names = tuple[str, ...] | None


def read_model_table(
    table: Any, names: Mapping[str, str], observed: bool
) -> tuple[Outcomes, Flags, Floats, Floats | None, bool, bool, tuple[Names, Names, Names]]:
    """The model that a long table describes; `names` says what it calls each of `COLUMNS`.

    Outcomes, allowed (S, A), reward values, the mean amounts (M, S, A) that are paid but not seen,
    whether there is a column of rewards, whether amounts depend on (m, s, a) only, and the names of
    contexts, states and actions.
    """
    from latentmdp.logs import frames

    renamed = {word for word in _OPTIONAL if names[word] != word}
    optional = [word for word in _OPTIONAL if word not in renamed]
    columns = model_columns(table, names, optional)
    size = len(columns["state"])
    if size == 0:
        raise ValueError("the table has no rows")
    probability = columns["probability"]
    wrong = (probability < 0.0) | (probability > 1.0 + ROW_TOLERANCE)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"column {names['probability']!r} is {probability[first]:.12g} in row {first}: "
            "probabilities lie in [0, 1]"
        )
    amounts = columns.get("reward", np.zeros(size))
    m, context_names, M = np.zeros(size, np.int64), None, 1
    if "context" in columns:
        (m,), context_names, M = frames.numbered(columns["context"])
        if context_names and list(context_names) == sorted(context_names, key=frames.natural_key):
            # In the order in which the table lists them, as weights are given.
            order = np.argsort(np.unique(m, return_index=True)[1])
            m, context_names = np.argsort(order)[m], tuple(context_names[i] for i in order)
    (s, n), state_names, S = frames.numbered(columns["state"], columns["next_state"])
    (a,), action_names, A = frames.numbered(columns["action"])
    require_memory(16.0 * M * S * A, f"{S:,} states, {A:,} actions and {M:,} contexts")
    row = s * A + a
    called = (context_names, state_names, action_names)
    totals = _totals(m, row, probability, (M, S, A), called)
    probability = probability / totals[m, row]
    allowed = (totals > 0.0).any(axis=0).reshape(S, A)
    possible = probability > 0.0
    m, row, n, amounts = m[possible], row[possible], n[possible], amounts[possible]
    probability = probability[possible]
    unseen, values, reward = None, np.zeros(1), np.zeros(m.size, np.int64)
    if observed:
        values, reward = distinct_amounts(amounts)
    else:
        paid = np.bincount(m * S * A + row, probability * amounts, M * S * A)
        unseen = paid.astype(np.float64).reshape(M, S, A)
    outcomes = outcomes_from_entries(row, n, reward, m, probability, (M, S, A, values.size))
    cells = m * S * A + row
    by_pair = np.unique(cells).size == np.unique(cells * values.size + reward).size
    return outcomes, allowed, values, unseen, "reward" in columns, by_pair, called


def model_columns(
    table: Any, names: Mapping[str, str], optional: Collection[str]
) -> dict[str, Any]:
    """The columns of a model's table by our words: labels as they are, all others as numbers.

    Raises
    ------
    ValueError
        Naming the column, and the row where a cell is empty or no number.
    """
    from latentmdp.logs import frames

    try:
        columns = frames.columns_of(table, names, optional=optional, labels=_LABELS, filled=True)
        return {
            word: cells if word in _LABELS else frames.floats(names[word], cells)
            for word, cells in columns.items()
        }
    except frames.ColumnTypeError as error:
        raise ValueError(str(error)) from None


def _totals(
    m: Integers,
    row: Integers,
    probability: Floats,
    sizes: tuple[int, int, int],
    labels: tuple[tuple[str, ...] | None, ...],
) -> Floats:
    """The sum of each row in each context, (M, S A), near 1 or 0; within rounding exactly 1."""
    M, S, A = sizes

    def called(context: int, row: int) -> list[str]:
        indices = (context, *divmod(row, A))
        return [*map(names.called, ("context", "state", "action"), indices, labels)]

    listed = np.bincount(m * S * A + row, minlength=M * S * A).reshape(M, S * A) > 0
    partly = listed.any(axis=0) & ~listed.all(axis=0)
    if partly.any():
        first = int(np.argmax(partly))
        context, state, action = called(int(np.argmax(listed[:, first])), first)
        lacking = called(int(np.argmin(listed[:, first])), first)[0]
        raise ValueError(
            f"{action} of {state} is listed for {context}, but not for {lacking}: an action is "
            f"allowed in all contexts or in none ({int(partly.sum())} such pairs)"
        )
    return row_totals(m, row, probability, listed, A, labels)


def by_name(
    what: str, value: Any, names: tuple[str, ...] | None, size: int, of: str
) -> ArrayLike | None:
    """An argument that may be given as {label: probability}, as an array of `size`.

    A single label stands for itself with probability 1.
    """
    index = {str(i): i for i in range(size)}
    if names is not None:
        index = {name: i for i, name in enumerate(names)}
    if isinstance(value, str):
        value = {value: 1.0}
    if not isinstance(value, Mapping):
        return value
    probabilities = np.zeros(size)
    for label, probability in value.items():
        if str(label) not in index:
            labels = ", ".join(map(repr, list(index)[:10]))
            raise ValueError(f"{what} names the {of} {label!r}, which is none of {labels}")
        probabilities[index[str(label)]] = probability
    return probabilities
