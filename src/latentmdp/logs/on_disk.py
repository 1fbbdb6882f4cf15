"""Logs larger than memory: Parquet files that are read batch by batch.

`open_logs` goes once through the files: it finds the names of states and actions and the values of
rewards, checks every row as `Trajectories.from_table` does, and notes where batches begin. What it
returns, `LogFiles`, stands in for `Trajectories` wherever logs are fitted: a batch is read when it
is needed and let go again, so memory does not grow with the logs.

The rows of an episode lie together. Files are taken in the order of their names, and an episode
that ends one file and goes on at the beginning of the next is joined; the same episode anywhere
else a second time is refused. Files that latentmdp wrote number their episodes anew, each from 0,
and are never joined.

The columns are those of `Trajectories.from_table`; no other is read. Covariates of all individuals
are kept in memory, 8 bytes each.
"""

from __future__ import annotations

import errno
import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util.arrays import Flags, Floats, Integers, same_content
from latentmdp._util.memory import memory_text
from latentmdp._util.progress import Move, progress_bar
from latentmdp._util.registration import saver
from latentmdp._util.words import plural
from latentmdp.engines.base import Engine, as_engine
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.logs import frames
from latentmdp.logs.covariates import Covariates
from latentmdp.logs.long_table import (
    END,
    OPTIONAL,
    REQUIRED,
    reward_values_of_counts,
)
from latentmdp.logs.trajectories import (
    BATCH_STEPS,
    NEVER,
    Endings,
    Lacks,
    Logs,
    MissingCells,
    Trajectories,
)

if TYPE_CHECKING:  # a model reads its own table with this room's help
    from latentmdp.model import LatentMDP

__all__ = [
    "HELD_STEPS",
    "KEY",
    "LogFiles",
    "in_memory",
    "open_logs",
    "spread",
    "table_arguments",
    "write_shard",
    "written",
]

KEY = b"latentmdp"
"""Where the metadata of a Parquet file hold the header of logs that latentmdp wrote."""

HELD_STEPS = 1 << 24
"""Steps that are held in memory, however long logs are: what needs episodes side by side reads so
many of them, spread evenly over the logs, or all where there are no more."""

_PIECE_ROWS = 1 << 18
"""Rows that become episodes at a time: some 60 MB while they do."""

_UNIT_ROWS = 1 << 20
"""Rows that are checked by one piece of work."""

_LARGEST_GROUP = 1 << 30
"""Bytes of the columns that are read of one row group: it is read as a whole."""

_MOST_VALUES = 1_000_000
"""Distinct rewards that are counted, to cut them into levels."""

_MOST_NAMES = 50_000_000
"""Episodes of which the names, or numbers out of order, are kept to see that none comes twice."""


class RowRange(NamedTuple):
    """Rows start .. stop - 1 of a file."""

    path: str
    start: int
    stop: int


