"""Logs that were solved, in a report: the policy's value by two estimates, and the warnings."""

from __future__ import annotations

from collections.abc import Iterator

from latentmdp import plot
from latentmdp._util.words import plural
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.planning import evaluate
from latentmdp.report.page import Picture, Section, Table, drawn, facts_table


def solved_section(name: str, solved: Solved, truth: LatentMDP | None = None) -> Section:
    """The estimates side by side, the warnings, and how far the logs reach."""
    true = None if truth is None else evaluate(truth, solved.policy, rng=0).mean
    text = "\n\n".join(f"Warning: {message}." for message in solved.warnings)
    return Section(
        f"From logs to a policy: {name}",
        text or "Nothing was found that speaks against relying on these estimates.",
        [_estimates_table(solved, true), *_doubts(solved)],
        list(_pictures(solved, true)),
    )


def _estimates_table(solved: Solved, true: float | None) -> Table:
    facts = solved.facts()
    for elsewhere in ("warnings", "references", "sensitivity", "support"):
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


def _doubts(solved: Solved) -> Iterator[Table]:
    """What the policy is compared with, and what may be wrong; only what was measured."""
    if solved.references:
        rows = [(one.name, str(one.value), str(one.gain)) for one in solved.references]
        note = (
            "In the fitted model, over the same steps as the promise above; intervals are those of "
            "the same bootstrap."
        )
        columns = ("compared with", "earns", "the policy gains")
        yield Table("Is it better?", columns, rows, note, words=columns[1:])
    if solved.checks is not None:
        note = (
            "What might predict beyond the model, and does not if the model is right. A p-value is "
            "corrected for all looks: with a right model one of these fails with probability "
            f"{solved.checks.level:.0%} at most."
        )
        columns = ("question", "statistic", "verdict")
        yield Table("Do the logs bear it out?", columns, solved.checks.rows(), note, words=columns)
    if solved.support:
        note = (
            "Where the policy spends most of its steps. The logger's probability is that of the "
            "context in which it took the action most seldom; of the visits, the fewest are those "
            "in one context that the policy meets. What a change of action does is learned from "
            "those who were there more than once and changed theirs: where hardly any did, it is "
            "assumed."
        )
        header = (
            *("state", "action", "share of steps", "logger's probability", "visits", "fewest"),
            "changed action",
        )
        yield Table("What stands behind it?", header, solved.support, note, words=["action"])
    unseen = solved.sensitivity
    if unseen is not None:
        least = [(f"{gamma:g}", f"{gain:.4g}") for gamma, gain in zip(unseen.gammas, unseen.gains)]
        note = (
            "The least gain over the logger if something that the logs do not show changed the "
            f"odds of its actions by such a factor at most: {unseen}. What it would have to be is "
            "for those to say who know how actions were chosen."
        )
        yield Table("If the logger saw more", ("factor", "least gain"), least, note)


def _pictures(solved: Solved, true: float | None) -> Iterator[Picture]:
    steps, horizon = solved.logged.steps, solved.model.horizon
    yield drawn(
        "Two estimates side by side",
        "Points are estimates; bars are two standard errors for importance sampling and the "
        "interval for the whole episode. The upper two are of the same first steps, one from the "
        "logs alone and one from the fitted model: if the model's lies far outside the bar, do not "
        "trust it."
        if steps
        else "The point is the estimate, the bar its interval. No logged episode agrees with the "
        "policy long enough for an estimate without the model.",
        lambda axes: plot.estimates(solved, axes, true=true),
        2.6,
    )
    if steps:
        reach = (
            f"the logs reach the end of the episode, {plural(steps, 'step')}"
            if steps == horizon
            else f"after step {steps} of {horizon} too few are left for an estimate"
        )
        yield drawn(
            "How far the logs reach",
            "Effective number of logged episodes that still agree with the policy after each step. "
            f"It falls as the episode goes on; {reach}.",
            lambda axes: plot.agreement(solved, axes),
            2.8,
        )
