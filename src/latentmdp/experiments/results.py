"""The manifest of an experiment's folder.

`manifest.json` is written last, so a folder that has one is complete. It holds every run with its
settings, the claims with their verdicts, and the numbers that the figure draws (null for a gap), so
a report needs no other file. Its `digest` is of everything but times and the version. Damaged files
are refused.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from latentmdp._util import FORMAT, plain, storage
from latentmdp._version import __version__
from latentmdp.errors import FormatError
from latentmdp.experiments.findings import Findings

MANIFEST = "manifest.json"
KIND = "experiment"
SCHEMA = 1


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
