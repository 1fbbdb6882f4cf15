"""`latentmdp list`: what the library has, by the names that commands use."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from latentmdp.cli import options
from latentmdp.cli.catalogue import KINDS
from latentmdp.cli.screen import Screen


@options.command()
def command(
    screen: Screen,
    what: Annotated[
        Literal["instances", "planners", "learners", "experiments"] | None, typer.Argument()
    ] = None,
) -> None:
    """List the instances, planners, learners and experiments there are.

    Example: `latentmdp list planners`

    Parameters
    ----------
    what
        Which of them; all by default.
    """
    catalogue = {kind: entries() for kind, entries in KINDS.items() if what in (None, kind)}
    screen.result(**catalogue)
    for kind, entries in catalogue.items():
        header = (kind.removesuffix("s"), "what it is")
        screen.table(kind, header, entries.items(), words=header[1:])
