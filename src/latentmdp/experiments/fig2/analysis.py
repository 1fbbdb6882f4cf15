"""What Figure 2 shows: means over instances with their spread, and the paper's statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from latentmdp.experiments.fig2.run import METHODS
from latentmdp.experiments.runner import Claim, Findings

__all__ = ["Point", "analyse", "summarise"]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#000000")
STYLES = ("-", "-", "-", "-", "-", "--", "--", ":")
"""Dashed where curves may lie on one another, so that both can be seen."""
PAPER_METHOD = "PSR-clustering (paper)"
FAILS_BELOW = 0.2
SUCCEEDS_FROM = 0.5
NEAR_FLOOR = 1.25


class Point(NamedTuple):
    """One quantity at one (delta, horizon), over instances; failed runs are not in the mean."""

    quantity: str
    delta: float
    horizon: int
    mean: float
    low: float
    high: float
    instances: int
    failures: int


Points = dict[tuple[str, float, int], Point]


def analyse(table: pa.Table, quick: bool) -> Findings:
    """Average over instances, draw, and judge."""
    points = summarise(table)
    instances = max(p.instances for p in points.values())
    sizes = {name: table[name][0].as_py() for name in ("contexts", "states", "actions")}
    description = (
        f"{instances} instances for each separation and horizon, {sizes}; PSRs from "
        f"{table['short_episodes'][0].as_py():,} short episodes, clustering of "
        f"{table['long_episodes'][0].as_py():,} long ones. Lines are means, bands run from the "
        "10th to the 90th percentile; runs that reported failure are left out of both."
        + (" A small version of the experiment: its claims are not the paper's." if quick else "")
    )
    return Findings(
        title="Figure 2: initialisation with a PSR and clustering",
        description=description,
        figure=_draw(points),
        claims=_claims(points),
    )


def summarise(table: pa.Table) -> Points:
    """Mean, 10th and 90th percentile of every quantity, and how often the method failed."""
    groups: dict[tuple[str, float, int], list[float]] = {}
    names = ("quantity", "delta", "horizon", "value")
    for *key, value in zip(*(table[name].to_pylist() for name in names)):
        groups.setdefault((key[0], key[1], key[2]), []).append(value)
    return {key: _point(key, np.array(values)) for key, values in sorted(groups.items())}


def _point(key: tuple[str, float, int], values: np.ndarray[Any, Any]) -> Point:
    kept = values[np.isfinite(values)]
    mean, low, high = float("nan"), float("nan"), float("nan")
    if kept.size:
        mean, low, high = float(kept.mean()), *map(float, np.percentile(kept, (10, 90)))
    return Point(*key, mean, low, high, values.size, values.size - kept.size)


def _claims(points: Points) -> tuple[Claim, ...]:
    deltas = sorted({delta for _, delta, _ in points})
    horizons = sorted({horizon for _, _, horizon in points})
    beliefs = [[points["belief", d, h].mean for d in deltas] for h in horizons]
    sigmas = [points["singular value", d, horizons[0]].mean for d in deltas]
    falling = bool((np.diff(beliefs, axis=0) < 0).all() and (np.diff(beliefs, axis=1) < 0).all())
    return (
        Claim(
            "the belief is closer to the true context for larger delta and H.",
            f"1 - belief is {beliefs[0][0]:.3f} at delta={deltas[0]:g}, H={horizons[0]} and "
            f"{beliefs[-1][-1]:.1g} at delta={deltas[-1]:g}, H={horizons[-1]}.",
            falling,
        ),
        Claim(
            "the M-th singular value drops as contexts become similar.",
            " < ".join(f"{value:.2g}" for value in sigmas) + " over delta.",
            bool((np.diff(sigmas) > 0).all()),
        ),
        _failures(points),
        _floor(points),
    )


def _failures(points: Points) -> Claim:
    """Algorithm 6 works with enough separation and fails without."""
    runs = [p for p in points.values() if p.quantity == PAPER_METHOD]
    low, high = (
        [p.failures / p.instances for p in runs if keep(p.delta)]
        for keep in (FAILS_BELOW.__gt__, SUCCEEDS_FROM.__le__)
    )
    return Claim(
        f"PSR-clustering fails when delta < {FAILS_BELOW:g}, due to the small singular value.",
        f"it reported failure in {np.mean(low) if low else np.nan:.0%} of the runs with delta < "
        f"{FAILS_BELOW:g} and in {np.mean(high):.0%} with delta >= {SUCCEEDS_FROM:g}.",
        bool((not low or np.mean(low) > 0.5) and np.mean(high) < 0.5),
    )


def _floor(points: Points) -> Claim:
    """Beyond the paper: how close the library's initialiser comes to what is possible."""
    pairs = [
        (points["initialize", d, h].mean, points["EM from the truth", d, h].mean)
        for name, d, h in points
        if name == "initialize"
    ]
    worst = max(ours / floor for ours, floor in pairs)
    return Claim(
        "(not in the paper) maximum likelihood from the same data needs no good initialisation.",
        f"the mean error of `initialize` is at most {worst:.2f} times that of EM started at the "
        "truth.",
        worst < NEAR_FLOOR,
    )


def _draw(points: Points) -> Figure:
    """Four panels over delta: belief, singular value, error of PSR-clustering, all methods."""
    horizons = sorted({horizon for _, _, horizon in points})
    drawing = Figure(figsize=(15.0, 3.8), layout="constrained")
    belief, value, error, everyone = drawing.subplots(1, 4)
    for horizon, colour in zip(horizons, COLOURS):
        _curve(belief, points, "belief", horizon, f"H = {horizon}", colour)
        _curve(error, points, PAPER_METHOD, horizon, f"H = {horizon}", colour)
    _curve(value, points, "singular value", horizons[0], "exact", COLOURS[0])
    middle = horizons[len(horizons) // 2]
    for name, colour, style in zip(METHODS, COLOURS, STYLES):
        _curve(everyone, points, name, middle, name, colour, style)
    belief.set_title("1 - belief in the true context")
    value.set_title("M-th singular value")
    error.set_title("model error, Algorithm 6 (gaps: FAIL)")
    everyone.set_title(f"model error, H = {middle}")
    for axes in (value, everyone):
        axes.set_yscale("log")
    for axes in (belief, value, error, everyone):
        axes.set_xlabel("delta")
        axes.set_xlim(0.0, 1.05 * max(delta for _, delta, _ in points))
        axes.legend(frameon=False, fontsize="x-small")
    return drawing


def _curve(
    axes: Any,
    points: Points,
    quantity: str,
    horizon: int,
    label: str,
    colour: str,
    style: str = "-",
) -> None:
    """A mean with its band; where every instance failed there is a gap."""
    chosen: Sequence[Point] = [
        p for (name, _, h), p in points.items() if (name, h) == (quantity, horizon)
    ]
    if chosen:
        deltas = [p.delta for p in chosen]
        axes.plot(deltas, [p.mean for p in chosen], label=label, color=colour, ls=style, marker=".")
        low, high = [p.low for p in chosen], [p.high for p in chosen]
        axes.fill_between(deltas, low, high, color=colour, alpha=0.15, linewidth=0.0)
