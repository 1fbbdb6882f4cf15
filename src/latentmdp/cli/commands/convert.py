"""`latentmdp convert`: the same model, logs or policy in another format."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    file: options.File,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where to; by its suffix.")],
    discounted: Annotated[
        bool,
        typer.Option("--discounted", help="For .pomdp and .pomdpx: without end, without time."),
    ] = False,
) -> None:
    """Write what a file holds in another format: .npz, .json, .parquet, .pomdp or .pomdpx.

    Models as .pomdp and .pomdpx are for other solvers; the time is part of their state.

    Example: `latentmdp convert m.npz m.pomdpx`
    """
    options.check_target(out)
    found = lm.load(file)
    if discounted:
        lm.io.export(found, out, discounted=True)
    else:
        lm.save(found, out)
    screen.result(file=file, target=out, kind=type(found).__name__)
    screen.say(f"{type(found).__name__} from {file} to {out}")
