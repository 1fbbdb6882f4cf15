"""`latentmdp demo`: acting and learning with hidden contexts, on two instances."""

from pathlib import Path
from typing import TYPE_CHECKING

from latentmdp._util import plural, require_writable
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

if TYPE_CHECKING:
    from latentmdp.report import Demonstration


@options.command()
def command(
    screen: Screen,
    out: Path = Path("out"),
    quick: options.Quick = False,
    seed: options.Seed = 0,
) -> None:
    """Tell the whole story: hide the context, act, learn from nothing, certify.

    On two instances: what random, memoryless and planned policies earn, what a learner finds that
    starts from nothing, how the belief in the true context grows, and what the planner certifies.
    Ends with a table and a page with pictures; `latentmdp report` reads the runs it leaves.

    Example: `latentmdp demo --out out`

    Parameters
    ----------
    out
        Folder for page and runs.
    """
    from latentmdp.report import INSTANCES, QUICK, demonstrate, values_table, write_demo

    out.mkdir(parents=True, exist_ok=True)
    page = out / "demo.html"
    require_writable(page)
    instances = QUICK if quick else INSTANCES
    with screen.progress(total=1 + sum(sizes.steps for sizes in instances.values())) as move:
        demos = [
            demonstrate(name, sizes, seed, lambda doing: move(1, doing), screen.say)
            for name, sizes in instances.items()
        ]
        move(1, "drawing")
        write_demo(page, demos)
    for d in demos:
        for k, run in enumerate(d.runs):
            options.save(run, out / f"{d.name}-{k}.npz")
    screen.result(page=page, seed=seed, instances={d.name: d.facts() for d in demos})
    for d in demos:
        screen.say(repr(d.model), d.name)
    title = "Value per episode (± standard error), the context hidden"
    screen.table(title, *values_table(demos))
    for d in demos:
        screen.say(_in_words(d), d.name)
    screen.say(str(page), "The whole story with pictures:")


def _in_words(d: "Demonstration") -> str:
    numbers = ", ".join(str(run.model.n_contexts) for run in d.runs)
    number = f"found by the learner: {numbers}" if d.declared == "auto" else "the learner was told"
    belief = d.growth["filter with the true model"].mean(axis=0)
    gap = "" if d.plan.gap is None else f", proved within {d.plan.gap:.2%} of optimal"
    return (
        f"{plural(d.model.n_contexts, 'hidden context')} ({number}); "
        f"belief in the true one grows from {belief[0]:.2f} to {belief[-1]:.2f} in an episode; "
        f"the plan for the true model earns {d.means['best']:.3f}{gap}."
    )
