"""`latentmdp info`: what a file holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import session

if TYPE_CHECKING:
    from latentmdp.offline import Solved
    from latentmdp.online import Learned, Run

__all__ = ["command"]

_RANGES = {"lengths", "mean_reward_range"}
"""Facts that are a least and a greatest number."""


def command(
    file: options.File,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Say what a file holds: the sizes of a model, the episodes of logs, what was learned.

    Example: `latentmdp info m.npz`
    """
    with session(as_json, quiet, debug) as screen:
        found = lm.load(file)
        if isinstance(found, lm.LatentMDP):
            facts = _model_facts(found)
        elif isinstance(found, lm.Trajectories):
            facts = _log_facts(found)
        elif type(found).__name__ in _OUTCOMES:
            facts = _OUTCOMES[type(found).__name__](found)
        else:
            facts = {"kind": type(found).__name__, "summary": repr(found)}
        screen.result(file=str(file), **facts)
        shown = {name.replace("_", " "): _shown(fact) for name, fact in facts.items()}
        for name in _RANGES & facts.keys():
            shown[name.replace("_", " ")] = " to ".join(map(_shown, facts[name]))
        screen.facts(str(file), shown)


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


def _learned_facts(learned: Learned) -> dict[str, Any]:
    return {
        "kind": "outcome of learn",
        "episodes": int(learned.returns.size),
        "contexts": learned.model.n_contexts,
        "mean_return": float(learned.returns.mean()),
        "return_at_the_end": learned.trailing_return(),
        "lower": learned.plan.lower,
        "upper": learned.plan.upper,
        "seconds": learned.seconds,
        "model": repr(learned.model),
    }


def _run_facts(run: Run) -> dict[str, Any]:
    return {
        "kind": "run of lucrl",
        "episodes": int(run.returns.size),
        "contexts": run.model.n_contexts,
        "mean_return": float(run.returns.mean()),
        "return_at_the_end": run.trailing_return(),
        "seconds": run.seconds,
        "model": repr(run.model),
    }


def _solved_facts(solved: Solved) -> dict[str, Any]:
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


_OUTCOMES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "Learned": _learned_facts,
    "Run": _run_facts,
    "Solved": _solved_facts,
}
"""Outcomes by the name of their class, which is not loaded before it is met."""


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value) or "none"
    return str(value)
