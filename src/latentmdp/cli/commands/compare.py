"""`latentmdp compare`: all planners on one model, side by side."""

from typing import TYPE_CHECKING

from latentmdp.cli import options
from latentmdp.cli.catalogue import PLANNERS, SECONDS, limited, planner
from latentmdp.cli.screen import Screen

if TYPE_CHECKING:
    from latentmdp.report import PlannerResult


@options.command()
def command(
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

    planners = {}
    for name in options.parts_of(methods):
        planners[name] = planner(name, **limited(name, time_limit))
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
