"""Arguments and options that commands share, so that they read and behave alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import latentmdp as lm
from latentmdp.cli.choices import PLANNERS

__all__ = [
    "Contexts",
    "Debug",
    "Episodes",
    "File",
    "Json",
    "LogsFile",
    "Method",
    "ModelFile",
    "Plot",
    "PolicyName",
    "PolicyOut",
    "Quiet",
    "RewardModel",
    "RunOut",
    "Seed",
    "TimeLimit",
    "check_target",
    "contexts_of",
    "load_logs",
    "load_model",
    "save",
]

_READABLE = {"exists": True, "dir_okay": False, "readable": True}

ModelFile = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model (.npz, .json, .pomdp, .pomdpx).", **_READABLE),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A model or logs, as `save` wrote it.", **_READABLE)
]


LogsFile = Annotated[
    Path, typer.Argument(metavar="LOGS", help="Logged episodes (.parquet or .npz).", **_READABLE)
]
Contexts = Annotated[
    str, typer.Option("--contexts", help="How many contexts, or `auto` to choose from the data.")
]


def _reward_models(incomplete: str) -> list[str]:
    known = ("auto", "state-action", "transition")
    return [name for name in known if name.startswith(incomplete)]


RewardModel = Annotated[
    str,
    typer.Option(
        "--reward-model",
        help="What rewards depend on: `state-action`, `transition` (the next state too) or `auto`.",
        autocompletion=_reward_models,
    ),
]


def _policies(incomplete: str) -> list[str]:
    return [name for name in ("uniform", *PLANNERS) if name.startswith(incomplete)]


def _planners(incomplete: str) -> list[str]:
    return [name for name in PLANNERS if name.startswith(incomplete)]


PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="`uniform`, a planner's name (`qmdp`, `hsvi`), or a file.",
        autocompletion=_policies,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method", help=f"Which planner: {', '.join(PLANNERS)}.", autocompletion=_planners
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", min=0.0, help="Seconds a planner may take.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw the bounds against time (.svg, .png or .pdf)."),
]
PolicyOut = Annotated[Path | None, typer.Option("--out", help="Save the policy here (.npz).")]
RunOut = Annotated[
    Path | None, typer.Option("--run-out", help="Save everything here, for `report` (.npz).")
]
Episodes = Annotated[int, typer.Option("--episodes", min=1, help="How many episodes to play.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all randomness.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def load_model(path: Path) -> lm.LatentMDP:
    """The model in a file; logs are refused."""
    return lm.io.load_as(lm.LatentMDP, path, "a model")


def load_logs(path: Path) -> lm.Trajectories:
    """The logs in a file; models are refused."""
    logs = lm.io.load_as(lm.Trajectories, path, "logs")
    if not len(logs):
        raise typer.BadParameter(f"{path} holds no episode")
    return logs


def contexts_of(text: str) -> int | Literal["auto"]:
    """The value of `--contexts`."""
    if text == "auto":
        return "auto"
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"--contexts takes a positive number or auto, got {text!r}")
    return int(text)


def check_target(owner: type, path: Path | None) -> None:
    """Refuse a path where an object of this type cannot be saved, before long work."""
    if path is not None:
        lm.io.check_target(owner, path)


def save(found: object, path: Path | None) -> None:
    """Save what was found where the user asked for it, if anywhere."""
    if path is not None:
        lm.save(found, path)
