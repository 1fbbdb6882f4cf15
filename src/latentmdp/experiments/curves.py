"""What Figures 1a and 1b share: the curves of a run, their averages, and the two panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentmdp.learning import Run
from latentmdp.model import LatentMDP
from latentmdp.planning import QMDP, evaluate

__all__ = ["Curves", "curves_of_run", "final", "group_curves", "two_panels"]

Floats = NDArray[np.float64]

TRAILING = 1_000


def curves_of_run(
    run: Run, model: LatentMDP, episodes: int, seed: int
) -> dict[str, NDArray[np.generic]]:
    """Model error, trailing mean return and Q-MDP-on-truth's value at the run's milestones.

    That value is a Monte Carlo estimate over a number of `episodes`.
    """
    points = run.error_curve.episodes
    sums = np.concatenate([[0.0], np.cumsum(run.returns)])
    begin = np.maximum(0, points - TRAILING)
    reference = evaluate(model, QMDP().plan(model).policy, episodes=episodes, rng=seed)
    return {
        "episode": points,
        "error": run.error_curve.values,
        "trailing_return": (sums[points] - sums[begin]) / (points - begin),
        "qmdp_value": np.full(points.size, reference.mean),
    }


class Curves:
    """One arm: rows are seeds, columns are milestones."""

    def __init__(self, table: pa.Table) -> None:
        seeds = pc.unique(table["seed"]).to_pylist()
        parts = [table.filter(pc.equal(table["seed"], seed)) for seed in seeds]
        self.episodes: NDArray[np.int64] = parts[0]["episode"].to_numpy()
        self.error, self.returns, self.reference = (
            np.stack([part[name].to_numpy() for part in parts])
            for name in ("error", "trailing_return", "qmdp_value")
        )

    @property
    def share(self) -> Floats:
        """Trailing return as a share of Q-MDP's value on the true model."""
        return np.asarray(self.returns / self.reference)


def group_curves(table: pa.Table, columns: Sequence[str]) -> dict[tuple[object, ...], Curves]:
    """The curves of every combination of values in some columns, in order of appearance."""
    keys = list(dict.fromkeys(zip(*(table[name].to_pylist() for name in columns))))
    found = {}
    for key in keys:
        rows = table
        for name, value in zip(columns, key):
            rows = rows.filter(pc.equal(rows[name], value))
        found[key] = Curves(rows)
    return found


def final(values: Floats) -> tuple[float, float]:
    """Mean over seeds of the last column, and its standard error."""
    last = values[:, -1]
    error = last.std(ddof=1) / np.sqrt(last.size) if last.size > 1 else float("nan")
    return float(last.mean()), float(error)


def two_panels(arms: Mapping[str, Curves], title: str) -> Figure:
    """Model error (left) and return (right) against episodes, mean and spread over seeds."""
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, curves in arms.items():
        _draw(left, curves.episodes, curves.error, name)
        _draw(right, curves.episodes, curves.share, name)
    right.axhline(1.0, color="black", linewidth=1.0, linestyle="--", label="Q-MDP on the truth")
    left.set_yscale("log")
    for axes, label in ((left, "model error"), (right, "return / Q-MDP on the truth")):
        axes.set_xscale("log")
        axes.set_xlabel("episodes")
        axes.set_ylabel(label)
    right.legend(frameon=False, fontsize="small")
    figure.suptitle(title)
    return figure


def _draw(axes: Axes, episodes: NDArray[np.int64], values: Floats, name: str) -> None:
    mean, spread = values.mean(axis=0), values.std(axis=0)
    (line,) = axes.plot(episodes, mean, label=name)
    low = np.maximum(mean - spread, 0.05 * mean)
    axes.fill_between(episodes, low, mean + spread, alpha=0.2, color=line.get_color(), linewidth=0)
