"""Logs larger than memory: Parquet files that are read batch by batch.

`open_logs` goes twice through the files of others: it looks for the names of states and actions,
the values of rewards and the episodes that go on in the next file; then it checks every row as
`Trajectories.from_table` does, and notes where batches begin. Files that latentmdp wrote tell what
the first look would find. What it returns, `LogFiles`, stands in for `Trajectories` wherever logs
are fitted: a batch is read when it is needed and let go again, so memory does not grow with the
logs.

The rows of an episode lie together. Files are taken in the order of their names, and an episode
that ends one file and goes on at the beginning of the next is joined; the same episode anywhere
else a second time is refused. Files that latentmdp wrote number their episodes anew, each from 0,
and are never joined.

The columns are those of `Trajectories.from_table`; no other is read. Covariates of all individuals
are kept in memory, 8 bytes each; while files of others are opened, so are the numbers or names of
their episodes.

A file that latentmdp writes has the rows of `Trajectories.to_table`; what columns cannot say
(sizes, reward values, names without a row, levels) lies in a header, a JSON object under the key
`latentmdp` of the table's metadata. `latentmdp.io.parquet` describes the columns and their types.
"""

from __future__ import annotations

import errno
import glob
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from latentmdp._util import storage
from latentmdp._util.arrays import Flags, Floats, Integers, same_content
from latentmdp._util.progress import progress_bar
from latentmdp._util.results import plain
from latentmdp._util.storage import atomic_write, file_header, write_table
from latentmdp._util.words import plural
from latentmdp.engines import Engine, as_engine
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.logs import base, frames
from latentmdp.logs.base import END, Logs, MissingCells, Summary, batch_edges, spread
from latentmdp.logs.covariates import Covariates
from latentmdp.logs.history import JoinedStates
from latentmdp.logs.long_table import (
    OPTIONAL,
    WORDS,
    TableOptions,
    codes_among,
    fields_of_table,
    reward_values_of_counts,
)
from latentmdp.logs.trajectories import Trajectories

_PIECE_ROWS = 1 << 18
"""Rows that are read at a time, and about as many become episodes together, which takes some 60 MB;
more are slower, as they leave the caches."""

_READ_BYTES = 1 << 20
"""Bytes that are read of a column at a time, so that a row group of any size takes no memory."""


KEY = b"latentmdp"
"""Where the metadata of a table hold the header."""

_SIZES = ("n_states", "n_actions", "reward_values")
"""Fields that every header has."""

_DETAILS = ("state_names", "action_names", "missing", "reward_edges")
"""Fields that a header has where the logs have them."""

_SMALL = ("t", "state", "action", "next_state", "context")
"""Columns of 32-bit integers, unless they hold names."""


class RowRange(NamedTuple):
    """Rows start .. stop - 1 of a file, with its size and time when it was opened."""

    path: str
    start: int
    stop: int
    stamp: tuple[int, int]


