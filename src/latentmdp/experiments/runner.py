"""Running experiments: settings are data, results are files, sweeps resume.

An experiment is a package `latentmdp.experiments.NAME` with three modules:

    settings.py   sweep(quick, seeds) -> list of `Setting`, each with a stable id
    run.py        work(setting) -> columns of numbers, in one process, from the setting alone
    analysis.py   analyse(table, quick) -> `Findings`: panels, and claims held against the numbers

`reproduce` runs every setting that has no result yet, in parallel processes, and writes the
figure (SVG and PNG), all numbers (Parquet), a page of text, and a manifest that `latentmdp report`
reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.backends.backend_agg import FigureCanvasAgg

from latentmdp._util.storage import atomic_write, one_writer
from latentmdp.engines.threads import thread_count
from latentmdp.experiments.drawing import figure_of
from latentmdp.experiments.findings import Claim
from latentmdp.experiments.manifest import FILE as MANIFEST
from latentmdp.experiments.manifest import Experiment, FinishedRun, write_experiment
from latentmdp.experiments.results import Columns, read_result, write_result

__all__ = ["Outputs", "Setting", "reproduce", "run_sweep"]

Work = Callable[["Setting"], Columns]


@dataclass(frozen=True)
class Setting:
    """One run of an experiment.

    Attributes
    ----------
    id
        Its name, stable across versions: `fig1a/revealed/3`.
    values
        Everything the run depends on: plain numbers and strings.
    """

    id: str
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def file_name(self) -> str:
        """Where its result goes: other values under the same id get another file."""
        digest = hashlib.sha256(json.dumps(dict(self.values), sort_keys=True).encode())
        return f"{self.id.replace('/', '-')}-{digest.hexdigest()[:8]}.parquet"


@dataclass(frozen=True)
class Outputs:
    """The files of an experiment, and its claims."""

    folder: Path
    figures: tuple[Path, ...]
    numbers: Path
    page: Path
    manifest: Path
    claims: tuple[Claim, ...]


def reproduce(
    name: str,
    *,
    quick: bool = False,
    out: str | os.PathLike[str] = "out",
    seeds: int | None = None,
    jobs: int | None = None,
    progress: bool = False,
    executor: Executor | None = None,
) -> Outputs:
    """Run an experiment, or what is missing of it, and write figure, numbers and text.

    Parameters
    ----------
    name
        The package's name: "fig1a", "fig1b", ...
    quick
        A small version, for a first look and for tests.
    out
        Results go to the folder `out/NAME` (`out/NAME-quick`).
    seeds
        How many; by default as many as the paper.
    jobs
        Processes; None takes all cores.
    executor
        Where to run instead, for instance a cluster's.
    """
    package = name.replace("-", "_")
    try:
        parts = {p: import_module(f"{__package__}.{package}.{p}") for p in _PARTS}
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(f"{__package__}.{package}"):
            raise
        known = [
            m.name.replace("_", "-") for m in iter_modules([str(Path(__file__).parent)]) if m.ispkg
        ]
        raise ValueError(f"there is no experiment {name!r}; known: {', '.join(known)}") from None
    folder = Path(out) / (f"{package}-quick" if quick else package)
    settings = parts["settings"].sweep(quick=quick, seeds=seeds)
    table = run_sweep(
        settings, parts["run"].work, folder / "runs", jobs, progress=progress, executor=executor
    )
    findings = parts["analysis"].analyse(table, quick)
    runs = tuple(_finished(folder / "runs", setting) for setting in settings)
    return _write(Experiment(package, quick, findings, runs), folder, table)


_PARTS = ("settings", "run", "analysis")


def run_sweep(
    settings: Sequence[Setting],
    work: Work,
    folder: str | os.PathLike[str],
    jobs: int | None = None,
    *,
    progress: bool = False,
    executor: Executor | None = None,
) -> pa.Table:
    """Run every setting that has no result in `folder`, and return all results as one table.

    Rows carry the setting's id and values beside the columns that `work` returned. A result
    appears whole or not at all, so a sweep that is interrupted goes on where it stopped. Two
    sweeps at a time in one folder are refused (`LockedError`).
    """
    ids = [setting.id for setting in settings]
    if len(set(ids)) < len(ids):
        raise ValueError("settings must have distinct ids")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with one_writer(place):
        _run_missing(settings, work, place, jobs, progress, executor)
    return pa.concat_tables([_read(place, setting) for setting in settings])


def _run_missing(
    settings: Sequence[Setting],
    work: Work,
    place: Path,
    jobs: int | None,
    progress: bool,
    executor: Executor | None,
) -> None:
    missing = [s for s in settings if not (place / s.file_name).exists()]
    with _ticker(len(settings), len(settings) - len(missing), progress) as tick:
        workers = min(thread_count(jobs), len(missing))
        if executor is None and workers <= 1:
            for setting in missing:
                _run_one(work, setting, str(place))
                tick()
        elif missing:
            with _pool(workers) if executor is None else _kept(executor) as pool:
                futures = [pool.submit(_run_one, work, s, str(place)) for s in missing]
                try:
                    for future in as_completed(futures):
                        future.result()
                        tick()
                except BaseException:
                    for future in futures:
                        future.cancel()
                    raise


def _run_one(work: Work, setting: Setting, folder: str) -> None:
    began = time.perf_counter()
    columns = work(setting)
    seconds = time.perf_counter() - began
    path = Path(folder) / setting.file_name
    write_result(path, setting.id, setting.values, columns, seconds)


def _read(folder: Path, setting: Setting) -> pa.Table:
    table = read_result(folder / setting.file_name).table
    for name, value in {"id": setting.id, **setting.values}.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array([value] * table.num_rows))
    return table


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Fresh processes, each with one thread for linear algebra."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def _kept(executor: Executor) -> Iterator[Executor]:
    yield executor


@contextmanager
def _ticker(total: int, done: int, shown: bool) -> Iterator[Callable[[], None]]:
    if not shown:
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("runs", total=total, completed=done)
        yield lambda: bar.advance(task)


def _write(experiment: Experiment, folder: Path, table: pa.Table) -> Outputs:
    name, findings = experiment.name, experiment.findings
    figures = tuple(folder / f"{name}.{suffix}" for suffix in ("svg", "png"))
    figure = figure_of(findings.panels, findings.title)
    FigureCanvasAgg(figure)
    for path in figures:
        with atomic_write(path) as stream:
            figure.savefig(stream, format=path.suffix.removeprefix("."), dpi=150)
    numbers, page = folder / f"{name}.parquet", folder / f"{name}.md"
    with atomic_write(numbers) as stream:
        pq.write_table(table, stream)
    with atomic_write(page) as stream:
        stream.write(_page(experiment).encode())
    write_experiment(folder, experiment)
    return Outputs(folder, figures, numbers, page, folder / MANIFEST, findings.claims)


def _finished(folder: Path, setting: Setting) -> FinishedRun:
    seconds = read_result(folder / setting.file_name).seconds
    return FinishedRun(setting.id, dict(setting.values), setting.file_name, seconds)


def _page(experiment: Experiment) -> str:
    name, findings = experiment.name, experiment.findings
    lines = [f"# {findings.title}", "", findings.description, ""]
    lines += [f"latentmdp {experiment.version}, {len(experiment.runs)} runs.", ""]
    for claim in findings.claims:
        lines += [f"- The paper: {claim.paper}", f"  Measured: {claim.measured}"]
        lines += [f"  **{claim.verdict.capitalize()}** here."]
    lines += ["", f"![{findings.title}]({name}.svg)", ""]
    lines += [f"Every number is in `{name}.parquet`; each run's own in `runs/`.", ""]
    return "\n".join(lines)
