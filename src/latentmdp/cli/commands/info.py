"""`latentmdp info`: what a file holds."""

from __future__ import annotations

from typing import Any

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command()
def command(screen: Screen, source: options.AnyFile, plot: options.Plot = None) -> None:
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
