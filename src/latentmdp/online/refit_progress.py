"""The progress bar of `learn`: episodes played and what the last phase earned."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentmdp.online.learned import Phase

__all__ = ["Progress"]


class Progress:
    """A rich progress bar, or nothing if it is not shown."""

    def __init__(self, total: int, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("learning"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[status]}"),
                TimeElapsedColumn(),
                transient=True,
            )
            self._task = self._bar.add_task("learning", total=total, status="exploring")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, played: int, phases: tuple[Phase, ...]) -> None:
        """Show where the run stands."""
        if self._bar is not None and phases:
            last = phases[-1]
            status = f"{last.n_contexts or '?'} contexts, return {last.mean_return:.3g}"
            self._bar.update(self._task, completed=played, status=status)