@dataclass(frozen=True)
class _Reader:
    """How rows of the files become episodes.

    `columns` are those to read, by our words; `stamps` the size and time of each file when it was
    opened.
    """

    columns: Mapping[str, str]
    arguments: Mapping[str, Any]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    anew: bool = False
    stamps: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def read(self, spans: Sequence[RowRange]) -> Trajectories:
        """The episodes of some rows."""
        return Trajectories.concat([logs for logs, _ in self.pieces(spans)])

    def pieces(self, spans: Sequence[RowRange]) -> Iterator[tuple[Trajectories, Integers]]:
        """The same, a few at a time, with the number of rows of each individual."""
        before = 0
        for table in self._tables(spans):
            begins = _begins(table[self.columns["episode"]])
            rows = np.diff(np.append(np.flatnonzero(begins), begins.size))
            try:
                yield self._episodes(table, np.cumsum(begins) - 1), rows
            except TrajectoryError as error:
                place = _between(spans, before, before + 1)[0]
                told = f"{place.path}, where rows are counted from row {place.start}"
                raise TrajectoryError(f"{told}: {self._named(table, error)}") from None
            before += table.num_rows

    def _named(self, table: Any, error: TrajectoryError) -> TrajectoryError:
        """The error about some rows, with their episodes by name."""
        try:
            Trajectories.from_table(table, **self.arguments)
        except TrajectoryError as same:
            return same
        return error

    def _tables(self, spans: Sequence[RowRange]) -> Iterator[Any]:
        """Tables of whole episodes."""
        import pyarrow as pa

        held: list[Any] = []
        for span in spans:
            for table in self._row_groups(span):
                held.append(table)
                if sum(one.num_rows for one in held) < _PIECE_ROWS:
                    continue
                whole = _joined(pa, held)
                first = np.flatnonzero(_begins(whole[self.columns["episode"]]))
                for cut in _cuts(first, whole.num_rows):
                    yield whole.slice(cut[0], cut[1] - cut[0])
                held = [whole.slice(int(first[-1]))]
            if self.anew and held:
                yield _joined(pa, held)
                held = []
        if held:
            yield _joined(pa, held)

    def _row_groups(self, span: RowRange) -> Iterator[Any]:
        file = self.opened(span.path)
        names = list(dict.fromkeys(self.columns.values()))
        begin = 0
        for k in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(k).num_rows
            low, high = max(span.start, begin), min(span.stop, begin + rows)
            if low < high:
                table = file.read_row_group(k, columns=names, use_threads=False)
                yield table.slice(low - begin, high - low)
            begin += rows

    def opened(self, path: str) -> Any:
        """A file, if it is still what it was."""
        import pyarrow.parquet as pq

        stamp = self.stamps.get(path)
        try:
            now = _stamp(path)
        except FileNotFoundError:
            gone = "the file was there when the logs were opened, and is gone"
            raise FileNotFoundError(errno.ENOENT, gone, path) from None
        if stamp is not None and now != stamp:
            raise TrajectoryError(f"{path} has changed since the logs were opened: open them again")
        file = pq.ParquetFile(path)
        texts = [one.name for one in file.schema_arrow if frames.is_text(one)]
        return pq.ParquetFile(path, read_dictionary=texts) if texts else file

    def _episodes(self, table: Any, number: Integers) -> Trajectories:
        import pyarrow as pa

        name = self.columns["episode"]
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(number))
        logs = Trajectories.from_table(table, **self.arguments)
        if logs.covariates is None:
            return logs
        names = logs.covariates.names
        values = logs.covariates.relabelled(self.levels)
        return logs._with(covariates=Covariates(names, values, self.levels))


def _joined(pa: Any, tables: list[Any]) -> Any:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


def _cuts(first: Integers, rows: int) -> Iterator[tuple[int, int]]:
    """Pieces of whole episodes; the last episode, which may go on, is in none."""
    if first.size < 2:
        return
    wanted = np.arange(_PIECE_ROWS, rows + _PIECE_ROWS, _PIECE_ROWS)
    places = np.minimum(np.searchsorted(first, wanted), first.size - 1)
    edges = np.unique(np.concatenate([[0], first[places]]))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist())


def _begins(column: Any) -> Flags:
    """Where an episode begins: its name differs from that of the row before."""
    values = _comparable(column)
    return np.concatenate([[True], values[1:] != values[:-1]])[: values.size]


