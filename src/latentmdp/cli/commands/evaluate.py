"""`latentmdp evaluate`: what a policy earns in a model, or would have earned in logs."""

import warnings
from pathlib import Path
from typing import Any

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import DEFAULT, find_policy
from latentmdp.cli.screen import Screen


@options.command()
def command(
    screen: Screen,
    model: options.ModelFile,
    policy: options.PolicyName = DEFAULT,
    episodes: options.Episodes = 100_000,
    method: str = "auto",
    logs: Path | None = None,
    columns: str | None = None,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    cluster: options.Cluster = None,
) -> None:
    """Say what a policy earns per episode in a model, exactly or by simulation.

    With `--logs`: what it would have earned where those logs were made, whoever acted; the model
    gives the horizon, and the values that a doubly robust estimate starts from.

    Example: `latentmdp evaluate m.npz --policy qmdp --episodes 100000`

    Parameters
    ----------
    method
        `auto`, `exact` or `monte-carlo`; from logs `auto`, `doubly-robust`, `per-decision`,
        `importance` or `fitted-q`.
    logs
        Estimate from these logs of another policy instead.
    columns
        What a table of logs calls its columns: `episode=id,t=week,...`.
    """
    if logs is not None and (cluster, device) != (None, "cpu"):
        raise typer.BadParameter("--cluster and --device play episodes, and --logs needs none")
    engine = options.engine_of(cluster, device)
    world = options.load_model(model)
    data = None if logs is None else options.LogSource(logs, columns).read()[0]
    with warnings.catch_warnings(), screen.progress(f"evaluating {policy}"):
        acting = find_policy(policy, world)
        if data is None:
            more: dict[str, Any] = {"rng": seed, "method": method, "engine": engine}
            value = lm.evaluate(world, acting, episodes=episodes, **more)
            facts = value.facts(world.context_names)
        else:
            warnings.simplefilter("ignore")  # they stand in the result
            estimator: Any = "doubly-robust" if method == "auto" else method
            facts = lm.off_policy_value(data, acting, None, estimator, world, seed).facts()
    screen.result(f"{policy} earns", facts, model=model, policy=policy, logs=logs, seed=seed)
