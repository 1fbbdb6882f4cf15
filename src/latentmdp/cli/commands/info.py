"""`latentmdp info`: what a file holds."""

from __future__ import annotations

from typing import Any

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]

_RANGES = {"lengths", "mean_reward_range"}
"""Facts that are a least and a greatest number."""


@options.command()
def command(screen: Screen, file: options.File) -> None:
    """Say what a file holds: the sizes of a model, the episodes of logs, what was learned.

    Example: `latentmdp info m.npz`
    """
    facts = _facts(lm.load(file))
    screen.result(file=file, **facts)
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
    means = model.mean_rewards()
    facts: dict[str, Any] = {
        "kind": "model",
        "contexts": model.n_contexts,
        "states": model.n_states,
        "actions": model.n_actions,
        "horizon": model.horizon,
        "discount": model.discount,
        "reward_values": model.reward_values.tolist(),
        "mean_reward_range": [float(means.min()), float(means.max())],
        "weights": model.weights.tolist(),
        "fingerprint": model.fingerprint()[:16],
    }
    if model.n_contexts > 1:
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
        return ", ".join(_shown(item) for item in value) or "none"
    return str(value)
