"""The findings of an experiment: claims held against numbers, and the panels of its figure.

Also what analyses share: rows of a table by group, sizes in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from latentmdp._util.figures import COLOURS, INK, MUTED
from latentmdp._util.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured here, and whether the one supports the other.

    `held` is None where the runs cannot tell.
    """

    paper: str
    measured: str
    held: bool | None

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "held", False: "did not hold", None: "not tested"}[self.held]


@dataclass(frozen=True)
class Line:
    """One curve of a panel.

    Attributes
    ----------
    x, mean
        Its points; NaN makes a gap.
    low, high
        The spread around them over instances; empty for a line without any.
    colour
        Which of a palette's; None for a line to compare with, in the colour of the text.
    style
        "-", "--", ":" or "-."; or "o", points with error bars instead of a line with a band.
    at_least
        Which points are only lower bounds; empty for none.
    """

    name: str
    x: Numbers
    mean: Numbers
    low: Numbers = ()
    high: Numbers = ()
    colour: int | None = None
    style: str = "-"
    at_least: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Curves over shared axes, which show `x` and `y`, and a caption that says what to see in them.

    The axes named in `log` ("", "x", "y" or "xy") have a logarithmic scale.
    """

    title: str
    caption: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log: str = ""


@dataclass(frozen=True)
class Findings:
    """What an analysis gives: a title, what was run, the panels of the figure, and claims."""

    title: str
    description: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]


def sizes_of(table: pa.Table, names: Sequence[str]) -> str:
    """Settings that all runs share, in words: "7 contexts, 15 states, horizon 30"."""
    sizes = {name: table[name][0].as_py() for name in names}
    return ", ".join(
        f"{name} {number}" if name == "horizon" else plural(number, name.removesuffix("s"))
        for name, number in sizes.items()
    )


def grouped(table: pa.Table, names: Sequence[str]) -> dict[tuple[Any, ...], pa.Table]:
    """The rows of a table by their values in some columns, in the order of appearance."""
    keys = list(zip(*(table[name].to_pylist() for name in names)))
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return {key: table.take(indices) for key, indices in rows.items()}


def figure_of(panels: Sequence[Panel], title: str) -> Figure:
    """All panels side by side; what the lines are is told once for panels that share them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.0 + 4.2 * len(panels), 4.0), layout="constrained")
    names = [{line.name for line in panel.lines} for panel in panels]
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), i + 1)
        draw_panel(axes, panel, (*COLOURS, MUTED, INK), INK)
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
    axes.set(xlabel=panel.x, ylabel=panel.y)


def _curve(axes: Axes, line: Line, colour: str) -> None:
    style: Any = {"color": colour, "linestyle": line.style, "label": line.name}
    if line.colour is None:
        style["linewidth"] = 1.0
    else:
        style |= {"linewidth": 1.5, "marker": "." if len(line.x) <= 15 else ""}  # if to be seen
    axes.plot(line.x, line.mean, **style)
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)


def _points(axes: Axes, line: Line, colour: str) -> None:
    x, mean, low, high = (np.array(part) for part in (line.x, line.mean, line.low, line.high))
    spread = (mean - low, high - mean) if line.low else None
    axes.errorbar(x, mean, spread, fmt="o", color=colour, label=line.name, markersize=4)
    if line.at_least:
        late = np.array(line.at_least, dtype=bool)
        axes.plot(x[late], mean[late], "^", color=colour, markersize=8, fillstyle="none")
