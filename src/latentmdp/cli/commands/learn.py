"""`latentmdp learn`: act in a model as if it were unknown, and learn."""

from typing import Literal

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.config import value_of
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
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
    learned = lm.learn(
        world,
        value_of(contexts),
        episodes,
        rng=seed,
        method=method,
        reward_model=reward_model,
        checkpoint=checkpoint,
        progress=screen.talks,
    )
    outputs.save(learned)
    options.draw(plot, learned)
    informed = lm.evaluate(world, lm.QMDP().plan(world).policy, episodes=20_000, rng=seed).mean
    rows = [
        (
            f"{p.first_episode} to {p.first_episode + p.episodes}",
            p.n_contexts or "random actions",
            p.model_error,
            p.mean_return,
        )
        for p in learned.phases
    ]
    header = ("episodes", "contexts", "model error", "mean return")
    screen.table(f"learning in {model}", header, rows)
    screen.result("in all", {**learned.facts(), "qmdp_on_truth": informed}, model=model)
