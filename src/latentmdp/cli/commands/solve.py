"""`latentmdp solve`: from logs to a policy and what it will earn."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.config import Config
from latentmdp.cli.screen import session

__all__ = ["command"]


def command(
    logs: options.LogsFile,
    contexts: options.Contexts = "auto",
    reward_model: options.RewardModel = "auto",
    out: options.PolicyOut = None,
    model_out: Annotated[
        Path | None, typer.Option("--model-out", help="Save the fitted model here.")
    ] = None,
    run_out: options.RunOut = None,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", min=2, help="Repetitions that measure the uncertainty.")
    ] = 30,
    seed: options.Seed = 0,
    config: Config = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Find the contexts in logs, plan for an unknown individual, and say what that will earn.

    Example: `latentmdp solve logs.parquet --out policy.npz`
    """
    with session(as_json, quiet, debug) as screen:
        from latentmdp.offline import Solved

        options.check_target(lm.AlphaVectorPolicy, out)
        options.check_target(lm.LatentMDP, model_out)
        options.check_target(Solved, run_out)
        number = options.contexts_of(contexts)
        data = options.load_logs(logs)
        with warnings.catch_warnings(), screen.progress() as progress:
            warnings.simplefilter("ignore")
            progress.add_task(f"solving from {len(data)} episodes", total=None)
            solved = lm.solve(
                data,
                number,
                rng=seed,
                bootstrap=bootstrap,
                reward_model=reward_model,  # type: ignore[arg-type]
            )
        options.save(solved.policy, out)
        options.save(solved.model, model_out)
        options.save(solved, run_out)
        counts = data.multiplicities()
        logged_return = float((data.returns() * counts).sum() / counts.sum())
        screen.result(
            logs=str(logs),
            contexts=solved.model.n_contexts,
            value=solved.value._asdict(),
            logged_return=logged_return,
            first_steps={
                "steps": solved.logged.steps,
                "logged": _finite(solved.logged.mean),
                "stderr": _finite(solved.logged.stderr),
                "model": _finite(solved.model_first_steps),
            },
            unsupported=solved.unsupported,
            final_states=list(solved.final_states),
            warnings=list(solved.warnings),
            seconds=solved.seconds,
        )
        steps = solved.logged.steps
        screen.facts(
            f"policy from {logs}",
            {
                "contexts found": str(solved.model.n_contexts),
                "logged policy earned": f"{logged_return:.4g} per episode",
                "this policy will earn": f"{solved.value} per episode (95 % interval)",
                f"first {steps} steps, from the logs alone": (
                    f"{solved.logged.mean:.4g} ± {solved.logged.stderr:.2g}"
                ),
                f"first {steps} steps, by the model": f"{solved.model_first_steps:.4g}",
                "steps with hardly any data behind them": f"{solved.unsupported:.1%}",
                **_ends(solved.final_states),
            },
        )
        screen.warn(solved.warnings)


def _ends(states: tuple[int, ...]) -> dict[str, str]:
    return {"states in which episodes end": ", ".join(map(str, states))} if states else {}


def _finite(x: float) -> float | None:
    return x if abs(x) < float("inf") else None
