"""Figures as SVG inside a page: its font, its colours, light or dark as the reader has it.

matplotlib draws with the colours below; in the SVG each becomes a CSS variable, which the page
sets for light, dark and print.
"""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["COLOURS", "INK", "MUTED", "canvas", "inline_svg", "legend"]

INK, MUTED = "#1b1f24", "#87909a"
COLOURS = ("#0072b2", "#c25e00", "#00855f", "#a33d87", "#8a6d00", "#3b52c4", "#b3243b")

_VARIABLES = {
    INK: "--ink",
    "#000000": "--ink",
    MUTED: "--muted",
    **{colour: f"--series-{i}" for i, colour in enumerate(COLOURS)},
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 11.0,
    "axes.titlesize": 11.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
_WIDTH = 5.2


def canvas(height: float = 3.4, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure of the width that stays readable on a phone, and its axes."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def legend(figure: Figure, columns: int = 2) -> None:
    """What the lines and areas of a figure are, below it, where it covers nothing."""
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9.5)


def inline_svg(figure: Figure, key: str) -> str:
    """The `<svg>` element of a figure; `key` keeps its ids apart from those of other figures."""
    stream = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": key}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable}, {colour})")
    return text
