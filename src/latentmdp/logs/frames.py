"""Columns of any table: a frame of any library, a mapping of columns, a list of rows, or a file.

Frames (pandas, polars, pyarrow and others) are read through narwhals, files through pyarrow. A
column becomes an array of numbers, or of Python strings where it holds labels. What is wrong with a
cell is said with the name of its column and its row, counted from 0 without the header.

pyarrow takes a fifth of a second to import: who only may need this module imports it where it is
used.
"""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import compute, csv

from latentmdp._util.arrays import Floats, Integers


class ColumnTypeError(TypeError):
    """The cells of a column are not of the type that is wanted, or of several types."""


class Values(NamedTuple):
    """A column of numbers, or of labels by their index in `labels`; NaN where a cell is empty."""

    values: Floats
    labels: tuple[str, ...] | None


def values_or_labels(name: str, column: Any, *, as_labels: bool = False) -> Values:
    """A column as numbers where it holds numbers (unless `as_labels`), otherwise as labels."""
    cells = arrow(name, column)
    kind = cells.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    if number and not as_labels:
        return Values(floats(name, cells), None)
    codes, labels = coded(label_texts(cells))
    return Values(np.where(codes < 0, np.nan, codes.astype(np.float64)), labels)


def numbered(*columns: Any) -> tuple[list[Integers], tuple[str, ...] | None, int]:
    """Numbers for the labels in filled columns of pyarrow that share them, their names, how many.

    Integers that are exactly 0 .. n-1 stay as they are and have no names. Other integers are named
    in rising order, and texts in natural order: `bed2` comes before `bed10`.
    """
    cells = [label_texts(column) for column in columns]
    if not all(pa.types.is_integer(column.type) for column in cells):
        *codes, names = coded(*cells)
        return codes, names, len(names)
    every = np.concatenate([column.to_numpy() for column in cells])
    distinct, index = np.unique(every, return_inverse=True)
    plain = np.array_equal(distinct, np.arange(distinct.size))
    ends = np.cumsum([len(column) for column in cells])[:-1]
    called = None if plain else tuple(str(label) for label in distinct)
    return np.split(index.ravel().astype(np.int64), ends), called, distinct.size


def label_texts(cells: Any) -> Any:
    """A column of pyarrow that holds labels: whole floats as integers, flags as their words."""
    if pa.types.is_floating(cells.type):
        numbers = cells.drop_null().to_numpy(zero_copy_only=False)
        # below 2^53 every whole float is one integer, and no two are the same
        if ((numbers == np.rint(numbers)) & (np.abs(numbers) < 2.0**53)).all():
            return cells.cast(pa.int64())
    if pa.types.is_boolean(cells.type):
        return compute.if_else(cells, "True", "False")
    return cells


def arrow(name: str, column: Any, *, as_texts: bool = False) -> Any:
    """A column as one array of pyarrow; NaN, NaT and None are null.

    With `as_texts` cells of several types are taken as they are written.

    Raises
    ------
    TypeError, ValueError
        Naming the column and, where its cells are of several types, the row.
    """
    if isinstance(column, pa.Array | pa.ChunkedArray):
        cells = column
    else:
        try:
            if hasattr(column, "to_native") and hasattr(column, "to_arrow"):  # of narwhals
                cells = column.to_arrow()
            elif hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__"):
                cells = pa.chunked_array(column)
            else:
                if isinstance(column, np.ndarray) and column.ndim != 1:
                    raise ValueError(
                        f"column {name!r} must be one-dimensional, got shape {column.shape}"
                    )
                cells = pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            mixed = _mixed(name, column)
            if not as_texts or isinstance(mixed, ValueError):
                raise mixed from None
            cells = pa.array([None if cell is None else str(cell) for cell in column])
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
        if isinstance(cells, pa.ChunkedArray):  # of no chunk
            cells = pa.concat_arrays(cells.chunks) if cells.chunks else pa.array([], cells.type)
    if isinstance(cells.type, pa.BaseExtensionType):  # periods of pandas are numbers below
        cells = cells.storage
    if pa.types.is_dictionary(cells.type) and not is_text(cells):
        cells = cells.dictionary_decode()
    kind = cells.type
    if str(kind) == "string_view":  # few functions of pyarrow take it
        cells = cells.cast(pa.large_string())
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


