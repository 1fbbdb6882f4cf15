"""Columns of any table: a frame of any library, a mapping of columns, a list of rows, or a file.

Frames (pandas, polars, pyarrow and others) are read through narwhals, files through pyarrow. A
column becomes an array of numbers, or of Python strings where it holds labels. What is wrong with a
cell is said with the name of its column and its row, counted from 0 without the header.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Integers

__all__ = [
    "Values",
    "arrow",
    "coded",
    "column_names",
    "columns_of",
    "labelled",
    "named_columns",
    "numbers",
    "values_or_labels",
]

MAX_COLUMNS = 10_000
"""Columns of a file; one with more is no table of what is read here."""


def columns_of(
    table: Any,
    wanted: Mapping[str, str],
    *,
    optional: Collection[str] = (),
    texts: Collection[str] = (),
) -> dict[str, NDArray[Any]]:
    """The columns of a table by our words for them.

    Parameters
    ----------
    table
        A frame, a mapping of columns, a sequence of mappings (rows), the path of a .csv or .parquet
        file, or an open .csv file.
    wanted
        What the table calls the column for each of our words.
    optional
        The words whose columns may be missing.
    texts
        The words whose columns hold labels: in a .csv file their cells are taken as they are
        written, and as integers only where all of them are.

    Raises
    ------
    ValueError
        Naming the column that is missing, of another length, or has an empty cell.
    """
    found = _columns(table, [wanted[word] for word in texts])
    missing = [word for word in wanted if wanted[word] not in found and word not in optional]
    if missing:
        known = ", ".join(repr(str(name)) for name in list(found)[:20])
        raise ValueError(
            f"the table has no column {wanted[missing[0]]!r} ({missing[0]}); "
            f"it has {known or 'none'}"
        )
    columns = {word: _array(name, found[name]) for word, name in wanted.items() if name in found}
    sizes = {word: column.size for word, column in columns.items()}
    for word, size in sizes.items():
        first, expected = next(iter(sizes.items()))
        if size != expected:
            raise ValueError(
                f"column {wanted[word]!r} has {size} rows, column {wanted[first]!r} has {expected}"
            )
    return columns


class Values(NamedTuple):
    """A column of numbers, or of labels by their index in `labels`; NaN where a cell is empty."""

    values: Floats
    labels: tuple[str, ...] | None


def named_columns(table: Any) -> Mapping[str, Any]:
    """The columns of a table by name, each as its library has them."""
    return _columns(table, ())


def values_or_labels(name: str, column: Any, *, as_labels: bool = False) -> Values:
    """A column as numbers where it holds numbers (unless `as_labels`), otherwise as labels."""
    import pyarrow as pa
    from pyarrow import compute

    cells = arrow(name, column)
    kind = cells.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    if number and not as_labels:
        values = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if np.isinf(values).any():
            row = int(np.argmax(np.isinf(values)))
            raise ValueError(f"column {name!r} is {values[row]} in row {row}: must be finite")
        return Values(np.array(values, np.float64) + 0.0, None)
    if pa.types.is_floating(kind):
        numbers = cells.to_numpy(zero_copy_only=False)
        whole = bool((np.isnan(numbers) | (numbers == np.rint(numbers))).all())
        cells = cells.cast(pa.int64()) if whole else cells
    if pa.types.is_boolean(kind):
        cells = compute.if_else(cells, "True", "False")
    codes, labels = coded(cells)
    return Values(np.where(codes < 0, np.nan, codes.astype(np.float64)), labels)


def arrow(name: str, column: Any) -> Any:
    """A column as one array of pyarrow; NaN, NaT and None are null.

    Raises
    ------
    TypeError, ValueError
        Naming the column and, where its cells are of several types, the row.
    """
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(column, pa.Array | pa.ChunkedArray):
        cells = column
    else:
        try:
            if hasattr(column, "to_native") and hasattr(column, "to_arrow"):  # of narwhals
                cells = column.to_arrow()
            elif hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__"):
                cells = pa.chunked_array(column)
            else:
                array = column if isinstance(column, np.ndarray) else None
                if array is not None and array.ndim != 1:
                    raise ValueError(
                        f"column {name!r} must be one-dimensional, got shape {array.shape}"
                    )
                cells = pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            raise _mixed(name, column) from None
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
        if isinstance(cells, pa.ChunkedArray):  # of no chunk
            cells = pa.concat_arrays(cells.chunks) if cells.chunks else pa.array([], cells.type)
    kind = cells.type
    if pa.types.is_nested(kind):
        raise ValueError(f"column {name!r} must be one-dimensional, got {kind}")
    if pa.types.is_decimal(kind):
        cells = cells.cast(pa.float64())
    if pa.types.is_floating(cells.type):
        cells = cells.cast(pa.float64())
        nan = compute.is_nan(cells)
        if compute.any(nan).as_py():
            cells = compute.if_else(nan, pa.scalar(None, pa.float64()), cells)
    return cells


def _mixed(name: str, column: Any) -> Exception:
    """What to say of a column whose cells pyarrow finds no type for."""
    cells = column.to_list() if hasattr(column, "to_list") else list(column)
    first: type | None = None
    for row, cell in enumerate(cells):
        if isinstance(cell, list | tuple | dict | set | np.ndarray):
            return ValueError(
                f"column {name!r} must be one-dimensional, but row {row} is {cell!r:.60}"
            )
        if cell is None or cell != cell:
            continue
        kind = type(cell)
        number = issubclass(kind, int | float | np.number) and not issubclass(kind, bool)
        kind = float if number else kind
        if first is not None and kind is not first:
            one = "numbers" if first is float else f"{first.__name__} values"
            return TypeError(
                f"column {name!r} is {cell!r:.60} in row {row}, while earlier rows hold {one}"
            )
        first = kind
    kind = first or type(None)
    return TypeError(f"column {name!r} holds {kind.__name__} values, which no table can hold")


def coded(*columns: Any) -> tuple[Any, ...]:
    """Labels of columns of pyarrow that share them, by number: codes, one array each, and names.

    An empty cell has code -1. Names are in natural order: `bed2` comes before `bed10`. Returns the
    arrays of codes, one after the other, and a tuple of the names.
    """
    import pyarrow as pa

    encoded = []
    for cells in columns:
        if not pa.types.is_dictionary(cells.type):
            cells = cells.cast(pa.large_string()).dictionary_encode()
        labels = cells.dictionary.cast(pa.large_string()).to_pylist()
        codes = cells.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        encoded.append((labels, codes))
    occurs = [_occurring(labels, codes) for labels, codes in encoded]
    names = sorted({label for found in occurs for label in found}, key=_natural)
    place = {label: i for i, label in enumerate(names)}
    found = []
    for labels, codes in encoded:
        rank = np.array([*(place.get(label, -1) for label in labels), -1], np.int64)
        found.append(rank[codes])
    return (*found, tuple(names))


def _occurring(labels: list[str], codes: Integers) -> list[str]:
    """The labels of a dictionary that some cell has: those of a category may not."""
    used = np.zeros(len(labels) + 1, np.bool_)
    used[codes] = True
    return [label for label, there in zip(labels, used) if there and label is not None]


def column_names(table: Any) -> list[str]:
    """What the columns of a table are called."""
    return list(_columns(table, ()))


def _columns(table: Any, texts: Collection[str]) -> Mapping[str, Any]:
    """The columns of a table by name, each as its library has them."""
    if isinstance(table, str | PathLike) or hasattr(table, "read"):
        table = _file(table, texts)
    if isinstance(table, Mapping):
        return table
    if isinstance(table, np.ndarray) and table.dtype.names:
        return {name: table[name] for name in table.dtype.names}
    if isinstance(table, Sequence) and not isinstance(table, str | bytes):
        return _of_rows(table)
    import narwhals as nw

    frame: Any
    try:
        frame = nw.from_native(table)
    except TypeError:
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(
                "a table is a frame, a mapping of columns, a list of mappings or the path of a "
                f".csv or .parquet file, got {type(table).__name__}"
            ) from None
        frame = nw.from_arrow(table, backend="pyarrow")
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    return {name: frame[name] for name in frame.columns}


def _of_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {i} of the table must be a mapping, got {type(row).__name__}")
        lacking = [name for name in rows[0] if name not in row]
        if lacking:
            raise ValueError(f"column {lacking[0]!r} is missing in row {i}")
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


_LONGEST_HEADER = 1 << 16
"""Bytes of a first line, in which the commonest of comma, semicolon and tab separates columns."""


def _file(source: Any, texts: Collection[str]) -> Any:
    """The table in a .csv or .parquet file; an open file is .csv."""
    import pyarrow as pa

    is_path = isinstance(source, str | PathLike)
    suffix = Path(source).suffix.lower() if is_path else ".csv"
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(source)
    if suffix != ".csv":
        raise ValueError(f"{source}: a table is read from .csv or .parquet, not from {suffix!r}")
    from pyarrow import csv

    options = csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
    if is_path:
        with open(source, "rb") as file:
            header = file.readline(_LONGEST_HEADER)
    else:
        source.seek(0)
        header = source.readline(_LONGEST_HEADER)
        source.seek(0)
        source = pa.PythonFile(source, mode="r")
    parsing = csv.ParseOptions(delimiter=max(",;\t", key=lambda c: header.count(c.encode())))
    try:
        table = csv.read_csv(source, parse_options=parsing, convert_options=options)
    except pa.ArrowInvalid as error:
        raise ValueError(f"not a table of comma-separated values: {error}") from None
    if table.num_columns > MAX_COLUMNS:
        raise ValueError(f"has {table.num_columns} columns, at most {MAX_COLUMNS} are expected")
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    if twice:
        raise ValueError(f"column {min(twice)!r} occurs twice")
    return {
        name: _written_labels(table[name]) if name in texts else table[name]
        for name in table.column_names
    }


def _written_labels(column: Any) -> Any:
    """A column of text, as integers where every cell is one (1.0 and 1e+05 are)."""
    import pyarrow as pa

    try:
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return column
    whole = np.isfinite(values) & (values == np.rint(values)) & (np.abs(values) < 2.0**53)
    return values.astype(np.int64) if whole.all() else column


def _array(name: str, column: Any) -> NDArray[Any]:
    """A column as an array of numbers or of Python objects, none of them empty."""
    if hasattr(column, "to_native") and hasattr(column, "dtype"):
        import narwhals as nw

        if isinstance(column.dtype, nw.Categorical | nw.Enum):
            column = column.cast(nw.String)
        _require_filled(name, np.asarray(column.is_null().to_list(), np.bool_))
        column = column.to_numpy()
    elif hasattr(column, "null_count"):  # of pyarrow
        if column.null_count:
            _require_filled(name, column.is_null().to_numpy(zero_copy_only=False))
        column = column.to_numpy()
    try:
        array = np.asarray(column)
    except ValueError:
        array = np.empty(0, object).reshape(0, 0)
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind in "iufb":
        if array.dtype.kind == "f":
            _require_filled(name, np.isnan(array))
        return array
    # Not from the array: NumPy makes strings of numbers in a list that has both.
    objects = np.empty(array.size, object)
    objects[:] = list(column)
    empty = (cell is None or cell == "" or cell != cell for cell in objects)
    _require_filled(name, np.fromiter(empty, np.bool_, objects.size))
    return objects


def _require_filled(name: str, empty: NDArray[np.bool_]) -> None:
    if empty.any():
        raise ValueError(f"column {name!r} is empty or NaN in row {int(np.argmax(empty))}")


def numbers(name: str, column: NDArray[Any]) -> Floats:
    """A column as finite numbers."""
    if column.dtype.kind == "O":
        values = np.empty(column.size)
        texts = []
        for row, cell in enumerate(column):
            try:
                values[row] = float(cell)
                if isinstance(cell, str | bytes):
                    texts.append(row)
            except (TypeError, ValueError):
                raise _no_number(name, column, row) from None
        if texts:
            raise _no_number(name, column, texts[0])
    else:
        values = column.astype(np.float64)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"column {name!r} is {values[row]} in row {row}: must be finite")
    return values + 0.0


def _no_number(name: str, column: NDArray[Any], row: int) -> ValueError:
    return ValueError(f"column {name!r} is {column[row]!r:.60} in row {row}: must be a number")


def labelled(*columns: NDArray[Any]) -> tuple[list[Integers], tuple[str, ...] | None, int]:
    """Numbers for the labels in columns that share them, what they are called, and how many.

    Integers that are exactly 0 .. n-1 stay as they are and have no names. Other integers are named
    in rising order, and strings in natural order: `bed2` comes before `bed10`.
    """
    whole = [_whole(column) for column in columns]
    sizes = np.cumsum([column.size for column in columns])[:-1]
    numbered = [values for values in whole if values is not None]
    if len(numbered) == len(columns):
        distinct, index = np.unique(np.concatenate(numbered), return_inverse=True)
        plain = np.array_equal(distinct, np.arange(distinct.size))
        names = None if plain else tuple(str(label) for label in distinct)
        return np.split(index.ravel().astype(np.int64), sizes), names, distinct.size
    import pyarrow as pa

    cells = [str(cell) for column in columns for cell in column]
    encoded = pa.array(cells, pa.large_string()).dictionary_encode()
    found = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=lambda i: _natural(found[i]))
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    index = rank[encoded.indices.to_numpy()]
    return np.split(index, sizes), tuple(found[i] for i in order), len(found)


def _whole(column: NDArray[Any]) -> Integers | None:
    """A column as integers, where all its cells are whole numbers."""
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    if column.dtype.kind == "f" and (column == np.rint(column)).all():
        return column.astype(np.int64) if (np.abs(column) < 2.0**53).all() else None
    if column.dtype.kind == "O" and all(
        isinstance(cell, int | np.integer) and not isinstance(cell, bool) and abs(int(cell)) < 2**53
        for cell in column
    ):
        return column.astype(np.int64)
    return None


def _natural(text: str) -> tuple[list[str | int], str]:
    """A key that sorts the numbers in texts by their size: text and numbers by turns."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], text
