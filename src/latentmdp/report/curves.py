"""Return and model error against episodes, mean and spread over runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp.report.drawing import COLOURS, MUTED, canvas, legend

__all__ = ["error_figure", "returns_figure", "trailing", "window_of"]


_POINTS = 400
_WIDE = 100.0
_DASHES = ("--", ":", "-.", (0, (1, 3)))


def window_of(episodes: int) -> int:
    """Episodes that a point of the return curve averages: a tenth of all, 1,000 at most."""
    return max(1, min(1_000, episodes // 10))


def trailing(returns: Floats, window: int) -> Floats:
    """Mean of the last `window` returns (of all there are, at first), after each episode."""
    sums = np.concatenate([[0.0], np.cumsum(returns)])
    last = np.arange(1, returns.size + 1)
    first = np.maximum(0, last - window)
    return np.asarray((sums[last] - sums[first]) / (last - first))


def returns_figure(
    groups: Mapping[str, Sequence[Floats]], references: Mapping[str, float] | None = None
) -> Figure:
    """Trailing mean return of groups of runs, beside horizontal lines to compare with."""
    figure, (axes,) = canvas()
    for i, (name, runs) in enumerate(groups.items()):
        episodes = min(run.size for run in runs)
        window = window_of(episodes)
        curves = np.stack([trailing(run[:episodes], window) for run in runs])
        # The first few means are of hardly any episodes: noise that would set the scale.
        shown = np.unique(np.linspace(window // 2, episodes - 1, _POINTS).astype(int))
        _band(axes, shown + 1, curves[:, shown], COLOURS[i % len(COLOURS)], name)
    for (name, value), dash in zip((references or {}).items(), _DASHES):
        axes.axhline(value, color=MUTED, linestyle=dash, linewidth=1.4, label=name)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel("episodes played")
    axes.set_ylabel("mean return per episode")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    legend(figure)
    return figure


def error_figure(groups: Mapping[str, Sequence[tuple[NDArray[np.int64], Floats]]]) -> Figure:
    """Model error at milestones; a group whose errors are all unknown is left out."""
    figure, (axes,) = canvas()
    for i, (name, curves) in enumerate(groups.items()):
        points = min((episodes for episodes, _ in curves), key=len)
        errors = np.stack([values[: len(points)] for _, values in curves])
        known = np.isfinite(errors).any(axis=0) & (points > 0)
        if known.any():
            colour = COLOURS[i % len(COLOURS)]
            _band(axes, points[known], errors[:, known], colour, name, marker=".")
    low, high = axes.dataLim.intervalx
    if low > 0.0 and high > _WIDE * low:
        axes.set_xscale("log")
    axes.set_xlabel("episodes played")
    axes.set_ylabel("model error (sum of L1 distances)")
    axes.set_ylim(bottom=0.0)
    legend(figure)
    return figure


def _band(
    axes: Axes, x: NDArray[np.int64], curves: Floats, colour: str, name: str, marker: str = ""
) -> None:
    """Mean over the rows, and one standard deviation around it where there are several."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of NaN has no mean
        mean, spread = np.nanmean(curves, axis=0), np.nanstd(curves, axis=0)
    label = f"{name} (mean of {len(curves)})" if len(curves) > 1 else name
    axes.plot(x, mean, color=colour, label=label, marker=marker)
    if len(curves) > 1:
        axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.22, linewidth=0)