@dataclass(frozen=True)
class _Reader:
    """How rows of the files become episodes.

    `columns` are those to read, by our words; `anew` says whether each file numbers its episodes
    anew. The column that is `named` says what episodes are called, where that is not their number.
    """

    columns: Mapping[str, str]
    options: TableOptions
    anew: bool
    named: str | None = None

    def pieces(self, spans: Sequence[RowRange]) -> Iterator[tuple[Trajectories, Integers]]:
        """The episodes of some rows, a few at a time, and how many rows each individual has."""
        before, name = 0, self.columns["episode"]
        for table in self._whole_episodes(spans):
            begins = _begins(table[name])
            first = np.flatnonzero(begins)
            rows = np.diff(np.append(first, begins.size))
            # Episodes are numbered, so that they stay in the order of the rows.
            index = table.column_names.index(name)
            numbered = table.set_column(index, name, [np.cumsum(begins) - 1])
            try:
                logs = self._episodes(numbered)
                if self.named is not None:
                    texts = frames.label_texts(table[self.named].take(first)).to_pylist()
                    called = np.array([*map(str, texts)], dtype=object)
                    logs = logs._with(episode_names=called[logs.individuals()])
                yield logs, rows
            except TrajectoryError as error:
                span = _between(spans, before, before + 1)[0]
                where = f"{span.path}, where rows are counted from row {span.start}"
                raise TrajectoryError(f"{where}: {self._by_name(table, error)}") from None
            before += table.num_rows

    def _episodes(self, table: pa.Table) -> Trajectories:
        names = {word: self.columns.get(word) for word in WORDS}
        columns = dict(zip(table.column_names, table.columns))
        return Trajectories(**fields_of_table(columns, names, self.options))

    def _by_name(self, table: pa.Table, error: TrajectoryError) -> TrajectoryError:
        """The error about some rows, with their episodes by name."""
        try:
            self._episodes(table)
        except TrajectoryError as same:
            return same
        return error

    def _whole_episodes(self, spans: Sequence[RowRange]) -> Iterator[pa.Table]:
        """Tables of some `_PIECE_ROWS` rows; the last episode, which may go on, waits.

        Small row groups of dictionaries come one by one: they are joined until they are worth it.
        """
        waiting: list[pa.Table] = []
        for span in spans:
            for table in self.rows(span, self.columns.values()):
                waiting.append(table)
                if sum(one.num_rows for one in waiting) < _PIECE_ROWS // 2:
                    continue
                whole = _joined(waiting)
                last = int(np.flatnonzero(_begins(whole[self.columns["episode"]]))[-1])
                if last:
                    yield whole.slice(0, last)
                waiting = [whole.slice(last)]
            if self.anew and waiting:
                yield _joined(waiting)
                waiting = []
        if waiting:
            yield _joined(waiting)

    def rows(self, span: RowRange, names: Iterable[str]) -> Iterator[pa.Table]:
        """Some columns of the rows of a file, at most `_PIECE_ROWS` at a time."""
        file = _opened(span)
        groups = range(file.metadata.num_row_groups)
        edges = np.cumsum([0, *(file.metadata.row_group(k).num_rows for k in groups)])
        needed = [k for k in groups if edges[k] < span.stop and edges[k + 1] > span.start]
        row = int(edges[needed[0]]) if needed else span.stop
        columns = list(dict.fromkeys(names))
        for batch in file.iter_batches(_PIECE_ROWS, needed, columns, use_threads=False):
            if row >= span.stop:
                break
            low, high = max(span.start - row, 0), min(span.stop - row, batch.num_rows)
            if low < high:
                yield pa.Table.from_batches([batch.slice(low, high - low)])
            row += batch.num_rows


def _opened(span: RowRange) -> Any:
    """A file, if it is still what it was; texts are read as dictionaries."""
    try:
        stamp = storage.file_stamp(span.path)
    except FileNotFoundError:
        gone = "the file was there when the logs were opened, and is gone"
        raise FileNotFoundError(errno.ENOENT, gone, span.path) from None
    if stamp != span.stamp:
        raise TrajectoryError(
            f"{span.path} has changed since the logs were opened: open them again"
        )
    texts = [one.name for one in pq.read_schema(span.path) if frames.is_text(one)]
    options = {"pre_buffer": False, "buffer_size": _READ_BYTES}
    return pq.ParquetFile(span.path, read_dictionary=texts, **options)


