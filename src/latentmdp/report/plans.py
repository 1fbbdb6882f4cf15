"""Plans in a report: planners side by side, their bounds over time, and their certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from latentmdp import plot
from latentmdp._util.random import RNGLike
from latentmdp._util.results import Worded
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.planning import (
    Memoryless,
    Plan,
    Planner,
    RobustPlan,
    Value,
    context_values,
    evaluate,
)
from latentmdp.policies import AlphaVectorPolicy, HistoryPolicy, Policy
from latentmdp.report.page import Picture, Table, context_labels, drawn, facts_table


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

    def facts(self) -> dict[str, Any]:
        """Values, risk and bounds, marked where they are simulated or bounds of something else."""
        plan, value = self.plan, self.value
        about = "" if value is None or value.exact else "~"
        beside = {"": ("", ""), "memoryless": ("", "*")}.get(self.bounds_of, ("+", "+"))
        by = None if value is None else value.by_context
        proved = ("lower", "upper", "gap", "seconds", "guarantee", "converged")
        facts: dict[str, Any] = {
            "method": self.name,
            "value": _marked(None if value is None else value.mean, before=about),
            "worst": _marked(None if by is None else float(by.min()), before=about),
            "regret": self.regret,
            **{name: getattr(plan, name, None) for name in proved},
            "worst_context": None if by is None else int(by.argmin()),
            "by_context": by,
            "bounds_of": self.bounds_of or "all policies",
            "message": self.problem or getattr(plan, "message", ""),
        }
        facts |= {name: getattr(value, name, None) for name in ("stderr", "exact")}
        for name, mark in zip(("lower", "upper"), beside):
            facts[name] = _marked(facts[name], after=mark)
        gap = facts["gap"]
        return facts | {"gap": Worded(gap, "" if gap is None else f"{gap:.2%}")}


def _marked(value: float | None, before: str = "", after: str = "") -> Worded:
    """A number with a mark that a note below the table explains."""
    return Worded(value, "" if value is None else f"{before}{value:.4g}{after}")


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


def certificate(plan: Plan) -> Table:
    """What is proved of a plan."""
    return facts_table(
        "What is proved of the plan",
        plan.facts(),
        "Per episode, in this model: the policy earns at least lower, and no policy, whatever it "
        "remembers, earns more than upper.",
    )


def risk_table(
    model: LatentMDP,
    policies: Mapping[str, Policy | HistoryPolicy],
    bounds: tuple[float, float] | None = None,
) -> Table:
    """What policies earn in each context, beside the most that can be earned if it were known.

    `bounds` are those of a `Robust` plan for the worst case.
    """
    informed = context_values(model)
    earned = {name: evaluate(model, p, rng=0).by_context for name, p in policies.items()}
    rows = [
        (
            context,
            f"{model.weights[m]:.0%}",
            f"{informed[m]:.4g}",
            *(f"{by[m]:.4g}" + (" (worst)" if m == by.argmin() else "") for by in earned.values()),
        )
        for m, context in enumerate(context_labels(model))
    ]
    mean = (f"{model.weights @ by:.4g}" for by in earned.values())
    rows.append(("on average", "100%", f"{model.weights @ informed:.4g}", *mean))
    most = (f"{(informed - by).max():.4g}" for by in earned.values())
    rows.append(("largest regret", "", "", *most))
    caption = (
        "Per episode. Nobody is told the context, so the column of those who know it cannot be "
        "reached; regret is what is lost beside it in the context where most is."
    )
    if bounds is not None:
        caption += (
            f" The best worst case that any policy can promise lies between {bounds[0]:.4g} and "
            f"{bounds[1]:.4g}."
        )
    header = ("context", "weight", "if it were known", *policies)
    return Table("Risk: what is earned in each context", header, rows, caption)


def compact_table(plan: Plan, loss: float = 0.01) -> Table | None:
    """How few vectors say nearly the same, up to this loss; None where a plan has none to spare."""
    policy = plan.policy
    if plan.lower is None or not isinstance(policy, AlphaVectorPolicy):
        return None
    small = plan.compact(loss=loss)
    compact = small.policy
    if not isinstance(compact, AlphaVectorPolicy) or compact.actions.size >= policy.actions.size:
        return None
    return facts_table(
        "The plan in short",
        small.facts(),
        "Fewer vectors are easier to read and to check; what they lose is proved. "
        f"plan.compact(loss={loss:g}) makes them, plan.compact(vectors=...) others.",
    )


def bounds_picture(plan: Plan) -> Picture:
    """How the bounds closed."""
    return drawn(
        "Bounds of the planner",
        "The optimal value per episode lies between the solid and the dashed line; "
        "the shaded gap is what is not known, and it should close.",
        lambda axes: plot.bounds(plan, axes),
    )
