"""`latentmdp explorer`: a policy as a page on which observations are picked step by step."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import policy_in
from latentmdp.cli.screen import Screen


@options.command()
def command(
    screen: Screen,
    policy: Annotated[Path, options.existing_file("POLICY")],
    model: Annotated[Path | None, typer.Option(exists=True)] = None,
    out: options.PageOut = Path("explorer.html"),
    title: options.Title = "Policy explorer",
    unit: str = "",
) -> None:
    """Write a page for people who do not program: pick what was observed, see what to do.

    One file that opens offline. It shows the belief, the recommended action, its margin and the
    values by context, and keeps the history in its address.

    Example: `latentmdp explorer policy.npz --out explorer.html`

    Parameters
    ----------
    policy
        A policy, or what holds one: a plan, a run, an outcome of `solve` (.npz).
    model
        The model of a policy that has none of its own.
    unit
        What rewards are counted in: `k€`, `days`.
    """
    world = None if model is None else options.load_model(model)
    lm.report.write_explorer(policy_in(policy), out, world, title, unit)
    screen.result(explorer=out, bytes=out.stat().st_size)
