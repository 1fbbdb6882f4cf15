"""What there is, and a demonstration of it: `demo`, `list`, `make`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import latentmdp as lm
from latentmdp._util.storage import require_writable
from latentmdp.cli import options
from latentmdp.cli.catalogue import KINDS
from latentmdp.cli.config import handed_on
from latentmdp.cli.screen import Screen


@options.command()
def demo(
    screen: Screen, out: Path = Path("out"), quick: options.Quick = False, seed: options.Seed = 0
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


@options.command()
def list_(
    screen: Screen,
    what: Annotated[
        Literal["instances", "planners", "learners", "experiments"] | None, typer.Argument()
    ] = None,
) -> None:
    """List the instances, planners, learners and experiments there are.

    Example: `latentmdp list planners`

    Parameters
    ----------
    what
        Which of them; all by default.
    """
    catalogue = {kind: entries() for kind, entries in KINDS.items() if what in (None, kind)}
    screen.result(**catalogue)
    for kind, entries in catalogue.items():
        header = (kind.removesuffix("s"), "what it is")
        screen.table(kind, header, entries.items(), words=header[1:])


@options.command()
def make(
    screen: Screen,
    context: typer.Context,
    name: Annotated[str | None, options.completed(KINDS["instances"], typer.Argument)] = None,
    out: options.ModelOut = None,
    seed: options.Seed = 0,
    show: Annotated[bool, typer.Option("--list")] = False,
) -> None:
    """Build a named instance and save it.

    Every argument of the instance is an option: `--contexts 3 --delta 0.5`.

    Example: `latentmdp make separated --contexts 3 --delta 0.5 --seed 0 --out m.npz`

    Parameters
    ----------
    name
        The instance; see --list.
    show
        List the instances and their arguments.
    """
    if show:
        names = ("name", "summary", "arguments")
        entries = lm.instances.list_instances()
        screen.result(instances=[{word: getattr(e, word) for word in names} for e in entries])
        header = ("instance", "what it is")
        screen.table("instances", header, KINDS["instances"]().items(), words=header)
        return
    if name is None or name.startswith("-"):
        raise typer.BadParameter("give the name of an instance first; --list shows them")
    arguments = handed_on(context)
    model = lm.make(name, rng=seed, **arguments)
    options.save(model, out)
    screen.result(instance=name, arguments=arguments, seed=seed, out=out)
    screen.say(repr(model))
