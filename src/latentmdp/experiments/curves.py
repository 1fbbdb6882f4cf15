"""What Figures 1a and 1b share: the curves of a run, their averages, and the two panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp.experiments.findings import Line, Panel
from latentmdp.model import LatentMDP
from latentmdp.online import Run
from latentmdp.planning import QMDP, evaluate

__all__ = ["Curves", "curve_panels", "curves_of_run", "final", "group_curves"]


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


def curve_panels(
    arms: Mapping[str, Curves], looks: Sequence[tuple[int, str]]
) -> tuple[Panel, Panel]:
    """Model error and return against episodes, mean and spread over seeds.

    `looks` gives the colour and the style of each arm.
    """
    drawn = [(name, curves, look) for (name, curves), look in zip(arms.items(), looks)]
    first = next(iter(arms.values()))
    whole = (float(first.episodes[0]), float(first.episodes[-1]))
    spread = f" Lines are means over {len(first.error)} instances, bands one standard deviation."
    error = Panel(
        "Model error",
        "Sum over contexts, states and actions of the L1 distance between the estimated and the "
        "true distribution of what follows, up to relabelling. A line that falls steadily is a "
        "model being learned; one that levels off is stuck." + spread,
        "episodes played",
        "model error (sum of L1 distances)",
        tuple(_line(name, c.episodes, c.error, *look) for name, c, look in drawn),
        log="xy",
    )
    share = Panel(
        "Return",
        f"Mean return of the last {TRAILING:,} episodes, as a share of what Q-MDP earns on the "
        "true model. At the dashed line the learner acts as well as if it had been given the "
        "model; the first points are means of few episodes, and noisy." + spread,
        "episodes played",
        "return / Q-MDP on the truth",
        (
            *(_line(name, c.episodes, c.share, *look) for name, c, look in drawn),
            Line("Q-MDP on the truth", whole, (1.0, 1.0), style="--"),
        ),
        log="x",
    )
    return error, share


def _line(name: str, episodes: NDArray[np.int64], values: Floats, colour: int, style: str) -> Line:
    mean, spread = values.mean(axis=0), values.std(axis=0)
    # A logarithmic axis has no room for a band that reaches zero.
    low = np.maximum(mean - spread, 0.05 * mean)
    x, y, below, above = (tuple(map(float, part)) for part in (episodes, mean, low, mean + spread))
    return Line(name, x, y, below, above, colour, style)
