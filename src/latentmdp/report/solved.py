"""Logs that were solved, in a report: the policy's value by two estimates, and the warnings."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from latentmdp._util import plural
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.planning import evaluate
from latentmdp.report.page import (
    COLOURS,
    INK,
    Picture,
    Section,
    Table,
    canvas,
    facts_table,
    legend,
)


def solved_section(name: str, solved: Solved, truth: LatentMDP | None = None) -> Section:
    """The estimates side by side, the warnings, and how far the logs reach."""
    true = None if truth is None else evaluate(truth, solved.policy, rng=0).mean
    text = "\n\n".join(f"Warning: {message}." for message in solved.warnings)
    return Section(
        f"From logs to a policy: {name}",
        text or "Nothing was found that speaks against relying on these estimates.",
        [
            _estimates_table(solved, true),
            *_references_table(solved),
            *_checks_table(solved),
            *_sensitivity_table(solved),
        ],
        _pictures(solved, true),
    )


def _estimates_table(solved: Solved, true: float | None) -> Table:
    facts = solved.facts()
    for elsewhere in ("warnings", "references", "sensitivity"):
        del facts[elsewhere]
    if true is not None:
        inside = "inside" if solved.value.low <= true <= solved.value.high else "outside"
        facts["in_the_true_model"] = f"{true:.4g}, {inside} the interval"
    return facts_table(
        "What the policy will earn",
        facts,
        "The first estimate is the value in the fitted model, less the optimism bias of having "
        "planned there, measured by fitting and planning again on simulated logs. The estimate "
        "from the logs is importance sampling and needs no model, but only reaches as far as "
        "logged episodes agree with the policy.",
    )


def _references_table(solved: Solved) -> list[Table]:
    rows = [(one.name, str(one.value), str(one.gain)) for one in solved.references]
    note = (
        "In the fitted model, over the same steps as the promise above; intervals are those of the "
        "same bootstrap."
    )
    columns = ("compared with", "earns", "the policy gains")
    return [Table("Is it better?", columns, rows, note, words=columns[1:])] if rows else []


def _checks_table(solved: Solved) -> list[Table]:
    if solved.checks is None:
        return []
    note = (
        "What might predict beyond the model, and does not if the model is right. A p-value is "
        f"corrected for all looks: with a right model one of these fails with probability "
        f"{solved.checks.level:.0%} at most."
    )
    columns = ("question", "statistic", "verdict")
    return [Table("Do the logs bear it out?", columns, solved.checks.rows(), note, words=columns)]


def _sensitivity_table(solved: Solved) -> list[Table]:
    unseen = solved.sensitivity
    if unseen is None:
        return []
    rows = [(f"{gamma:g}", f"{gain:.4g}") for gamma, gain in zip(unseen.gammas, unseen.gains)]
    note = (
        "The least gain over the logger if something that the logs do not show changed the odds of "
        f"its actions by such a factor at most: {unseen}. What it would have to be is for those to "
        "say who know how actions were chosen."
    )
    return [Table("If the logger saw more", ("factor", "least gain"), rows, note)]


def _pictures(solved: Solved, true: float | None) -> list[Picture]:
    pictures = [
        Picture(
            "Two estimates side by side",
            _estimates_figure(solved, true),
            "Points are estimates; bars are two standard errors for importance sampling and the "
            "interval for the whole episode. The upper two are of the same first steps, one from "
            "the logs alone and one from the fitted model: if the model's lies far outside the "
            "bar, do not trust it."
            if solved.logged.steps
            else "The point is the estimate, the bar its interval. No logged episode agrees with "
            "the policy long enough for an estimate without the model.",
        )
    ]
    steps, horizon = solved.logged.steps, solved.model.horizon
    if steps:
        reach = (
            f"the logs reach the end of the episode, {plural(steps, 'step')}"
            if steps == horizon
            else f"after step {steps} of {horizon} too few are left for an estimate"
        )
        pictures.append(
            Picture(
                "How far the logs reach",
                _effective_figure(solved),
                "Effective number of logged episodes that still agree with the policy after each "
                f"step. It falls as the episode goes on; {reach}.",
            )
        )
    return pictures


def _estimates_figure(solved: Solved, true: float | None = None) -> Figure:
    """Importance sampling and the fitted model on the first steps, and the whole episode."""
    figure, (axes,) = canvas(2.6)
    value, logged = solved.value, solved.logged
    rows: list[tuple[str, float, float, float]] = []
    if logged.steps:
        wide = 2.0 * logged.stderr  # about 95 %, as for the interval beside it
        first, by_model = f"first {plural(logged.steps, 'step')},\n", solved.model_first_steps
        rows.append((f"{first}from the logs", logged.mean, logged.mean - wide, logged.mean + wide))
        rows.append((f"{first}by the model", by_model, by_model, by_model))
    rows.append(("whole episode", *value))
    for row_index, (_, mean, low, high) in enumerate(rows):
        colour = COLOURS[row_index % len(COLOURS)]
        axes.errorbar(mean, -row_index, xerr=[[mean - low], [high - mean]], fmt="o", color=colour)
    if true is not None:
        axes.axvline(
            true, color=INK, linestyle="--", linewidth=1.2, label="whole episode, in the true model"
        )
        legend(figure)
    axes.set_yticks([-row_index for row_index in range(len(rows))], [row[0] for row in rows])
    axes.set_ylim(-len(rows) + 0.5, 0.5)
    axes.set(xlabel="sum of rewards per episode", ylabel="what is estimated")
    return figure


def _effective_figure(solved: Solved) -> Figure:
    """Effective number of episodes against steps."""
    figure, (axes,) = canvas(2.8)
    sizes = solved.logged.effective_size
    axes.plot(range(1, sizes.size + 1), sizes, color=COLOURS[0], marker="o")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="steps of the episode", ylabel="effective episodes")
    return figure
