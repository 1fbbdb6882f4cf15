"""Policies and runs on pages for people: `explain`, `explorer`, `report`."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import DEFAULT, find_policy, policy_in
from latentmdp.cli.screen import Screen


@options.command()
def explain(
    screen: Screen,
    model: options.ModelFile,
    policy: options.PolicyName = DEFAULT,
    state: str | None = None,
    belief: str | None = None,
    t: Annotated[int | None, typer.Option(min=0)] = None,
    out: Annotated[Path | None, options.written(".md", ".csv", ".html")] = None,
    plot: options.Plot = None,
) -> None:
    """Say why a policy acts as it does: its margin, what would change it, what to wait for.

    With `--out`, write what it does in every state as a decision table; then `--state` may be left
    out. An .html file is a page of its own, with what the policy earns in each context and how
    much any policy can promise in the worst one.

    Example: `latentmdp explain m.npz --policy policy.npz --state 0 --belief 0.7,0.3`

    Parameters
    ----------
    state
        The state, by name or number.
    belief
        Probabilities of the contexts: `0.7,0.2,0.1`, or `slow=0.7;frail=0.3` by name.
    t
        Time in the episode, from 0.
    out
        Write the decision table of all states (.md, .csv, or .html with its risk).
    """
    if state is None and out is None and plot is None:
        raise typer.BadParameter("--state says which decision to explain; --out writes all of them")
    believed, world = options.belief_of(belief), options.load_model(model)
    acting, explanation = find_policy(policy, world), None
    if state is not None:
        explanation = lm.explain(world, acting, options.state_of(state, world), believed, t or 0)
    if out is not None and out.suffix.lower() == ".html":
        with screen.progress("weighing the worst case"):
            lm.report.write_decision_page(world, acting, out, believed, t)
    elif out is not None:
        lm.report.decision_table(world, acting, believed, t).write(out)
    if explanation is None:  # no one decision: which state and action follows which
        options.draw(plot, world, lambda model: lm.plot.graph(model, acting))
    else:
        options.draw(plot, explanation)
    data = {} if explanation is None else explanation.to_dict()
    screen.result(model=model, policy=policy, out=out, plot=plot, **data)
    for line in () if explanation is None else explanation.text.splitlines():
        screen.say(line)


@options.command()
def explorer(
    screen: Screen,
    policy: Annotated[Path, options.existing_file("POLICY")],
    model: Annotated[Path | None, typer.Option(exists=True)] = None,
    out: options.PageOut = Path("explorer.html"),
    title: options.Title = "Policy explorer",
    unit: str = "",
) -> None:
    """Write a page for people who do not program: pick what was observed, see what to do.

    One file that opens offline. It shows the belief, the recommended action, its margin and the
    values by context, and keeps the history in its address.

    Example: `latentmdp explorer policy.npz --out explorer.html`

    Parameters
    ----------
    policy
        A policy, or what holds one: a plan, a run, an outcome of `solve` (.npz).
    model
        The model of a policy that has none of its own.
    unit
        What rewards are counted in: `k€`, `days`.
    """
    world = None if model is None else options.load_model(model)
    lm.report.write_explorer(policy_in(policy), out, world, title, unit)
    screen.result(explorer=out, bytes=out.stat().st_size)


@options.command()
def report(
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
