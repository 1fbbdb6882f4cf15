"""What files hold, and what of the theory holds: `info`, `convert`, `diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen


@options.command()
def info(screen: Screen, source: options.AnyFile, plot: options.Plot = None) -> None:
    """Say what a file holds: the sizes of a model, the episodes of logs, what was learned.

    Options that the command does not know say how to read a table or a POMDP of others:
    `--horizon 50 --discount 0.9`.

    Example: `latentmdp info m.npz`
    """
    content = source.load()
    options.draw(plot, content)
    facts: dict[str, Any] = {"kind": type(content).__name__}
    facts |= content.facts() if hasattr(content, "facts") else {"summary": repr(content)}
    if isinstance(content, lm.LatentMDP):
        M, S, A, Z = content.dimensions
        # All pairs of contexts are compared in every row: seconds, at so many entries.
        if M > 1 and content.all_allowed and M * S * A * S * Z < 10_000_000:
            facts["separation"] = float(lm.separation(content))
    elif hasattr(content, "model"):
        facts["model"] = repr(content.model)
    screen.result(str(source.file), facts, file=source.file)


@options.command()
def convert(
    screen: Screen,
    source: options.AnyFile,
    out: Annotated[Path, options.written(info=typer.Argument, metavar="OUT")],
    discounted: bool = False,
) -> None:
    """Write what a file holds in another format: .npz, .json, .csv, .parquet, .pomdp or .pomdpx.

    Models as .pomdp and .pomdpx are for other solvers; unless they have no end, the time is part of
    their state. Options that the command does not know say how to read a table or a POMDP of
    others: `--horizon 50 --discount 0.9`, `--horizon none`, `--observed false`. Models of PRISM and
    Storm (.prism, .jani, .drn, .umb, or a folder with one file for each context) are read by
    stormpy: `latentmdp convert m.prism m.npz --hidden N=2..80 --goal '"done"' --horizon 50`.

    Example: `latentmdp convert m.npz m.pomdpx`

    Parameters
    ----------
    out
        Where to; by its suffix.
    discounted
        For .pomdp and .pomdpx: without end, without time.
    """
    content = source.load()
    if discounted:
        lm.io.export(content, out, discounted=True)
    else:
        lm.save(content, out)
    kind = type(content).__name__
    screen.result(file=source.file, target=out, kind=kind)
    screen.say(f"{kind} from {source.file} to {out}")
    if isinstance(content, lm.LatentMDP) and content.terminal.any():
        screen.say(content.facts()["terminal_states"].text, "terminal states:")


@options.command()
def diagnose(
    screen: Screen,
    file: options.File,
    policy: options.PolicyName = "uniform",
    length: options.Positive = 1,
    episodes: options.Episodes = 4000,
    requirements: bool = False,
    model: Path | None = None,
    columns: str | None = None,
    seed: options.Seed = 0,
) -> None:
    """Say which assumptions of the theory a model meets, with numbers and verdicts.

    For logs: coverage, and how many contexts are visible in them. With `--model`, what in the logs
    speaks against that model: `latentmdp diagnose logs.npz --model fit.npz`.

    Example: `latentmdp diagnose m.npz --requirements`

    Parameters
    ----------
    length
        Transitions in a test and in a history.
    requirements
        Also measure the numbers of episodes truly needed.
    model
        A model, fit, policy or result of `solve` to check the logs against.
    columns
        What a table of logs calls its columns: `episode=id,t=week,...`.
    """
    more, acting = dict[str, Any](), None
    is_table = columns is not None or file.is_dir()
    content: Any = options.LogSource(file, columns).read()[0] if is_table else lm.load(file)
    if model is not None:
        fitted: Any = lm.load(model)
        fitted = (
            getattr(fitted, "model", fitted) if isinstance(fitted, lm.policies.Policy) else fitted
        )
        with screen.progress("checking"):
            checks = lm.check_fit(content, getattr(fitted, "fit", fitted), seed)
        screen.result(file=file, model=model, seed=seed, **checks.facts())
        rows = [(check.name, *row[1:]) for check, row in zip(checks, checks.rows())]
        title = f"{file}: what predicts beyond the model"
        screen.table(title, ("check", "statistic", "verdict"), rows, words=("check", "verdict"))
        return
    content = content.held() if is_table else content
    if isinstance(content, lm.LatentMDP):
        more = {"episodes": episodes, "requirements": requirements}
        acting = find_policy(policy, content)
    elif not isinstance(content, lm.Trajectories):
        raise typer.BadParameter(f"{file} holds {type(content).__name__}")
    with screen.progress("measuring"):
        diagnosis = lm.diagnose(content, acting, length, seed, **more)
    found = diagnosis.rows()
    screen.result(file=file, seed=seed, rows=found, **diagnosis.facts())
    screen.table(str(file), ("assumption", "number", "verdict"), found, words=("verdict",))
