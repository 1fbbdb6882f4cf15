"""The files of an experiment: one Parquet file for each run, and the manifest of the folder.

A run's file has the columns that the run gave and, in the metadata under the key `latentmdp`, a
JSON object: the setting's id and values, the version, the wall-clock `seconds` it took, and
`digest`, of everything but the version and the time. A file without digest is read as it is.

`manifest.json` is written last, so a folder that has one is complete. It holds every run with its
settings, the claims with their verdicts, and the numbers that the figure draws (null for a gap), so
a report needs no other file. Its `digest` is of everything but times and the version. Damaged files
are refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from latentmdp._util import FORMAT, plain, storage
from latentmdp._version import __version__
from latentmdp.errors import FormatError
from latentmdp.experiments.findings import Findings
from latentmdp.io import check_table

KEY = b"latentmdp"
MANIFEST = "manifest.json"
KIND = "experiment"
SCHEMA = 1

Columns = Mapping[str, ArrayLike]


class SettingResult(NamedTuple):
    """The columns, and the seconds they took; None where the file does not tell."""

    table: pa.Table
    seconds: float | None


def write_result(
    path: str | os.PathLike[str],
    name: str,
    setting: Mapping[str, Any],
    columns: Columns,
    seconds: float,
) -> None:
    """Write the result of the setting with this id (`name`) and values, all or nothing."""
    table = pa.table({key: np.asarray(column) for key, column in columns.items()})
    content = {"id": name, "values": dict(setting)}
    digest = _result_digest(content, table)
    signed = {**content, "version": __version__, "seconds": seconds, "digest": digest}
    with storage.atomic_write(path) as stream:
        described = table.replace_schema_metadata({KEY: json.dumps(signed).encode()})
        pq.write_table(described, stream, write_page_checksum=True)


def read_result(path: str | os.PathLike[str]) -> SettingResult:
    """Read what `write_result` wrote."""
    with open(path, "rb") as stream:
        try:
            size = storage.file_size(stream)
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            check_table(file, file.schema_arrow.names, size)
            table = file.read()
            header = storage.parse((table.schema.metadata or {})[KEY].decode())
            table = table.replace_schema_metadata(None)
            content = {name: header[name] for name in ("id", "values")}
            if "digest" in header and header["digest"] != _result_digest(content, table):
                raise FormatError("its contents are not those that were written")
            seconds = header.get("seconds")
            return SettingResult(table, None if seconds is None else storage.as_seconds(seconds))
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise FormatError(
                f"{path} is damaged ({reason}); remove it to run this setting again"
            ) from None


def _result_digest(content: Mapping[str, Any], table: pa.Table) -> str:
    """Of the setting and of every value of the table, which is small."""
    return storage.digest_of({}, json.dumps([content, table.to_pydict()], sort_keys=True))


@dataclass(frozen=True)
class FinishedRun:
    """One run: its id and values, its file in `runs/`, and its seconds (None: not recorded)."""

    id: str
    values: dict[str, Any]
    file: str
    seconds: float | None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            storage.as_seconds(self.seconds)


@dataclass(frozen=True)
class Experiment:
    """What a folder holds; `version` is that of the library that wrote it."""

    name: str
    quick: bool
    findings: Findings
    runs: tuple[FinishedRun, ...]
    version: str = __version__


def write_experiment(folder: str | os.PathLike[str], experiment: Experiment) -> None:
    """Write the manifest, all or nothing."""
    content = plain(experiment)
    content |= {"format": FORMAT, "kind": KIND, "schema": SCHEMA, **content.pop("findings")}
    signed = {**content, "digest": _manifest_digest(content)}
    with storage.atomic_write(Path(folder) / MANIFEST) as stream:
        stream.write(json.dumps(signed, indent=1, allow_nan=False).encode())


def read_experiment(folder: str | os.PathLike[str]) -> Experiment:
    """Read what `write_experiment` wrote.

    Raises
    ------
    FormatError
        If the folder has no manifest, or one that is damaged.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FormatError(
            f"{folder} has no {MANIFEST}: it is not the folder of a finished experiment. "
            "`latentmdp reproduce` finishes one: it keeps the runs that are done and writes the "
            "rest"
        )
    with open(path, "rb") as stream:
        try:
            if storage.file_size(stream) > storage.MAX_TEXT:
                raise FormatError(f"has more than {storage.MAX_TEXT:,} bytes")
            return _decode(storage.parse(stream.read().decode()))
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise FormatError(f"{path} is not the manifest of an experiment: {reason}") from None


def _decode(content: dict[str, Any]) -> Experiment:
    if (content["format"], content["kind"]) != (FORMAT, KIND):
        raise FormatError(f"it holds {content['kind']!r}")
    if content["schema"] != SCHEMA:
        raise FormatError(f"schema {content['schema']!r}, this version reads {SCHEMA}")
    if content["digest"] != _manifest_digest(content):
        raise FormatError("its contents are not those that were written")
    experiment: Experiment = _typed(Experiment, {**content, "findings": content}, "")
    return experiment


def _manifest_digest(content: dict[str, Any]) -> str:
    """Of everything but the digest, the version and the seconds of runs."""
    lasting = {name: v for name, v in content.items() if name not in ("digest", "version")}
    lasting["runs"] = [{k: v for k, v in run.items() if k != "seconds"} for run in content["runs"]]
    return storage.digest_of({}, json.dumps(lasting, sort_keys=True))


def _typed(hint: Any, value: Any, name: str) -> Any:
    """A value of JSON as an annotation asks for it: a dataclass of an object, a tuple of a list.

    None stands for NaN where a number is asked for, unless the annotation allows None itself.
    """
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        return hint(**{name: _typed(hints[name], value[name], name) for name in names})  # type: ignore[operator]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:  # with None
        return None if value is None else _typed(parts[0], value, name)
    if origin in (tuple, dict):
        kind = {tuple: list, dict: dict}[origin]
        if not isinstance(value, kind):
            value_type = type(value).__name__
            raise FormatError(f"field {name!r} must be a {kind.__name__}, got {value_type}")
        return value if origin is dict else tuple(_typed(parts[0], item, name) for item in value)
    if hint is float:
        return math.nan if value is None else storage.as_number(value, name)
    return {str: storage.as_text, int: storage.as_integer, bool: storage.as_flag}[hint](value, name)
