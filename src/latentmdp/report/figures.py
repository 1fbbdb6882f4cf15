"""Bounds against time, and figures as files of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from latentmdp._util.storage import atomic_write
from latentmdp.report.drawing import COLOURS, canvas, legend

__all__ = ["bounds_figure", "write_figure"]


def bounds_figure(histories: Mapping[str, Sequence[tuple[float, float, float]]]) -> Figure:
    """Lower and upper bounds against seconds, from the history of each plan."""
    figure, (axes,) = canvas()
    for i, (name, history) in enumerate(histories.items()):
        if history:
            seconds, lower, upper = zip(*history)
            colour = COLOURS[i % len(COLOURS)]
            axes.step(seconds, lower, where="post", marker=".", color=colour, label=name)
            axes.step(seconds, upper, where="post", marker=".", color=colour, linestyle="--")
            axes.fill_between(
                seconds, lower, upper, color=colour, alpha=0.15, step="post", linewidth=0
            )
    axes.set_xlabel("seconds")
    axes.set_ylabel("value per episode")
    if axes.get_legend_handles_labels()[0]:
        legend(figure)
    return figure


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file; the suffix (.svg, .png, .pdf) chooses the form."""
    FigureCanvasAgg(figure)
    with atomic_write(path) as stream:
        figure.savefig(stream, format=Path(path).suffix.removeprefix("."), dpi=150)
