"""Sweeps of an experiment: settings are data, results are files, interrupted sweeps resume.

An experiment is one module, listed in `designs`, with three functions:

    sweep(quick, seeds) -> list of `Setting`, each with a stable id
    work(setting) -> columns of numbers, in one process, from the setting alone
    analyse(table) -> `Findings`: panels, and claims held against the numbers

`reproduce` runs every setting that has no result yet, in parallel processes, and writes the
figure (SVG and PNG), all numbers (Parquet) and a page of text. The result of a setting is kept like
the checkpoint of a run: its columns as arrays, with the setting, the seconds it took and a digest.

`manifest.json` is written last, so a folder that has one is complete. It holds every run with its
setting and seconds, a digest of the numbers, and one of all but times and the version. From it and
the numbers `read_experiment` makes the findings again, as `latentmdp report` shows them. Damaged
files are refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from latentmdp._util import storage
from latentmdp._util.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from latentmdp._util.figures import write_figure
from latentmdp._util.progress import progress_bar
from latentmdp._util.results import plain
from latentmdp._util.storage import FORMAT, atomic_write, one_writer, require_writable
from latentmdp._util.words import did_you_mean, plural
from latentmdp._version import __version__
from latentmdp.engines import Engine, Threads, thread_count
from latentmdp.errors import FormatError
from latentmdp.experiments.findings import Claim, Findings, figure_of

MANIFEST = "manifest.json"
Columns = Mapping[str, ArrayLike]
Work = Callable[["Setting"], Columns]


@dataclass(frozen=True)
class Setting:
    """One run of an experiment.

    Its `id` is stable across versions: `fig1a/revealed/3`. Its `values`, plain numbers and strings,
    are everything that the run depends on.
    """

    id: str
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def file_name(self) -> str:
        """Where its result goes: other values under the same id get another file."""
        digest = hashlib.sha256(json.dumps(dict(self.values), sort_keys=True).encode())
        return f"{self.id.replace('/', '-')}-{digest.hexdigest()[:8]}.npz"

    @property
    def content(self) -> dict[str, Any]:
        """The id and the values by name, as a file and a table have them."""
        return {"id": self.id, **self.values}


class SettingResult(NamedTuple):
    """The columns of a setting, and the seconds that they took."""

    table: pa.Table
    seconds: float


@dataclass(frozen=True)
class FinishedRun:
    """One run: its id and values, its file in `runs/`, and its seconds (None: not recorded)."""

    id: str
    values: dict[str, Any]
    file: str
    seconds: float | None


@dataclass(frozen=True)
class Experiment:
    """What a folder holds; `version` is that of the library that wrote it."""

    name: str
    quick: bool
    findings: Findings
    runs: tuple[FinishedRun, ...]
    version: str = __version__


@dataclass(frozen=True)
class Outputs:
    """The files of an experiment, and its claims."""

    folder: Path
    figures: tuple[Path, ...]
    numbers: Path
    page: Path
    manifest: Path
    claims: tuple[Claim, ...]


def designs() -> dict[str, ModuleType]:
    """Every experiment by name; their modules are imported by this call."""
    from latentmdp.experiments import fig1a, fig1b, fig2, lower_bound

    return {"fig1a": fig1a, "fig1b": fig1b, "fig2": fig2, "lower-bound": lower_bound}


def _design(name: str) -> ModuleType:
    experiments = designs()
    if name.replace("_", "-") not in experiments:
        meant = did_you_mean(name, experiments)
        raise ValueError(f"there is no experiment {name!r}{meant}; known: {', '.join(experiments)}")
    return experiments[name.replace("_", "-")]


def settings_of(
    name: str, axes: Mapping[str, Any], others: Mapping[str, Any], quick: bool, seeds: int | None
) -> list[Setting]:
    """A setting for each combination of the axes and each seed, called `name` with these values.

    There are ten seeds as in the paper, two in the quick version, or as many as asked.
    """
    number = seeds if seeds is not None else 2 if quick else 10
    points = product(*axes.values(), range(number))
    values = [{**others, **dict(zip((*axes, "seed"), point))} for point in points]
    return [Setting(name.format(**each), each) for each in values]


def reproduce(
    name: str,
    *,
    quick: bool = False,
    out: str | os.PathLike[str] = "out",
    seeds: int | None = None,
    jobs: int | None = None,
    progress: bool = False,
    engine: Engine | None = None,
) -> Outputs:
    """Run an experiment, or what is missing of it, and write figure, numbers and text.

    Parameters
    ----------
    name
        One of `designs()`: "fig1a", "fig1b", ...
    quick
        A small version, for a first look and for tests.
    out
        Results go to the folder `out/NAME` (`out/NAME-quick`).
    seeds
        How many; by default as many as the paper.
    jobs
        Processes; None takes all cores.
    engine
        Where to run instead, for instance `engines.Dask`.
    """
    design, stem = _design(name), name.replace("-", "_")
    folder = Path(out) / (f"{stem}-quick" if quick else stem)
    folder.mkdir(parents=True, exist_ok=True)
    require_writable(folder / MANIFEST)
    settings = design.sweep(quick, seeds)
    runs = folder / "runs"
    table = run_sweep(settings, design.work, runs, jobs, progress=progress, engine=engine)
    finished = tuple(
        FinishedRun(s.id, dict(s.values), s.file_name, read_result(runs, s).seconds)
        for s in settings
    )
    findings = _findings(design, table, quick)
    experiment = Experiment(stem, quick, findings, finished)
    figures = tuple(folder / f"{stem}.{suffix}" for suffix in ("svg", "png"))
    figure = figure_of(findings.panels, findings.title)
    for path in figures:
        write_figure(figure, path)
    numbers, page = folder / f"{stem}.parquet", folder / f"{stem}.md"
    with atomic_write(numbers) as stream:
        pq.write_table(table, stream)
    with atomic_write(page) as stream:
        stream.write(_page(experiment).encode())
    _write_manifest(folder, experiment, numbers)
    return Outputs(folder, figures, numbers, page, folder / MANIFEST, findings.claims)


def _findings(design: ModuleType, table: pa.Table, quick: bool) -> Findings:
    findings: Findings = design.analyse(table)
    small = " A small version of the experiment: its claims are not the paper's."
    return replace(findings, description=findings.description + small * quick)


def _write_manifest(folder: Path, experiment: Experiment, numbers: Path) -> None:
    digest = hashlib.sha256(numbers.read_bytes()).hexdigest()
    content = {"format": FORMAT, "kind": "experiment", "schema": 2, "numbers": digest}
    content |= {n: plain(v) for n, v in vars(experiment).items() if n != "findings"}
    with atomic_write(folder / MANIFEST) as stream:
        signed = {**content, "digest": _manifest_digest(content)}
        stream.write(json.dumps(signed, indent=1, allow_nan=False).encode())


def read_experiment(folder: str | os.PathLike[str]) -> Experiment:
    """Read what `reproduce` wrote.

    Raises
    ------
    FormatError
        If the folder has no manifest, or files that are damaged.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FormatError(
            f"{folder} has no {MANIFEST}: it is not the folder of a finished experiment. "
            "`latentmdp reproduce` finishes one: it keeps the runs that are done and writes the "
            "rest"
        )
    try:
        if path.stat().st_size > storage.MAX_TEXT:
            raise FormatError(f"has more than {storage.MAX_TEXT:,} bytes")
        return _experiment(Path(folder), storage.parse(path.read_text(encoding="utf-8")))
    # A damaged or hostile file can make any parser beneath raise anything.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise FormatError(f"{path} is not the manifest of an experiment: {reason}") from None


