"""What a report is made of: runs of any learner in one form, and whatever else it can read."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp import io
from latentmdp._util.arrays import Floats
from latentmdp.errors import FormatError
from latentmdp.experiments.manifest import Experiment, read_experiment
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.online import Learned, Run
from latentmdp.planning import Plan
from latentmdp.policies import Policy

__all__ = ["Record", "filled", "group_records", "read", "record_of", "shared_settings"]


_NOT_SHARED = ("seed", "key", "world")


@dataclass(frozen=True, eq=False)
class Record:
    """A run.

    Attributes
    ----------
    name, method
        Of the file, and of the learner.
    error
        (episodes, model errors); NaN where unknown.
    plan
        The final plan with its bounds, where the learner made one.
    settings, seed
        What was run, and the number all its randomness came from.
    seconds
        Of the whole run; None where it was not recorded.
    """

    name: str
    method: str
    returns: Floats
    error: tuple[NDArray[np.int64], Floats]
    model: LatentMDP
    policy: Policy
    plan: Plan | None
    settings: dict[str, Any]
    seed: int
    seconds: float | None


def read(path: str | os.PathLike[str]) -> Record | Solved | Experiment | LatentMDP:
    """A run, an outcome of `learn` or `solve` or a model in a file, or an experiment's folder."""
    source = Path(path)
    if source.is_dir():
        return read_experiment(source)
    found = io.load(source)
    if isinstance(found, Run | Learned):
        return record_of(source.stem, found)
    if isinstance(found, LatentMDP | Solved):
        return found
    raise FormatError(
        f"{source} holds {type(found).__name__}: a report needs runs, outcomes of `learn` or "
        "`solve`, folders of experiments, or models"
    )


def record_of(name: str, run: Run | Learned) -> Record:
    """The record of a run of `LUCRL` or of `learn`."""
    if isinstance(run, Run):
        contexts = run.settings.get("contexts", "")
        return Record(
            name=name,
            method=f"{run.settings.get('learner', 'learner')}, contexts {contexts}",
            returns=run.returns,
            error=(run.error_curve.episodes, run.error_curve.values),
            model=run.model,
            policy=run.policy,
            plan=None,
            settings=run.settings,
            seed=run.settings.get("key", 0),
            seconds=run.seconds,
        )
    played = np.array([phase.first_episode for phase in run.phases])
    return Record(
        name=name,
        method="learn",
        returns=run.returns,
        error=(played, np.array([phase.model_error for phase in run.phases])),
        model=run.model,
        policy=run.policy,
        plan=run.plan,
        settings=run.settings,
        seed=run.settings.get("seed", 0),
        seconds=run.seconds,
    )


def shared_settings(record: Record) -> dict[str, Any]:
    """The settings but for the seed and the world."""
    return {name: v for name, v in record.settings.items() if name not in _NOT_SHARED}


def group_records(records: list[Record]) -> dict[str, list[Record]]:
    """Runs that differ in seed or world only, by a name for each group."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        shared = json.dumps(shared_settings(record), sort_keys=True)
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
    return model.replace(
        transitions=_uniform_if_empty(model.transitions),
        rewards=_uniform_if_empty(model.reward_probs),
        initial=_uniform_if_empty(model.initial),
        bonus=None,
        initial_bonus=None,
        allow_unvisited=False,
    )


def _uniform_if_empty(rows: Floats) -> Floats:
    seen = rows.sum(axis=-1, keepdims=True) > 0.0
    return np.where(seen, rows, 1.0 / rows.shape[-1])
