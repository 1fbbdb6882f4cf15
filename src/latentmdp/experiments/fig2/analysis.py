"""What Figure 2 shows: means over instances with their spread, and the paper's statements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from latentmdp.experiments.fig2.run import METHODS
from latentmdp.experiments.findings import Claim, Findings, Line, Panel, sizes_in_words

__all__ = ["Point", "analyse", "summarise"]

STYLES = ("-", "-", "-", "-", "-", "--", "--", ":")
"""Dashed where curves may lie on one another, so that both can be seen."""
PAPER_METHOD = "PSR-clustering (paper)"
FAILS_BELOW = 0.2
SUCCEEDS_FROM = 0.5
NEAR_FLOOR = 1.25
DELTA = "separation delta (L1 distance)"
ERROR = "model error (sum of L1 distances)"
SPREAD = " Lines are means over instances, bands run from the 10th to the 90th percentile."


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
        f"{instances} instances for each separation and horizon, {sizes_in_words(sizes)}; PSRs "
        f"from {table['short_episodes'][0].as_py():,} short episodes, clustering of "
        f"{table['long_episodes'][0].as_py():,} long ones. Lines are means, bands run from the "
        "10th to the 90th percentile; runs that reported failure are left out of both."
        + (" A small version of the experiment: its claims are not the paper's." if quick else "")
    )
    return Findings(
        title="Figure 2: initialisation with a PSR and clustering",
        description=description,
        panels=_panels(points),
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
    paper = f"PSR-clustering fails when delta < {FAILS_BELOW:g}, due to the small singular value."
    above = f"{np.mean(high):.0%} of the runs with delta >= {SUCCEEDS_FROM:g}"
    if not low:
        return Claim(paper, f"no smaller delta was run; it reported failure in {above}.", None)
    return Claim(
        paper,
        f"it reported failure in {np.mean(low):.0%} of the runs with delta < {FAILS_BELOW:g} and "
        f"in {above}.",
        bool(np.mean(low) > 0.5 and np.mean(high) < 0.5),
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


def _panels(points: Points) -> tuple[Panel, ...]:
    """Over delta: belief, singular value, error of PSR-clustering, error of all methods."""
    horizons = sorted({horizon for _, _, horizon in points})
    middle = horizons[len(horizons) // 2]
    named = [(h, f"H = {h}", i) for i, h in enumerate(horizons)]
    return (
        Panel(
            "Belief at the end",
            "One minus the belief in the true context at the end of a long episode, under the true "
            "model: 0 means that an episode gives its context away. It should fall to the right "
            "and from one horizon to the next." + SPREAD,
            DELTA,
            "1 - belief in the true context",
            tuple(_line(points, "belief", h, name, i) for h, name, i in named),
        ),
        Panel(
            "Singular value",
            "The M-th singular value of the matrix of tests and histories, from exact moments: "
            "what must be told from noise for a PSR of rank M to be learned. It drops as contexts "
            "become similar." + SPREAD,
            DELTA,
            "M-th singular value",
            (_line(points, "singular value", horizons[0], "exact", 0),),
            log="y",
        ),
        Panel(
            "PSR-clustering",
            "Error of the model that Algorithm 6 recovers. A gap is a separation at which it "
            "reported failure on every instance." + SPREAD,
            DELTA,
            ERROR,
            tuple(_line(points, PAPER_METHOD, h, name, i) for h, name, i in named),
        ),
        Panel(
            f"All initialisers, H = {middle}",
            "Error of every initialiser on the same data; the last two know the truth, so no "
            "method can be expected to lie below them. The nearer to those floors, the better."
            + SPREAD,
            DELTA,
            ERROR,
            tuple(
                _line(points, name, middle, name, i, style)
                for i, (name, style) in enumerate(zip(METHODS, STYLES))
            ),
            log="y",
        ),
    )


def _line(
    points: Points, quantity: str, horizon: int, name: str, colour: int, style: str = "-"
) -> Line:
    """A mean with its band; where every instance failed there is a gap."""
    chosen = [p for (found, _, h), p in points.items() if (found, h) == (quantity, horizon)]
    delta, mean, low, high = (
        tuple(getattr(p, part) for p in chosen) for part in ("delta", "mean", "low", "high")
    )
    return Line(name, delta, mean, low, high, colour, style)