def _comparable(column: Any) -> NDArray[Any]:
    """A column as numbers that are equal where its cells are."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise TrajectoryError(f"the column of episodes is empty in row {row}")
    cells = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if frames.is_text(cells):
        codes: NDArray[Any] = frames.coded(cells, natural=False)[0]
        return codes
    values: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
    return values


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


class _FileBatch(NamedTuple):
    """Episodes start .. stop - 1 of logs on disk; it holds where they are, not what they are."""

    reader: _Reader
    spans: tuple[RowRange, ...]
    start: int
    stop: int
    labelled: bool

    def read(self) -> Trajectories:
        """The episodes, from the files."""
        logs = self.reader.read(self.spans)
        return logs if self.labelled else logs.without_contexts()


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
    _summary: _Summary
    _files: tuple[_FileBatch, ...]

    def batches(self) -> Sequence[_FileBatch]:
        """The episodes in batches of about `BATCH_STEPS` steps, whole individuals each."""
        return self._files

    def __len__(self) -> int:
        return self._summary.episodes

    @property
    def n_rewards(self) -> int:
        """Z: the number of reward values, or one more than the largest index in the data."""
        if self.reward_values is not None:
            return self.reward_values.size
        return self._summary.rewards

    @property
    def n_steps(self) -> int:
        """Number of stored transitions, multiplicities not counted."""
        return self._summary.steps

    @property
    def n_episodes(self) -> int:
        """Number of episodes, multiplicities counted."""
        return self._summary.counted

    @property
    def n_individuals(self) -> int:
        """Number of stored individuals, multiplicities not counted."""
        return self._summary.individuals

    @property
    def longest(self) -> int:
        """Number of actions in the longest episode."""
        return self._summary.longest

    @property
    def lacks(self) -> Lacks:
        """What is missing somewhere."""
        return self._summary.lacks

    @property
    def complete(self) -> bool:
        """Whether nothing is missing: no reward, no last state, no lost steps."""
        return not any(self._summary.lacks)

    @property
    def pays_amounts(self) -> bool:
        """Whether rewards are amounts that say nothing about the context."""
        return not self._files[0].reader.arguments["informative_rewards"]

    def endings(self) -> Endings:
        """Where episodes end, and where actions were taken."""
        found, size = self._summary.endings, self.n_states
        none = Endings(np.full(size, NEVER), np.zeros(size, np.bool_))
        return none.joined(found)

    def without_contexts(self) -> LogFiles:
        """The same episodes with their contexts hidden."""
        hidden = tuple(batch._replace(labelled=False) for batch in self._files)
        return replace(self, _files=hidden, _summary=self._summary._replace(contexts=0))

    def validate(self, model: LatentMDP) -> None:
        """Raise `TrajectoryError` unless every index fits the model."""
        sizes = (self._summary.states, self._summary.actions, self._summary.rewards)
        limits = (model.n_states, model.n_actions, model.n_rewards)
        whats = ("state", "action", "reward index")
        given = [*zip(whats, sizes, limits), ("context", self._summary.contexts, model.n_contexts)]
        for what, size, limit in given:
            if size > limit:
                raise TrajectoryError(
                    f"{what} {size - 1} occurs in the logs, must be below {limit}"
                )
        known = self.reward_values
        if known is not None and not np.array_equal(known, model.reward_values):
            raise TrajectoryError(
                f"the logs' reward_values {known.tolist()} are not the model's "
                f"{model.reward_values.tolist()}"
            )

    def read(self, batches: Iterable[int] | None = None) -> Trajectories:
        """The episodes of some batches, by default of all, in memory."""
        chosen = range(len(self._files)) if batches is None else batches
        return Trajectories.concat(self._files[k].read() for k in chosen)

    def sample(self, steps: int) -> Trajectories:
        """In memory, batches spread evenly over the logs, of about so many steps together."""
        return self.read(spread(len(self._files), self.n_steps, steps))

    def __repr__(self) -> str:
        return (
            f"LogFiles({plural(len(self.paths), 'file')}, {len(self):,} episodes, "
            f"{self.n_steps:,} steps)"
        )


def in_memory(logs: Logs) -> Trajectories:
    """The logs themselves or, of very long ones on disk, batches spread evenly over them."""
    if isinstance(logs, Trajectories):
        return logs
    assert isinstance(logs, LogFiles)
    return logs.sample(HELD_STEPS)


def spread(number: int, steps: int, held_steps: int) -> list[int]:
    """Which of so many batches, spread evenly, have `held_steps` together, about; at least one."""
    kept = number if steps <= held_steps else max(1, int(number * held_steps / steps))
    return [(2 * k + 1) * number // (2 * kept) for k in range(kept)]


class _Summary(NamedTuple):
    """What is known of some episodes as a whole; sizes are one more than the largest index."""

    episodes: int
    individuals: int
    counted: int
    steps: int
    longest: int
    states: int
    actions: int
    rewards: int
    contexts: int
    lacks: Lacks
    missing: MissingCells
    endings: Endings

    @classmethod
    def of(cls, logs: Trajectories) -> _Summary:
        contexts = 0 if logs.contexts is None else int(logs.contexts.max(initial=-1)) + 1
        return cls(
            len(logs),
            logs.n_individuals,
            logs.n_episodes,
            logs.n_steps,
            logs.longest,
            int(logs.states.max(initial=-1)) + 1,
            int(logs.actions.max(initial=-1)) + 1,
            int(logs.rewards.max(initial=-1)) + 1,
            contexts,
            logs.lacks,
            logs.missing or MissingCells(),
            logs.endings(),
        )

    def __add__(self, other: Any) -> _Summary:
        added = [a + b for a, b in zip(self[:4], other[:4])]
        largest = [max(a, b) for a, b in zip(self[4:9], other[4:9])]
        lacks = Lacks(*(a or b for a, b in zip(self.lacks, other.lacks)))
        missing = MissingCells(*(a + b for a, b in zip(self.missing, other.missing)))
        endings = self.endings.joined(other.endings)
        return _Summary._make([*added, *largest, lacks, missing, endings])


class _Unit(NamedTuple):
    """Some rows that were checked: by individual its rows, steps and episodes; and all together."""

    spans: tuple[RowRange, ...]
    rows: Integers
    steps: Integers
    segments: Integers
    summary: _Summary
    covariates: Covariates | None


def _measured(logs: Trajectories, path: str | os.PathLike[str]) -> _Unit:
    """Complete logs that were written to a file as they are, one row a step."""
    begins = logs.beginnings()
    steps = np.diff(logs.individual_offsets())
    segments = np.diff(np.append(begins, len(logs)))
    spans = (RowRange(str(path), 0, logs.n_steps),)
    return _Unit(spans, steps, steps, segments, _Summary.of(logs), logs.covariates)


def _checked(spans: tuple[RowRange, ...], reader: _Reader) -> _Unit:
    """Read rows, as they will be read again, and say what is in them."""
    found, rows = [], []
    for piece, own_rows in reader.pieces(spans):
        found.append(_measured(piece, ""))
        rows.append(own_rows)
    summary = found[0].summary
    for one in found[1:]:
        summary = summary + one.summary
    known = [one.covariates for one in found if one.covariates is not None]
    return _Unit(
        spans,
        np.concatenate(rows),
        np.concatenate([one.steps for one in found]),
        np.concatenate([one.segments for one in found]),
        summary,
        Covariates.concat(known) if known else None,
    )


def write_shard(logs: Trajectories, path: str) -> _Unit:
    """Write complete logs to a file, and say what is in it."""
    saver()(logs, path)
    return _measured(logs, path)


def written(units: Iterable[_Unit]) -> LogFiles:
    """The logs that were written to some files, in their order."""
    made = list(units)
    path = made[0].spans[0].path
    header = _header(path)
    asked = {**_UNASKED, "columns": {}, **table_arguments(header.told or {})}
    stamps = {rows.path: _stamp(rows.path) for unit in made for rows in unit.spans}
    reader = _Reader(_columns(path, header.schema, asked), asked, anew=True, stamps=stamps)
    return _assembled(made, reader)


# ------------------------------------------------------------------------------- opening the files


def open_logs(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: Mapping[str, str] | None = None,
    covariates: Sequence[str] = (),
    reward_levels: int | Literal["auto"] | None = "auto",
    informative_rewards: bool = True,
    reward_values: ArrayLike | None = None,
    reward_edges: ArrayLike | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    state_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    rewards_are_indices: bool = False,
    numbered_anew: bool = False,
    engine: Engine | None = None,
    progress: bool = False,
) -> LogFiles:
    """Open logs that may be larger than memory: Parquet files of one row per step.

    Parameters
    ----------
    paths
        A pattern such as `logs/*.parquet`, a folder, a file, or a list of files. They are taken in
        the order of their names, a list in its own.
    columns, covariates, reward_levels, informative_rewards, rewards_are_indices, reward_values, \
    reward_edges, n_states, n_actions, state_names, action_names
        As for `Trajectories.from_table`. Files that latentmdp wrote tell all of this themselves.
    numbered_anew
        Whether each file numbers its episodes anew. Otherwise the same number, or name, in two
        files is the same episode: it must end the one and begin the next, and is joined.
    engine
        Where the files are checked; by default in threads.
    progress
        Show a bar on the standard error stream.

    Raises
    ------
    TrajectoryError
        Naming the file, the column and the row.
    """
    found = _files(paths)
    given = {
        "columns": dict(columns or {}),
        "covariates": list(covariates),
        "reward_levels": reward_levels,
        "informative_rewards": informative_rewards,
        "reward_values": reward_values,
        "reward_edges": reward_edges,
        "n_states": n_states,
        "n_actions": n_actions,
        "state_names": state_names,
        "action_names": action_names,
        "rewards_are_indices": rewards_are_indices,
    }
    work = as_engine(engine)
    headers = [_header(path) for path in found]
    asked, anew = _asked(found, headers, given, numbered_anew)
    first_schema = headers[0].schema
    reader = _Reader(
        _columns(found[0], first_schema, asked),
        asked,
        anew=anew,
        stamps={path: _stamp(path) for path in found},
    )
    rows = sum(header.rows for header in headers)
    with progress_bar(progress, "looking through the files", 2 * rows) as move:
        scans = []
        for scan in work.map(_scanned, found, reader):
            move(scan.rows)
            scans.append(scan)
        if not anew:
            _require_once(found, scans, reader)
        reader = _settled(reader, scans)
        units = _units(found, scans, anew)
        return _assembled(_advancing(work.map(_checked, units, reader), move), reader)


def _advancing(units: Iterable[_Unit], move: Move) -> Iterator[_Unit]:
    for unit in units:
        move(int(unit.rows.sum()))
        yield unit


def _files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """The files meant, as absolute paths."""
    if isinstance(paths, str | os.PathLike):
        text = os.fspath(paths)
        if os.path.isdir(text):
            text = os.path.join(glob.escape(text), "*.parquet")
        found = sorted(glob.glob(text))
        if not found:
            raise FileNotFoundError(errno.ENOENT, "no file matches", os.fspath(paths))
    else:
        found = [os.fspath(path) for path in paths]
        if not found:
            raise ValueError("open_logs needs at least one file")
    return [os.path.abspath(path) for path in found]


class _Header(NamedTuple):
    """The beginning of a file: its columns and their types, its rows, and what latentmdp wrote."""

    schema: Any
    rows: int
    told: dict[str, Any] | None


def _header(path: str) -> _Header:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise FormatError(f"{path} is not a Parquet file: {error}") from None
    schema, told = file.schema_arrow, None
    metadata = schema.metadata or {}
    if KEY in metadata:
        told = json.loads(metadata[KEY])
        if not isinstance(told, dict) or told.get("kind") != "trajectories":
            raise FormatError(f"{path} does not hold logs")
    return _Header(schema, file.metadata.num_rows, told)


def table_arguments(header: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Trajectories.from_table` that the header of a file of logs tells."""
    for name in ("n_states", "n_actions", "reward_values"):
        if name not in header:
            raise FormatError(f"the metadata lack {name!r}")
    unseen = header.get("informative_rewards") is False
    return {
        "covariates": header.get("covariates") or [],
        "n_states": header["n_states"],
        "n_actions": header["n_actions"],
        "reward_values": None if unseen else header["reward_values"],
        "rewards_are_indices": header["reward_values"] is None,
        "informative_rewards": not unseen,
        "state_names": header.get("state_names"),
        "action_names": header.get("action_names"),
        "reward_edges": header.get("reward_edges"),
    }


