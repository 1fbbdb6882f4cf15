"""`latentmdp learn`: act in a model as if it were unknown, and learn."""

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
    contexts: options.Contexts = "auto",
    reward_model: options.RewardModel = "auto",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="`likelihood`, or `psr` for the paper's path: PSR, clustering, L-UCRL.",
            autocompletion=lambda: ["likelihood", "psr"],
        ),
    ] = "likelihood",
    episodes: options.Episodes = 3_000,
    out: options.PolicyOut = None,
    model_out: Annotated[
        Path | None, typer.Option("--model-out", help="Save the learned model here.")
    ] = None,
    run_out: options.RunOut = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Go on from here if interrupted (.npz).")
    ] = None,
    seed: options.Seed = 0,
    config: Config = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Learn to act in a model from nothing: neither its numbers nor its contexts are shown.

    Example: `latentmdp learn m.npz --episodes 3000 --out policy.npz`
    """
    with session(as_json, quiet, debug) as screen:
        from latentmdp.online import Learned

        options.check_target(lm.AlphaVectorPolicy, out)
        options.check_target(lm.LatentMDP, model_out)
        options.check_target(Learned, run_out)
        world = options.load_model(model)
        screen.checkpoint = checkpoint
        learned = lm.learn(
            world,
            options.contexts_of(contexts),
            episodes,
            rng=seed,
            method=method,  # type: ignore[arg-type]
            reward_model=reward_model,  # type: ignore[arg-type]
            checkpoint=checkpoint,
            progress=screen.talks,
        )
        options.save(learned.policy, out)
        options.save(learned.model, model_out)
        options.save(learned, run_out)
        informed = lm.QMDP().plan(world)
        reference = lm.evaluate(world, informed.policy, episodes=20_000, rng=seed).mean
        trailing = learned.trailing_return(min(1_000, max(1, episodes // 3)))
        screen.result(
            model=str(model),
            episodes=episodes,
            contexts=learned.model.n_contexts,
            trailing_return=trailing,
            mean_return=float(learned.returns.mean()),
            qmdp_on_truth=reference,
            lower=learned.plan.lower,
            upper=learned.plan.upper,
            seconds=learned.seconds,
        )
        rows = [
            [
                f"{p.first_episode} to {p.first_episode + p.episodes}",
                str(p.n_contexts or "random actions"),
                f"{p.model_error:.4g}",
                f"{p.mean_return:.4g}",
            ]
            for p in learned.phases
        ]
        screen.table(
            f"learning in {model}", ["episodes", "contexts", "model error", "mean return"], rows
        )
        screen.say(
            f"{trailing:.4g} per episode at the end; Q-MDP on the true model earns {reference:.4g}",
            "return",
        )
