"""`latentmdp solve`: from logs to a policy and what it will earn."""

import warnings
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp._util import plural
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
    screen: Screen,
    source: options.LogSource,
    structure: options.StructureOptions,
    outputs: options.OutcomeFiles,
    bootstrap: Annotated[int, typer.Option(min=2)] = 30,
    horizon: Annotated[int | None, typer.Option(min=1)] = None,
    discount: float | None = None,
    reference: str = "logger",
    plot: options.Plot = None,
    seed: options.Seed = 0,
) -> None:
    """Find the contexts in logs, plan for an unknown individual, and say what that will earn.

    Tables of others are read as they are, from .csv or .parquet:
    `latentmdp solve panel.csv --columns episode=household,t=week,state=brand,action=promotion`.

    Example: `latentmdp solve logs.parquet --out policy.npz`

    Parameters
    ----------
    bootstrap
        Repetitions that measure the uncertainty.
    horizon
        Steps to plan and promise for.
    discount
        Worth of a reward one step later.
    reference
        What to gain over: "logger", "always ACTION".
    """
    arguments = structure.arguments()
    data, engine = source.read()
    doing = f"solving from {plural(len(data), 'episode')}"
    with warnings.catch_warnings(), screen.progress(doing):
        warnings.simplefilter("ignore")
        solved = lm.solve(
            data,
            rng=seed,
            bootstrap=bootstrap,
            horizon=horizon,
            discount=discount,
            reference=reference,
            engine=engine,
            **arguments,
        )
    outputs.save(solved)
    options.draw(plot, solved)
    facts = {**solved.facts(), "missing": data.missing}
    screen.result(f"policy from {source.logs}", facts, logs=source.logs, seed=seed)
