"""`latentmdp demo`: acting and learning with hidden contexts, on two instances."""

from pathlib import Path

from latentmdp._util import require_writable
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


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
    for record in (record for d in demos for record in d.records):
        options.save(record.run, out / f"{record.name}.npz")
    screen.result(page=page, seed=seed, instances={d.name: d.facts for d in demos})
    title = "Value per episode (± standard error), the context hidden"
    screen.table(title, *values_table(demos))
    screen.say(str(page), "The whole story with pictures:")
