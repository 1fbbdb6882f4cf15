"""`latentmdp lucrl`: learn to act in a model that the learner does not know."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.config import Config
from latentmdp.cli.screen import session

__all__ = ["command"]


def command(
    model: options.ModelFile,
    episodes: options.Episodes = 10_000,
    contexts: Annotated[
        str, typer.Option("--contexts", help="`revealed` after each episode, or `inferred`.")
    ] = "revealed",
    start: Annotated[
        Path | None,
        typer.Option("--start", help="What is known: a model, or logs with contexts."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Save to, and go on from, this .npz file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the run (.parquet or .npz).")
    ] = None,
    seed: options.Seed = 0,
    config: Config = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Learn by acting: L-UCRL with Q-MDP.

    Example: `latentmdp lucrl m.npz --episodes 10000 --out run.parquet`
    """
    with session(as_json, quiet, debug) as screen:
        from latentmdp.online import Run

        options.check_target(Run, out)
        world = options.load_model(model)
        known = None if start is None else lm.load(start)
        learner = lm.LUCRL(contexts=contexts, start=known)
        screen.checkpoint = checkpoint
        run = learner.run(world, episodes, rng=seed, checkpoint=checkpoint, progress=screen.talks)
        options.save(run, out)
        error = float(run.error_curve.values[-1])
        screen.result(
            model=str(model),
            episodes=episodes,
            trailing_return=run.trailing_return(),
            optimistic_value=run.optimistic_value,
            model_error=error,
            out=None if out is None else str(out),
        )
        screen.say(
            f"{run.trailing_return():.4g} per episode in the last 1,000, model error {error:.3g}"
        )
