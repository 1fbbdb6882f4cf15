"""`latentmdp plan`: find a policy for a model, with the bounds the planner can prove."""

from dataclasses import replace
from typing import Annotated, Literal

import typer

from latentmdp.cli import options
from latentmdp.cli.catalogue import DEFAULT, PLANNERS, limited, planner, takes
from latentmdp.cli.config import handed_on
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
    screen: Screen,
    context: typer.Context,
    source: options.ModelSource,
    method: Annotated[
        str, options.completed(lambda: PLANNERS, help=f"Which planner: {', '.join(PLANNERS)}.")
    ] = DEFAULT,
    gap: Annotated[float | None, typer.Option(min=0.0)] = None,
    objective: Annotated[
        Literal["worst-case", "cvar", "regret", "ball"] | None, typer.Option(metavar="WHAT")
    ] = None,
    level: float | None = None,
    time_limit: options.TimeLimit = None,
    out: options.PolicyOut = None,
    plot: options.Plot = None,
) -> None:
    """Find a policy for a model and report the bounds the planner proves.

    The planner is HSVI, for 10 seconds at most, unless `--method` or `--time-limit` say otherwise.
    At a terminal the bounds are shown while they close; Ctrl-C keeps what was reached. Options
    that the command does not know are handed on to the planner.

    With `--objective` the method is `robust`, and the bounds are those of the objective.

    A model of PRISM: `latentmdp plan m.prism --hidden N=2..80 --goal '"done"' --horizon 50`.

    Example: `latentmdp plan m.npz --gap 0.01 --time-limit 60 --out policy.npz`

    Parameters
    ----------
    gap
        Stop at this (upper - lower) / lower.
    objective
        Plan for the bad case: `worst-case`, `cvar`, `regret` or `ball`.
    level
        Share of bad contexts (cvar), or how far weights are off.
    """
    if objective is not None:
        if method not in (DEFAULT, "robust"):
            raise typer.BadParameter(f"--objective is for --method robust, not {method}")
        method = "robust"
    settings = {"gap": gap, "time_limit": time_limit, "objective": objective, "level": level}
    more = {name: value for name, value in settings.items() if value is not None}
    solver = planner(method, **{**limited(method), **more, **handed_on(context)})
    model = source.model
    world, doing = source.load(), f"planning with {method}"
    watched = takes(method, "on_progress")
    with screen.closing_bounds(doing) if watched else screen.progress(doing) as show:
        plan = (replace(solver, on_progress=show) if watched else solver).plan(world)
    options.save(plan.policy, out)
    options.draw(plot, plan)
    screen.result(f"plan for {model}", plan, model=model, out=out, method=method)
    for bound in ("lower", "upper"):
        if getattr(plan, bound) is None:
            screen.say("not computed (see: latentmdp evaluate)", f"{bound} bound:")
