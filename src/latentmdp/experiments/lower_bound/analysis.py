"""Episodes against A^M, the fitted exponents, and whether the lower bound held.

For each arm  ln(episodes) = c + b ln(A^M) + noise  is fitted to all runs by maximum likelihood with
normal noise; a run that was stopped at its limit contributes the probability of needing more. The
theorem says that b cannot be below 1 for any algorithm, on average over where the right sequence
hides.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from latentmdp.experiments.findings import Claim, Findings, Line, Panel
from latentmdp.experiments.lower_bound.settings import ARMS

__all__ = ["Exponent", "Runs", "analyse", "fit", "medians"]

Row = tuple[int, float, float, float, bool]


@dataclass(frozen=True)
class Exponent:
    """Slope of ln(episodes) over ln(A^M), and its standard error."""

    value: float
    stderr: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.stderr:.2f}"


@dataclass(frozen=True, eq=False)
class Runs:
    """All runs of an arm: M, A^M, episodes, and whether the limit came first."""

    contexts: NDArray[np.int64]
    sequences: NDArray[np.int64]
    episodes: NDArray[np.float64]
    censored: NDArray[np.bool_]


def analyse(table: pa.Table, quick: bool) -> Findings:
    """Fit, draw and judge."""
    arms = {arm: _runs(table, arm) for arm in ARMS}
    slopes = {arm: fit(runs) for arm, runs in arms.items()}
    sizes = arms["exploration"].sequences
    seeds = len(set(table["seed"].to_pylist()))
    return Findings(
        title="Theorem 3.1: what it costs to find one sequence in A^M",
        description=(
            f"The hard instance, A^M from {sizes.min()} to {sizes.max()}, {seeds} seeds a size. "
            "Algorithm 5 has failure probability 0.01. Blind search stops at its first reward, as "
            "if it knew that there is no other to find. L-UCRL infers contexts from a start that "
            "knows nothing, and has got there when 20 M episodes earn half the optimum; it is "
            "stopped after 200 M A^M episodes (triangles)."
            + (" A small version of the experiment." if quick else "")
        ),
        panels=(_panel(arms, slopes),),
        claims=tuple(_claim(arm, arms[arm], slopes[arm]) for arm in ARMS),
    )


def _runs(table: pa.Table, arm: str) -> Runs:
    chosen = np.array(table["arm"].to_pylist()) == arm
    columns = ("contexts", "sequences", "episodes", "censored")
    found: list[Any] = [np.array(table[name].to_pylist())[chosen] for name in columns]
    return Runs(found[0], found[1], found[2].astype(np.float64), found[3])


def medians(runs: Runs) -> list[Row]:
    """(A^M, median, smallest, largest, censored) for every size, by A^M.

    A median is censored if half of its runs or more are.
    """
    rows = []
    for n, M in sorted(set(zip(runs.sequences.tolist(), runs.contexts.tolist()))):
        same = (runs.sequences == n) & (runs.contexts == M)
        episodes = runs.episodes[same]
        half = bool(runs.censored[same].mean() >= 0.5)
        rows.append(
            (n, float(np.median(episodes)), float(episodes.min()), float(episodes.max()), half)
        )
    return rows


def fit(runs: Runs) -> Exponent:
    """Censored regression over all runs; NaN if they have a single size."""
    from scipy.optimize import minimize
    from scipy.stats import norm

    x, y, late = np.log(runs.sequences), np.log(runs.episodes), runs.censored
    if np.unique(x).size < 2:
        return Exponent(float("nan"), float("nan"))

    def loss(parameters: NDArray[np.float64]) -> float:
        c, b, log_spread = parameters
        z = (y - c - b * x) / np.exp(log_spread)
        return float(np.where(late, -norm.logsf(z), 0.5 * z**2 + log_spread).sum())

    found = minimize(loss, np.array([y.mean() - x.mean(), 1.0, 0.0]), method="BFGS")
    return Exponent(float(found.x[1]), float(np.sqrt(np.asarray(found.hess_inv)[1, 1])))


def _claim(arm: str, runs: Runs, slope: Exponent) -> Claim:
    least = min(row[1] / row[0] for row in medians(runs))
    late = int(runs.censored.sum())
    return Claim(
        "any algorithm needs about A^M episodes at least: an exponent of 1 or more.",
        f"{ARMS[arm]} has exponent {slope} and medians of at least {least:.1f} A^M; {late} of "
        f"{runs.censored.size} runs did not get there in time.",
        least >= 1.0 and slope.value >= 1.0 - 2.0 * slope.stderr,
    )


def _panel(arms: dict[str, Runs], slopes: dict[str, Exponent]) -> Panel:
    sizes = arms["exploration"].sequences
    ends = (float(sizes.min()), float(sizes.max()))
    lines = []
    for i, (arm, runs) in enumerate(arms.items()):
        x, median, low, high, late = zip(*medians(runs))
        name = f"{ARMS[arm]}: exponent {slopes[arm]}"
        lines.append(Line(name, x, median, low, high, i, "o", late))
    return Panel(
        "One sequence in A^M pays",
        "Episodes until the sequence that pays is found: medians, with bars from the luckiest to "
        "the unluckiest seed. On average no way of searching can stay below the line or grow more "
        "slowly, though a few lucky seeds may; both axes are logarithmic, so an exponent is a "
        "slope. A triangle is a median of runs that were stopped first: the true one lies above.",
        "action sequences A^M",
        "episodes needed",
        (*lines, Line("A^M, the lower bound", ends, ends)),
        log="xy",
    )
