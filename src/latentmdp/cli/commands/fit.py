"""`latentmdp fit`: find the contexts in logs."""

import warnings
from pathlib import Path
from typing import Annotated

import latentmdp as lm
from latentmdp._util import Worded, plural
from latentmdp.cli import options
from latentmdp.cli.screen import Screen


@options.command(config=True)
def command(
    screen: Screen,
    source: options.LogSource,
    structure: options.StructureOptions,
    out: options.ModelOut = None,
    groups: Annotated[Path | None, options.written(".csv")] = None,
    plot: options.Plot = None,
    max_contexts: options.Positive = 10,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
) -> None:
    """Find the hidden contexts in logs and say what separates them.

    Tables of others are read as they are, from .csv or .parquet:
    `latentmdp fit panel.csv --columns episode=household,t=week,state=brand,action=promotion`.

    A folder of .parquet files is read batch by batch, however large: `latentmdp fit logs/`.

    Example: `latentmdp fit logs.parquet --contexts 3 --out model.npz`

    Parameters
    ----------
    groups
        Write who belongs to which group, with probabilities, here (.csv).
    max_contexts
        The most that `auto` tries.
    """
    from latentmdp.report import assignment, largest_differences, profiles, write_groups

    arguments = structure.arguments() | {"max_contexts": max_contexts}
    data, engine = source.read(device)
    doing = f"fitting {plural(len(data), 'episode')}"
    with warnings.catch_warnings(record=True) as caught, screen.progress(doing):
        warnings.simplefilter("always")
        fit = lm.initialize(None, data, engine=engine, rng=seed, **arguments)
    options.save(fit.model, out)
    options.draw(plot, fit)
    if groups is not None:
        write_groups(groups, fit, data)
    sure, differences = assignment(fit, data), largest_differences(fit.model)
    screen.result(
        f"contexts in {source.logs}",
        {
            **fit.facts(),
            **sure.facts(),
            "profiles": Worded.lines(profiles(fit, data)),
            "missing": data.missing,
            "warnings": [str(warning.message) for warning in caught],
        },
        **{"logs": source.logs, "seed": seed, "out": out, "differences": differences},
        groups=groups,
    )
    if fit.selection is not None:
        evidence = fit.selection.rows()
        screen.table("how many", list(evidence[0]), [list(row.values()) for row in evidence])
    if differences:
        rows = [
            (d.where(fit.model), "{} and {}".format(*d.contexts), d.distance) for d in differences
        ]
        title = "what separates them: L1 distance of what follows, at most 2"
        screen.table(title, ("where", "contexts", "distance"), rows)