_UNASKED = {"reward_levels": "auto", "informative_rewards": True, "rewards_are_indices": False}


def _asked(
    paths: list[str], headers: list[_Header], given: dict[str, Any], anew: bool
) -> tuple[dict[str, Any], bool]:
    """The arguments of `from_table`, and whether files number their episodes anew."""
    own = [header.told is not None for header in headers]
    if not any(own):
        return given, anew
    if not all(own):
        one, other = paths[own.index(True)], paths[own.index(False)]
        raise FormatError(f"{one} was written by latentmdp and {other} was not: open them apart")
    for name, value in given.items():
        plain = _UNASKED.get(name)
        if not (value == plain if name in _UNASKED else value is None or value in ([], {})):
            raise TypeError(
                f"{paths[0]} holds everything already: open_logs takes no {name!r} here"
            )
    told = [table_arguments(header.told or {}) for header in headers]
    first = told[0]
    for path, one_told in zip(paths, told):
        for name, value in first.items():
            if name not in ("n_states", "n_actions") and not same_content(value, one_told[name]):
                raise TrajectoryError(f"{path} has other {name} than {paths[0]}")
    sizes = {name: max(one[name] for one in told) for name in ("n_states", "n_actions")}
    return {**given, **first, **sizes}, True


def _columns(path: str, schema: Any, asked: Mapping[str, Any]) -> dict[str, str]:
    """What the files call the columns that are read, by our words."""
    called = {word: asked["columns"].get(word, word) for word in (*REQUIRED, *OPTIONAL)}
    for word, name in called.items():
        needed = word in ("episode", "state", "action", "reward") or name != word
        if name not in schema.names and (needed or word == "t"):
            raise TrajectoryError(
                f"{path} has no column {name!r}; it has {', '.join(schema.names)}"
            )
    present = {word: name for word, name in called.items() if name in schema.names}
    for name in asked["covariates"]:
        if name not in schema.names:
            raise TrajectoryError(
                f"{path} has no column {name!r}; it has {', '.join(schema.names)}"
            )
        present[f"covariate {name}"] = name
    numbers = not frames.is_text(schema.field(present["state"]))
    if "terminated" in present and "next_state" not in present and numbers:
        raise TrajectoryError(
            f"{path}: terminated without next_state, where states are numbers, needs all rows in "
            "memory to number the state of the end: give states names, or a column next_state"
        )
    return present


