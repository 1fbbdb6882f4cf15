"""Arguments, options and files that commands share, so that they read and behave alike."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import latentmdp as lm
from latentmdp.cli.catalogue import PLANNERS
from latentmdp.cli.config import Config
from latentmdp.cli.screen import session

if TYPE_CHECKING:
    from latentmdp._util.arrays import Integers
    from latentmdp.logs import Logs

__all__ = [
    "Behaviour",
    "Checkpoint",
    "Cluster",
    "Columns",
    "Contexts",
    "CovariateColumns",
    "Device",
    "Episodes",
    "File",
    "InformativeRewards",
    "LogColumns",
    "LogsFile",
    "Method",
    "ModelFile",
    "ModelOut",
    "Plot",
    "PolicyName",
    "PolicyOut",
    "RewardLevels",
    "RewardModel",
    "RunOut",
    "Seed",
    "Shared",
    "TimeLimit",
    "belief_of",
    "check_plot",
    "check_target",
    "command",
    "completed",
    "contexts_of",
    "draw_bounds",
    "engine_of",
    "individuals_of",
    "load_any",
    "load_logs",
    "load_model",
    "mean_return",
    "outcome_targets",
    "save",
    "save_outcome",
    "shared_settings",
    "state_of",
]


def completed(*names: str) -> Callable[[str], list[str]]:
    """What a shell offers for an option that takes one of these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


