"""Runs in a report: read from files, grouped, listed in a table, and drawn against episodes.

The return at the end of a run is its mean over the last tenth of the episodes, and each point of a
curve is a mean over as many: those before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentmdp import io, plot
from latentmdp._util import listed
from latentmdp.errors import FormatError
from latentmdp.experiments import Experiment, read_experiment
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.online import Run
from latentmdp.report.page import Section, Table, drawn, facts_table

_NOT_SHARED = ("seed", "key", "world")
"""Settings in which the runs of one group may differ."""

_METHODS = {"Refit": "learn", "PSRStart": "learn, spectral start"}
"""Learners whose command or function has another name."""


@dataclass(frozen=True, eq=False)
class Record:
    """A run and its name, that of its file."""

    name: str
    run: Run

    @property
    def method(self) -> str:
        """The learner, and which contexts it assumes."""
        settings = self.run.settings
        learner = settings.get("learner", "")
        method = _METHODS.get(learner, learner)
        return f"{method}, contexts {settings['contexts']}" if "contexts" in settings else method

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings but for the seed and the world."""
        return {name: v for name, v in self.run.settings.items() if name not in _NOT_SHARED}


Groups = Mapping[str, Sequence[Record]]


def read(path: str | os.PathLike[str]) -> Record | Solved | Experiment | LatentMDP:
    """A run, what `solve` found, or a model; a folder is that of an experiment."""
    source = Path(path)
    if source.is_dir():
        return read_experiment(source)
    content = io.load(source)
    if isinstance(content, Run):
        return Record(source.stem, content)
    if isinstance(content, LatentMDP | Solved):
        return content
    raise FormatError(
        f"{source} holds {type(content).__name__}: a report needs runs, outcomes of `learn` or "
        "`solve`, folders of experiments, or models"
    )


def group_records(records: list[Record]) -> dict[str, list[Record]]:
    """Runs that differ in seed or world only, by a name for each group."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        shared = json.dumps(record.shared_settings, sort_keys=True)
        groups.setdefault(record.method + shared, []).append(record)
    methods = [members[0].method for members in groups.values()]
    return {
        method if methods.count(method) == 1 else f"{method} ({members[0].name})": members
        for method, members in zip(methods, groups.values())
    }


def filled(model: LatentMDP) -> LatentMDP:
    """The model with rows that were never visited made uniform, so that it can be played."""
    if not model.allow_unvisited:
        return model
    tables = {
        "transitions": model.transitions,
        "rewards": model.reward_probs,
        "initial": model.initial,
    }
    uniform = {
        name: np.where(rows.any(axis=-1, keepdims=True), rows, 1.0 / rows.shape[-1])
        for name, rows in tables.items()
    }
    return model.replace(**uniform, bonus=None, initial_bonus=None, allow_unvisited=False)


def runs_section(groups: Groups, grouped_by: str = "method") -> Section:
    """One row per run, with what its group is called."""
    rows: list[tuple[Any, ...]] = []
    for name, records in groups.items():
        for r in records:
            run, seed = r.run, r.run.settings.get("seed")
            earned = (run.trailing_return(), run.value, float(run.returns.mean()))
            rows.append((r.name, name, run.n_episodes, seed, *earned, run.seconds))
    columns = ("value of the policy", "mean return", "seconds")
    table = Table(
        "Runs",
        ("run", grouped_by, "episodes", "seed", "return at the end", *columns),
        rows,
        "Returns are per episode; at the end: over the last tenth of the episodes. The value of "
        "the policy is from episodes of its own that nothing was learned from, with a 95 % "
        "interval; a dash: the learner does not try its last policy. The seed fixes every random "
        "choice of a run.",
        words=(grouped_by,),
    )
    return Section("Runs and seeds", "\n\n".join(_warnings(groups)), [table])


def _warnings(groups: Groups) -> Iterator[str]:
    """What the runs themselves advise against, each once with the runs it is about."""
    runs: dict[str, list[str]] = {}
    for record in (r for records in groups.values() for r in records):
        for message in record.run.warnings:
            runs.setdefault(message, []).append(record.name)
    for message, where in runs.items():
        yield f"Warning ({listed(where)}): {message}."


def settings_tables(groups: Groups) -> list[Table]:
    """What the runs of each group have in common."""
    return [facts_table(f"Settings: {n}", rs[0].shared_settings) for n, rs in groups.items()]


def curves_section(groups: Groups, references: Mapping[str, float] | None = None) -> Section:
    """Return and, where the truth was known, model error over episodes."""
    references = references or {}
    spread = (
        " The band is one standard deviation over runs."
        if any(len(records) > 1 for records in groups.values())
        else " A single run has no band: give several runs to see the spread."
    )
    earned = [name for name in references if "bound" not in name]  # which nobody need reach
    goal = f" near the line of: {max(earned, key=references.__getitem__)}" if earned else ""
    runs = {name: [record.run for record in records] for name, records in groups.items()}
    pictures = [
        drawn(
            "Return over episodes",
            "Each point is the mean return of the episodes before it, a tenth of the run; the last "
            "point is the return at the end. It should climb and flatten"
            f"{goal}.{spread}",
            lambda axes: plot.returns(runs, axes, references=references),
        )
    ]
    every = [run for members in runs.values() for run in members]
    if any(np.isfinite(run.error_curve.values).any() for run in every):
        pictures.append(
            drawn(
                "Model error over episodes",
                "Sum over contexts, states and actions of the L1 distance between the estimated "
                "and the true distribution of what follows, up to relabelling. It should fall; "
                "episodes at which the number of contexts was wrong have no error and are left "
                "out." + spread,
                lambda axes: plot.model_errors(runs, axes),
            )
        )
    return Section("How learning went", "", pictures=pictures)
