"""`latentmdp simulate`: play episodes and save the logs."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen

__all__ = ["command"]

SHARD_STEPS = 2_000_000


@options.command(config=True)
def command(
    screen: Screen,
    model: options.ModelFile,
    out: Annotated[
        Path, typer.Option("--out", help="Where to: .parquet or .npz, or a new folder of parts.")
    ],
    policy: options.PolicyName = "uniform",
    episodes: options.Episodes = 1_000,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    cluster: options.Cluster = None,
    hide_contexts: Annotated[
        bool, typer.Option("--hide-contexts", help="Leave the true contexts out of the logs.")
    ] = False,
) -> None:
    """Play episodes under a policy and save the logs.

    Example: `latentmdp simulate m.npz --policy uniform --episodes 1000 --out logs.parquet`
    """
    engine = options.engine_of(cluster, device)  # before a policy is planned
    in_parts = not out.suffix
    if in_parts and hide_contexts:
        raise typer.BadParameter("--hide-contexts goes with a file, not with a folder of parts")
    if not in_parts:
        options.check_target(out, lm.Trajectories)
    world = options.load_model(model)
    acting = find_policy(policy, world)
    given = {"model": model, "policy": policy, "episodes": episodes, "seed": seed}
    if in_parts:
        with screen.progress("simulating"):
            files = lm.simulate(world, acting, episodes, rng=seed, out=out, engine=engine)
        mean = options.mean_return(files)
        screen.result(**given, mean_return=mean, out=out)
        screen.say(f"{files!r}, mean return {mean:.4g}, in {out}")
        return
    shard = max(1, SHARD_STEPS // (world.horizon or 1000))
    parts, total = [], 0.0
    with screen.progress("simulating", total=episodes) as move:
        for first in range(0, episodes, shard):
            size = min(shard, episodes - first)
            parts.append(lm.simulate(world, acting, size, seed, first, engine=engine))
            total += float(parts[-1].returns().sum())
            move(size)
    logs = lm.Trajectories.concat(parts)
    if hide_contexts:
        logs = logs.without_contexts()
    lm.save(logs, out)
    mean = total / episodes
    screen.result(**given, mean_return=mean, out=out)
    kind = "mean return" if world.discount == 1.0 else "mean return (not discounted)"
    screen.say(f"{logs!r}, {kind} {mean:.4g}, saved to {out}")
