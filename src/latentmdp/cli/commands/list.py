"""`latentmdp list`: what the library has, by the names that commands use."""

from __future__ import annotations

from typing import Annotated

import typer

from latentmdp.cli import options
from latentmdp.cli.screen import session

__all__ = ["command"]

KINDS = ("instances", "planners", "learners", "experiments")


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def command(
    what: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(KINDS)}; all by default.", autocompletion=_kinds),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """List the instances, planners, learners and experiments there are.

    Example: `latentmdp list planners`
    """
    with session(as_json, quiet, debug) as screen:
        if what is not None and what not in KINDS:
            raise typer.BadParameter(f"unknown kind {what!r}; known: {', '.join(KINDS)}")
        from latentmdp.cli import catalogue

        found = {kind: getattr(catalogue, kind)() for kind in KINDS if what in (None, kind)}
        screen.result(**found)
        for kind, entries in found.items():
            rows = list(entries.items())
            screen.table(kind, (kind.removesuffix("s"), "what it is"), rows, words=["what it is"])
