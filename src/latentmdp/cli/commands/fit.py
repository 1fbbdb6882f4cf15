"""`latentmdp fit`: find the contexts in logs."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp._util.words import plural
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command(config=True)
def command(
    screen: Screen,
    logs: options.LogsFile,
    contexts: options.Contexts = "auto",
    reward_model: options.RewardModel = "auto",
    behaviour: options.Behaviour = "auto",
    shared_rewards: options.Shared = "auto",
    shared_transitions: options.Shared = "auto",
    shared_initial: options.Shared = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the model here (.npz or .json).")
    ] = None,
    max_contexts: Annotated[
        int, typer.Option("--max-contexts", min=1, help="The most that `auto` tries.")
    ] = 10,
    columns: options.LogColumns = None,
    covariates: options.CovariateColumns = None,
    reward_levels: options.RewardLevels = "auto",
    informative_rewards: options.InformativeRewards = True,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    cluster: options.Cluster = None,
) -> None:
    """Find the hidden contexts in logs and say what separates them.

    Tables of others are read as they are, from .csv or .parquet:
    `latentmdp fit panel.csv --columns episode=household,t=week,state=brand,action=promotion`.

    A folder of .parquet files is read batch by batch, however large: `latentmdp fit logs/`.

    Example: `latentmdp fit logs.parquet --contexts 3 --out model.npz`
    """
    from latentmdp.report.contexts import assignment, largest_differences

    options.check_target(out, lm.LatentMDP)
    engine = options.engine_of(cluster, device)  # before logs are read
    number = options.contexts_of(contexts)
    shared = options.shared_settings(shared_rewards, shared_transitions, shared_initial)
    data = options.load_logs(logs, columns, covariates, reward_levels, informative_rewards, engine)
    doing = f"fitting {plural(len(data), 'episode')}"
    with warnings.catch_warnings(record=True) as caught, screen.progress(doing):
        warnings.simplefilter("always")
        fit = lm.initialize(
            None,
            data,
            number,
            max_contexts=max_contexts,
            reward_model=reward_model,  # type: ignore[arg-type]
            behaviour=behaviour,  # type: ignore[arg-type]
            **shared,
            engine=engine,
            rng=seed,
        )
    options.save(fit.model, out)
    messages = [str(warning.message) for warning in caught]
    people, counts = options.individuals_of(data)  # one counts once, whatever its segments
    sure = assignment(fit.responsibilities[people], counts)
    differences = largest_differences(fit.model) if fit.model.n_contexts > 1 else []
    screen.result(
        logs=logs,
        seed=seed,
        out=out,
        contexts=fit.model.n_contexts,
        shared=list(fit.shared),
        decisions=list(fit.decisions),
        weights=fit.model.weights.tolist(),
        log_likelihood=fit.log_likelihood,
        converged=fit.converged,
        seconds=fit.seconds,
        share_sure=sure.share_sure,
        expected_accuracy=sure.expected_accuracy,
        differences=[d._asdict() for d in differences],
        missing=None if data.missing is None else data.missing._asdict(),
        warnings=messages,
    )
    rows = [
        [str(m), f"{w:.1%}", f"{size:.1f}"]
        for m, (w, size) in enumerate(zip(fit.model.weights, sure.sizes))
    ]
    screen.table(f"contexts in {logs}", ["context", "weight", "episodes (expected)"], rows)
    if differences:
        from latentmdp._util.names import called

        title = "what separates them: L1 distance of what follows, at most 2"
        rows = [
            [
                f"{called('state', s, fit.model.state_names)}, "
                f"{called('action', a, fit.model.action_names)}",
                f"{m} and {n}",
                f"{distance:.3f}",
            ]
            for s, a, (m, n), distance in differences
        ]
        screen.table(title, ["where", "contexts", "distance"], rows)
    screen.say(
        f"{sure.share_sure:.1%} of episodes belong to one context with probability 0.95 or more; "
        f"expected accuracy of the labels {sure.expected_accuracy:.1%}",
        "assignment",
    )
    if data.missing is not None:
        screen.say(str(data.missing), "missing in the logs")
    screen.say(", ".join(fit.shared) or "nothing", "all contexts share")
    for decision in fit.decisions:
        screen.say(decision, "decided")
    if fit.selection is not None:
        screen.say(fit.selection.statement, "number of contexts")
    screen.warn(messages)
