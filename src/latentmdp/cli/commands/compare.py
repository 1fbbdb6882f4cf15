"""`latentmdp compare`: all planners on one model, side by side."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentmdp._util.words import or_dash
from latentmdp.cli import options
from latentmdp.cli.catalogue import PLANNERS, planner, takes
from latentmdp.cli.screen import Screen

if TYPE_CHECKING:
    from latentmdp.report.plans import PlannerResult

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    model: options.ModelFile,
    methods: Annotated[
        str, typer.Option("--methods", help="Which planners, separated by commas.")
    ] = ",".join(PLANNERS),
    time_limit: options.TimeLimit = 10.0,
    episodes: options.Episodes = 100_000,
    seed: options.Seed = 0,
    plot: options.Plot = None,
) -> None:
    """Run every planner on a model and show values, bounds, gap, time and guarantee in one table.

    The value of each policy, its worst context and its largest regret, beside knowing the context,
    are exact where they can be computed, else simulated. Ctrl-C ends the planner at work, and once
    more the comparison.

    Example: `latentmdp compare m.npz --time-limit 10`
    """
    from latentmdp.report.plans import try_planner

    options.check_plot(plot)
    planners = {}
    for name in map(str.strip, methods.split(",")):
        limited = time_limit is not None and name in PLANNERS and takes(name, "time_limit")
        planners[name] = planner(name, **({"time_limit": time_limit} if limited else {}))
    world = options.load_model(model)
    found: list[PlannerResult] = []
    with screen.progress(total=len(planners)) as move:
        for name, chosen in planners.items():
            move(0, f"planning with {name}")
            try:
                found.append(try_planner(name, chosen, world, episodes, seed))
            except KeyboardInterrupt:
                break
            move()
    options.draw_bounds({r.name: r.plan.history for r in found if r.plan is not None}, plot)
    screen.result(model=model, seed=seed, plans=[_as_dict(r) for r in found])
    header = (
        "planner",
        "value",
        "worst",
        "regret",
        "lower",
        "upper",
        "gap",
        "seconds",
        "rho1, rho2",
    )
    screen.table(str(model), header, [_row(r) for r in found])
    screen.say("worst: in the context where the policy earns least; regret: at most, beside V*_m.")
    if any(r.bounds_of == "memoryless" for r in found):
        screen.say("* over memoryless policies; the other upper bounds are over all policies.")
    if any(r.bounds_of not in ("", "memoryless") for r in found):
        screen.say("+ bounds of the worst case, not of the mean.")
    screen.say("the policy is worth at least rho1 V* - rho2.")
    for result in found:
        if result.problem:
            screen.say(result.problem, f"{result.name}:")


def _as_dict(result: "PlannerResult") -> dict[str, Any]:
    plan = result.plan
    proved = ("lower", "upper", "gap", "seconds", "guarantee", "converged")
    return {
        "method": result.name,
        "value": getattr(result.value, "mean", None),
        **{name: getattr(result.value, name, None) for name in ("stderr", "exact")},
        **{name: getattr(plan, name, None) for name in proved},
        "worst": None if result.worst is None else result.worst[1],
        "worst_context": None if result.worst is None else result.worst[0],
        "regret": result.regret,
        "by_context": None if result.value is None else result.value.by_context.tolist(),
        "bounds_of": result.bounds_of or "all policies",
        "message": result.problem or (plan.message if plan is not None else ""),
    }


def _row(result: "PlannerResult") -> tuple[str, ...]:
    facts = _as_dict(result)
    guarantee, sure = facts["guarantee"], result.value is None or result.value.exact
    marks = {"": ("", ""), "memoryless": ("", "*")}.get(result.bounds_of, ("+", "+"))
    worst = "-" if result.worst is None else f"{result.worst[1]:.5g}"
    if result.worst is not None and not sure:
        worst += f" ± {result.worst[2]:.1g}"
    return (
        result.name,
        or_dash(facts["value"], ".5g") + ("" if sure else f" ± {facts['stderr']:.1g}"),
        worst,
        or_dash(facts["regret"], ".3g"),
        or_dash(facts["lower"], ".5g") + marks[0],
        or_dash(facts["upper"], ".5g") + marks[1],
        or_dash(facts["gap"], ".2%"),
        or_dash(facts["seconds"], ".2f"),
        "-" if guarantee is None else "{:.3g}, {:.2g}".format(*guarantee),
    )
