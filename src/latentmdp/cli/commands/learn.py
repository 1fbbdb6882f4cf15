"""`latentmdp learn`: act in a model as if it were unknown, and learn."""

from typing import Annotated

import typer

import latentmdp as lm
from latentmdp._util.words import or_dash
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command(config=True)
def command(
    screen: Screen,
    model: options.ModelFile,
    contexts: options.Contexts = "auto",
    reward_model: options.RewardModel = "auto",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="`likelihood`, or `psr` for the paper's path: PSR, clustering, L-UCRL.",
            autocompletion=options.completed("likelihood", "psr"),
        ),
    ] = "likelihood",
    episodes: options.Episodes = 3_000,
    out: options.PolicyOut = None,
    model_out: options.ModelOut = None,
    run_out: options.RunOut = None,
    checkpoint: options.Checkpoint = None,
    seed: options.Seed = 0,
) -> None:
    """Learn to act in a model from nothing: neither its numbers nor its contexts are shown.

    Example: `latentmdp learn m.npz --episodes 3000 --out policy.npz`
    """
    options.outcome_targets(lm.Run, out, model_out, run_out)
    options.check_target(checkpoint)
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
    options.save_outcome(learned, out, model_out, run_out)
    informed = lm.QMDP().plan(world)
    reference = lm.evaluate(world, informed.policy, episodes=20_000, rng=seed).mean
    trailing = learned.trailing_return()
    screen.result(
        model=model,
        episodes=episodes,
        seed=seed,
        contexts=learned.model.n_contexts,
        trailing_return=trailing,
        mean_return=float(learned.returns.mean()),
        qmdp_on_truth=reference,
        lower=getattr(learned.plan, "lower", None),
        upper=getattr(learned.plan, "upper", None),
        value=None if learned.value is None else learned.value._asdict(),
        warnings=list(learned.warnings),
        seconds=learned.seconds,
    )
    rows = [
        [
            f"{p.first_episode} to {p.first_episode + p.episodes}",
            str(p.n_contexts or "random actions"),
            or_dash(p.model_error, ".4g"),
            f"{p.mean_return:.4g}",
        ]
        for p in learned.phases
    ]
    header = ["episodes", "contexts", "model error", "mean return"]
    screen.table(f"learning in {model}", header, rows)
    screen.say(
        f"{trailing:.4g} per episode in the last tenth; Q-MDP on the true model earns "
        f"{reference:.4g}",
        "return",
    )
    if learned.value is not None:
        screen.say(f"{learned.value} per episode (95 % interval)", "the policy found earns")
    screen.warn(learned.warnings)
