"""Plans in a report: planners side by side, their bounds over time, and their certificates."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latentmdp._util.random import RNGLike
from latentmdp._util.words import or_dash
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.planning import (
    HSVI,
    Memoryless,
    Plan,
    Planner,
    RobustPlan,
    Value,
    context_values,
    evaluate,
)
from latentmdp.report.page import COLOURS, Picture, Table, canvas, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PlannerResult",
    "bounds_figure",
    "bounds_picture",
    "certificate",
    "certify",
    "plot_bounds",
    "try_planner",
]

_PLAN_SECONDS = 10.0
"""What a report waits for bounds of a model that came without a plan."""


@dataclass(frozen=True)
class PlannerResult:
    """What one planner did, its policy's value in every context, and how its bounds are meant.

    Attributes
    ----------
    problem
        Why there is no plan, or no value of its policy.
    regret
        max_m V*_m - V_m: what is lost in the context where most is, beside knowing it.
    bounds_of
        What `lower` and `upper` of the plan are bounds of, where it is not the mean value over all
        policies: "memoryless" for those without memory, or the objective of a robust plan.
    """

    name: str
    plan: Plan | None
    value: Value | None
    problem: str = ""
    regret: float | None = None
    bounds_of: str = ""

    @property
    def worst(self) -> tuple[int, float, float] | None:
        """The context in which the policy earns least, what, and its standard error."""
        if self.value is None:
            return None
        m = int(np.argmin(self.value.by_context))
        errors = self.value.stderr_by_context
        return m, float(self.value.by_context[m]), 0.0 if errors is None else float(errors[m])


def try_planner(
    name: str, planner: Planner, model: LatentMDP, episodes: int, rng: RNGLike
) -> PlannerResult:
    """Plan, then evaluate the policy: exactly where that is cheap, else over many episodes."""
    plan = None
    try:
        plan = planner.plan(model)
        value = evaluate(model, plan.policy, episodes=episodes, rng=rng)
        regret = float((context_values(model) - value.by_context).max())
        bounds_of = "memoryless" if isinstance(planner, Memoryless) else ""
        bounds_of = plan.objective if isinstance(plan, RobustPlan) else bounds_of
        return PlannerResult(name, plan, value, "", regret, bounds_of)
    except (LatentMDPError, ValueError) as error:
        return PlannerResult(name, plan, None, str(error))


def certify(model: LatentMDP, time_limit: float = _PLAN_SECONDS) -> Plan:
    """Plan to a gap of 1 %, for the bounds."""
    return HSVI(gap=0.01, time_limit=time_limit).plan(model)


def certificate(plans: Mapping[str, Plan]) -> Table:
    """Bounds, gap and time of plans."""
    rows = [
        (
            name,
            or_dash(plan.lower, ".4f"),
            or_dash(plan.upper, ".4f"),
            or_dash(plan.gap, ".2%"),
            f"{plan.seconds:.2f}",
            "reached what was asked" if plan.converged else plan.message or "stopped at a limit",
        )
        for name, plan in plans.items()
    ]
    return Table(
        "Certificates of the planner",
        ("model", "lower", "upper", "gap", "seconds", "outcome"),
        rows,
        "In that model the policy earns at least the lower bound per episode, and no policy, with "
        "whatever memory, earns more than the upper.",
        words=("outcome",),
    )


def bounds_picture(plans: Mapping[str, Plan]) -> Picture:
    """How the bounds closed."""
    return Picture(
        "Bounds of the planner",
        bounds_figure({name: plan.history for name, plan in plans.items()}),
        "The optimal value per episode lies between the solid and the dashed line of one colour; "
        "the shaded gap is what is not known, and it should close.",
    )


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
    axes.set(xlabel="seconds", ylabel="value per episode")
    if axes.get_legend_handles_labels()[0]:
        legend(figure)
    return figure


def plot_bounds(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Draw `plan.history` and write it to a file; the suffix chooses the form (.svg, .png, .pdf).

    Raises
    ------
    ValueError
        If the plan has no history of bounds.
    """
    from latentmdp.experiments.findings import write_figure

    if not plan.history:
        raise ValueError("plan.history is empty: this planner keeps no record of bounds")
    name = "bounds" if plan.gap is None else f"gap {100.0 * plan.gap:.3g}%"
    write_figure(bounds_figure({name: plan.history}), path)
