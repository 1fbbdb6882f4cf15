"""What an experiment found, as plain data: claims held against numbers, and panels to draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Claim", "Findings", "Line", "Panel", "sizes_in_words"]

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
    """Curves over shared axes.

    Attributes
    ----------
    caption
        What is drawn and what to see in it.
    x, y
        What the axes show, with units.
    log
        The axes with a logarithmic scale: "", "x", "y" or "xy".
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


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """For a description: "7 contexts, 15 states, 3 actions, horizon 30"."""
    return ", ".join(
        f"{name} {number}" if name == "horizon" else f"{number} {name}"
        for name, number in sizes.items()
    )
