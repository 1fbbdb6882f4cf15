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
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the model here (.npz or .json).")
    ] = None,
    max_contexts: Annotated[
        int, typer.Option("--max-contexts", min=1, help="The most that `auto` tries.")
    ] = 10,
    seed: options.Seed = 0,
) -> None:
    """Find the hidden contexts in logs and say what separates them.

    Example: `latentmdp fit logs.parquet --contexts 3 --out model.npz`
    """
    options.check_target(out, lm.LatentMDP)
    number = options.contexts_of(contexts)
    data = options.load_logs(logs)
    with warnings.catch_warnings(record=True) as caught, screen.progress() as progress:
        warnings.simplefilter("always")
        progress.add_task(f"fitting {plural(len(data), 'episode')}", total=None)
        fit = lm.initialize(
            None,
            data,
            number,
            max_contexts=max_contexts,
            reward_model=reward_model,  # type: ignore[arg-type]
            rng=seed,
        )
    options.save(fit.model, out)
    _show(screen, logs, data, fit, [str(w.message) for w in caught], out, seed)


def _show(
    screen: Screen,
    path: Path,
    data: "lm.Trajectories",
    fit: "lm.Fit",
    messages: list[str],
    out: Path | None,
    seed: int,
) -> None:
    from latentmdp.report.contexts import assignment, largest_differences

    sure = assignment(fit.responsibilities, data.counts)
    differences = largest_differences(fit.model) if fit.model.n_contexts > 1 else []
    screen.result(
        logs=str(path),
        seed=seed,
        out=None if out is None else str(out),
        contexts=fit.model.n_contexts,
        weights=fit.model.weights.tolist(),
        log_likelihood=fit.log_likelihood,
        converged=fit.converged,
        seconds=fit.seconds,
        share_sure=sure.share_sure,
        expected_accuracy=sure.expected_accuracy,
        differences=[d._asdict() for d in differences],
        warnings=messages,
    )
    rows = [
        [str(m), f"{w:.1%}", f"{size:.1f}"]
        for m, (w, size) in enumerate(zip(fit.model.weights, sure.sizes))
    ]
    screen.table(f"contexts in {path}", ["context", "weight", "episodes (expected)"], rows)
    if differences:
        rows = [
            [f"state {d.state}, action {d.action}", f"{d.contexts[0]} and {d.contexts[1]}",
             f"{d.distance:.3f}"]
            for d in differences
        ]  # fmt: skip
        screen.table(
            "what separates them: L1 distance of what follows, at most 2",
            ["where", "contexts", "distance"],
            rows,
        )
    screen.say(
        f"{sure.share_sure:.1%} of episodes belong to one context with probability 0.95 or more; "
        f"expected accuracy of the labels {sure.expected_accuracy:.1%}",
        "assignment",
    )
    if fit.selection is not None:
        screen.say(fit.selection.statement, "number of contexts")
    screen.warn(messages)
