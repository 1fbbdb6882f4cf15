"""The screen of a command: results on stdout, progress and errors on stderr, and the exit code."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from latentmdp._util.progress import Move, progress_bar
from latentmdp.errors import LatentMDPError


class Screen:
    """Where a command prints; silent where it should be."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.talks = not (as_json or quiet)
        self.checkpoint: Path | None = None
        """Where the work goes on after an interruption."""
        self._results: TextIO | None = None  # the real stdout, while only results may reach it

    def result(self, title: str = "", result: Any = None, /, **inputs: Any) -> None:
        """Print a result: its `facts()`, or a mapping of them, as a table; with --json as JSON.

        What the user gave, `inputs`, and what tables show, goes to machines only. Warnings stand
        below the table, each on a line of its own.
        """
        from latentmdp._util.results import labelled, plain

        facts = dict(result.facts() if hasattr(result, "facts") else result or {})
        if self.as_json:
            typer.echo(json.dumps(plain({**inputs, **facts}), allow_nan=False), self._results)
        if self.talks and facts:
            messages = plain(facts.pop("warnings", ()))
            header = ("name", "fact")
            self.table(title, header, labelled(facts), words=("fact",), show_header=False)
            for message in messages:
                self.say(message, "warning")

    @contextmanager
    def results_only(self) -> Iterator[None]:
        """Let nothing but a JSON result reach stdout.

        Compiled solvers may print there whatever they are told; that goes to stderr instead.
        """
        if not self.as_json or not _is_real(sys.stdout):
            yield
            return
        # Compiled code writes to descriptor 1 whatever Python's sys.stdout is, so the descriptor
        # itself is exchanged; both buffers are emptied before, or what they hold goes astray.
        sys.stdout.flush()
        with os.fdopen(os.dup(1), "w") as self._results:
            os.dup2(2, 1)
            try:
                yield
            finally:
                _flush()
                os.dup2(self._results.fileno(), 1)
        self._results = None

    def say(self, text: str, subject: str = "") -> None:
        """Print a line of prose, after its subject in bold."""
        if self.talks:
            from rich.console import Console
            from rich.text import Text

            line = Text.assemble((subject, "bold"), " " if subject else "", text)
            Console().print(line, soft_wrap=True)

    def table(
        self,
        title: str,
        header: Sequence[str],
        rows: Iterable[Sequence[Any]],
        words: Sequence[str] = (),
        *,
        show_header: bool = True,
    ) -> None:
        """Print a table; columns are aligned right, but for the first and those of `words`.

        Numbers have four digits; what is not known is a dash.
        """
        if self.talks:
            from rich import box
            from rich.console import Console
            from rich.markup import escape
            from rich.table import Table

            from latentmdp._util.results import cell

            # Without frames, so that wide tables have room for their numbers.
            look: Any = {"title_justify": "left", "pad_edge": False, "collapse_padding": True}
            table = Table(title=title, show_header=show_header, box=box.SIMPLE_HEAD, **look)
            for i, name in enumerate(header):
                side: Any = "left" if i == 0 or name in words else "right"
                whole = show_header and i == 0
                table.add_column(name, justify=side, no_wrap=whole, overflow="fold")
            for row in rows:
                table.add_row(*(escape(cell(value)) for value in row))
            Console().print(table)

    def progress(self, doing: str = "", total: int | None = None) -> AbstractContextManager[Move]:
        """Show what is being done, on stderr, to people at a terminal."""
        return progress_bar(self.talks and sys.stderr.isatty(), doing, total, transient=True)

    @contextmanager
    def compilation_told(self) -> Iterator[None]:
        """Let the library say when it compiles, unless this screen is silent."""
        from latentmdp._util.clock import compile_announcement

        announcement = compile_announcement()
        before, announcement.silent = announcement.silent, not self.talks
        try:
            yield
        finally:
            announcement.silent = before

    @contextmanager
    def closing_bounds(self, doing: str) -> Iterator[Callable[[float, float, float], None]]:
        """Show the bounds of a planner while they close: its hook `on_progress`."""
        with self.progress(doing) as move:

            def show(seconds: float, lower: float, upper: float) -> None:
                gap = f", gap {max(upper - lower, 0.0) / abs(lower):.3%}" if lower else ""
                move(0, f"{doing}: {lower:.6g} to {upper:.6g}{gap}")

            yield show


def _is_real(stream: Any) -> bool:
    """Whether a stream is the process's own stdout, not one that a test put in its place."""
    try:
        return bool(stream.fileno() == 1)
    except (AttributeError, OSError, ValueError):
        return False


def _flush() -> None:
    """Write out what Python and compiled code have printed so far."""
    import ctypes
    from contextlib import suppress

    sys.stdout.flush()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def session(as_json: bool, quiet: bool, debug: bool) -> Iterator[Screen]:
    """Run a command's body; no error shows a traceback unless `debug` asks for it.

    Bad input ends with code 2, Ctrl-C with 130, and what nobody foresaw with 1.
    """
    screen = None
    try:
        screen = Screen(as_json, quiet)
        with screen.results_only(), screen.compilation_told(), warnings.catch_warnings():
            # For people: what it says, not where in the code.
            warnings.showwarning = lambda text, *_, **more: typer.secho(
                f"warning: {text}", err=True
            )
            yield screen
    except KeyboardInterrupt:
        path = None if screen is None else screen.checkpoint
        on = f"; the same command goes on from {path}" if path and path.is_file() else ""
        typer.secho(f"interrupted{on}", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # The reader of a pipe has gone; keep the interpreter from complaining as it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        foreseen = isinstance(error, LatentMDPError | ValueError | TypeError | OSError)
        message = str(error)
        if not foreseen:
            message = f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        elif isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}"
        typer.secho(f"error: {message}", err=True, fg="red")
        raise typer.Exit(2 if foreseen else 1) from None
