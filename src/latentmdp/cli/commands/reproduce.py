"""`latentmdp reproduce`: run an experiment of the paper."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from latentmdp.cli import options
from latentmdp.cli.screen import session

__all__ = ["EXPERIMENTS", "command"]

EXPERIMENTS = {"lower-bound": "latentmdp.experiments.lower_bound.analysis"}
"""Name to the module whose `reproduce(out, quick, progress)` runs it and says what was found."""


def _names(incomplete: str) -> list[str]:
    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help=f"Which: {', '.join(EXPERIMENTS)}.", autocompletion=_names
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Folder; out/NAME by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in seconds.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Run an experiment of the paper: its figure, its numbers and what became of the claim.

    Example: `latentmdp reproduce lower-bound --quick --out out`
    """
    with session(as_json, quiet, debug) as screen:
        if name not in EXPERIMENTS:
            raise typer.BadParameter(
                f"unknown experiment {name!r}; known: {', '.join(EXPERIMENTS)}"
            )
        folder = out if out is not None else Path("out") / name
        with screen.progress() as progress:
            task = progress.add_task(name, total=None)

            def done(completed: int, total: int) -> None:
                progress.update(task, completed=completed, total=total)

            said = import_module(EXPERIMENTS[name]).reproduce(folder, quick=quick, progress=done)
        screen.result(experiment=name, out=str(folder), quick=quick, text=said)
        screen.say(said)
        screen.say(f"Written to {folder}")
