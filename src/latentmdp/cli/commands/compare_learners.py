"""`latentmdp compare-learners`: learners side by side on many tasks."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command()
def command(
    screen: Screen,
    tasks: Annotated[
        str | None, typer.Option("--tasks", help="Which tasks, separated by commas.")
    ] = None,
    learners: Annotated[
        str | None, typer.Option("--learners", help="Which learners, separated by commas.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many variants of a task.")] = 3,
    first_seed: Annotated[
        int, typer.Option("--first-seed", min=0, help="The first of these variants.")
    ] = 0,
    episodes: Annotated[
        int | None, typer.Option("--episodes", min=1, help="In place of each task's own number.")
    ] = None,
    quick: options.Quick = False,
    out: options.ResultsFolder = Path("out"),
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
) -> None:
    """Compare learners on many tasks: a score against the certified optimum, a table, a picture.

    Cells that are done are kept, so an interrupted comparison goes on where it stopped.

    Example: `latentmdp compare-learners --quick`
    """
    arena = lm.experiments.compare_learners(
        None if tasks is None else options.parts_of(tasks),
        None if learners is None else options.parts_of(learners),
        seeds=range(first_seed, first_seed + seeds),
        episodes=episodes,
        quick=quick,
        out=out,
        jobs=jobs,
        progress=screen.talks,
        engine=options.engine_of(cluster),
    )
    screen.result(folder=arena.folder, cells=arena.cells)
    screen.table("score: 0 random, 1 the certified optimum", *arena.table("score"))
    for cell in arena.cells:
        if cell.problem:
            screen.say(cell.problem, f"{cell.learner} on {cell.task}, variant {cell.seed}:")
    screen.say(f"See {arena.folder / 'arena.md'}")
