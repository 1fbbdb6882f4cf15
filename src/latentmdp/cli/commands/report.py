"""`latentmdp report`: runs, outcomes, experiments and models as one self-contained page."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command()
def command(
    screen: Screen,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", exists=True, readable=True)],
    out: options.PageOut = Path("report.html"),
    truth: Annotated[Path | None, typer.Option(exists=True)] = None,
    title: options.Title = "Report",
) -> None:
    """Write one self-contained HTML page about runs: it opens offline, on a phone, on paper.

    Settings and seeds, curves with their spread over runs, beliefs along an episode, where
    contexts differ, which assumptions hold, the planner's bounds, what a policy found in logs will
    earn, which claims of the paper held, and timing.

    Example: `latentmdp report a.parquet b.parquet --out report.html`

    Parameters
    ----------
    runs
        Runs (.parquet of `lucrl`, .npz of `learn --run-out`), outcomes (.npz of `solve
        --run-out`), folders of `reproduce`, and models.
    truth
        File of the true model, to compare with.
    """
    with screen.progress("reading, planning and drawing"):
        lm.report.write_report(runs, out, truth, title)
    screen.result(report=out, bytes=out.stat().st_size)
