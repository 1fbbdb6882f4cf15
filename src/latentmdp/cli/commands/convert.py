"""`latentmdp convert`: the same model, logs or policy in another format."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command()
def command(
    screen: Screen,
    source: options.AnyFile,
    out: Annotated[Path, options.written(info=typer.Argument, metavar="OUT")],
    discounted: bool = False,
) -> None:
    """Write what a file holds in another format: .npz, .json, .csv, .parquet, .pomdp or .pomdpx.

    Models as .pomdp and .pomdpx are for other solvers; unless they have no end, the time is part of
    their state. Options that the command does not know say how to read a table or a POMDP of
    others: `--horizon 50 --discount 0.9`, `--horizon none`, `--observed false`. Models of PRISM and
    Storm (.prism, .jani, .drn, .umb, or a folder with one file for each context) are read by
    stormpy: `latentmdp convert m.prism m.npz --hidden N=2..80 --goal '"done"' --horizon 50`.

    Example: `latentmdp convert m.npz m.pomdpx`

    Parameters
    ----------
    out
        Where to; by its suffix.
    discounted
        For .pomdp and .pomdpx: without end, without time.
    """
    content = source.load()
    if discounted:
        lm.io.export(content, out, discounted=True)
    else:
        lm.save(content, out)
    kind = type(content).__name__
    screen.result(file=source.file, target=out, kind=kind)
    screen.say(f"{kind} from {source.file} to {out}")