class _Scan(NamedTuple):
    """A first look at a file: where pieces of work may begin, and what is in its columns.

    `low` and `high` are the first and last number of its episodes where they rise; otherwise `ids`
    holds all of them, numbers or names.
    """

    rows: int
    edges: tuple[int, ...]
    first: Any
    last: Any
    ids: Any
    labels: dict[str, list[str]]
    rewards: tuple[Floats, Integers] | None


def _scanned(path: str, reader: _Reader) -> _Scan:
    """Look through the columns of a file, one row group after the other."""
    file, columns = reader.opened(path), reader.columns
    asked = reader.arguments
    texts = {
        word: name
        for word, name in columns.items()
        if word in ("state", "next_state", "action") or word.startswith("covariate ")
        if frames.is_text(file.schema_arrow.field(name))
    }
    counted = (
        asked["reward_values"] is None
        and asked["informative_rewards"]
        and not asked["rewards_are_indices"]
    )
    wanted = {columns["episode"], *texts.values()}
    if counted:
        wanted |= {columns[word] for word in ("state", "action", "reward")}
    labels: dict[str, set[str]] = {word: set() for word in texts}
    tally: dict[float, int] = {}
    begin = 0
    starts: list[Integers] = []
    ids: list[NDArray[Any]] = []
    last: Any = None
    for k in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(k)
        if group.total_byte_size > _LARGEST_GROUP:
            raise TrajectoryError(
                f"{path}: row group {k} has {memory_text(group.total_byte_size)}, which would have "
                "to be in memory at once: write the file with smaller row groups "
                "(row_group_size=1_000_000)"
            )
        table = file.read_row_group(k, columns=sorted(wanted), use_threads=False)
        names = table[columns["episode"]]
        if names.null_count:
            row = begin + int(np.argmax(names.is_null().to_numpy()))
            raise TrajectoryError(f"{path}: {columns['episode']} is empty in row {row}")
        places = np.flatnonzero(_begins(names))
        own = _called(names.take(places)) if places.size else np.zeros(0, np.int64)
        if own.size and own[0] == last:
            places, own = places[1:], own[1:]
        if own.size:
            last = own[-1]
        starts.append(begin + places)
        ids.append(own)
        for word, name in texts.items():
            labels[word] |= set(table[name].unique().drop_null().to_pylist())
        if counted:
            _count_rewards(table, columns, tally, path)
        begin += table.num_rows
    every = np.concatenate(starts) if starts else np.zeros(0, np.int64)
    names_of_all = np.concatenate(ids) if ids else np.zeros(0, np.int64)
    return _Scan(
        begin,
        _edges(every, begin),
        names_of_all[0] if names_of_all.size else None,
        last,
        _ids_to_keep(names_of_all, path, columns["episode"]),
        {word: sorted(found) for word, found in labels.items()},
        _sorted_tally(tally) if counted else None,
    )


