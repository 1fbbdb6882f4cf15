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
    tasks: str | None = None,
    learners: str | None = None,
    seeds: options.Positive = 3,
    first_seed: options.Seed = 0,
    episodes: Annotated[int | None, typer.Option(min=1)] = None,
    quick: options.Quick = False,
    out: options.ResultsFolder = Path("out"),
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
) -> None:
    """Compare learners on many tasks: a score against the certified optimum, a table, a picture.

    Cells that are done are kept, so an interrupted comparison goes on where it stopped.

    Example: `latentmdp compare-learners --quick`

    Parameters
    ----------
    tasks
        Which tasks, separated by commas.
    learners
        Which learners, separated by commas.
    seeds
        How many variants of a task.
    first_seed
        The first of these variants.
    episodes
        In place of each task's own number.
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
