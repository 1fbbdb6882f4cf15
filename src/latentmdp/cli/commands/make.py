"""`latentmdp make`: build a named instance and save it."""

from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import KINDS
from latentmdp.cli.config import handed_on
from latentmdp.cli.screen import Screen


@options.command()
def command(
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
