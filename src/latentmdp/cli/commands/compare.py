"""`latentmdp compare`: all planners on one model, side by side."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    """Run every planner on a model and show value, bounds, gap, time and guarantee in one table.

    The value of each policy is exact where it can be computed, else simulated. Ctrl-C ends the
    planner at work, and once more the comparison.

    Example: `latentmdp compare m.npz --time-limit 10`
    """
    from latentmdp.report.plans import try_planner

    options.check_plot(plot)
    names = [name.strip() for name in methods.split(",")]
    limit = {} if time_limit is None else {"time_limit": time_limit}
    planners = {n: planner(n, **(limit if _limited(n) else {})) for n in names}
    world = options.load_model(model)
    found: list[PlannerResult] = []
    with screen.progress() as progress:
        task = progress.add_task("", total=len(planners))
        for name, chosen in planners.items():
            progress.update(task, description=f"planning with {name}")
            try:
                found.append(try_planner(name, chosen, world, episodes, seed))
            except KeyboardInterrupt:
                break
            progress.advance(task)
    options.draw_bounds({r.name: r.plan.history for r in found if r.plan is not None}, plot)
    screen.result(model=str(model), seed=seed, plans=[_as_dict(r) for r in found])
    _show(screen, str(model), found)


def _limited(method: str) -> bool:
    return method in PLANNERS and takes(method, "time_limit")


def _as_dict(result: "PlannerResult") -> dict[str, Any]:
    plan, value = result.plan, result.value
    return {
        "method": result.name,
        "value": None if value is None else value.mean,
        "stderr": None if value is None else value.stderr,
        "exact": None if value is None else value.exact,
        "lower": None if plan is None else plan.lower,
        "upper": None if plan is None else plan.upper,
        "gap": None if plan is None else plan.gap,
        "seconds": None if plan is None else plan.seconds,
        "guarantee": None if plan is None else plan.guarantee,
        "converged": None if plan is None else plan.converged,
        "message": result.problem or (plan.message if plan is not None else ""),
    }


def _show(screen: Screen, title: str, found: list["PlannerResult"]) -> None:
    header = ("planner", "value", "lower", "upper", "gap", "seconds", "rho1, rho2")
    screen.table(title, header, [_row(r) for r in found])
    if any(PLANNERS[r.name][0] == "Memoryless" for r in found):
        screen.say(
            "the upper bounds of branch-and-bound, mip and cadp are over memoryless policies; "
            "the others are over all policies.",
        )
    screen.say("the policy is worth at least rho1 V* - rho2.")
    for result in found:
        if result.problem:
            screen.say(result.problem, f"{result.name}:")


def _row(result: "PlannerResult") -> tuple[str, ...]:
    facts = _as_dict(result)
    value, guarantee = result.value, facts["guarantee"]
    forms = {"lower": ".5g", "upper": ".5g", "gap": ".2%", "seconds": ".2f"}
    return (
        result.name,
        "-"
        if value is None
        else f"{value.mean:.5g}" + ("" if value.exact else f" ± {value.stderr:.1g}"),
        *("-" if facts[k] is None else format(facts[k], form) for k, form in forms.items()),
        "-" if guarantee is None else "{:.3g}, {:.2g}".format(*guarantee),
    )
