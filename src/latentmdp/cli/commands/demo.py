"""`latentmdp demo`: a tour on two instances."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latentmdp.cli import options
from latentmdp.cli.screen import session

if TYPE_CHECKING:
    from latentmdp.report.demo import Comparison

__all__ = ["command"]

FIGURE = "demo.svg"


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder for the picture.")] = Path("out"),
    episodes: options.Episodes = 100_000,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what hiding the context costs and how much of it a belief wins back.

    Builds two instances, plans with Q-MDP, compares it with acting at random and with full
    information, and draws one picture.

    Example: `latentmdp demo --out out`
    """
    with session(as_json, quiet, debug) as screen:
        from latentmdp.report.demo import INSTANCES, compare, demo_models
        from latentmdp.report.figures import comparison_figure, write_figure

        out.mkdir(parents=True, exist_ok=True)
        found = []
        with screen.progress() as progress:
            task = progress.add_task("planning and playing", total=len(INSTANCES))
            for name, model in demo_models(seed):
                found.append(compare(name, model, episodes, seed))
                progress.advance(task)
        write_figure(comparison_figure(found), out / FIGURE)
        screen.result(figure=str(out / FIGURE), instances={c.name: _as_dict(c) for c in found})
        for c in found:
            screen.say(repr(c.model), c.name)
        screen.table(
            "Value per episode (± standard error), the context hidden",
            ("instance", "delta", "random", "Q-MDP", "informed", "share"),
            [_row(c) for c in found],
        )
        screen.say(
            "delta: the least L1 distance of two contexts in a row of transitions and rewards.\n"
            "informed: the value if the context were known, an upper bound on every policy.\n"
            "share: what Q-MDP, which must find the context out while it acts, earns of it.\n"
            f"Picture: {out / FIGURE}"
        )


def _row(c: "Comparison") -> tuple[str, ...]:
    values = [
        f"{v.mean:.3f}" + ("" if v.exact else f" ± {v.stderr:.3f}") for v in (c.random, c.qmdp)
    ]
    return (
        c.name,
        f"{c.delta:.3f}",
        *values,
        f"{c.informed:.3f}",
        f"{c.qmdp.mean / c.informed:.1%}",
    )


def _as_dict(c: "Comparison") -> dict[str, float]:
    return {
        "separation": c.delta,
        "random": c.random.mean,
        "qmdp": c.qmdp.mean,
        "qmdp_stderr": c.qmdp.stderr,
        "full_information": c.informed,
    }
