"""Learners that act: `learn`, `lucrl`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.config import value_of
from latentmdp.cli.screen import Screen


@options.command(config=True)
def learn(
    screen: Screen,
    model: options.ModelFile,
    outputs: options.OutcomeFiles,
    contexts: options.Contexts = "auto",
    reward_model: options.RewardModel = "auto",
    method: Literal["likelihood", "psr"] = "likelihood",
    episodes: options.Episodes = 3_000,
    checkpoint: options.Checkpoint = None,
    plot: options.Plot = None,
    seed: options.Seed = 0,
) -> None:
    """Learn to act in a model from nothing: neither its numbers nor its contexts are shown.

    Example: `latentmdp learn m.npz --episodes 3000 --out policy.npz`

    Parameters
    ----------
    method
        `likelihood`, or `psr` for the paper's path: PSR, clustering, L-UCRL.
    """
    world = options.load_model(model)
    screen.checkpoint = checkpoint
    ways: dict[str, Any] = {"method": method, "reward_model": reward_model, "rng": seed}
    kept: dict[str, Any] = {"checkpoint": checkpoint, "progress": screen.talks}
    learned = lm.learn(world, value_of(contexts), episodes, **ways, **kept)
    outputs.save(learned)
    options.draw(plot, learned)
    informed = lm.evaluate(world, lm.QMDP().plan(world).policy, episodes=20_000, rng=seed).mean
    spans = [f"{p.first_episode} to {p.first_episode + p.episodes}" for p in learned.phases]
    found = [(p.n_contexts or "random actions", p.model_error) for p in learned.phases]
    means = [p.mean_return for p in learned.phases]
    rows = [(span, *both, mean) for span, both, mean in zip(spans, found, means)]
    header = ("episodes", "contexts", "model error", "mean return")
    screen.table(f"learning in {model}", header, rows)
    screen.result("in all", {**learned.facts(), "qmdp_on_truth": informed}, model=model)


@options.command(config=True)
def lucrl(
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
