"""Arguments, options and files that commands share, so that they read and behave alike.

Options that several commands take together are a dataclass whose fields are the options, such as
`LogSource`: a command that has a parameter of this class takes all of them, and gets them as one
object that knows what to do with them (`command` takes it apart for the command line).
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import OptionInfo

import latentmdp as lm
from latentmdp.cli.catalogue import PLANNERS
from latentmdp.cli.config import Config, handed_on, value_of
from latentmdp.cli.screen import session

if TYPE_CHECKING:
    from latentmdp.logs import Logs


def completed(
    names: Callable[[], Iterable[str]], info: Callable[..., Any] = typer.Option, **settings: Any
) -> Any:
    """An option, or another `info` of typer, for which a shell offers names, made when needed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return info(autocompletion=complete, **settings)


def existing_file(metavar: str, help: str = "", or_folder: bool = False) -> Any:
    """An argument that is a file to read, or a folder with one file for each context."""
    return typer.Argument(
        metavar=metavar, help=help, exists=True, dir_okay=or_folder, readable=True
    )


def written(
    *suffixes: str, help: str = "", info: Callable[..., Any] = typer.Option, **settings: Any
) -> Any:
    """An option, or another `info` of typer, that is a file to write: of any kind, or of these.

    `command` refuses it before the work begins where it cannot be written, or would take the place
    of a file that is read, and confirms it afterwards.
    """
    declared = info(help=help, **settings)
    declared.suffixes = suffixes
    return declared


