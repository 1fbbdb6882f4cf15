"""The experiments of the paper: `reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import KINDS
from latentmdp.cli.screen import Screen


@options.command(config=True)
def reproduce(
    screen: Screen,
    name: Annotated[str, options.completed(KINDS["experiments"], typer.Argument, metavar="NAME")],
    quick: options.Quick = False,
    out: options.ResultsFolder = Path("out"),
    seeds: Annotated[int | None, typer.Option(min=1)] = None,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
) -> None:
    """Run an experiment of the paper: figure, numbers, and whether its claims hold.

    Runs that are done are kept, so an interrupted experiment goes on where it stopped.

    Example: `latentmdp reproduce fig1a --quick`

    Parameters
    ----------
    name
        See `latentmdp list experiments`.
    seeds
        How many; by default the paper's.
    """
    engine = options.engine_of(cluster)
    outputs = lm.experiments.reproduce(
        name, quick=quick, out=out, seeds=seeds, jobs=jobs, progress=screen.talks, engine=engine
    )
    screen.result(**vars(outputs))
    for claim in outputs.claims:
        screen.say(f"{claim.paper} {claim.measured}", f"{claim.verdict}:")
    screen.say(f"See {outputs.page}")