def _experiment(folder: Path, content: dict[str, Any]) -> Experiment:
    if (content["format"], content["kind"]) != (FORMAT, "experiment"):
        raise FormatError(f"it holds {content['kind']!r}")
    if content["schema"] not in (1, 2):  # schema 1 had the findings, and no digest of the numbers
        raise FormatError(f"schema {content['schema']!r}, this version reads 1 and 2")
    if content["digest"] != _manifest_digest(content):
        raise FormatError("its contents are not those that were written")
    design, runs = _design(content["name"]), [FinishedRun(**run) for run in content["runs"]]
    for run in runs:
        storage.as_seconds(run.seconds or 0.0)
    numbers = (folder / f"{content['name']}.parquet").read_bytes()
    if content["schema"] > 1 and content["numbers"] != hashlib.sha256(numbers).hexdigest():
        raise FormatError("the numbers beside it are not those that were written")
    quick = storage.as_flag(content["quick"], "quick")
    findings = _findings(design, pq.read_table(pa.BufferReader(numbers)), quick)
    return Experiment(content["name"], quick, findings, (*runs,), content["version"])


def _manifest_digest(content: dict[str, Any]) -> str:
    """Of everything but the digest, the version and the seconds of runs."""
    lasting = {name: v for name, v in content.items() if name not in ("digest", "version")}
    lasting["runs"] = [{k: v for k, v in run.items() if k != "seconds"} for run in content["runs"]]
    return storage.digest_of({}, json.dumps(lasting, sort_keys=True))


