"""`latentmdp diagnose`: which assumptions of the theory hold, and whether logs bear out a model."""

from pathlib import Path
from typing import Any

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen


@options.command()
def command(
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
        A model, fit or result of `solve` to check the logs against.
    columns
        What a table of logs calls its columns: `episode=id,t=week,...`.
    """
    more, acting = dict[str, Any](), None
    is_table = columns is not None or file.is_dir()
    content: Any = options.LogSource(file, columns).read()[0] if is_table else lm.load(file)
    if model is not None:
        fitted: Any = lm.load(model)
        with screen.progress("checking"):
            checks = lm.check_fit(content, getattr(fitted, "fit", fitted), seed)
        screen.result(file=file, model=model, seed=seed, **checks.facts())
        rows = [(check.name, *row[1:]) for check, row in zip(checks, checks.rows())]
        title = f"{file}: what predicts beyond the model"
        screen.table(title, ("check", "statistic", "verdict"), rows, words=("check", "verdict"))
        return
    content = content.held() if is_table else content
    if isinstance(content, lm.LatentMDP):
        more, acting = (
            {"episodes": episodes, "requirements": requirements},
            find_policy(policy, content),
        )
    elif not isinstance(content, lm.Trajectories):
        raise typer.BadParameter(f"{file} holds {type(content).__name__}")
    with screen.progress("measuring"):
        diagnosis = lm.diagnose(content, acting, length, seed, **more)
    found = diagnosis.rows()
    screen.result(file=file, seed=seed, rows=found, **diagnosis.facts())
    screen.table(str(file), ("assumption", "number", "verdict"), found, words=("verdict",))
