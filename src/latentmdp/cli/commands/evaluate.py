"""`latentmdp evaluate`: what a policy earns in a model."""

from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.choices import policy as find_policy
from latentmdp.cli.screen import session

__all__ = ["command"]


def command(
    model: options.ModelFile,
    policy: options.PolicyName = "qmdp",
    episodes: options.Episodes = 100_000,
    method: Annotated[
        str, typer.Option("--method", help="`auto`, `exact` or `monte-carlo`.")
    ] = "auto",
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Say what a policy earns per episode in a model, exactly or by simulation.

    Example: `latentmdp evaluate m.npz --policy qmdp --episodes 100000`
    """
    with session(as_json, quiet, debug) as screen:
        world = options.load_model(model)
        with screen.progress() as progress:
            progress.add_task(f"evaluating {policy}", total=None)
            value = lm.evaluate(
                world, find_policy(policy, world), episodes=episodes, rng=seed, method=method
            )
        screen.result(
            model=str(model),
            policy=policy,
            mean=value.mean,
            stderr=value.stderr,
            exact=value.exact,
        )
        spread = "exact" if value.exact else f"± {value.stderr:.2g} (standard error)"
        screen.say(f"earns {value.mean:.6g} per episode, {spread}", policy)
