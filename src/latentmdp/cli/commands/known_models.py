"""Policies for models that are known: `plan`, `compare`, `evaluate`."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import DEFAULT, PLANNERS, SECONDS, find_policy, limited, planner, takes
from latentmdp.cli.config import handed_on
from latentmdp.cli.screen import Screen

if TYPE_CHECKING:
    from latentmdp.report import PlannerResult


@options.command(config=True)
def plan(
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


@options.command()
def compare(
    screen: Screen,
    model: options.ModelFile,
    methods: str = ",".join(PLANNERS),
    time_limit: options.TimeLimit = SECONDS,
    episodes: options.Episodes = 100_000,
    seed: options.Seed = 0,
    plot: options.Plot = None,
) -> None:
    """Run every planner on a model and show values, risk, bounds, gap and time in one table.

    The value of each policy, its worst context and its largest regret, beside knowing the context,
    are exact where they can be computed, else simulated. Ctrl-C ends the planner at work, and once
    more the comparison.

    Example: `latentmdp compare m.npz --time-limit 10`

    Parameters
    ----------
    methods
        Which planners, separated by commas.
    """
    from latentmdp.report import try_planner

    names = options.parts_of(methods)
    planners = {name: planner(name, **limited(name, time_limit)) for name in names}
    world = options.load_model(model)
    results: list[PlannerResult] = []
    with screen.progress(total=len(planners)) as move:
        for name, solver in planners.items():
            move(0, f"planning with {name}")
            try:
                results.append(try_planner(name, solver, world, episodes, seed))
            except KeyboardInterrupt:
                break
            move()
    mean = [r for r in results if r.bounds_of in ("", "memoryless")]
    bounded = {r.name: r.plan for r in mean if r.plan is not None and r.plan.upper is not None}
    options.draw(plot, bounded)
    plans = [result.facts() for result in results]
    screen.result(model=model, seed=seed, plans=plans)
    columns = ("method", "value", "worst", "regret", "lower", "upper", "gap", "seconds")
    rows = [[plan[name] for name in columns] for plan in plans]
    screen.table(str(model), ("planner", *columns[1:]), rows)
    errors = [r.value.stderr_by_context for r in results if r.value is not None]
    largest = max((float(e.max()) for e in errors if e is not None), default=0.0)
    notes = {
        "": "value: mean per episode; worst: in the context where the policy earns least; regret: "
        "at most, beside knowing the context; lower, upper: proved bounds of the value.",
        "~": f"simulated, with standard errors of at most {largest:.1g}.",
        "*": "over memoryless policies; the other upper bounds are over all policies.",
        "+": "bounds of the worst case, not of the mean.",
    }
    texts = [getattr(value, "text", "") for row in rows for value in row]
    for mark, note in notes.items():
        if any(text.startswith(mark) or text.endswith(mark) for text in texts):
            screen.say(note, mark)
    for result in results:
        if result.problem:
            screen.say(result.problem, f"{result.name}:")


@options.command()
def evaluate(
    screen: Screen,
    model: options.ModelFile,
    policy: options.PolicyName = DEFAULT,
    episodes: options.Episodes = 100_000,
    method: str = "auto",
    logs: Path | None = None,
    columns: str | None = None,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    cluster: options.Cluster = None,
) -> None:
    """Say what a policy earns per episode in a model, exactly or by simulation.

    With `--logs`: what it would have earned where those logs were made, whoever acted; the model
    gives the horizon, and the values that a doubly robust estimate starts from.

    Example: `latentmdp evaluate m.npz --policy qmdp --episodes 100000`

    Parameters
    ----------
    method
        `auto`, `exact` or `monte-carlo`; from logs `auto`, `doubly-robust`, `per-decision`,
        `importance` or `fitted-q`.
    logs
        Estimate from these logs of another policy instead.
    columns
        What a table of logs calls its columns: `episode=id,t=week,...`.
    """
    if logs is not None and (cluster, device) != (None, "cpu"):
        raise typer.BadParameter("--cluster and --device play episodes, and --logs needs none")
    engine = options.engine_of(cluster, device)
    world = options.load_model(model)
    data = None if logs is None else options.LogSource(logs, columns).read()[0]
    with warnings.catch_warnings(), screen.progress(f"evaluating {policy}"):
        acting = find_policy(policy, world)
        if data is None:
            more: dict[str, Any] = {"rng": seed, "method": method, "engine": engine}
            value = lm.evaluate(world, acting, episodes=episodes, **more)
            facts = value.facts(world.context_names)
        else:
            warnings.simplefilter("ignore")  # they stand in the result
            estimator: Any = "doubly-robust" if method == "auto" else method
            facts = lm.off_policy_value(data, acting, None, estimator, world, seed).facts()
    screen.result(f"{policy} earns", facts, model=model, policy=policy, logs=logs, seed=seed)
