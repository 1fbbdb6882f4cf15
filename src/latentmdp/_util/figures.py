"""The drawing that all pictures share: colours, a figure, a legend, a band, and files of them.

Matplotlib is imported when something is drawn, so that a command that only prints never loads it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED = "#1b1f24", "#87909a"
COLOURS = ("#0072b2", "#c25e00", "#00855f", "#a33d87", "#8a6d00", "#3b52c4", "#b3243b")
STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 11.0,
    "axes.titlesize": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "axes.titlecolor"), INK),
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), INK),
}
_OWN = "latentmdp"
"""The label of figures made here: their legend stands below, where it covers nothing."""


def canvas(height: float = 3.4) -> tuple[Figure, Axes]:
    """An empty figure of the width that stays readable on a phone, and its axes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, height), layout="constrained", label=_OWN)
        return figure, figure.subplots()


def own_axes(ax: Axes | None, height: float = 3.4) -> Axes:
    """The axes that a user gave, or those of a new figure."""
    import matplotlib as mpl
    from matplotlib import pyplot

    if ax is not None:
        return ax
    if not pyplot.isinteractive():
        return canvas(height)[1]
    with mpl.rc_context(STYLE):
        figure = pyplot.figure(figsize=(5.2, height), layout="constrained")
        figure.set_label(_OWN)
        return figure.subplots()


def legend(axes: Axes, columns: int = 2, handles: Sequence[Any] | None = None) -> None:
    """What the lines and areas are: below a picture of its own, on axes that a user gave."""
    shown = axes.get_legend_handles_labels()[0] if handles is None else handles
    style: Any = {"frameon": False, "fontsize": 9.5, "handles": shown}
    figure = axes.get_figure(root=True)
    if not shown or figure is None:
        return
    if figure.get_label() == _OWN and len(figure.axes) == 1:
        figure.legend(loc="outside lower center", ncols=columns, **style)
    else:
        # Looking for the best place takes matplotlib seconds where much is drawn, and it warns.
        axes.legend(loc="upper right", **style)


def band(
    axes: Axes,
    x: Integers,
    curves: Floats,
    colour: str,
    name: str = "",
    marker: str = "",
    spread: tuple[Floats, Floats] | None = None,
) -> None:
    """The mean over the rows of `curves`, in a band: by default one standard deviation around."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of NaN has no mean
        mean, deviation = np.nanmean(curves, axis=0), np.nanstd(curves, axis=0)
    several = f"mean of {len(curves)}" if len(curves) > 1 else ""
    label = f"{name} ({several})" if name and several else name or several or None
    axes.plot(x, mean, color=colour, label=label, marker=marker or ("." if len(x) == 1 else ""))
    low, high = (mean - deviation, mean + deviation) if spread is None else spread
    if len(curves) > 1 or spread is not None:
        axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)


def write_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure, or that of axes, to a file; the suffix (.svg, .png, .pdf) is the form."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn: Figure = getattr(figure, "figure", figure)
    FigureCanvasAgg(drawn)
    with atomic_write(path) as stream:
        drawn.savefig(stream, format=Path(path).suffix.removeprefix("."), dpi=150)
