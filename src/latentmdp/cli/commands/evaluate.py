"""`latentmdp evaluate`: what a policy earns in a model, or would have earned in logs."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    model: options.ModelFile,
    policy: options.PolicyName = "qmdp",
    episodes: options.Episodes = 100_000,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="`auto`, `exact` or `monte-carlo`; from logs `auto`, `doubly-robust`, "
            "`per-decision` or `importance`.",
        ),
    ] = "auto",
    logs: Annotated[
        Path | None,
        typer.Option("--logs", help="Estimate from these logs of another policy instead."),
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    cluster: options.Cluster = None,
) -> None:
    """Say what a policy earns per episode in a model, exactly or by simulation.

    With `--logs`: what it would have earned where those logs were made, whoever acted; the model
    gives the horizon, and the values that a doubly robust estimate starts from.

    Example: `latentmdp evaluate m.npz --policy qmdp --episodes 100000`
    """
    engine = options.engine_of(cluster, device)
    if engine is not None and logs is not None:
        raise typer.BadParameter("--cluster and --device play episodes, and --logs needs none")
    world = options.load_model(model)
    if logs is not None:
        _from_logs(screen, model, world, policy, logs, method, seed)
        return
    with screen.progress(f"evaluating {policy}"):
        acting = find_policy(policy, world)
        value = lm.evaluate(
            world,
            acting,
            episodes=episodes,
            rng=seed,
            method=method,
            engine=engine,
        )
    facts = {name: getattr(value, name) for name in ("mean", "stderr", "exact")}
    known_errors = value.stderr_by_context
    errors = [0.0] * world.n_contexts if known_errors is None else known_errors.tolist()
    facts["by_context"], facts["stderr_by_context"] = value.by_context.tolist(), errors
    screen.result(model=model, policy=policy, seed=seed, **facts)
    spread = "exact" if value.exact else f"± {value.stderr:.2g} (standard error)"
    screen.say(f"earns {value.mean:.6g} per episode, {spread}", policy)
    known = world.context_names or [f"context {m}" for m in range(world.n_contexts)]
    earned = zip(known, value.by_context.tolist(), errors)
    rows = [
        (name, f"{mean:.6g}", "exact" if value.exact else f"± {e:.2g}") for name, mean, e in earned
    ]
    screen.table("by context", ("context", "earns", "error"), rows)


def _from_logs(
    screen: Screen,
    model: Path,
    world: "lm.LatentMDP",
    policy: str,
    logs: Path,
    method: str,
    seed: int,
) -> None:
    data = options.load_logs(logs)
    chosen = "doubly-robust" if method == "auto" else method
    with warnings.catch_warnings(), screen.progress(f"estimating {policy} from {logs}"):
        warnings.simplefilter("ignore")
        value = lm.off_policy_value(
            data,
            find_policy(policy, world),
            method=chosen,  # type: ignore[arg-type]
            model=world,
            rng=seed,
        )
    names = ("mean", "low", "high", "stderr", "steps", "episodes", "method", "behaviour")
    screen.result(
        model=model,
        policy=policy,
        logs=logs,
        seed=seed,
        **{name: getattr(value, name) for name in names},
        effective_size=value.effective_size.tolist(),
        truncation=value.truncation,
        warnings=list(value.warnings),
    )
    told = {name: text for name, text in value.facts() if name != "warning"}
    screen.facts(f"{policy}, estimated from {logs}", told)
    screen.warn(value.warnings)
