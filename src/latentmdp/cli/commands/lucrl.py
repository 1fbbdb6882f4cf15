"""`latentmdp lucrl`: L-UCRL in a model that the learner does not know."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
    screen: Screen,
    model: options.ModelFile,
    episodes: options.Episodes = 10_000,
    labels: Literal["revealed", "inferred"] = "revealed",
    contexts: Annotated[int | None, typer.Option(min=1)] = None,
    start: Path | None = None,
    checkpoint: options.Checkpoint = None,
    out: Annotated[Path | None, options.written(".parquet", ".npz")] = None,
    plot: options.Plot = None,
    seed: options.Seed = 0,
) -> None:
    """Learn by acting: L-UCRL with Q-MDP.

    Example: `latentmdp lucrl m.npz --episodes 10000 --out run.parquet`

    Parameters
    ----------
    labels
        Contexts are `revealed` after each episode, or `inferred`.
    contexts
        How many contexts to assume, if not the model's or start's.
    start
        What is known: a model, or logs with contexts.
    out
        Save the run (.parquet or .npz).
    """
    world = options.load_model(model)
    beginning = None if start is None else lm.load(start)
    learner = lm.LUCRL(contexts=labels, start=beginning, n_contexts=contexts)
    screen.checkpoint = checkpoint
    run = learner.run(world, episodes, rng=seed, checkpoint=checkpoint, progress=screen.talks)
    options.save(run, out)
    options.draw(plot, run)
    screen.result(f"learning in {model}", run, model=model, out=out)
