"""`latentmdp info`: what a file holds."""

from __future__ import annotations

from typing import Any

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import session

__all__ = ["command"]


def command(
    file: options.File,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Say what a file holds: sizes, separation, rewards; or the episodes of logs.

    Example: `latentmdp info m.npz`
    """
    with session(as_json, quiet, debug) as screen:
        found = lm.load(file)
        if isinstance(found, lm.LatentMDP):
            facts = _model_facts(found)
        elif isinstance(found, lm.Trajectories):
            facts = _log_facts(found)
        else:
            facts = {"kind": type(found).__name__, "summary": repr(found)}
        screen.result(file=str(file), **facts)
        screen.facts(str(file), {k.replace("_", " "): _shown(v) for k, v in facts.items()})


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
        weights = logs.multiplicities()
        if weights.sum():
            facts["mean_return"] = float((logs.returns() * weights).sum() / weights.sum())
    if logs.reward_values is not None:
        facts["reward_values"] = logs.reward_values.tolist()
    return facts


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    return str(value)
