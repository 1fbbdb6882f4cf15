"""`latentmdp simulate`: play episodes and save the logs."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import latentmdp as lm
from latentmdp._util import plural
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
    screen: Screen,
    model: options.ModelFile,
    out: Annotated[Path, options.written(".parquet", ".npz", "")],
    policy: options.PolicyName = "uniform",
    episodes: options.Episodes = 1_000,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    cluster: options.Cluster = None,
    hide_contexts: bool = False,
) -> None:
    """Play episodes under a policy and save the logs.

    Example: `latentmdp simulate m.npz --policy uniform --episodes 1000 --out logs.parquet`

    Parameters
    ----------
    out
        Where to: .parquet or .npz, or a new folder of parts.
    hide_contexts
        Leave the true contexts out of the logs.
    """
    engine = options.engine_of(cluster, device)  # before a policy is planned
    in_parts = not out.suffix
    if in_parts and hide_contexts:
        raise typer.BadParameter("--hide-contexts goes with a file, not with a folder of parts")
    world = options.load_model(model)
    acting, folder = find_policy(policy, world), out if in_parts else None
    with screen.progress(f"simulating {plural(episodes, 'episode')}"):
        logs = lm.simulate(world, acting, episodes, rng=seed, out=folder, engine=engine)
        if not in_parts:
            logs = logs.without_contexts() if hide_contexts else logs
            lm.save(logs, out)
    mean = float(np.concatenate([b.read().returns() for b in logs.batches()]).mean())
    inputs = {"model": model, "policy": policy, "episodes": episodes, "seed": seed}
    screen.result(**inputs, mean_return=mean, out=out)
    kind = "mean return" if world.discount == 1.0 else "mean return (not discounted)"
    screen.say(f"{logs!r}, {kind} {mean:.4g}, in {out}")
