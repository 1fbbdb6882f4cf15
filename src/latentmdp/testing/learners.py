"""Conformance of learners: what anything with `run(world, episodes, rng, checkpoint)` must do.

from latentmdp.testing import check_learner
check_learner(MyLearner())
"""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latentmdp.io import load, save
from latentmdp.model import LatentMDP
from latentmdp.online.run import Run
from latentmdp.simulation import simulate
from latentmdp.testing.conformance import ConformanceError
from latentmdp.testing.models import random_model

__all__ = ["check_learner"]

EPISODES = 40
RECORDS = ("returns", "beliefs", "contexts")


def check_learner(
    learner: Any, *, models: Mapping[str, LatentMDP] | None = None, episodes: int = EPISODES
) -> None:
    """Check a learner on small models.

    For each model: the record has one entry per episode and every return is possible; the same
    seed gives the same run bit for bit and another seed another one; a run taken up from its
    checkpoint ends like one that was never interrupted, and another run's checkpoint is
    refused; a saved run is read back as it was; the policy can be executed in the world.

    Parameters
    ----------
    models
        Models by name; three small random ones by default.

    Raises
    ------
    ConformanceError
        Listing every rule that is broken, and on which model.
    """
    chosen = models
    if chosen is None:
        chosen = {f"random {seed}": random_model(rng=seed) for seed in range(3)}
    failures: list[str] = []
    for name, model in chosen.items():
        try:
            rules = _rules(learner, model, episodes)
        except Exception as error:
            rules = {f"raised {type(error).__name__}: {error}": False}
        failures += [f"{name}: {rule}" for rule, kept in rules.items() if not kept]
    if failures:
        lines = [f"{learner!r} does not conform:", *(f"  - {line}" for line in failures)]
        raise ConformanceError("\n".join(lines))


def _rules(learner: Any, model: LatentMDP, episodes: int) -> dict[str, bool]:
    run = learner.run(model, episodes, rng=0)
    steps = float((model.discount ** np.arange(model.horizon)).sum())
    low, high = (steps * float(r) for r in (model.reward_values.min(), model.reward_values.max()))
    logs = simulate(model, run.policy, 5, rng=0)
    rules = {
        f"every record must have {episodes} entries": all(
            getattr(run, name).shape == (episodes,) for name in RECORDS
        ),
        "a return is out of the range of possible ones": bool(
            ((run.returns >= low - 1e-9) & (run.returns <= high + 1e-9)).all()
        ),
        "the error curve must end at the last episode": run.error_curve.episodes[-1] == episodes,
        "the policy cannot be executed": len(logs) == 5,
        "the same seed gave another run": _same(run, learner.run(model, episodes, rng=0)),
        "another seed gave the same run": not _same(run, learner.run(model, episodes, rng=1)),
    }
    return rules | _file_rules(learner, model, run)


def _file_rules(learner: Any, model: LatentMDP, run: Run) -> dict[str, bool]:
    episodes = run.n_episodes
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, saved = Path(folder) / "run.npz", Path(folder) / "run.parquet"
        first = learner.run(model, episodes, rng=0, checkpoint=checkpoint)
        again = learner.run(model, episodes, rng=0, checkpoint=checkpoint)
        try:
            learner.run(model, episodes, rng=1, checkpoint=checkpoint)
            refused = False
        except ValueError:
            refused = True
        save(run, saved)
        back = load(saved)
    return {
        "a run with a checkpoint ended otherwise": _same(run, first),
        "a run taken up from its checkpoint ended otherwise": _same(run, again),
        "the checkpoint of another run was not refused": refused,
        "a saved run was read back changed": _same(run, back),
    }


def _same(first: Run, second: Run) -> bool:
    values = first.optimistic_value, second.optimistic_value
    return (
        all(
            np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True)
            for name in RECORDS
        )
        and np.array_equal(first.counts.transitions, second.counts.transitions)
        and np.array_equal(first.counts.rewards, second.counts.rewards)
        and np.array_equal(first.error_curve.values, second.error_curve.values, equal_nan=True)
        and (values[0] == values[1] or all(math.isnan(value) for value in values))
    )
