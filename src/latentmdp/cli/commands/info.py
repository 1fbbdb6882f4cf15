"""`latentmdp info`: what a file holds."""

from __future__ import annotations

from typing import Any

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command()
def command(screen: Screen, source: options.AnyFile) -> None:
    """Say what a file holds: the sizes of a model, the episodes of logs, what was learned.

    Options that the command does not know say how to read a table or a POMDP of others:
    `--horizon 50 --discount 0.9`.

    Example: `latentmdp info m.npz`
    """
    content = source.load()
    facts: dict[str, Any] = {"kind": type(content).__name__}
    if isinstance(content, lm.LatentMDP):
        facts |= _model_facts(content)
    elif isinstance(content, lm.Trajectories):
        facts |= _log_facts(content)
    elif hasattr(content, "facts"):
        facts |= {**content.facts(), "model": repr(getattr(content, "model", None))}
    else:
        facts["summary"] = repr(content)
    screen.result(str(source.file), facts, file=source.file)


def _model_facts(model: lm.LatentMDP) -> dict[str, Any]:
    from latentmdp._util import Worded

    M, S, A, Z = model.dimensions
    facts: dict[str, Any] = {
        "kind": "model",
        "contexts": M,
        "states": S,
        "actions": A,
        "horizon": Worded(model.horizon, str(model.duration)),
        "discount": model.discount,
        "outcomes": model.outcomes.size,
        "stored_as": "outcome table" if model.is_table else "dense arrays",
        "allowed_pairs": int(model.allowed.sum()),
        "terminal_states": int(model.terminal.sum()),
        "reward_values": model.reward_values,
        "mean_reward_range": _range(model.mean_rewards()[:, model.allowed]),
        "weights": model.weights,
        "fingerprint": model.fingerprint()[:16],
    }
    if model.bonus is not None:
        facts["bonus_range"] = _range(model.bonus[:, model.allowed])
    # All pairs of contexts are compared in every row: seconds, at so many entries.
    if M > 1 and model.all_allowed and M * S * A * S * Z < 10_000_000:
        facts["separation"] = float(lm.separation(model))
    return facts | _names(model, "context_names", "state_names", "action_names")


def _log_facts(logs: lm.Trajectories) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "kind": "trajectories",
        "episodes": logs.n_episodes,
        "stored_episodes": len(logs),
        "steps": logs.n_steps,
        "states": logs.n_states,
        "actions": logs.n_actions,
        "contexts_known": logs.contexts is not None,
        "lengths": _range(logs.lengths) if len(logs) else None,
        "mean_return": options.mean_return(logs),
        "reward_values": logs.reward_values,
        "individuals": None if logs.continues is None else logs.n_individuals,
        "missing": logs.missing,
        "covariates": None if logs.covariates is None else list(logs.covariates.names),
    }
    return facts | _names(logs, "state_names", "action_names")


def _range(numbers: Any) -> Any:
    """The least and the greatest number."""
    from latentmdp._util import Worded

    ends = [numbers.min().item(), numbers.max().item()]
    return Worded(ends, "{:.4g} to {:.4g}".format(*ends))


def _names(owner: Any, *kinds: str) -> dict[str, Any]:
    """What a model or logs call things, as far as they do."""
    lists = {kind: getattr(owner, kind) for kind in kinds}
    return {kind: list(names) for kind, names in lists.items() if names is not None}
