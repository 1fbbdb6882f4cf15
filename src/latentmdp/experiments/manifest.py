"""The manifest of an experiment's folder: what was run, what was found, and how long it took.

`manifest.json` is written last, so a folder that has one is complete. It holds every run with its
settings, the claims with their verdicts, and the numbers that the figure draws (null for a gap), so
a report needs no other file. `digest` is of everything but times and the version.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latentmdp._util import storage
from latentmdp._version import __version__
from latentmdp.errors import FormatError
from latentmdp.experiments.findings import Claim, Findings, Line, Panel
from latentmdp.io.kinds import FORMAT

__all__ = ["FILE", "Experiment", "FinishedRun", "read_experiment", "write_experiment"]

FILE = "manifest.json"
KIND = "experiment"
SCHEMA = 1
STYLES = ("-", "--", ":", "-.", "o")
SCALES = ("", "x", "y", "xy")


@dataclass(frozen=True)
class FinishedRun:
    """One run: its id and values, its file in `runs/`, and its seconds (None: not recorded)."""

    id: str
    values: dict[str, Any]
    file: str
    seconds: float | None


@dataclass(frozen=True)
class Experiment:
    """What a folder holds.

    Attributes
    ----------
    name
        Of the experiment: "fig1a", "lower_bound", ...
    quick
        Whether it is the small version.
    version
        Of the library that wrote it.
    """

    name: str
    quick: bool
    findings: Findings
    runs: tuple[FinishedRun, ...]
    version: str = __version__


def write_experiment(folder: str | os.PathLike[str], experiment: Experiment) -> None:
    """Write the manifest, all or nothing."""
    findings = experiment.findings
    told = {
        "format": FORMAT,
        "kind": KIND,
        "schema": SCHEMA,
        "name": experiment.name,
        "quick": experiment.quick,
        "title": findings.title,
        "description": findings.description,
        "claims": [asdict(claim) for claim in findings.claims],
        "panels": [_panel_fields(panel) for panel in findings.panels],
        "runs": [asdict(run) for run in experiment.runs],
    }
    signed = {**told, "version": experiment.version, "digest": _digest(told)}
    with storage.atomic_write(Path(folder) / FILE) as stream:
        stream.write(json.dumps(signed, indent=1, allow_nan=False).encode())


def read_experiment(folder: str | os.PathLike[str]) -> Experiment:
    """Read what `write_experiment` wrote.

    Raises
    ------
    FormatError
        If the folder has no manifest, or one that is damaged.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise FormatError(
            f"{folder} has no {FILE}: it is not the folder of a finished experiment. `latentmdp "
            "reproduce` finishes one: it keeps the runs that are done and writes the rest"
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


def _decode(found: dict[str, Any]) -> Experiment:
    if (found["format"], found["kind"]) != (FORMAT, KIND):
        raise FormatError(f"it holds {found['kind']!r}")
    if found["schema"] != SCHEMA:
        raise FormatError(f"schema {found['schema']!r}, this version reads {SCHEMA}")
    if found["digest"] != _digest(found):
        raise FormatError("its contents are not those that were written")
    return Experiment(
        name=storage.as_text(found["name"], "name"),
        quick=storage.as_flag(found["quick"], "quick"),
        findings=Findings(
            title=storage.as_text(found["title"], "title"),
            description=storage.as_text(found["description"], "description"),
            panels=tuple(_panel(fields) for fields in _list(found["panels"], "panels")),
            claims=tuple(_claim(fields) for fields in _list(found["claims"], "claims")),
        ),
        runs=tuple(_run(fields) for fields in _list(found["runs"], "runs")),
        version=storage.as_text(found["version"], "version"),
    )


def _digest(found: dict[str, Any]) -> str:
    """Of everything but the digest, the version and the seconds of runs."""
    told = {name: v for name, v in found.items() if name not in ("digest", "version")}
    told["runs"] = [{k: v for k, v in run.items() if k != "seconds"} for run in found["runs"]]
    return storage.digest_of({}, json.dumps(told, sort_keys=True))


def _claim(fields: dict[str, Any]) -> Claim:
    paper, measured = (storage.as_text(fields[name], name) for name in ("paper", "measured"))
    held = fields["held"]
    return Claim(paper, measured, None if held is None else storage.as_flag(held, "held"))


def _run(fields: dict[str, Any]) -> FinishedRun:
    settings = fields["values"]
    if not isinstance(settings, dict):
        raise FormatError("field 'values' of a run must be an object")
    seconds = fields["seconds"]
    return FinishedRun(
        storage.as_text(fields["id"], "id"),
        settings,
        storage.as_text(fields["file"], "file"),
        None if seconds is None else storage.as_seconds(seconds),
    )


def _panel_fields(panel: Panel) -> dict[str, Any]:
    fields = asdict(panel)
    for line in fields["lines"]:
        for name in _NUMBERS:
            line[name] = [x if math.isfinite(x) else None for x in line[name]]
    return fields


def _panel(fields: dict[str, Any]) -> Panel:
    if fields["log"] not in SCALES:
        raise FormatError(f"field 'log' must be one of {SCALES}, got {fields['log']!r}")
    return Panel(
        lines=tuple(_line(line) for line in _list(fields["lines"], "lines")),
        log=fields["log"],
        **{name: storage.as_text(fields[name], name) for name in ("title", "caption", "x", "y")},
    )


def _line(fields: dict[str, Any]) -> Line:
    if fields["style"] not in STYLES:
        raise FormatError(f"field 'style' must be one of {STYLES}, got {fields['style']!r}")
    colour = fields["colour"]
    line = Line(
        name=storage.as_text(fields["name"], "name"),
        colour=None if colour is None else storage.as_integer(colour, "colour"),
        style=fields["style"],
        at_least=tuple(
            storage.as_flag(x, "at_least") for x in _list(fields["at_least"], "at_least")
        ),
        **{name: tuple(map(_number, _list(fields[name], name))) for name in _NUMBERS},
    )
    sizes = {name: len(getattr(line, name)) for name in (*_NUMBERS, "at_least")}
    if not set(sizes.values()) <= {0, sizes["x"]} or sizes["mean"] != sizes["x"]:
        raise FormatError(f"the parts of line {line.name!r} differ in length: {sizes}")
    if sizes["low"] != sizes["high"]:
        raise FormatError(f"line {line.name!r} has one of 'low' and 'high', and not the other")
    return line


_NUMBERS = ("x", "mean", "low", "high")


def _number(value: Any) -> float:
    return math.nan if value is None else storage.as_number(value, "a point of a line")


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"field {name!r} must be a list, got {type(value).__name__}")
    return value
