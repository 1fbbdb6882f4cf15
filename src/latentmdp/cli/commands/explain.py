"""`latentmdp explain`: why a policy acts as it does, and the policy as a decision table."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    model: options.ModelFile,
    policy: options.PolicyName = "qmdp",
    state: Annotated[
        str | None, typer.Option("--state", help="The state, by name or number.")
    ] = None,
    belief: Annotated[
        str | None,
        typer.Option(
            "--belief",
            help="Probabilities of the contexts: `0.7,0.2,0.1`, or `slow=0.7;frail=0.3` by name.",
        ),
    ] = None,
    t: Annotated[int, typer.Option("--t", min=0, help="Time in the episode, from 0.")] = 0,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Write the decision table of all states (.md or .csv)."),
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", help="Draw the policy graph (.svg, .png, .pdf); no end only."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the decision (.svg, .png, .pdf).")
    ] = None,
) -> None:
    """Say why a policy acts as it does: its margin, what would change it, what to wait for.

    With `--table`, write what it does in every state as a decision table; then `--state` may be
    left out.

    Example: `latentmdp explain m.npz --policy policy.npz --state 0 --belief 0.7,0.3`
    """
    if state is None and (plot is not None or (table is None and graph is None)):
        raise typer.BadParameter("--state says which decision to explain; --table shows all")
    for path in (plot, graph):
        options.check_plot(path)
    options.check_target(table)
    if table is not None and table.suffix.lower() not in (".md", ".csv"):
        raise typer.BadParameter(f"--table writes .md or .csv, got {str(table)!r}")
    world = options.load_model(model)
    believed = None if belief is None else options.belief_of(belief)
    acting = find_policy(policy, world)
    if table is not None:
        lm.report.decision_table(world, acting, believed, t).write(table)
    if graph is not None:
        lm.report.plot_policy_graph(acting, graph)
    if state is None:
        screen.result(model=model, policy=policy, table=table, graph=graph)
        for path in filter(None, (table, graph)):
            screen.say(str(path), "written")
        return
    told = lm.explain(world, acting, options.state_of(state, world), believed, t)
    if plot is not None:
        lm.report.plot_explanation(told, plot)
    screen.result(model=model, policy=policy, **told.to_dict())
    for line in told.text.splitlines():
        screen.say(line)
