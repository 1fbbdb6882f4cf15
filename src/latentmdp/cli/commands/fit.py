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
    from latentmdp._util import names
    from latentmdp.report import assignment, profiles, write_groups
    from latentmdp.theory import telling_outcomes

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
    sure, model = assignment(fit, data), fit.model
    told = telling_outcomes(model) if model.n_contexts > 1 else []
    screen.result(
        f"contexts in {source.logs}",
        {
            **fit.facts(),
            **sure,
            "profiles": Worded.lines(profiles(fit, data)),
            "missing": data.missing,
            "warnings": [str(warning.message) for warning in caught],
        },
        **{"logs": source.logs, "seed": seed, "out": out, "differences": dict(told)},
        groups=groups,
    )
    if fit.selection is not None:
        evidence = fit.selection.rows()
        screen.table("how many", list(evidence[0]), [list(row.values()) for row in evidence])
    if told:
        contexts = names.labels("context", model.context_names, model.n_contexts)
        rows = [(what, *shares) for what, shares in told]
        screen.table("what tells them apart: its probability in each", ("what", *contexts), rows)