def _edges(starts: Integers, rows: int) -> tuple[int, ...]:
    """Beginnings of episodes about `_UNIT_ROWS` apart, and the end."""
    if rows == 0:
        return (0,)
    wanted = np.arange(0, rows, _UNIT_ROWS)
    places = np.searchsorted(starts, wanted)
    kept = starts[places[places < starts.size]]
    return tuple(np.unique(np.concatenate([kept, [rows]])).tolist())


def _called(names: Any) -> NDArray[Any]:
    """Numbers of episodes, or their names as objects."""
    if frames.is_text(names):
        return np.array(names.to_pylist(), dtype=object)
    values: NDArray[Any] = names.to_numpy()
    return values


def _ids_to_keep(ids: NDArray[Any], path: str, column: str) -> NDArray[Any] | None:
    """What tells whether an episode comes twice: nothing where numbers rise, else all of them."""
    if ids.dtype != object and (ids[1:] > ids[:-1]).all():
        return None
    found, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise TrajectoryError(
            f"{path}: the rows of {column} {found[np.argmax(counts > 1)]} do not lie together: "
            "sort the table by episode first"
        )
    return ids


def _count_rewards(
    table: Any, columns: Mapping[str, str], tally: dict[float, int], path: str
) -> None:
    """Count the rewards of rows with a state and an action."""
    rewards = frames.floats(columns["reward"], frames.arrow("reward", table[columns["reward"]]))
    kept = ~np.isnan(rewards)
    for word in ("state", "action"):
        kept &= table[columns[word]].is_valid().to_numpy()
    for value, count in zip(*(x.tolist() for x in np.unique(rewards[kept], return_counts=True))):
        tally[value] = tally.get(value, 0) + count
    if len(tally) > _MOST_VALUES:
        raise TrajectoryError(
            f"{path}: more than {_MOST_VALUES:,} different rewards, which would have to be in "
            "memory to be cut into levels: give reward_values and reward_edges, or "
            "informative_rewards=False"
        )