def _joined(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


def _begins(column: pa.ChunkedArray) -> Flags:
    """Where an episode begins: its number or name differs from that of the row before."""
    cells = column.combine_chunks()
    if frames.is_text(cells):
        values = frames.coded(cells, natural=False)[0]
    else:
        values = cells.to_numpy(zero_copy_only=False)
    return np.concatenate([[True], values[1:] != values[:-1]])[: values.size]


class _FileBatch(NamedTuple):
    """Episodes start .. stop - 1 of logs on disk; it holds where they are, not what they are."""

    reader: _Reader
    spans: tuple[RowRange, ...]
    start: int
    stop: int
    history: JoinedStates | None = None

    def read(self) -> Trajectories:
        """The episodes, from the files."""
        logs = Trajectories.concat([logs for logs, _ in self.reader.pieces(self.spans)])
        return logs if self.history is None else self.history.applied(logs)


@dataclass(frozen=True, eq=False, repr=False)
class LogFiles(Logs):
    """Logs on disk; made by `open_logs`.

    It holds what is known of the logs as a whole, and where their batches lie.

    Attributes
    ----------
    paths : tuple of str
        The files, in their order.
    n_steps, n_episodes, n_individuals, longest
        Transitions stored, episodes with their multiplicities, individuals stored, and the number
        of actions in the longest episode.
    complete
        Whether nothing is missing.
    """

    paths: tuple[str, ...]
    n_states: int
    n_actions: int
    reward_values: Floats | None
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    reward_edges: Floats | None
    covariates: Covariates | None
    missing: MissingCells | None
    _summary: Summary
    _files: tuple[_FileBatch, ...]

    @property
    def summary(self) -> Summary:
        """What is known of the episodes as a whole."""
        return self._summary

    @property
    def pays_amounts(self) -> bool:
        """Whether the amounts paid are known beside the rewards that are seen, or levels."""
        options = self._files[0].reader.options
        return not options.informative_rewards or options.reward_edges is not None

    @property
    def fits_memory(self) -> bool:
        """Whether all episodes have at most `HELD_STEPS` steps together."""
        return self.n_steps <= base.HELD_STEPS

    def batches(self) -> Sequence[_FileBatch]:
        """The episodes in batches of about `BATCH_STEPS` steps, whole individuals each."""
        return self._files

    def read(self, batches: Iterable[int] | None = None) -> Trajectories:
        """The episodes of some batches, by default of all, in memory."""
        numbers = range(len(self._files)) if batches is None else batches
        return Trajectories.concat(self._files[k].read() for k in numbers)

    def sample(self, steps: int) -> Trajectories:
        """In memory, batches spread evenly over the logs, of about so many steps together."""
        return self.read(spread(len(self._files), self.n_steps, steps))

    def held(self) -> Trajectories:
        """All episodes in memory or, of very long logs, batches spread evenly over them."""
        return self.sample(base.HELD_STEPS)

    def without_contexts(self) -> LogFiles:
        """The same episodes with their contexts hidden."""
        columns = {w: n for w, n in self._files[0].reader.columns.items() if w != "context"}
        reader = replace(self._files[0].reader, columns=columns)
        hidden = tuple(batch._replace(reader=reader) for batch in self._files)
        return replace(self, _files=hidden, _summary=self._summary._replace(contexts=0))

    def _joined(self, history: JoinedStates) -> LogFiles:
        if self._files[0].history is not None:
            raise ValueError("these logs on disk have a history already: ask for all of it at once")
        files = tuple(batch._replace(history=history) for batch in self._files)
        return replace(
            self,
            n_states=history.numbers.size,
            state_names=history.names,
            _files=files,
            _summary=reduce(Summary.joined, (batch.read().summary for batch in files)),
        )

    def __repr__(self) -> str:
        return (
            f"LogFiles({plural(len(self.paths), 'file')}, {len(self):,} episodes, "
            f"{self.n_steps:,} steps)"
        )


# ------------------------------------------------------------------------ tables with their header


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


# ------------------------------------------------------------------------------- checking the rows


class _Measures(NamedTuple):
    """What is in some rows: by individual its rows, steps and episodes; and all together."""

    rows: Integers
    steps: Integers
    segments: Integers
    summary: Summary
    covariates: Covariates | None

    @classmethod
    def of(cls, logs: Trajectories, rows: Integers) -> _Measures:
        """Those of episodes whose individuals have so many rows each."""
        steps, first = np.diff(logs.individual_offsets()), np.append(logs.beginnings(), len(logs))
        return cls(rows, steps, np.diff(first), logs.summary, logs.covariates)

    @classmethod
    def total(cls, parts: Sequence[_Measures]) -> _Measures:
        """Those of several parts, one after the other."""
        covariates = [part.covariates for part in parts if part.covariates is not None]
        rows, steps, segments = (np.concatenate(column) for column in [*zip(*parts)][:3])
        summary = reduce(Summary.joined, (part.summary for part in parts))
        joined = Covariates.concat(covariates) if covariates else None
        return cls(rows, steps, segments, summary, joined)


INCOMPLETE = "incomplete.json"
"""The file that a folder of logs has while it is written: what is being written."""

Unit = tuple[Sequence[RowRange], _Measures]
"""Rows that were checked, and what is in them."""


def _checked(spans: Sequence[RowRange], reader: _Reader) -> Unit:
    """Read rows, as they will be read again, and say what is in them."""
    parts = [_Measures.of(logs, rows) for logs, rows in reader.pieces(spans)]
    return spans, _Measures.total(parts)


def write_shard(logs: Trajectories, path: str) -> Unit:
    """Write complete logs to a file, and say what is in it."""
    with atomic_write(path) as stream:
        write_table(stream, to_arrow(logs))
    measures = _Measures.of(logs, np.diff(logs.individual_offsets()))
    return [RowRange(path, 0, logs.n_steps, storage.file_stamp(path))], measures


def known_shard(path: str) -> Unit:
    """What is in a file that `write_shard` wrote."""
    header = _header(path)
    return _checked([header.span], _reader(header, {}, _options([header]), anew=True))


def written(units: Iterable[Unit]) -> LogFiles:
    """The logs that were written to some files, in their order."""
    shards = list(units)
    header = _header(shards[0][0][0].path)
    return _assembled(shards, _reader(header, {}, _options([header]), anew=True))


def _assembled(units: Sequence[Unit], reader: _Reader) -> LogFiles:
    """The logs of some rows, in their order: their batches, and what is known of them all."""
    spans = [span for rows, _ in units for span in rows]
    measures = _Measures.total([measures for _, measures in units])
    summary, options = measures.summary, reader.options
    names = [None if n is None else tuple(n) for n in (options.state_names, options.action_names)]
    n_states, n_actions = (
        max(declared or 0, observed, len(words or ()), 1)
        for declared, observed, words in (
            (options.n_states, summary.states, names[0]),
            (options.n_actions, summary.actions, names[1]),
        )
    )
    values = options.reward_values if options.informative_rewards else np.zeros(1)
    edges = options.reward_edges
    reader = replace(reader, options=options._replace(n_states=n_states, n_actions=n_actions))
    return LogFiles(
        paths=tuple(dict.fromkeys(span.path for span in spans)),
        n_states=n_states,
        n_actions=n_actions,
        reward_values=None if values is None else np.asarray(values, float),
        state_names=names[0],
        action_names=names[1],
        reward_edges=None if edges is None else np.asarray(edges, float),
        covariates=measures.covariates,
        missing=summary.missing if any(summary.missing) else None,
        _summary=summary,
        _files=tuple(_file_batches(spans, measures, reader)),
    )


def _file_batches(
    spans: Sequence[RowRange], measures: _Measures, reader: _Reader
) -> Iterator[_FileBatch]:
    """The batches of all rows, cut by the rule of `batch_edges` as in memory."""
    edges = batch_edges(np.cumsum(measures.steps) - measures.steps)
    rows = np.concatenate([[0], np.cumsum(measures.rows)])[edges].tolist()
    episodes = np.concatenate([[0], np.cumsum(measures.segments)])[edges].tolist()
    for (low, high), (start, stop) in zip(pairwise(rows), pairwise(episodes)):
        yield _FileBatch(reader, tuple(_between(spans, low, high)), start, stop)


def _between(spans: Sequence[RowRange], low: int, high: int) -> list[RowRange]:
    """Rows low .. high - 1 of some spans, counted through."""
    ranges, before = [], 0
    for span in spans:
        first, last = max(low - before, 0), min(high - before, span.stop - span.start)
        if first < last:
            ranges.append(span._replace(start=span.start + first, stop=span.start + last))
        before += span.stop - span.start
    return ranges


# ------------------------------------------------------------------------------- opening the files


def open_logs(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: Mapping[str, str] | None = None,
    numbered_anew: bool = False,
    engine: Engine | None = None,
    progress: bool = False,
    **options: Any,
) -> LogFiles:
    """Open logs that may be larger than memory: Parquet files of one row per step.

    Parameters
    ----------
    paths
        A pattern such as `logs/*.parquet`, a folder, a file, or a list of files. They are taken in
        the order of their names, a list in its own.
    columns
        As for `Trajectories.from_table`.
    numbered_anew
        Whether each file numbers its episodes anew. Otherwise the same number, or name, in two
        files is the same episode: it must end the one and begin the next, and is joined.
    engine
        Where the files are checked, each by one worker; by default in threads.
    progress
        Show a bar on the standard error stream.
    **options
        `covariates`, `reward_levels`, `informative_rewards`, `rewards_are_indices`,
        `reward_values`, `reward_edges`, `n_states`, `n_actions`, `state_names` and `action_names`
        as for `Trajectories.from_table`. Files that latentmdp wrote tell all of this, and the
        columns, themselves.

    Raises
    ------
    TrajectoryError
        Naming the file, the column and the row.
    """
    for name in options:
        if name not in TableOptions._fields:
            raise TypeError(f"open_logs takes no {name!r}")
    headers = [_header(path) for path in _files(paths)]
    work = as_engine(engine)
    spans = [header.span for header in headers]
    defaults = TableOptions._field_defaults
    changed = [name for name, value in options.items() if not same_content(value, defaults[name])]
    ours = _are_own(headers, ["columns", *changed] if columns else changed)
    settings = _options(headers) if ours else TableOptions(**options)
    reader = _reader(headers[0], columns or {}, settings, ours or numbered_anew)
    units: list[tuple[RowRange, ...]] = [(span,) for span in spans if span.stop]
    steps = (1 if ours else 2) * sum(span.stop for span in spans)
    with progress_bar(progress, "looking through the files", steps) as move:
        if not ours:
            scans = []
            for scan in work.map(_scanned, spans, reader):
                move(scan.span.stop)
                scans.append(scan)
            named = reader.columns["episode"] if _are_named(scans, numbered_anew) else None
            reader = replace(reader, options=_completed_options(reader, scans), named=named)
            units = _units_of(scans, numbered_anew)
        if not units:
            raise TrajectoryError(f"the logs hold no episode: {spans[0].path} has no rows")
        checked = []
        for rows, measures in work.map(_checked, units, reader):
            move(int(measures.rows.sum()))
            checked.append((rows, measures))
    return _assembled(checked, reader)


def _files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """The files meant, as absolute paths."""
    if isinstance(paths, str | os.PathLike):
        text = os.fspath(paths)
        if os.path.isdir(text):
            text = os.path.join(glob.escape(text), "*.parquet")
        files = sorted(glob.glob(text))
        if not files:
            raise FileNotFoundError(errno.ENOENT, "no file matches", os.fspath(paths))
    else:
        files = [os.fspath(path) for path in paths]
        if not files:
            raise ValueError("open_logs needs at least one file")
    files = [os.path.abspath(path) for path in files]
    for folder in dict.fromkeys(map(os.path.dirname, files)):
        if os.path.exists(os.path.join(folder, INCOMPLETE)):
            raise TrajectoryError(
                f"{folder} is not complete: whatever wrote it has not come to its end (its file "
                f"{INCOMPLETE} says so); the same call of simulate, with the same seed, goes on"
            )
    return files


class _Header(NamedTuple):
    """The beginning of a file: all its rows, its columns, and the header that latentmdp wrote."""

    span: RowRange
    schema: pa.Schema
    content: dict[str, Any] | None


def _header(path: str) -> _Header:
    stamp = storage.file_stamp(path)
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise FormatError(f"{path} is not a Parquet file: {error}") from None
    schema, header = file.schema_arrow, None
    metadata = schema.metadata or {}
    if KEY in metadata:
        header = json.loads(metadata[KEY])
        if not isinstance(header, dict) or header.get("kind") != "trajectories":
            raise FormatError(f"{path} does not hold logs")
    return _Header(RowRange(path, 0, file.metadata.num_rows, stamp), schema, header)


def _are_own(headers: list[_Header], arguments: list[str]) -> bool:
    """Whether latentmdp wrote the files; then no argument about their tables may be given."""
    ours = [header.content is not None for header in headers]
    if not any(ours):
        return False
    paths = [header.span.path for header in headers]
    if not all(ours):
        one, other = paths[ours.index(True)], paths[ours.index(False)]
        raise FormatError(f"{one} was written by latentmdp and {other} was not: open them apart")
    if arguments:
        raise TypeError(
            f"{paths[0]} holds everything already: open_logs takes no {arguments[0]!r} here"
        )
    return True


def _options(headers: list[_Header]) -> TableOptions:
    """What files that latentmdp wrote say in their headers; sizes and levels are joined."""
    options = [options_of(header.content or {}) for header in headers]
    first = options[0]
    grows = {name: max(getattr(one, name) for one in options) for name in ("n_states", "n_actions")}
    for header, one in zip(headers, options):
        for name, value in first._asdict().items():
            if name not in (*grows, "levels") and not same_content(value, getattr(one, name)):
                path = headers[0].span.path
                raise TrajectoryError(f"{header.span.path} has other {name} than {path}")
    levels: dict[str, dict[str, None]] = {}
    for name, labels in (pair for one in options for pair in (one.levels or {}).items()):
        levels.setdefault(name, {}).update(dict.fromkeys(labels))
    joined = {name: tuple(labels) for name, labels in levels.items()}
    return first._replace(**grows, levels=joined if first.covariates else None)


def _reader(
    header: _Header, columns: Mapping[str, str], options: TableOptions, anew: bool
) -> _Reader:
    """The reader of files that have the columns of one of them, by the names given."""
    path, schema = header.span.path, header.schema
    names = {word: columns.get(word, word) for word in WORDS}
    required = {word: n for word, n in names.items() if n != word or word not in OPTIONAL}
    for name in (*required.values(), *options.covariates):
        if name not in schema.names:
            raise TrajectoryError(
                f"{path} has no column {name!r}; it has {', '.join(schema.names)}"
            )
    present = {word: name for word, name in names.items() if name in schema.names}
    numbers = not frames.is_text(schema.field(present["state"]))
    if "terminated" in present and "next_state" not in present and numbers:
        raise TrajectoryError(
            f"{path}: terminated without next_state, where states are numbers, needs all rows in "
            "memory to number the state of the end: give states names, or a column next_state"
        )
    present |= {f"covariate {name}": name for name in options.covariates}
    named = "episode_name" if header.content and "episode_name" in schema.names else None
    present |= {} if named is None else {"episode_name": named}
    return _Reader(present, options, anew, named)


# ------------------------------------------------------------------ a first look at others' files


class _Scan(NamedTuple):
    """A first look at a file: its episodes, and what is in its columns.

    `head` is the number of rows of its first episode, `episodes` their numbers or names, in order;
    `labels` are the names of states and actions and the levels of categories, by the reader's
    words; `rewards` counts each reward of a row with a state and an action, None where their
    values are known.
    """

    span: RowRange
    head: int
    episodes: pa.Array
    labels: dict[str, set[Any]]
    rewards: Counter[float] | None


def _scanned(span: RowRange, reader: _Reader) -> _Scan:
    """Look through the columns of a file, a piece after the other."""
    columns, options = reader.columns, reader.options
    labels: dict[str, set[Any]] = {word: set() for word in _label_columns(span, columns)}
    counted = options.reward_values is None and options.informative_rewards
    counted = counted and not options.rewards_are_indices
    rewards: Counter[float] | None = Counter() if counted else None
    counting = ("state", "action", "reward") if counted else ()
    names = [columns[word] for word in ("episode", *labels, *counting)]
    episodes, starts, row = [pa.array([], pa.null())], [], 0
    for table in reader.rows(span, names):
        cells = table[columns["episode"]].combine_chunks()
        if cells.null_count:
            empty = row + int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
            raise TrajectoryError(f"{span.path}: {columns['episode']} is empty in row {empty}")
        first = np.flatnonzero(_begins(table[columns["episode"]]))
        begun = _plain(cells.take(first))
        if len(episodes[-1]) and begun[0] == episodes[-1][-1]:
            first, begun = first[1:], begun[1:]
        starts.append(row + first)
        episodes = [*episodes, begun] if len(begun) else episodes
        for word, texts in labels.items():
            cells = frames.label_texts(table[columns[word]].unique().drop_null())
            texts.update(cells.to_pylist())
        if rewards is not None:
            _count_rewards(table, columns, rewards, span.path)
        row += table.num_rows
    edges = np.append(np.concatenate([np.zeros(0, np.int64), *starts]), span.stop)
    every = pa.concat_arrays(episodes[1:]) if len(episodes) > 1 else episodes[0]
    return _Scan(span, int(edges[min(1, edges.size - 1)]), every, labels, rewards)


def _label_columns(span: RowRange, columns: Mapping[str, str]) -> list[str]:
    """The words whose columns hold states or actions, or levels of categories."""
    schema = pq.read_schema(span.path)
    return [
        word
        for word, name in columns.items()
        if word in ("state", "action", "next_state")
        or (word.split(" ")[0] == "covariate" and frames.is_text(schema.field(name)))
    ]


def _plain(cells: pa.Array) -> pa.Array:
    """Numbers or names of episodes in one type, whatever a file has them in."""
    if frames.is_text(cells):
        return cells.cast(pa.large_string())
    return cells.cast(pa.int64()) if pa.types.is_integer(cells.type) else cells


def _count_rewards(
    table: pa.Table, columns: Mapping[str, str], rewards: Counter[float], path: str
) -> None:
    """Count the rewards of rows with a state and an action."""
    values = frames.floats(columns["reward"], frames.arrow("reward", table[columns["reward"]]))
    counted = ~np.isnan(values)
    for word in ("state", "action"):
        counted &= table[columns[word]].is_valid().to_numpy()
    distinct, counts = np.unique(values[counted], return_counts=True)
    rewards.update(dict(zip(distinct.tolist(), counts.tolist())))
    if len(rewards) > 1_000_000:  # some 200 MB
        raise TrajectoryError(
            f"{path}: more than 1,000,000 different rewards, which would have to be in memory to "
            "be cut into levels: give reward_values and reward_edges, or informative_rewards=False"
        )


def _completed_options(reader: _Reader, scans: list[_Scan]) -> TableOptions:
    """The options with the names and the values that all files have together."""
    options, labels, numbers = reader.options, {}, {}
    for word in reader.columns:
        found = set().union(*(scan.labels.get(word, ()) for scan in scans))
        texts = [label for label in found if isinstance(label, str)]
        numbers[word] = np.array([n for n in found if not isinstance(n, str)], np.float64)
        labels[word] = sorted(texts, key=frames.natural_key)
    states = sorted({*labels["state"], *labels.get("next_state", ())}, key=frames.natural_key)
    if states and "terminated" in reader.columns and END not in states:
        states.append(END)
    changes: dict[str, Any] = {}
    kinds = (("state", ("state", "next_state"), states), ("action", ("action",), labels["action"]))
    for kind, words, names in kinds:
        given = getattr(options, f"{kind}_names")
        if names and given is None:
            changes[f"{kind}_names"] = names
        given = given or getattr(options, f"n_{kind}s")
        columns = [numbers[word].astype(np.int64) for word in words if word in numbers]
        changes[f"{kind}_codes"] = None if given else codes_among(columns)
    if options.covariates:
        categories = {name: tuple(labels[f"covariate {name}"]) for name in options.covariates}
        changes["levels"] = {name: texts for name, texts in categories.items() if texts}
    if scans[0].rewards is not None:
        tally: Counter[float] = Counter()
        for scan in scans:
            tally.update(scan.rewards)
        distinct = np.array(sorted(tally), np.float64)
        counts = np.array([tally[value] for value in distinct.tolist()], np.int64)
        values, edges = reward_values_of_counts(distinct, counts, options.reward_levels)
        changes |= {"reward_values": values, "reward_edges": edges}
    return options._replace(**changes)


def _are_named(scans: list[_Scan], anew: bool) -> bool:
    """Whether episodes are called otherwise than by their number, as in memory."""
    begun = [scan.episodes for scan in scans if len(scan.episodes)]
    if any(map(frames.is_text, begun)):
        return True
    numbers = np.concatenate([[-1.0], *(one.to_numpy(zero_copy_only=False) for one in begun)])
    changes = np.diff(numbers)[np.diff(numbers) != 0]
    return not anew and bool((changes != 1).any())


def _units_of(scans: list[_Scan], anew: bool) -> list[tuple[RowRange, ...]]:
    """Rows to be checked together: those of a file; an episode that goes on takes its rows along.

    An episode may not be in two places, but for the end of a file and the beginning of the next.
    """
    units: list[tuple[RowRange, ...]] = []
    begun: list[tuple[str, pa.Array]] = []
    last = None
    for span, head, episodes, *_ in scans:
        if not len(episodes):
            continue
        if not anew and episodes[0] == last:
            units[-1] = (*units[-1], span._replace(stop=head))
            span, episodes = span._replace(start=head), episodes[1:]
        last = episodes[-1] if len(episodes) else last
        units += [(span,)] if span.start < span.stop else []
        begun.append((span.path, episodes))
    for together in [[part] for part in begun] if anew else [begun]:
        _require_once(together)
    return units


def _require_once(parts: list[tuple[str, pa.Array]]) -> None:
    """Refuse an episode that begins twice in some files."""
    if len({episodes.type for _, episodes in parts}) > 1:
        raise TrajectoryError("some files call their episodes by numbers and some by names")
    encoded = pa.chunked_array([episodes for _, episodes in parts]).combine_chunks()
    encoded = encoded.dictionary_encode()
    codes = encoded.indices.to_numpy()
    twice = np.bincount(codes) > 1
    if twice.any():
        code = int(np.argmax(twice))
        ends = np.cumsum([len(episodes) for _, episodes in parts])
        files = np.searchsorted(ends, np.flatnonzero(codes == code)[:2], side="right")
        one, other = (parts[k][0] for k in files.tolist())
        name = encoded.dictionary[code]
        if one == other:
            raise TrajectoryError(
                f"{one}: the rows of episode {name} do not lie together: sort the table by episode "
                "first"
            )
        raise TrajectoryError(
            f"episode {name} is in {one} and in {other}: the rows of an episode lie together, at "
            "most from the end of one file to the beginning of the next; if each file numbers its "
            "episodes anew, say numbered_anew=True"
        )
