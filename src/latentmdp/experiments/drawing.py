"""Panels of an experiment as a matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentmdp.experiments.findings import Line, Panel

__all__ = ["draw_panel", "figure_of"]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#000000")
FEW = 15
"""A curve with at most this many points shows them."""


def figure_of(panels: Sequence[Panel], title: str) -> Figure:
    """All panels side by side; what the lines are is told once for panels that share them."""
    figure = Figure(figsize=(1.0 + 4.2 * len(panels), 4.0), layout="constrained")
    names = [{line.name for line in panel.lines} for panel in panels]
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), i + 1)
        draw_panel(axes, panel, COLOURS, "black")
        axes.set_title(panel.title)
        if not any(names[i] <= later for later in names[i + 1 :]):
            axes.legend(frameon=False, fontsize="small")
    figure.suptitle(title)
    return figure


def draw_panel(axes: Axes, panel: Panel, colours: Sequence[str], ink: str) -> None:
    """Every line of a panel, its scales and labels; the title is left to the caller."""
    for line in panel.lines:
        colour = ink if line.colour is None else colours[line.colour % len(colours)]
        (_points if line.style == "o" else _curve)(axes, line, colour)
    axes.set_xscale("log" if "x" in panel.log else "linear")
    axes.set_yscale("log" if "y" in panel.log else "linear")
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)


def _curve(axes: Axes, line: Line, colour: str) -> None:
    compared = line.colour is None
    marker = "." if len(line.x) <= FEW and not compared else ""
    width = 1.0 if compared else 1.5
    axes.plot(
        line.x,
        line.mean,
        color=colour,
        linestyle=line.style,
        linewidth=width,
        marker=marker,
        label=line.name,
    )
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)


def _points(axes: Axes, line: Line, colour: str) -> None:
    x, mean, low, high = (np.array(part) for part in (line.x, line.mean, line.low, line.high))
    spread = (mean - low, high - mean) if line.low else None
    axes.errorbar(x, mean, spread, fmt="o", color=colour, label=line.name, markersize=4)
    if line.at_least:
        late = np.array(line.at_least, dtype=bool)
        axes.plot(x[late], mean[late], "^", color=colour, markersize=8, fillstyle="none")
