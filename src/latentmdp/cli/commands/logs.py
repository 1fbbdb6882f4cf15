"""From logs to groups and policies: `solve`, `fit`, `simulate`."""

import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import latentmdp as lm
from latentmdp._util.results import Worded
from latentmdp._util.words import plural
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen


@options.command(config=True)
def solve(
    screen: Screen,
    source: options.LogSource,
    structure: options.StructureOptions,
    outputs: options.OutcomeFiles,
    bootstrap: Annotated[int, typer.Option(min=2)] = 30,
    horizon: Annotated[int | None, typer.Option(min=1)] = None,
    discount: float | None = None,
    reference: str = "logger",
    plot: options.Plot = None,
    seed: options.Seed = 0,
) -> None:
    """Find the contexts in logs, plan for an unknown individual, and say what that will earn.

    Tables of others are read as they are, from .csv or .parquet:
    `latentmdp solve panel.csv --columns episode=household,t=week,state=brand,action=promotion`.

    Example: `latentmdp solve logs.parquet --out policy.npz`

    Parameters
    ----------
    bootstrap
        Repetitions that measure the uncertainty.
    horizon
        Steps to plan and promise for.
    discount
        Worth of a reward one step later.
    reference
        What to gain over: "logger", "always ACTION".
    """
    arguments = structure.arguments() | {"horizon": horizon, "discount": discount}
    arguments |= {"bootstrap": bootstrap, "reference": reference, "rng": seed}
    data, engine = source.read()
    doing = f"solving from {plural(len(data), 'episode')}"
    with warnings.catch_warnings(), screen.progress(doing):
        warnings.simplefilter("ignore")
        solved = lm.solve(data, engine=engine, **arguments)
    outputs.save(solved)
    options.draw(plot, solved)
    facts = {**solved.facts(), "missing": data.missing}
    screen.result(f"policy from {source.logs}", facts, logs=source.logs, seed=seed)


@options.command(config=True)
def fit(
    screen: Screen,
    source: options.LogSource,
    structure: options.StructureOptions,
    out: options.ModelOut = None,
    groups: Annotated[Path | None, options.written(".csv")] = None,
    plot: options.Plot = None,
    max_contexts: options.Positive = 10,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
) -> None:
    """Find the hidden contexts in logs and say what separates them.

    Tables of others are read as they are, from .csv or .parquet:
    `latentmdp fit panel.csv --columns episode=household,t=week,state=brand,action=promotion`.

    A folder of .parquet files is read batch by batch, however large: `latentmdp fit logs/`.

    Example: `latentmdp fit logs.parquet --contexts 3 --out model.npz`

    Parameters
    ----------
    groups
        Write who belongs to which group, with probabilities, here (.csv).
    max_contexts
        The most that `auto` tries.
    """
    from latentmdp._util import names
    from latentmdp.report import assignment, profiles, write_groups
    from latentmdp.theory import telling_outcomes

    arguments = structure.arguments() | {"max_contexts": max_contexts}
    data, engine = source.read(device)
    doing = f"fitting {plural(len(data), 'episode')}"
    with warnings.catch_warnings(record=True) as caught, screen.progress(doing):
        warnings.simplefilter("always")
        fit = lm.initialize(None, data, engine=engine, rng=seed, **arguments)
    options.save(fit.model, out)
    options.draw(plot, fit)
    if groups is not None:
        write_groups(groups, fit, data)
    sure, model = assignment(fit, data), fit.model
    told = telling_outcomes(model) if model.n_contexts > 1 else []
    evidence = None if fit.selection is None else fit.selection.rows()
    facts = {**fit.facts(), **sure, "profiles": Worded.lines(profiles(fit, data))}
    facts |= {"missing": data.missing, "warnings": [str(warning.message) for warning in caught]}
    inputs = {"logs": source.logs, "seed": seed, "out": out, "differences": dict(told)}
    screen.result(f"contexts in {source.logs}", facts, **inputs, groups=groups, evidence=evidence)
    if evidence is not None:  # in full with --json; here what fits a terminal
        columns = [name for name in evidence[0] if name not in ("held-out", "log-likelihood")]
        rows = [[row[name] for name in columns] for row in evidence]
        screen.table("how many", columns, rows, words=("sizes",))
    if told:
        contexts = names.labels("context", model.context_names, model.n_contexts)
        outcomes = [(what, *shares) for what, shares in told]
        title = "what tells them apart: its probability in each"
        screen.table(title, ("what", *contexts), outcomes)


@options.command(config=True)
def simulate(
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
