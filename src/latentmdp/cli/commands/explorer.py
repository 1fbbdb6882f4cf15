"""`latentmdp explorer`: a policy as a page on which observations are picked step by step."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    policy: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY",
            help="A policy, or what holds one: a plan, a run, an outcome of `solve` (.npz).",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", help="The model of a policy that has none of its own.", exists=True
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The page (.html).")] = Path("explorer.html"),
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "Policy explorer",
) -> None:
    """Write a page for people who do not program: pick what was observed, see what to do.

    One file that opens offline. It shows the belief, the recommended action, its margin and the
    values by context, and keeps the history in its address.

    Example: `latentmdp explorer policy.npz --out explorer.html`
    """
    options.check_target(out)
    found = lm.load(policy)
    acting = getattr(found, "policy", found)
    if not isinstance(acting, lm.policies.Policy):
        raise typer.BadParameter(f"{policy} holds a {type(found).__name__}, not a policy")
    lm.report.write_explorer(
        acting, out, None if model is None else options.load_model(model), title
    )
    screen.result(explorer=out, bytes=out.stat().st_size)
    screen.say(f"{out} ({out.stat().st_size / 1024:.0f} KiB)", "explorer")