_READABLE = {"exists": True, "dir_okay": False, "readable": True}

ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A model (.npz, .json, .csv, .pomdp, .pomdpx).", **_READABLE
    ),
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A model or logs, as `save` wrote it, or a table or POMDP of others.",
        **_READABLE,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", help="What a table calls its columns: `context=model,state=from,...`."
    ),
]
LogsFile = Annotated[
    Path,
    typer.Argument(
        metavar="LOGS",
        help="Logged episodes: a file (.parquet, .csv or .npz); or, read batch by batch, a folder "
        "or a quoted pattern of .parquet files.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Run on the Dask scheduler at this address."),
]
LogColumns = Annotated[
    str | None,
    typer.Option(
        "--columns", help="What a table calls its columns: `episode=id,t=week,state=brand,...`."
    ),
]
CovariateColumns = Annotated[
    str | None,
    typer.Option(
        "--covariates", help="Columns of a table that describe the individual: `age,region`."
    ),
]
RewardLevels = Annotated[
    str,
    typer.Option(
        "--reward-levels",
        help="Levels that measured rewards of a table are cut into: a number, `auto` or `none`.",
    ),
]
InformativeRewards = Annotated[
    bool,
    typer.Option(
        "--informative-rewards/--silent-rewards",
        help="Whether rewards of a table tell contexts apart, or are only to be earned.",
    ),
]
Contexts = Annotated[
    str, typer.Option("--contexts", help="How many contexts, or `auto` to choose from the data.")
]
RewardModel = Annotated[
    str,
    typer.Option(
        "--reward-model",
        help="What rewards depend on: `state-action`, `transition` (the next state too) or `auto`.",
        autocompletion=completed("auto", "state-action", "transition"),
    ),
]
_SHARED = typer.Option(
    help="Whether all contexts share them: `yes`, `no` or `auto`.",
    autocompletion=completed("auto", "yes", "no"),
)
Shared = Annotated[str, _SHARED]
Behaviour = Annotated[
    str,
    typer.Option(
        "--behaviour",
        help="Whether the logger knew the context: `shared` (no), `by-context` or `auto`.",
        autocompletion=completed("auto", "shared", "by-context"),
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="`uniform`, a planner's name (`qmdp`, `hsvi`), or a file.",
        autocompletion=completed("uniform", *PLANNERS),
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help=f"Which planner: {', '.join(PLANNERS)}.",
        autocompletion=completed(*PLANNERS),
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", min=0.0, help="Seconds a planner may take.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw the bounds against time (.svg, .png or .pdf).")
]
PolicyOut = Annotated[Path | None, typer.Option("--out", help="Save the policy here (.npz).")]
ModelOut = Annotated[
    Path | None, typer.Option("--model-out", help="Save the model that was found here.")
]
RunOut = Annotated[
    Path | None, typer.Option("--run-out", help="Save everything here, for `report` (.npz).")
]
Checkpoint = Annotated[
    Path | None, typer.Option("--checkpoint", help="Save to, and go on from, this .npz file.")
]
Episodes = Annotated[int, typer.Option("--episodes", min=1, help="How many episodes to play.")]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="`cpu`, or `cuda` for a GPU.",
        autocompletion=completed("cpu", "cuda"),
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all randomness.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def command(*, config: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of its body, a function of a `Screen` and of the command's own options.

    The command also takes --json, --quiet and --debug and, with `config`, --config; its body runs
    in a `session`, so that errors end it alike everywhere.
    """
    shared: dict[str, tuple[Any, object]] = {"config": (Config, None)} if config else {}
    shared |= {"as_json": (Json, False), "quiet": (Quiet, False), "debug": (Debug, False)}

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(body, eval_str=True)
        _, *parameters = own.parameters.values()
        for name, (kind, default) in shared.items():
            place = inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters.append(inspect.Parameter(name, place, default=default, annotation=kind))

        @functools.wraps(body)
        def run(as_json: bool, quiet: bool, debug: bool, **given: Any) -> None:
            given.pop("config", None)  # it has been read by then
            with session(as_json, quiet, debug) as screen:
                body(screen, **given)

        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__dict__["__signature__"] = own.replace(parameters=parameters)
        return run

    return decorate


def shared_settings(rewards: str, transitions: str, initial: str) -> dict[str, Any]:
    """What the options `--shared-...` say, as arguments."""
    given = {"rewards": rewards, "transitions": transitions, "initial": initial}
    known = {"yes": True, "no": False, "auto": "auto"}
    for name, word in given.items():
        if word not in known:
            raise typer.BadParameter(f"--shared-{name} must be yes, no or auto, got {word!r}")
    return {f"shared_{name}": known[word] for name, word in given.items()}


def contexts_of(text: str) -> int | Literal["auto"]:
    """The value of `--contexts`."""
    if text == "auto":
        return "auto"
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"--contexts takes a positive number or auto, got {text!r}")
    return int(text)


def belief_of(text: str) -> list[float] | dict[str, float]:
    """The value of `--belief`: numbers, or numbers by the names of contexts."""
    try:
        if "=" not in text:
            return [float(part) for part in text.split(",")]
        pairs = [part.rpartition("=") for part in text.split(";")]
        return {name.strip(): float(share) for name, _, share in pairs}
    except ValueError:
        raise typer.BadParameter(
            f"--belief takes 0.7,0.2,0.1 or slow=0.7;frail=0.3, got {text!r}"
        ) from None


def state_of(text: str, model: lm.LatentMDP) -> int | str:
    """The value of `--state`: a name of the model, or a number."""
    known = model.state_names or ()
    return int(text) if text.isdigit() and text not in known else text


def load_any(path: Path, columns: str | None, given: Mapping[str, Any]) -> Any:
    """What a file holds; `columns` and what else is `given` are for tables and POMDPs of others."""
    arguments = dict(given)
    if columns is not None:
        arguments["columns"] = _named(columns)
    return lm.load(path, **arguments)


def _named(columns: str) -> dict[str, str]:
    """The value of `--columns`."""
    pairs = [pair.partition("=") for pair in columns.split(",")]
    if not all(word.strip() and name.strip() for word, _, name in pairs):
        raise typer.BadParameter(
            f"--columns takes context=NAME,state=NAME,... with names of the table, got {columns!r}"
        )
    return {word.strip(): name.strip() for word, _, name in pairs}


def load_model(path: Path) -> lm.LatentMDP:
    """The model in a file; logs are refused."""
    return lm.io.load_as(lm.LatentMDP, path, "a model")


def load_logs(
    path: Path,
    columns: str | None = None,
    covariates: str | None = None,
    reward_levels: str = "auto",
    informative_rewards: bool = True,
    engine: lm.engines.Engine | None = None,
) -> Logs:
    """The logs in a file, a folder or a pattern; models are refused.

    The options are for tables of others; the engine checks the files of a folder.
    """
    arguments: dict[str, Any] = {}
    if columns is not None:
        arguments["columns"] = _named(columns)
    if covariates is not None:
        arguments["covariates"] = [name.strip() for name in covariates.split(",") if name.strip()]
    if reward_levels != "auto":
        if reward_levels != "none" and not reward_levels.isdigit():
            raise typer.BadParameter(
                f"--reward-levels takes a number, auto or none, got {reward_levels!r}"
            )
        arguments["reward_levels"] = None if reward_levels == "none" else int(reward_levels)
    if not informative_rewards:
        arguments["informative_rewards"] = False
    if path.is_dir() or set("*?[") & set(str(path)):
        return lm.open_logs(str(path), engine=engine, **arguments)
    logs = lm.io.load_as(lm.Trajectories, path, "logs", **arguments)
    if not len(logs):
        raise typer.BadParameter(f"{path} holds no episode")
    return logs


def engine_of(cluster: str | None, device: str = "cpu") -> lm.engines.Engine | None:
    """The cluster at an address or the device, if one is asked for; raises if it cannot be used."""
    if cluster is None and device == "cpu":
        return None
    dask = None if cluster is None else lm.engines.Dask(cluster)
    return lm.engines.as_engine(dask, device=device)


def individuals_of(logs: Logs) -> tuple[Integers, Integers]:
    """The first episode of every individual, and how often it counts."""
    import numpy as np

    found, counts = [], []
    for batch in logs.batches():
        part = batch.read()
        found.append(batch.start + part.beginnings())
        counts.append(part.multiplicities()[part.beginnings()])
    return np.concatenate(found), np.concatenate(counts)


def mean_return(logs: Logs) -> float:
    """Mean return of logged episodes, counted with their multiplicities; NaN where none is known.

    Episodes of which a reward is missing are left out.
    """
    import numpy as np

    earned, total = 0.0, 0
    for part in (batch.read() for batch in logs.batches()):
        returns, counts = part.returns(), part.multiplicities()
        known = ~np.isnan(returns)
        earned += float((returns[known] * counts[known]).sum())
        total += int(counts[known].sum())
    return earned / total if total else float("nan")


def check_target(path: Path | None, owner: type | None = None) -> None:
    """Refuse a path where nothing, or no object of this type, can be saved: before long work."""
    if path is not None:
        from latentmdp._util.storage import require_writable

        if owner is not None:
            lm.io.check_target(owner, path)
        require_writable(path)


def check_plot(path: Path | None) -> None:
    """Refuse a path where no figure can be written."""
    if path is not None and path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise typer.BadParameter(f"--plot writes .svg, .png or .pdf, got {str(path)!r}")
    check_target(path)


def draw_bounds(histories: Mapping[str, Any], path: Path | None) -> None:
    """Draw the bounds of plans against time where the user asked for it, if anywhere."""
    if path is not None:
        from latentmdp.experiments.findings import write_figure
        from latentmdp.report.plans import bounds_figure

        write_figure(bounds_figure(histories), path)


def save(found: object, path: Path | None) -> None:
    """Save what was found where the user asked for it, if anywhere."""
    if path is not None:
        lm.save(found, path)


def outcome_targets(owner: type, out: Path | None, model: Path | None, run: Path | None) -> None:
    """Check where `save_outcome` will write."""
    check_target(out, lm.AlphaVectorPolicy)
    check_target(model, lm.LatentMDP)
    check_target(run, owner)


def save_outcome(found: Any, out: Path | None, model: Path | None, run: Path | None) -> None:
    """Save the policy, the model and everything that `learn` or `solve` found."""
    save(found.policy, out)
    save(found.model, model)
    save(found, run)
