"""The bounds of a planner while they close, on stderr, for people at a terminal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from latentmdp.cli.screen import Screen

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["closing_bounds", "relative_gap"]

_ROWS = 10
_BAR = 30


@contextmanager
def closing_bounds(
    screen: Screen, title: str
) -> Iterator[Callable[[float, float, float], None] | None]:
    """A hook `on_progress(seconds, lower, upper)` that shows it; None if nobody looks."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not (screen.talks and console.is_terminal):
        yield None
        return
    recent: deque[tuple[float, float, float]] = deque(maxlen=_ROWS)
    with Live(_table(title, recent), console=console, transient=True) as live:

        def show(seconds: float, lower: float, upper: float) -> None:
            recent.append((seconds, lower, upper))
            live.update(_table(title, recent))

        yield show


def relative_gap(lower: float | None, upper: float | None) -> float | None:
    """(upper - lower) / |lower| where it is a number."""
    if lower is None or upper is None or lower == 0.0:
        return None
    return max(upper - lower, 0.0) / abs(lower)


def _table(title: str, recent: deque[tuple[float, float, float]]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("seconds", "lower", "upper", "gap"):
        table.add_column(name, justify="right")
    table.add_column("1e-4 … 1", justify="left")
    for seconds, lower, upper in recent:
        gap = relative_gap(lower, upper)
        shown = "" if gap is None else f"{gap:.3%}"
        table.add_row(f"{seconds:.2f}", f"{lower:.6g}", f"{upper:.6g}", shown, _bar(gap))
    return table


def _bar(gap: float | None) -> str:
    """A bar whose length is the logarithm of the gap, from 1e-4 to 1."""
    if gap is None:
        return ""
    share = (math.log10(max(gap, 1e-4)) + 4.0) / 4.0
    return "█" * round(_BAR * min(share, 1.0))