def run_sweep(
    settings: Sequence[Setting],
    work: Work,
    folder: str | os.PathLike[str],
    jobs: int | None = None,
    *,
    progress: bool = False,
    engine: Engine | None = None,
) -> pa.Table:
    """Run every setting that has no result in `folder`, and return all results as one table.

    Rows carry the setting's id and values beside the columns that `work` returned. A result
    appears whole or not at all, so a sweep that is interrupted goes on where it stopped. Two
    sweeps at a time in one folder are refused (`LockedError`). What an `engine` has run is written
    here, so its workers need not see the folder.
    """
    ids = [setting.id for setting in settings]
    if len(set(ids)) < len(ids):
        raise ValueError("settings must have distinct ids")
    results = Path(folder)
    results.mkdir(parents=True, exist_ok=True)
    with one_writer(results), progress_bar(progress, "runs", len(settings)) as move:
        missing = [s for s in settings if not (results / s.file_name).exists()]
        move(len(settings) - len(missing))
        workers = min(thread_count(jobs), len(missing))
        if engine is not None or workers <= 1:
            for i, (columns, seconds) in (engine or Threads(1)).finished(_timed, missing, work):
                _write(results, missing[i], columns, seconds)
                move()
        else:
            with _pool(workers) as pool:
                futures = [pool.submit(_run_one, s, work, results) for s in missing]
                for future in as_completed(futures):
                    future.result()
                    move()
    tables = [_with_setting(read_result(results, s).table, s) for s in settings]
    return pa.concat_tables(tables, promote_options="default")  # null where a run has no column


def read_result(folder: Path, setting: Setting) -> SettingResult:
    """The result of a setting, which is there.

    Raises
    ------
    CheckpointError
        The file is damaged.
    """
    found = read_checkpoint(folder / setting.file_name, setting.content, {})
    assert found is not None
    try:
        return SettingResult(pa.table(found.arrays), found.seconds)
    except ValueError as error:
        raise CheckpointError(f"{folder / setting.file_name}: not a table ({error})") from None


def _write(folder: Path, setting: Setting, columns: Columns, seconds: float) -> None:
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    write_checkpoint(folder / setting.file_name, setting.content, arrays, seconds)


def _run_one(setting: Setting, work: Work, folder: Path) -> None:
    """In a process of its own it writes too: what runs when another fails is not lost."""
    _write(folder, setting, *_timed(setting, work))


def _timed(setting: Setting, work: Work) -> tuple[Columns, float]:
    """The columns of one setting, and the seconds that they took."""
    began = time.perf_counter()
    columns = work(setting)
    return columns, time.perf_counter() - began


def _with_setting(table: pa.Table, setting: Setting) -> pa.Table:
    for name, value in setting.content.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array([value] * table.num_rows))
    return table


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Fresh processes, each with one thread for linear algebra.

    They read the number of threads when they start, so it stands in the environment meanwhile.
    After an error, what runs is finished and what has not begun is dropped.
    """
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _page(experiment: Experiment) -> str:
    name, findings = experiment.name, experiment.findings
    lines = [f"# {findings.title}", "", findings.description, ""]
    lines += [f"latentmdp {experiment.version}, {plural(len(experiment.runs), 'run')}.", ""]
    for claim in findings.claims:
        lines += [f"- The paper: {claim.paper}", f"  Measured: {claim.measured}"]
        lines += [f"  **{claim.verdict.capitalize()}** here."]
    lines += ["", f"![{findings.title}]({name}.svg)", ""]
    lines += [f"Every number is in `{name}.parquet`; each run's own in `runs/`.", ""]
    return "\n".join(lines)