def columns_of(
    table: Any,
    names: Mapping[str, str],
    *,
    optional: Collection[str] = (),
    labels: Collection[str] = (),
    filled: bool = False,
) -> dict[str, Any]:
    """The columns of a table by our words for them, as `arrow` gives them.

    Parameters
    ----------
    table
        A frame, a mapping of columns, a sequence of mappings (rows), the path of a .csv or .parquet
        file, or an open .csv file.
    names
        What the table calls the column for each of our words.
    optional
        The words whose columns may be missing.
    labels
        The words whose columns hold labels: in a .csv file their cells are taken as they are
        written, and as integers only where all of them are.
    filled
        Whether no cell may be empty. Then NA in a .csv file is a label as any other, and labels of
        one column may be numbers and texts.

    Raises
    ------
    ValueError
        Naming the column that is missing, of another length, or has an empty cell.
    """
    texts = {name: word in labels for word, name in names.items()}
    native = named_columns(table, texts, gaps=not filled)
    columns: dict[str, Any] = {}
    for word, name in names.items():
        if name in native:
            cells = arrow(name, native[name], as_texts=filled and word in labels)
            flags = word in labels and pa.types.is_boolean(cells.type)
            columns[word] = label_texts(cells) if flags else cells
        elif word not in optional:
            others = ", ".join(repr(str(name)) for name in list(native)[:20])
            raise ValueError(
                f"the table has no column {name!r} ({word}); it has {others or 'none'}"
            )
    for word, cells in columns.items():
        first, expected = next(iter(columns.items()))
        if len(cells) != len(expected):
            raise ValueError(
                f"column {names[word]!r} has {len(cells)} rows, column {names[first]!r} has "
                f"{len(expected)}"
            )
        if filled:
            require_filled(names[word], cells)
    return columns


def cell(cells: Any, row: int) -> Any:
    """One cell of a column of pyarrow as a Python object; None where there is none."""
    return cells[row].as_py() if row < len(cells) else None


def is_text(cells: Any) -> bool:
    """Whether a column of pyarrow holds texts."""
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def require_filled(name: str, cells: Any) -> None:
    """Raise unless every cell of a column of pyarrow is filled; an empty text fills none."""
    empty = compute.equal(cells, "").fill_null(True) if is_text(cells) else cells.is_null()
    if compute.any(empty).as_py():
        row = int(np.argmax(empty.to_numpy(zero_copy_only=False)))
        raise ValueError(f"column {name!r} is empty or NaN in row {row}")


def whole(name: str, cells: Any) -> NDArray[Any]:
    """A column of pyarrow that should hold whole numbers: integers, or floats with NaN for empty.

    Infinite cells are refused; floats that are not whole are left to the caller.
    """
    kind = cells.type
    if pa.types.is_null(kind):
        return np.full(len(cells), np.nan)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        example = "" if not len(cells) else f" ({cell(cells, 0)!r:.40} in row 0)"
        raise ColumnTypeError(f"column {name!r} must hold numbers or names, got {kind}{example}")
    values: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        _require_finite(name, values)
    return values


