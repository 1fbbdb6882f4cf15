"""`latentmdp solve`: from logs to a policy and what it will earn."""

import warnings
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
    out: options.PolicyOut = None,
    model_out: options.ModelOut = None,
    run_out: options.RunOut = None,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", min=2, help="Repetitions that measure the uncertainty.")
    ] = 30,
    columns: options.LogColumns = None,
    covariates: options.CovariateColumns = None,
    reward_levels: options.RewardLevels = "auto",
    informative_rewards: options.InformativeRewards = True,
    seed: options.Seed = 0,
    cluster: options.Cluster = None,
) -> None:
    """Find the contexts in logs, plan for an unknown individual, and say what that will earn.

    Tables of others are read as they are, from .csv or .parquet:
    `latentmdp solve panel.csv --columns episode=household,t=week,state=brand,action=promotion`.

    Example: `latentmdp solve logs.parquet --out policy.npz`
    """
    options.outcome_targets(lm.offline.Solved, out, model_out, run_out)
    number = options.contexts_of(contexts)
    shared = options.shared_settings(shared_rewards, shared_transitions, shared_initial)
    engine = options.engine_of(cluster)
    data = options.load_logs(logs, columns, covariates, reward_levels, informative_rewards, engine)
    doing = f"solving from {plural(len(data), 'episode')}"
    with warnings.catch_warnings(), screen.progress(doing):
        warnings.simplefilter("ignore")
        solved = lm.solve(
            data,
            number,
            rng=seed,
            bootstrap=bootstrap,
            reward_model=reward_model,  # type: ignore[arg-type]
            behaviour=behaviour,
            **shared,
            engine=engine,
        )
    options.save_outcome(solved, out, model_out, run_out)
    logged_return = options.mean_return(data)
    screen.result(
        logs=logs,
        seed=seed,
        contexts=solved.model.n_contexts,
        shared=list(solved.fit.shared),
        decisions=list(solved.fit.decisions),
        value=solved.value._asdict(),
        logged_return=logged_return,
        first_steps={
            "steps": solved.logged.steps,
            "logged": solved.logged.mean,
            "stderr": solved.logged.stderr,
            "model": solved.model_first_steps,
        },
        unsupported=solved.unsupported,
        final_states=list(solved.final_states),
        missing=None if data.missing is None else data.missing._asdict(),
        warnings=list(solved.warnings),
        seconds=solved.seconds,
    )
    ends = solved.final_states
    first = f"first {plural(solved.logged.steps, 'step')}"
    screen.facts(
        f"policy from {logs}",
        {
            "contexts found": str(solved.model.n_contexts),
            "all contexts share": ", ".join(solved.fit.shared) or "nothing",
            "logged policy earned": f"{logged_return:.4g} per episode",
            "this policy will earn": f"{solved.value} per episode (95 % interval)",
            f"{first}, from the logs alone": (
                f"{solved.logged.mean:.4g} ± {solved.logged.stderr:.2g}"
            ),
            f"{first}, by the model": f"{solved.model_first_steps:.4g}",
            "steps with hardly any data behind them": f"{solved.unsupported:.1%}",
            **({} if data.missing is None else {"missing in the logs": str(data.missing)}),
            **({"states in which episodes end": ", ".join(map(str, ends))} if ends else {}),
        },
    )
    screen.warn(solved.warnings)
