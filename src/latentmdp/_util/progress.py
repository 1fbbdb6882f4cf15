"""The one progress bar: on the standard error stream, so that what a program prints stays clean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Move(Protocol):
    """Moves a bar on, and may say what is done next."""

    def __call__(self, by: int = 1, doing: str | None = None) -> None: ...


@contextmanager
def progress_bar(
    visible: bool, doing: str = "", total: int | None = None, transient: bool = False
) -> Iterator[Move]:
    """A bar while work goes on, if it is `visible`; without a `total` there is nothing to fill.

    Parameters
    ----------
    doing
        What is done, in a few words before the bar.
    total
        Units of work.
    transient
        Whether the bar disappears when the work is over.
    """
    if not visible:
        yield lambda by=1, doing=None: None
        return
    # rich takes a tenth of a second to import, and most calls show nothing.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=transient) as bar:
        task = bar.add_task(doing, total=total)

        def move(by: int = 1, doing: str | None = None) -> None:
            bar.update(task, advance=by, description=doing)

        yield move
