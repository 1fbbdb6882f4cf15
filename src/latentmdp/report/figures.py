"""Figures, drawn with matplotlib and written as SVG or PNG."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from latentmdp.io.atomic import atomic_write
from latentmdp.report.demo import Comparison

__all__ = ["bounds_figure", "comparison_figure", "write_figure"]

COLOURS = ("#8c8c8c", "#0072b2", "#e69f00")


def comparison_figure(found: Sequence[Comparison]) -> Figure:
    """Left: value per episode by policy. Right: belief in the true context along an episode."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    values, beliefs = figure.subplots(1, 2)
    for i, (label, colour) in enumerate(zip(("random", "Q-MDP", "full information"), COLOURS)):
        heights = [_share(c)[i] for c in found]
        places = [k + 0.26 * (i - 1) for k in range(len(found))]
        values.bar(places, heights, width=0.24, label=label, color=colour)
    values.set_xticks(range(len(found)), [c.name for c in found])
    values.set_ylim(0.0, 1.2)
    values.set_ylabel("share of the value with full information")
    values.set_title("What a policy earns per episode")
    values.legend(frameon=False, loc="upper center", ncols=3)
    for comparison, colour in zip(found, COLOURS[1:]):
        beliefs.plot(comparison.belief, label=comparison.name, color=colour)
    beliefs.set_ylim(0.0, 1.0)
    beliefs.set_xlabel("step within the episode")
    beliefs.set_ylabel("mean belief in the true context")
    beliefs.set_title("How fast the hidden context shows")
    beliefs.legend(frameon=False, loc="lower right")
    return figure


def bounds_figure(histories: Mapping[str, Sequence[tuple[float, float, float]]]) -> Figure:
    """Lower and upper bounds against seconds, from the history of each plan."""
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for i, (name, history) in enumerate(histories.items()):
        if history:
            seconds, lower, upper = zip(*history)
            colour = f"C{i}"
            axes.step(seconds, lower, where="post", marker=".", color=colour, label=name)
            axes.step(seconds, upper, where="post", marker=".", color=colour, linestyle="--")
            axes.fill_between(seconds, lower, upper, color=colour, alpha=0.15, step="post")
    axes.set_xlabel("seconds")
    axes.set_ylabel("value: lower (solid) and upper bound (dashed)")
    axes.set_title("How the bounds close")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    return figure


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file; the suffix (.svg, .png, .pdf) chooses the form."""
    FigureCanvasAgg(figure)
    with atomic_write(path) as stream:
        figure.savefig(stream, format=Path(path).suffix.removeprefix("."), dpi=150)


def _share(comparison: Comparison) -> tuple[float, float, float]:
    bound = comparison.informed
    return comparison.random.mean / bound, comparison.qmdp.mean / bound, 1.0
