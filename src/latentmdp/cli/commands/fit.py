"""`latentmdp fit`: find the contexts behind logs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen, session

__all__ = ["command"]

SHOWN = 5


def command(
    logs: Annotated[
        Path, typer.Argument(metavar="LOGS", help="Logs (.parquet or .npz).", exists=True)
    ],
    out: Annotated[Path, typer.Option("--out", help="Where to: .npz or .json.")],
    contexts: Annotated[
        str, typer.Option("--contexts", help="How many contexts, or `auto`.")
    ] = "auto",
    short: Annotated[
        Path | None, typer.Option("--short", help="More logs, of short episodes.", exists=True)
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Fit a latent MDP to logs and say what was found.

    Example: `latentmdp fit logs.parquet --contexts 3 --out model.npz`
    """
    from latentmdp.fit import FitWarning

    with session(as_json, quiet, debug) as screen:
        options.check_target(lm.LatentMDP, out)
        number = _number(contexts)
        long = _load_logs(logs)
        more = None if short is None else _load_logs(short)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FitWarning)
            fit = lm.initialize(more, long, number, rng=seed, progress=screen.talks)
        messages = [str(w.message) for w in caught if issubclass(w.category, FitWarning)]
        lm.save(fit.model, out)
        screen.result(**_summary(fit, messages), out=str(out))
        _show(screen, fit, messages)
        screen.say(f"saved to {out}")


def _number(contexts: str) -> Any:
    if contexts == "auto":
        return "auto"
    try:
        return int(contexts)
    except ValueError:
        raise ValueError(f"--contexts must be a number or auto, got {contexts!r}") from None


def _load_logs(path: Path) -> lm.Trajectories:
    logs = lm.load(path)
    if not isinstance(logs, lm.Trajectories):
        raise ValueError(f"{path} holds {type(logs).__name__}, not logs")
    return logs


def _summary(fit: lm.Fit, messages: list[str]) -> dict[str, Any]:
    return {
        "contexts": fit.model.n_contexts,
        "weights": fit.model.weights.tolist(),
        "log_likelihood": fit.log_likelihood,
        "smoothing": fit.smoothing,
        "converged": fit.converged,
        "confidence": float(fit.responsibilities.max(axis=1).mean()),
        "selection": None if fit.selection is None else fit.selection.statement,
        "separated_by": _separating(fit.model),
        "warnings": messages,
    }


def _separating(model: lm.LatentMDP) -> list[dict[str, Any]]:
    """The (s, a) at which two contexts differ most, by L1 distance of (s', r)."""
    import numpy as np

    if model.n_contexts == 1:
        return []
    joint = model.observation_probs()
    gaps = np.abs(joint[:, None] - joint[None, :]).sum(axis=(4, 5))
    widest = gaps.max(axis=(0, 1))
    found = []
    for place in np.argsort(-widest, axis=None, kind="stable")[:SHOWN]:
        s, a = np.unravel_index(place, widest.shape)
        m, n = np.unravel_index(gaps[:, :, s, a].argmax(), gaps.shape[:2])
        pair = sorted((int(m), int(n)))
        found.append(
            {"state": int(s), "action": int(a), "distance": float(widest[s, a]), "between": pair}
        )
    return found


def _show(screen: Screen, fit: lm.Fit, messages: list[str]) -> None:
    shares, labels = fit.responsibilities, fit.labels
    rows = []
    for m, weight in enumerate(fit.model.weights):
        mine = labels == m
        sure = f"{shares[mine, m].mean():.3f}" if mine.any() else "-"
        rows.append((str(m), f"{weight:.3f}", str(int(mine.sum())), sure))
    header = ("context", "weight", "episodes assigned", "mean certainty")
    screen.table(f"{fit.model.n_contexts} contexts", header, rows)
    apart = [
        (
            f"{x['state']}, {x['action']}",
            f"{x['distance']:.3f}",
            " and ".join(map(str, x["between"])),
        )
        for x in _separating(fit.model)
    ]
    if apart:
        screen.table("what separates them", ("state, action", "distance", "contexts"), apart)
    if fit.selection is not None:
        screen.say(fit.selection.statement)
    for message in messages:
        screen.say(message, "warning:")