def floats(name: str, cells: Any) -> Floats:
    """A column of pyarrow as numbers; NaN where a cell is empty, flags as 0 and 1."""
    kind = cells.type
    if is_text(cells):
        raise _no_number_in(name, cells)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    if not number and not pa.types.is_boolean(kind):
        raise ColumnTypeError(f"column {name!r} must hold numbers, got {kind}")
    if pa.types.is_boolean(kind):
        cells = cells.cast(pa.int8())
    values = np.array(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    _require_finite(name, values)
    return np.asarray(values + 0.0, np.float64)


def _require_finite(name: str, values: NDArray[Any]) -> None:
    wrong = np.isinf(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"column {name!r} is {values[row]} in row {row}: must be finite")


def _no_number_in(name: str, cells: Any) -> ColumnTypeError:
    for row, text in enumerate(cells.to_pylist()):
        try:
            float(text or 0)
        except ValueError:
            return ColumnTypeError(
                f"column {name!r} is {text!r:.60} in row {row}: must be a number"
            )
    return ColumnTypeError(
        f"column {name!r} must hold numbers, got texts ({cell(cells, 0)!r:.40} in row 0)"
    )


def times(name: str, cells: Any) -> tuple[NDArray[Any], bool]:
    """A column of pyarrow that orders rows, as numbers, and whether these are counts of steps.

    Whole numbers are counts; dates, times, ISO texts of them and other numbers are times.
    """
    require_filled(name, cells)
    if is_text(cells):
        cells = _instants(name, cells)
    kind = cells.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return cells.cast(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64), False
    if pa.types.is_temporal(kind):
        return cells.cast(pa.int64()).to_numpy(zero_copy_only=False), False
    values = whole(name, cells)
    if values.dtype.kind == "f" and ((values == np.rint(values)) & (abs(values) < 2.0**53)).all():
        return values.astype(np.int64), True
    if values.dtype.kind == "u":
        values = values.astype(np.int64 if int(values.max(initial=0)) < 2**63 else np.float64)
    return values, values.dtype.kind != "f"


def _instants(name: str, cells: Any) -> Any:
    """Texts as instants, all with or all without a time zone."""
    texts = cells.cast(pa.string())
    if (instants := _cast_instants(texts)) is not None:
        return instants
    for row, text in enumerate(texts):
        if _cast_instants(text) is None:
            raise ValueError(
                f"column {name!r} is {text.as_py()!r:.60} in row {row}: must be a step "
                "(0, 1, 2, ...), a date or a time"
            )
    raise ValueError(f"column {name!r}: some times have a time zone and some have none")


def _cast_instants(texts: Any) -> Any:
    """A text, or a column of them, as instants; None where that is not possible."""
    for zone in (None, "UTC"):
        with suppress(pa.ArrowInvalid):
            return texts.cast(pa.timestamp("us", tz=zone))
    return None


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
        number = isinstance(cell, int | float | np.number) and not isinstance(cell, bool)
        kind = float if number else type(cell)
        first = first or kind
        if kind is not first:
            one = "a number" if first is float else f"of type {first.__name__}"
            return ColumnTypeError(
                f"column {name!r} is {cell!r:.60} in row {row}: must be {one}, as in earlier rows"
            )
    kind = first or type(None)
    return ColumnTypeError(f"column {name!r} holds {kind.__name__} values, which no table can hold")


def coded(*columns: Any, natural: bool = True) -> tuple[Any, ...]:
    """Labels of columns of pyarrow that share them, by number: codes, one array each, and names.

    An empty cell has code -1. Names are in the order of ordered categories; of others in `natural`
    order, where `bed2` comes before `bed10`, or in that of the alphabet. Returns the arrays of
    codes, one after the other, and a tuple of names.
    """
    encoded, ordered = [], True
    for cells in columns:
        ordered = ordered and pa.types.is_dictionary(cells.type) and cells.type.ordered
        if not pa.types.is_dictionary(cells.type):
            cells = cells.cast(pa.large_string()).dictionary_encode()
        labels = cells.dictionary.cast(pa.large_string()).to_pylist()
        codes = cells.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        encoded.append((labels, codes))
    occurs = [_occurring(labels, codes) for labels, codes in encoded]
    key = natural_key if natural else None
    names = sorted({label for labels in occurs for label in labels}, key=key)
    if ordered and len({tuple(labels) for labels, _ in encoded}) == 1:
        names = [label for label in encoded[0][0] if label in set(names)]
    index = {label: i for i, label in enumerate(names)}
    ranked = []
    for labels, codes in encoded:
        # one entry more, which the code -1 of an empty cell picks
        rank = np.array([*(index.get(label, -1) for label in labels), -1], np.int64)
        ranked.append(rank[codes])
    return (*ranked, tuple(names))


def _occurring(labels: list[str], codes: Integers) -> list[str]:
    """The labels of a dictionary that some cell has: those of a category may not."""
    used = np.zeros(len(labels) + 1, np.bool_)  # the last is marked by empty cells, -1
    used[codes] = True
    return [label for label, there in zip(labels, used) if there and label is not None]


def column_names(table: Any) -> list[str]:
    """What the columns of a table are called; of an open .csv file only the first line is read."""
    if hasattr(table, "read"):
        table = BytesIO(_content(table).partition(b"\n")[0][:_LONGEST_HEADER] + b"\n")
    return list(named_columns(table))


def named_columns(
    table: Any, texts: Mapping[str, bool] | None = None, gaps: bool = False
) -> Mapping[str, Any]:
    """The columns of a table by name, each as its library has them; other arguments as `_file`."""
    if isinstance(table, str | PathLike) or hasattr(table, "read"):
        table = _file(table, texts or {}, gaps)
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


CSV_SUFFIXES = (".csv", ".tsv", ".txt")


def table_suffix(path: str | PathLike[str]) -> str:
    """What a file holds by its name: .csv of `logs.csv.gz`."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix.lower() == ".gz" else name).suffix.lower()


def _content(source: Any) -> bytes:
    """A .csv file, or an open one, unpacked and in UTF-8, whatever letters it was written in."""
    if isinstance(source, str | PathLike):
        data = Path(source).read_bytes()
    else:
        source.seek(0)
        data = source.read()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16").encode()
    try:
        codecs.decode(data, "utf-8")
    except UnicodeDecodeError:  # what spreadsheets of Western Europe write
        return data.decode("cp1252", "replace").encode()
    return bytes(data)


def _file(source: Any, texts: Mapping[str, bool], gaps: bool) -> Any:
    """The table in a .csv or .parquet file; an open file is .csv.

    The columns named in `texts` are read as they are written: as labels where that says True, and
    otherwise as numbers if all are. With `gaps` an empty cell is missing, and so is an NA that is
    not quoted.
    """
    is_path = isinstance(source, str | PathLike)
    suffix = table_suffix(source) if is_path else ".csv"
    if suffix == ".parquet":
        schema = pq.read_schema(source)
        columns = [name for name in schema.names if name in texts] if gaps else None
        labels = [n for n in columns or () if pa.types.is_string(schema.field(n).type)]
        return pq.read_table(source, columns=columns, read_dictionary=labels)
    if suffix not in CSV_SUFFIXES:
        raise ValueError(f"{source}: a table is read from .csv or .parquet, not from {suffix!r}")
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(texts, pa.string()),
        null_values=None if gaps else [""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    content = _content(source)
    header = content.partition(b"\n")[0][:_LONGEST_HEADER]
    delimiter = max(",;\t", key=lambda c: header.count(c.encode()))
    parsing = csv.ParseOptions(delimiter=delimiter)
    try:
        table = csv.read_csv(pa.BufferReader(content), None, parsing, options)
    except pa.ArrowInvalid as error:
        raise ValueError(f"not a table of comma-separated values: {error}") from None
    require_few_columns(table.column_names)
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    if twice:
        raise ValueError(f"column {min(twice)!r} occurs twice")
    return {
        name: _written(table[name], texts[name], delimiter) if name in texts else table[name]
        for name in table.column_names
    }


def _written(column: Any, labels: bool, delimiter: str) -> Any:
    """A column of text, as numbers where every cell is one; as integers alone where it is labels.

    1.0 and 1e+05 are integers too, and 1,5 is a number where commas do not separate columns. Words
    for true and false are 1 and 0 unless they are labels.
    """
    written = column if delimiter == "," else compute.replace_substring(column, ",", ".")
    try:
        numbers = written.cast(pa.float64())
    except pa.ArrowInvalid:
        if labels:
            return column
        try:
            return column.cast(pa.bool_())
        except pa.ArrowInvalid:
            return column
    if not labels:
        return numbers
    values = numbers.to_numpy()
    filled = ~np.isnan(values) if numbers.null_count else np.ones(values.size, np.bool_)
    cells = values[filled]
    are_integers = np.isfinite(cells) & (cells == np.rint(cells)) & (np.abs(cells) < 2.0**53)
    if not are_integers.all():
        return column
    return numbers if numbers.null_count else values.astype(np.int64)


def require_few_columns(names: Sequence[str]) -> None:
    """Refuse a file with more columns than any table of what is read here has."""
    if len(names) > 10_000:
        raise ValueError(f"has {len(names)} columns, at most 10000 are expected")


def natural_key(text: str) -> tuple[list[str | int], str]:
    """A key that sorts the numbers in texts by their size: text and numbers by turns."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], text
