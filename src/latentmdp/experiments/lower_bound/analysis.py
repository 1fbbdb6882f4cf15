"""From outcomes to the figure, the fitted exponents and a page of text.

For each arm  ln(episodes) = c + b ln(A^M) + noise  is fitted to all runs by maximum likelihood with
normal noise; a run that was stopped at its limit contributes the probability of needing more. The
theorem says that b cannot be below 1 for any algorithm, on average over where the right sequence
hides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentmdp.experiments.lower_bound.run import Outcome, run
from latentmdp.experiments.lower_bound.settings import ARMS, FULL, QUICK
from latentmdp.report.figures import write_figure

__all__ = ["Exponent", "figure", "fit", "medians", "reproduce", "text"]

LABELS = {"exploration": "Algorithm 5", "blind": "blind search", "lucrl": "L-UCRL, random start"}
COLOURS = {"exploration": "#0072b2", "blind": "#8c8c8c", "lucrl": "#e69f00"}


@dataclass(frozen=True)
class Exponent:
    """Slope of ln(episodes) over ln(A^M), and its standard error."""

    value: float
    stderr: float


def medians(outcomes: Sequence[Outcome], arm: str) -> list[tuple[int, float, float, float, bool]]:
    """(A^M, median, smallest, largest, censored) for every size, by A^M.

    A median is censored if half of its runs or more are.
    """
    sizes: dict[tuple[int, int, int], list[Outcome]] = {}
    for outcome in outcomes:
        s = outcome.setting
        if s.arm == arm:
            sizes.setdefault((s.sequences, s.contexts, s.actions), []).append(outcome)
    rows = []
    for (sequences, _, _), group in sorted(sizes.items()):
        episodes = [o.episodes for o in group]
        half = 2 * sum(o.censored for o in group) >= len(group)
        rows.append(
            (
                sequences,
                float(np.median(episodes)),
                float(min(episodes)),
                float(max(episodes)),
                half,
            )
        )
    return rows


def fit(outcomes: Sequence[Outcome], arm: str) -> Exponent:
    """Censored regression over all runs of an arm; NaN if they have a single size."""
    from scipy.optimize import minimize
    from scipy.stats import norm

    runs = [o for o in outcomes if o.setting.arm == arm]
    x = np.log([o.setting.sequences for o in runs])
    y = np.log([o.episodes for o in runs])
    late = np.array([o.censored for o in runs])
    if np.unique(x).size < 2:
        return Exponent(float("nan"), float("nan"))

    def loss(parameters: NDArray[np.float64]) -> float:
        c, b, log_spread = parameters
        z = (y - c - b * x) / np.exp(log_spread)
        return float(np.where(late, -norm.logsf(z), 0.5 * z**2 + log_spread).sum())

    found = minimize(loss, np.array([y.mean() - x.mean(), 1.0, 0.0]), method="BFGS")
    return Exponent(float(found.x[1]), float(np.sqrt(np.asarray(found.hess_inv)[1, 1])))


def figure(outcomes: Sequence[Outcome]) -> Figure:
    """Episodes against A^M, both on log axes; bars span all seeds."""
    canvas = Figure(figsize=(6.0, 4.2), layout="constrained")
    axes = canvas.subplots()
    for arm in ARMS:
        rows = medians(outcomes, arm)
        if not rows:
            continue
        x, y, low, high, censored = (np.array(column) for column in zip(*rows))
        slope = fit(outcomes, arm)
        label = f"{LABELS[arm]}: exponent {slope.value:.2f} ± {slope.stderr:.2f}"
        colour = COLOURS[arm]
        axes.errorbar(x, y, (y - low, high - y), fmt="o", color=colour, label=label, markersize=4)
        axes.plot(x[censored], y[censored], "^", color=colour, markersize=8, fillstyle="none")
    ends = np.array(sorted({o.setting.sequences for o in outcomes}))[[0, -1]]
    axes.plot(ends, ends, color="black", linewidth=0.8, label="A^M, the lower bound")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("action sequences A^M")
    axes.set_ylabel("episodes needed (median, all seeds)")
    axes.set_title("One sequence in A^M pays: what it costs to find it")
    axes.legend(frameon=False, fontsize=8)
    return canvas


def text(outcomes: Sequence[Outcome]) -> str:
    """What was run, what the paper claims, and whether the claim held."""
    seeds = len({o.setting.seed for o in outcomes})
    sizes = sorted({o.setting.sequences for o in outcomes})
    lines = [
        f"Lower bound: A^M from {sizes[0]} to {sizes[-1]}, {seeds} seeds a size.",
        "Theorem 3.1: no algorithm needs fewer than about A^M episodes, an exponent of at least 1.",
    ]
    for arm in ARMS:
        found, rows = fit(outcomes, arm), medians(outcomes, arm)
        late = sum(o.censored for o in outcomes if o.setting.arm == arm)
        total = sum(o.setting.arm == arm for o in outcomes)
        least = min(row[1] / row[0] for row in rows)
        lines.append(
            f"{LABELS[arm]}: exponent {found.value:.2f} ± {found.stderr:.2f}; medians of at least "
            f"{least:.1f} A^M episodes; {late} of {total} runs did not get there in time."
        )
    lines.append(
        "Blind search stops at the first reward, as if it knew that there is no other to "
        "find. Algorithm 5 goes on until, but for a probability of 0.01, nothing better can exist."
    )
    return "\n".join(lines)


def reproduce(
    out: str | os.PathLike[str] = "out/lower-bound",
    quick: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Run the experiment and write lower_bound.svg, .parquet and .txt; gives the text."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = run(QUICK if quick else FULL, progress)
    write_figure(figure(outcomes), folder / "lower_bound.svg")
    _write_table(outcomes, folder / "lower_bound.parquet")
    said = text(outcomes)
    (folder / "lower_bound.txt").write_text(said + "\n")
    return said


def _write_table(outcomes: Sequence[Outcome], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "id": [o.setting.id for o in outcomes],
        "contexts": [o.setting.contexts for o in outcomes],
        "actions": [o.setting.actions for o in outcomes],
        "sequences": [o.setting.sequences for o in outcomes],
        "arm": [o.setting.arm for o in outcomes],
        "seed": [o.setting.seed for o in outcomes],
        "episodes": [o.episodes for o in outcomes],
        "censored": [o.censored for o in outcomes],
    }
    pq.write_table(pa.table(columns), path)