ModelFile = Annotated[
    Path,
    existing_file("MODEL", "A model (.npz, .json, .csv, .pomdp, .pomdpx, .prism).", or_folder=True),
]
File = Annotated[
    Path,
    existing_file(
        "FILE",
        "A model or logs, as `save` wrote it, or a table, POMDP or PRISM model of others.",
        or_folder=True,
    ),
]
Hidden = Annotated[
    list[str] | None,
    typer.Option(
        "--hidden",
        metavar="NAME=VALUES",
        help="A constant that a PRISM or JANI file leaves open: `N=2..80`, `p=0.1,0.2`.",
    ),
]
Goal = Annotated[
    str | None,
    typer.Option("--goal", help="The label in quotes, or the expression, that is to be reached."),
]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask scheduler at this address.")
]
Contexts = Annotated[
    str, typer.Option(help="How many contexts, or `auto` to choose from the data.")
]
RewardModel = Annotated[
    Literal["auto", "state-action", "transition"],
    typer.Option(
        metavar="WHAT",
        help="What rewards depend on: `state-action`, `transition` (the next state too) or `auto`.",
    ),
]
PolicyName = Annotated[
    str,
    completed(
        lambda: ["uniform", *PLANNERS], help="`uniform`, a planner's name (`qmdp`), or a file."
    ),
]
TimeLimit = Annotated[float | None, typer.Option(min=0.0, help="Seconds a planner may take.")]
Plot = Annotated[
    Path | None,
    written(".svg", ".png", ".pdf", help="Draw what was found, to a file (.svg, .png or .pdf)."),
]
PolicyOut = Annotated[Path | None, written(".npz", help="Save the policy here (.npz).")]
ModelOut = Annotated[
    Path | None,
    written(
        ".npz", ".json", ".csv", ".pomdp", ".pomdpx", help="Save the model here (.npz or .json)."
    ),
]
Checkpoint = Annotated[
    Path | None, written(".npz", help="Save to, and go on from, this .npz file.")
]
Episodes = Annotated[int, typer.Option(min=1, help="How many episodes to play.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="`cuda` is a GPU.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
Quick = Annotated[bool, typer.Option(help="A small version, in seconds.")]
ResultsFolder = Annotated[Path, typer.Option(help="Folder for the results.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; by default all cores.")]
PageOut = Annotated[Path, written(".html", help="The page (.html).")]
Title = Annotated[str, typer.Option(help="Heading of the page.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress.")]
Debug = Annotated[bool, typer.Option(help="Show the traceback of an error.")]
Positive = Annotated[int, typer.Option(min=1)]


def command(*, config: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of its body, a function of a `Screen` and of the command's own options.

    The docstring of the body says under "Parameters" what each option is, unless its type does. A
    parameter whose type is a dataclass stands for the options that are its fields, which the
    docstring of that class describes. The command also takes --json, --quiet and --debug and, with
    `config`, --config; its body runs in a `session`, so that errors end it alike everywhere.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(body, eval_str=True)
        _, *declared = signature.parameters.values()
        kinds: dict[str, Any] = {
            p.name: p.annotation for p in declared if is_dataclass(p.annotation)
        }
        groups = {name: _options_of(group) for name, group in kinds.items()}
        own = {option.name: option for option in _options_of(body)}
        shared = _options_of(_shared)[0 if config else 1 :]
        parts = [groups.get(p.name, [own[p.name]]) for p in declared]
        parameters = [option for part in (*parts, shared) for option in part]
        outputs = {
            p.name: p.annotation.__metadata__[0]
            for p in parameters
            if hasattr(getattr(p.annotation, "__metadata__", [None])[0], "suffixes")
        }

        @functools.wraps(body)
        def run(json: bool, quiet: bool, debug: bool, **values: Any) -> None:
            values.pop("config", None)  # it has been read by then
            with session(json, quiet, debug) as screen:
                files = _checked_outputs(values, outputs)
                for name, options in groups.items():
                    values[name] = kinds[name](**{o.name: values.pop(o.name) for o in options})
                body(screen, **values)
                for path in files:
                    if path.is_file():
                        size = path.stat().st_size / 1024
                        screen.say(f"{path} ({size:,.0f} KiB)", "written")

        # typer reads a command from its signature, in which groups stand as their options.
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__dict__["__signature__"] = signature.replace(parameters=parameters)
        run.__doc__ = (inspect.getdoc(body) or "").partition(_SECTION)[0]
        return run

    return decorate


def _checked_outputs(values: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Path]:
    """The files that a command will write; raises if one cannot be, or is one that it reads."""
    from latentmdp._util.storage import require_writable
    from latentmdp._util.words import listed

    paths = {name: values[name] for name in outputs if values[name] is not None}
    inputs = [value for name, value in values.items() if name not in outputs]
    given = [path for value in inputs for path in (value if isinstance(value, list) else [value])]
    files = [p for p in given if isinstance(p, str | Path) and os.path.isfile(p)]
    read = {Path(file).resolve() for file in files}  # a text too: that of --policy may be a file
    for name, path in paths.items():
        option = isinstance(outputs[name], OptionInfo)
        about = f"{f'--{name}'.replace('_', '-') if option else name.upper()} {path}"
        suffixes = outputs[name].suffixes
        if path.resolve() in read:
            raise typer.BadParameter(
                f"{about} is a file that the command reads: it would be overwritten"
            )
        if suffixes and path.suffix.lower() not in suffixes:
            known = listed([suffix for suffix in suffixes if suffix], "or")
            raise typer.BadParameter(f"{about} is written as {known}")
        if path.suffix:  # without one it is a folder
            require_writable(path)
    return list(paths.values())


_SECTION = "Parameters\n----------\n"


def _shared(
    config: Config = None, json: Json = False, quiet: Quiet = False, debug: Debug = False
) -> None:
    """The options of every command; the first one is of those that may run for long."""


def _options_of(declared: Any) -> list[inspect.Parameter]:
    """The parameters of a body or of a group as typer takes them, with help from its docstring."""
    _, _, section = (inspect.getdoc(declared) or "").partition(_SECTION)
    entries = re.findall(r"^(\w.*)\n((?:    .*\n?)+)", section, re.MULTILINE)
    texts = {n: " ".join(text.split()) for names, text in entries for n in names.split(", ")}
    options = []
    for p in inspect.signature(declared, eval_str=True).parameters.values():
        is_declared = get_origin(p.annotation) is Annotated
        kind, *infos = get_args(p.annotation) if is_declared else (p.annotation,)
        if kind is not typer.Context:
            info = copy(infos[0]) if infos else typer.Option()
            info.help = texts.get(p.name, info.help)
            # Without a name, typer would add a --no-... to every flag. (The first argument of
            # `typer.Option` is called `default`, and is a name where there is one.)
            if isinstance(info, OptionInfo) and info.default is ...:
                info.param_decls = (f"--{p.name.replace('_', '-')}",)
            p = p.replace(annotation=Annotated[kind, info])
        # By keyword, so that options with and without a default may mix.
        options.append(p.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return options


# -- options that belong together -----------------------------------------------------------------


@dataclass
class AnyFile:
    """A model, logs or whatever else a file holds, with how to read a table or POMDP of others.

    Parameters
    ----------
    columns
        What a table calls its columns: `context=model,state=from,...`.
    """

    file: File
    context: typer.Context
    columns: str | None = None
    hidden: Hidden = None
    goal: Goal = None

    def load(self) -> Any:
        """What the file holds; options that the command does not know say how to read it."""
        known = {**_named(self.columns), **_constants(self.hidden, {"goal": self.goal})}
        return lm.load(self.file, **known, **handed_on(self.context))


@dataclass
class ModelSource:
    """A model in a file, and how to read one of a model checker."""

    model: ModelFile
    hidden: Hidden = None
    goal: Goal = None
    horizon: Annotated[
        int | None, typer.Option("--horizon", min=1, help="Steps, where the file has no end.")
    ] = None
    discount: Annotated[
        float | None, typer.Option("--discount", help="Where a PRISM file has no end.")
    ] = None
    reward: Annotated[
        str | None, typer.Option("--reward", help="Which reward model of a PRISM file is paid.")
    ] = None

    def load(self) -> lm.LatentMDP:
        """The model in the file."""
        given = {"horizon": self.horizon, "discount": self.discount, "reward": self.reward}
        return load_model(self.model, **_constants(self.hidden, {"goal": self.goal, **given}))


def _constants(hidden: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    """`--hidden`, and what else was given, as arguments of `load`."""
    arguments = {name: value for name, value in given.items() if value is not None}
    for text in hidden or []:
        parts = re.fullmatch(r"(\w+)=(?:(-?\d+)\.\.(-?\d+)|(.+))", text)
        if parts is None:
            raise typer.BadParameter(f"--hidden {text!r} must look like N=2..80 or N=0.1,0.2")
        name, low, high, listed = parts.groups()
        values = range(int(low), int(high) + 1) if low else map(value_of, listed.split(","))
        arguments.setdefault("hidden", {})[name] = list(values)
    return arguments


@dataclass
class LogSource:
    """Logs in a file, a folder or a pattern, how to read those of others, and where to work.

    Parameters
    ----------
    logs
        Logged episodes: a file (.parquet, .csv or .npz); or, read batch by batch, a folder or a
        quoted pattern of .parquet files.
    columns
        What a table calls its columns: `episode=id,t=week,...`.
    covariates
        Columns of a table that describe the individual: `age,region`.
    reward_levels
        Levels that measured rewards of a table are cut into: a number, `auto` or `none`.
    silent_rewards
        Rewards of a table are only to be earned; they tell no contexts apart.
    """

    logs: Annotated[Path, typer.Argument(metavar="LOGS")]
    columns: str | None = None
    covariates: str | None = None
    reward_levels: str = "auto"
    silent_rewards: bool = False
    cluster: Cluster = None

    def read(self, device: str = "cpu") -> tuple[Logs, lm.engines.Engine | None]:
        """The logs, and the engine that checks the files of a folder; models are refused."""
        engine, path = engine_of(self.cluster, device), self.logs
        arguments: dict[str, Any] = _named(self.columns)
        if self.covariates is not None:
            arguments["covariates"] = parts_of(self.covariates)
        if self.reward_levels != "auto":
            arguments["reward_levels"] = value_of(self.reward_levels)
        if self.silent_rewards:
            arguments["informative_rewards"] = False
        if path.is_dir() or set("*?[") & set(str(path)):
            return lm.open_logs(str(path), engine=engine, **arguments), engine
        logs = lm.io.load_as(lm.Trajectories, path, "logs", **arguments)
        if not len(logs):
            raise typer.BadParameter(f"{path} holds no episode")
        return logs, engine


Shared = Literal["auto", "yes", "no"]


@dataclass
class StructureOptions:
    """What is looked for in logs: how many contexts, what they share, what the logger knew.

    Parameters
    ----------
    behaviour
        Whether the logger knew the context: `shared` (no), `by-context` or `auto`.
    shared_rewards, shared_transitions, shared_initial
        Whether all contexts share them: `yes`, `no` or `auto`.
    """

    contexts: Contexts = "auto"
    reward_model: RewardModel = "auto"
    behaviour: Annotated[Literal["auto", "shared", "by-context"], typer.Option(metavar="WHAT")] = (
        "auto"
    )
    shared_rewards: Shared = "auto"
    shared_transitions: Shared = "auto"
    shared_initial: Shared = "auto"

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `initialize` and `solve`."""
        answers = {"yes": True, "no": False}
        arguments = {name: answers.get(value, value) for name, value in vars(self).items()}
        return {"n_contexts": value_of(arguments.pop("contexts")), **arguments}


@dataclass
class OutcomeFiles:
    """Where the policy, the model and everything that `learn` or `solve` found are saved.

    Parameters
    ----------
    run_out
        Save everything here, for `report` (.npz).
    """

    out: PolicyOut = None
    model_out: ModelOut = None
    run_out: Annotated[Path | None, written(".npz")] = None

    def save(self, result: Any) -> None:
        """Save each where the user asked for it."""
        save(result.policy, self.out)
        save(result.model, self.model_out)
        save(result, self.run_out)


# -- values of single options ---------------------------------------------------------------------


def parts_of(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def belief_of(text: str | None) -> list[float] | dict[str, float] | None:
    """The value of `--belief`: numbers, or numbers by the names of contexts."""
    if text is None:
        return None
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
    names = model.state_names or ()
    return int(text) if text.isdigit() and text not in names else text


def _named(columns: str | None) -> dict[str, Any]:
    """The value of `--columns` as an argument, if there is one."""
    if columns is None:
        return {}
    pairs = [pair.partition("=") for pair in columns.split(",")]
    if not all(word.strip() and name.strip() for word, _, name in pairs):
        raise typer.BadParameter(
            f"--columns takes context=NAME,state=NAME,... with names of the table, got {columns!r}"
        )
    return {"columns": {word.strip(): name.strip() for word, _, name in pairs}}


def engine_of(cluster: str | None, device: str = "cpu") -> lm.engines.Engine | None:
    """The cluster at an address or the device, if one is asked for; raises if it cannot be used."""
    if cluster is None and device == "cpu":
        return None
    dask = None if cluster is None else lm.engines.Dask(cluster)
    return lm.engines.as_engine(dask, device=device)


# -- files ----------------------------------------------------------------------------------------


def load_model(path: Path, **arguments: Any) -> lm.LatentMDP:
    """The model in a file; logs are refused."""
    return lm.io.load_as(lm.LatentMDP, path, "a model", **arguments)


def draw(path: Path | None, result: Any, drawing: Callable[..., Any] | None = None) -> None:
    """Write the picture of a result, or what else draws it, where the user asked for it."""
    if path is not None:
        from latentmdp._util.figures import write_figure

        write_figure((drawing or lm.plot.picture)(result), path)


def save(result: object, path: Path | None) -> None:
    """Save what was found where the user asked for it, if anywhere."""
    if path is not None:
        lm.save(result, path)
