"""`latentmdp lucrl`: L-UCRL in a model that the learner does not know."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
    screen: Screen,
    model: options.ModelFile,
    episodes: options.Episodes = 10_000,
    labels: Annotated[
        str,
        options.one_of(
            "--labels",
            "Contexts are `revealed` after each episode, or `inferred`.",
            *("revealed", "inferred"),
        ),
    ] = "revealed",
    contexts: Annotated[
        int | None,
        typer.Option(
            "--contexts", min=1, help="How many contexts to assume, if not the model's or start's."
        ),
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--start", help="What is known: a model, or logs with contexts.")
    ] = None,
    checkpoint: options.Checkpoint = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the run (.parquet or .npz).")
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Learn by acting: L-UCRL with Q-MDP.

    Example: `latentmdp lucrl m.npz --episodes 10000 --out run.parquet`
    """
    from latentmdp._util import require_choice

    require_choice("--labels", labels, ("revealed", "inferred"))
    options.check_target(out, lm.Run)
    options.check_target(checkpoint)
    world = options.load_model(model)
    beginning = None if start is None else lm.load(start)
    learner = lm.LUCRL(contexts=labels, start=beginning, n_contexts=contexts)
    screen.checkpoint = checkpoint
    run = learner.run(world, episodes, rng=seed, checkpoint=checkpoint, progress=screen.talks)
    options.save(run, out)
    screen.result(f"learning in {model}", run, model=model, out=out)