def _sorted_tally(tally: Mapping[float, int]) -> tuple[Floats, Integers]:
    values = np.array(sorted(tally), np.float64)
    return values, np.array([tally[value] for value in values.tolist()], np.int64)


def _require_once(paths: list[str], scans: list[_Scan], reader: _Reader) -> None:
    """Refuse an episode that is in two files, unless it ends the one and begins the next."""
    filled = [(path, scan) for path, scan in zip(paths, scans) if scan.first is not None]
    rising = all(scan.ids is None for _, scan in filled) and all(
        before.last <= after.first for (_, before), (_, after) in pairwise(filled)
    )
    if rising:
        return
    seen: dict[Any, str] = {}
    previous: Any = None
    for path, scan in filled:
        ids = scan.ids if scan.ids is not None else _numbers(path, reader)
        for place, one in enumerate(ids.tolist()):
            joined = place == 0 and previous == one
            if one in seen and not joined:
                raise TrajectoryError(
                    f"episode {one} is in {seen[one]} and in {path}: the rows of an episode lie "
                    "together, at most from the end of one file to the beginning of the next; if "
                    "each file numbers its episodes anew, say numbered_anew=True"
                )
            seen[one] = path
        if len(seen) > _MOST_NAMES:
            raise TrajectoryError(
                f"the names of more than {_MOST_NAMES:,} episodes would have to be in memory to "
                "see that none is in two files: number the episodes in their order"
            )
        previous = scan.last


def _numbers(path: str, reader: _Reader) -> NDArray[Any]:
    """The numbers of a file's episodes, which rise but may overlap with those of another file."""
    column = reader.columns["episode"]
    names = reader.opened(path).read(columns=[column])[column]
    return _called(names.take(np.flatnonzero(_begins(names))))


