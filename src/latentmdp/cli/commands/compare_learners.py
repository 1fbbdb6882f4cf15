"""`latentmdp compare-learners`: learners side by side on many tasks."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from latentmdp._util.words import or_dash
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]


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
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in a minute.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path("out"),
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes; by default all cores.")
    ] = None,
    cluster: options.Cluster = None,
) -> None:
    """Compare learners on many tasks: a score against the certified optimum, a table, a picture.

    Cells that are done are kept, so an interrupted comparison goes on where it stopped.

    Example: `latentmdp compare-learners --quick`
    """
    from latentmdp.experiments.arena import compare_learners

    found = compare_learners(
        _names(tasks),
        _names(learners),
        seeds=range(first_seed, first_seed + seeds),
        episodes=episodes,
        quick=quick,
        out=out,
        jobs=jobs,
        progress=screen.talks,
        engine=options.engine_of(cluster),
    )
    screen.result(folder=found.folder, cells=[asdict(cell) for cell in found.cells])
    rows = [
        (task, *(or_dash(_number(found.mean(task, name)), ".2f") for name in found.learners))
        for task in found.tasks
    ]
    screen.table("score: 0 random, 1 the certified optimum", ("task", *found.learners), rows)
    for cell in found.cells:
        if cell.problem:
            screen.say(cell.problem, f"{cell.learner} on {cell.task}, variant {cell.seed}:")
    screen.say(f"See {found.folder / 'arena.md'}")


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _number(value: float) -> float | None:
    return None if value != value else value
