"""`latentmdp size`: the memory and the time that a problem will take."""

from dataclasses import asdict
from math import isnan
from typing import Annotated

import typer

from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    contexts: Annotated[int, typer.Option("--contexts", min=1, help="M.")] = 3,
    states: Annotated[int, typer.Option("--states", min=1, help="S.")] = 20,
    actions: Annotated[int, typer.Option("--actions", min=1, help="A.")] = 3,
    outcomes: Annotated[
        float,
        typer.Option("--outcomes", min=1.0, help="What can follow a state and an action: s', r."),
    ] = 40.0,
    episodes: Annotated[
        float, typer.Option("--episodes", min=1.0, help="How many; 1e9 is a billion.")
    ] = 1e6,
    horizon: Annotated[int, typer.Option("--horizon", min=1, help="Steps of an episode.")] = 100,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Workers of a cluster, of one thread each.")
    ] = 1,
) -> None:
    """Say how much memory and time a problem will take: here, on workers, on a GPU.

    This machine is measured for some seconds; without `--workers`, the cluster is one thread.

    Example: `latentmdp size --contexts 3 --states 20 --episodes 1e9 --workers 1600`
    """
    from latentmdp._util.memory import memory_text
    from latentmdp.experiments.costs import costs

    with screen.progress("measuring this machine"):
        found = costs(contexts, states, actions, outcomes, episodes, horizon, workers)
    screen.result(**asdict(found))
    screen.facts(
        f"{found.steps:.3g} steps",
        {
            "model": memory_text(found.model_bytes),
            "logs in Parquet files": memory_text(found.stored_bytes),
            "memory of EM, logs in memory": memory_text(found.memory_bytes),
            "memory of EM, logs on disk": memory_text(found.disk_bytes),
            "a plan by Q-MDP": _time(found.plan_seconds),
            "simulation": _time(found.simulation_seconds),
            "beliefs of all episodes": _time(found.filter_seconds),
            "reading the files before EM": _time(found.reading_seconds),
            "a pass of EM": _time(found.pass_seconds),
            f"reading, on {workers:,} workers": _time(found.cluster_reading_seconds),
            f"a pass of EM, on {workers:,} workers": _time(found.cluster_pass_seconds),
            "simulation, uniform actions, on one H200": _time(found.gpu_simulation_seconds),
            "a pass of EM, on one H200": _time(found.gpu_pass_seconds),
        },
    )
    screen.say("EM takes some 50 to 500 passes.")


def _time(seconds: float) -> str:
    if isnan(seconds):
        return "does not fit into its memory"
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.3g} seconds"