def _settled(reader: _Reader, scans: list[_Scan]) -> _Reader:
    """The reader with the names and the values that all files have together."""
    arguments = dict(reader.arguments)
    labels: dict[str, set[str]] = {}
    for scan in scans:
        for word, some in scan.labels.items():
            labels.setdefault(word, set()).update(some)
    for word, argument in (("state", "state_names"), ("action", "action_names")):
        found = labels.get(word, set()) | (
            labels.get("next_state", set()) if word == "state" else set()
        )
        if found and arguments[argument] is None:
            names = list(_in_order(found))
            if word == "state" and "terminated" in reader.columns and END not in names:
                names.append(END)
            arguments[argument] = names
    levels = {
        word.removeprefix("covariate "): _in_order(found)
        for word, found in labels.items()
        if word.startswith("covariate ")
    }
    if scans[0].rewards is not None:
        tally: dict[float, int] = {}
        for scan in scans:
            assert scan.rewards is not None
            for value, count in zip(*(x.tolist() for x in scan.rewards)):
                tally[value] = tally.get(value, 0) + count
        values, edges = reward_values_of_counts(*_sorted_tally(tally), arguments["reward_levels"])
        arguments |= {"reward_values": values, "reward_edges": edges}
    return replace(reader, arguments=arguments, levels=levels)


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels in the order in which they are numbered."""
    import pyarrow as pa

    names: tuple[str, ...] = frames.coded(pa.array(sorted(labels), pa.string()))[1]
    return names


def _units(paths: list[str], scans: list[_Scan], anew: bool) -> list[tuple[RowRange, ...]]:
    """Rows to be checked together; an episode that goes on in the next file takes it along."""
    units: list[tuple[RowRange, ...]] = []
    before: Any = None
    for path, scan in zip(paths, scans):
        edges = scan.edges if scan.edges and scan.edges[0] == 0 else (0, *scan.edges)
        own = [RowRange(path, a, b) for a, b in pairwise(edges)]
        if own and units and not anew and scan.first is not None and scan.first == before:
            units[-1] = (*units[-1], own.pop(0))
        units += [(rows,) for rows in own]
        before = scan.last if scan.last is not None else before
    if not units:
        raise TrajectoryError(f"the logs hold no episode: {paths[0]} has no rows")
    return units


def _assembled(units: Iterable[_Unit], reader: _Reader) -> LogFiles:
    """The logs of some rows, in their order: their batches, and what is known of them all."""
    builder = _Batches()
    summary: _Summary | None = None
    covariates, paths = [], []
    for unit in units:
        builder.add(unit)
        summary = unit.summary if summary is None else summary + unit.summary
        if unit.covariates is not None:
            covariates.append(unit.covariates)
        paths += [rows.path for rows in unit.spans]
    assert summary is not None
    asked = dict(reader.arguments)
    values = None if asked["reward_values"] is None else np.asarray(asked["reward_values"], float)
    if not asked["informative_rewards"]:
        values = np.zeros(1)
    names = asked["state_names"]
    asked["n_states"] = max(asked["n_states"] or 0, summary.states, len(names or ()), 1)
    asked["n_actions"] = max(
        asked["n_actions"] or 0, summary.actions, len(asked["action_names"] or ()), 1
    )
    edges = asked["reward_edges"]
    reader = replace(reader, arguments=asked)
    return LogFiles(
        paths=tuple(dict.fromkeys(paths)),
        n_states=asked["n_states"],
        n_actions=asked["n_actions"],
        reward_values=values,
        state_names=None if names is None else tuple(names),
        action_names=None if asked["action_names"] is None else tuple(asked["action_names"]),
        reward_edges=None if edges is None else np.asarray(edges, float),
        covariates=Covariates.concat(covariates) if covariates else None,
        missing=summary.missing if any(summary.missing) else None,
        _summary=summary,
        _files=builder.made(reader),
    )


class _Batches:
    """Cuts rows into batches, by the rule of `Trajectories.batches`."""

    def __init__(self) -> None:
        self._steps = self._episodes = 0
        self._number = -1
        self._found: list[tuple[list[RowRange], int, int]] = []

    def add(self, unit: _Unit) -> None:
        """Go on with the individuals of a unit."""
        begin = self._steps + np.cumsum(unit.steps) - unit.steps
        number = begin // BATCH_STEPS
        rows = np.concatenate([[0], np.cumsum(unit.rows)])
        episodes = self._episodes + np.concatenate([[0], np.cumsum(unit.segments)])
        edges = np.append(np.flatnonzero(np.diff(number, prepend=-1)), number.size)
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist()):
            spans = _between(unit.spans, int(rows[low]), int(rows[high]))
            if int(number[low]) == self._number:
                before, start, _ = self._found[-1]
                self._found[-1] = (_extended(before, spans), start, int(episodes[high]))
            else:
                self._found.append((spans, int(episodes[low]), int(episodes[high])))
                self._number = int(number[low])
        self._steps += int(unit.steps.sum())
        self._episodes = int(episodes[-1])

    def made(self, reader: _Reader) -> tuple[_FileBatch, ...]:
        """The batches; each knows of its own files only."""
        return tuple(
            _FileBatch(_with_stamps(reader, spans), tuple(spans), start, stop, True)
            for spans, start, stop in self._found
        )


def _with_stamps(reader: _Reader, spans: Sequence[RowRange]) -> _Reader:
    own = {rows.path: reader.stamps[rows.path] for rows in spans if rows.path in reader.stamps}
    return replace(reader, stamps=own)


def _between(spans: Sequence[RowRange], low: int, high: int) -> list[RowRange]:
    """Rows low .. high - 1 of some spans, counted through."""
    found, before = [], 0
    for path, start, stop in spans:
        first, last = max(low - before, 0), min(high - before, stop - start)
        if first < last:
            found.append(RowRange(path, start + first, start + last))
        before += stop - start
    return found


def _extended(spans: list[RowRange], more: list[RowRange]) -> list[RowRange]:
    """Spans one after the other, neighbours of one file joined."""
    found = list(spans)
    for rows in more:
        if found and found[-1].path == rows.path and found[-1].stop == rows.start:
            found[-1] = found[-1]._replace(stop=rows.stop)
        else:
            found.append(rows)
    return found
