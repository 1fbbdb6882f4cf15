"""A planner's bounds against time, as a file."""

from __future__ import annotations

import os

from latentmdp.planning import Plan

__all__ = ["plot_bounds"]


def plot_bounds(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Draw `plan.history` and write it to a file; the suffix chooses the form (.svg, .png, .pdf).

    Raises
    ------
    ValueError
        If the plan has no history of bounds.
    """
    from latentmdp.report.figures import bounds_figure, write_figure

    if not plan.history:
        raise ValueError("plan.history is empty: this planner keeps no record of bounds")
    name = "bounds" if plan.gap is None else f"gap {100.0 * plan.gap:.3g}%"
    write_figure(bounds_figure({name: plan.history}), path)
