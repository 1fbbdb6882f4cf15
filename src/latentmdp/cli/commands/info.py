"""`latentmdp info`: what a file holds."""

from __future__ import annotations

from typing import Any

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.config import handed_on
from latentmdp.cli.screen import Screen

__all__ = ["command"]

_MOST = 20
"""Names and values of a list that are shown to people."""

_DENSE = 10_000_000
"""Entries of a dense model up to which the separation of its contexts is computed."""

_RANGES = {"lengths", "mean_reward_range", "bonus_range"}
"""Facts that are a least and a greatest number."""


@options.command()
def command(
    screen: Screen,
    context: typer.Context,
    file: options.File,
    columns: options.Columns = None,
) -> None:
    """Say what a file holds: the sizes of a model, the episodes of logs, what was learned.

    Options that the command does not know say how to read a table or a POMDP of others:
    `--horizon 50 --discount 0.9`.

    Example: `latentmdp info m.npz`
    """
    facts = _facts(options.load_any(file, columns, handed_on(context)))
    screen.result(file=file, **facts)
    if facts["kind"] == "model" and facts["horizon"] is None:
        facts["horizon"] = "no end"
    shown = {name.replace("_", " "): _shown(fact) for name, fact in facts.items()}
    for name in _RANGES & facts.keys():
        shown[name.replace("_", " ")] = " to ".join(map(_shown, facts[name]))
    screen.facts(str(file), shown)


def _facts(found: Any) -> dict[str, Any]:
    if isinstance(found, lm.LatentMDP):
        return _model_facts(found)
    if isinstance(found, lm.Trajectories):
        return _log_facts(found)
    if isinstance(found, lm.offline.Solved):
        return _solved_facts(found)
    if isinstance(found, lm.Run):
        return _run_facts(found)
    return {"kind": type(found).__name__, "summary": repr(found)}


def _model_facts(model: lm.LatentMDP) -> dict[str, Any]:
    means = model.mean_rewards()[:, model.allowed]
    facts: dict[str, Any] = {
        "kind": "model",
        "contexts": model.n_contexts,
        "states": model.n_states,
        "actions": model.n_actions,
        "horizon": model.horizon,
        "discount": model.discount,
        "outcomes": model.outcomes.size,
        "stored_as": "outcome table" if model.is_table else "dense arrays",
        "allowed_pairs": int(model.allowed.sum()),
        "terminal_states": int(model.terminal.sum()),
        "reward_values": model.reward_values.tolist(),
        "mean_reward_range": [float(means.min()), float(means.max())],
        "weights": model.weights.tolist(),
        "fingerprint": model.fingerprint()[:16],
    }
    if model.bonus is not None:
        bonus = model.bonus[:, model.allowed]
        facts["bonus_range"] = [float(bonus.min()), float(bonus.max())]
    M, S, A, Z = model.dimensions
    if M > 1 and model.all_allowed and M * S * A * S * Z < _DENSE:
        facts["separation"] = float(lm.separation(model))
    for names in ("context_names", "state_names", "action_names"):
        if getattr(model, names) is not None:
            facts[names] = list(getattr(model, names))
    return facts


def _log_facts(logs: lm.Trajectories) -> dict[str, Any]:
    lengths = logs.lengths
    facts: dict[str, Any] = {
        "kind": "trajectories",
        "episodes": logs.n_episodes,
        "stored_episodes": len(logs),
        "steps": logs.n_steps,
        "states": logs.n_states,
        "actions": logs.n_actions,
        "contexts_known": logs.contexts is not None,
    }
    if len(logs):
        facts["lengths"] = [int(lengths.min()), int(lengths.max())]
        if logs.n_episodes:
            facts["mean_return"] = options.mean_return(logs)
    if logs.reward_values is not None:
        facts["reward_values"] = logs.reward_values.tolist()
    if logs.continues is not None:
        facts["individuals"] = logs.n_individuals
    if logs.missing is not None:
        facts["missing"] = str(logs.missing)
    if logs.covariates is not None:
        facts["covariates"] = list(logs.covariates.names)
    for names in ("state_names", "action_names"):
        if getattr(logs, names) is not None:
            facts[names] = list(getattr(logs, names))
    return facts


def _run_facts(run: lm.Run) -> dict[str, Any]:
    from latentmdp.report.records import Record

    record = Record("", run)
    bounds = {} if run.plan is None else {"lower": run.plan.lower, "upper": run.plan.upper}
    return {
        "kind": f"run of {record.method}",
        "episodes": run.n_episodes,
        "seed": record.seed,
        "contexts": run.model.n_contexts,
        "mean_return": float(run.returns.mean()),
        "return_in_the_last_tenth": run.trailing_return(),
        **bounds,
        **({} if run.value is None else run.value._asdict()),
        "warnings": list(run.warnings),
        "seconds": run.seconds,
        "model": repr(run.model),
    }


def _solved_facts(solved: lm.offline.Solved) -> dict[str, Any]:
    return {
        "kind": "outcome of solve",
        "contexts": solved.model.n_contexts,
        "will_earn": solved.value.mean,
        "low": solved.value.low,
        "high": solved.value.high,
        "final_states": list(solved.final_states),
        "warnings": list(solved.warnings),
        "seconds": solved.seconds,
        "model": repr(solved.model),
    }


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        more = [] if len(value) <= _MOST else [f"... ({len(value):,} in all)"]
        return ", ".join([*map(_shown, value[:_MOST]), *more]) or "none"
    return str(value)
