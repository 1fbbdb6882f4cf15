"""`latentmdp make`: build a named instance and save it."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.config import handed_on
from latentmdp.cli.screen import Screen


def _names(incomplete: str) -> list[str]:
    return options.completed(*(entry.name for entry in lm.instances.list_instances()))(incomplete)


@options.command()
def command(
    screen: Screen,
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="The instance; see --list.", autocompletion=_names)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where to: .npz or .json.")] = None,
    seed: options.Seed = 0,
    show: Annotated[
        bool, typer.Option("--list", help="List the instances and their arguments.")
    ] = False,
) -> None:
    """Build a named instance and save it.

    Every argument of the instance is an option: `--contexts 3 --delta 0.5`.

    Example: `latentmdp make separated --contexts 3 --delta 0.5 --seed 0 --out m.npz`
    """
    if show:
        entries = lm.instances.list_instances()
        screen.result(
            instances=[
                {"name": e.name, "summary": e.summary, "arguments": e.arguments} for e in entries
            ]
        )
        for entry in entries:
            defaults = (f"--{k.replace('_', '-')} {v}" for k, v in entry.arguments.items())
            screen.say(f"{entry.summary}\n    {'  '.join(defaults)}", entry.name)
        return
    if name is None or name.startswith("-"):
        raise typer.BadParameter("give the name of an instance first; --list shows them")
    arguments = handed_on(context)
    options.check_target(out, lm.LatentMDP)
    model = lm.make(name, rng=seed, **arguments)
    options.save(model, out)
    screen.result(instance=name, arguments=arguments, seed=seed, out=out)
    screen.say(f"{model!r}" + ("" if out is None else f" saved to {out}"))
