"""The page of the demonstration."""

from __future__ import annotations

import os
from collections.abc import Sequence

from matplotlib.figure import Figure

from latentmdp.planning import Value
from latentmdp.report import sections
from latentmdp.report.beliefs import growth_figure
from latentmdp.report.demo import Chapter
from latentmdp.report.drawing import COLOURS, MUTED, canvas
from latentmdp.report.page import Picture, Section, Table, write_page
from latentmdp.report.records import record_of

__all__ = ["HEADER", "values_row", "write_story"]

HEADER = (
    "instance",
    "random",
    "no memory",
    "learned",
    "best plan",
    "upper bound",
    "informed",
)
"""Columns of the table of values."""

_LEAD = (
    "At the start of every episode one of several hidden MDPs is drawn and stays in force. The "
    "agent sees states and rewards, never which one it is. How well can it act, and can it learn "
    "to, from nothing?"
)
_HIDDEN = {
    "visitor": "A web shop chooses what to show on each page. Visitors are of five types that "
    "react differently; the shop sees clicks, never the type. A visit is over after a few clicks, "
    "so there is little to infer the type from: memory helps a little, and learning is slow.",
    "separated": "Contexts of which any two differ in every state and action. An episode is long "
    "enough to find out which one is in force, so a policy with memory can do nearly as well as if "
    "it were told.",
}


def write_story(path: str | os.PathLike[str], chapters: Sequence[Chapter]) -> None:
    """Write the page."""
    page = [_overview(chapters)]
    for chapter in chapters:
        page += _chapter(chapter)
    page.append(_settings(chapters))
    write_page(path, "Latent MDPs: acting well when the context is hidden", _LEAD, page)


def values_row(chapter: Chapter) -> tuple[str, ...]:
    """The row of an instance under `HEADER`."""
    return (
        chapter.name,
        _shown(chapter.random),
        _shown(chapter.memoryless),
        _several(chapter.learned),
        _shown(chapter.best),
        "-" if chapter.plan.upper is None else f"{chapter.plan.upper:.3f}",
        f"{chapter.informed:.3f}",
    )


def _shown(value: Value) -> str:
    return f"{value.mean:.3f}" + ("" if value.exact else f" ± {value.stderr:.3f}")


def _several(values: Sequence[Value]) -> str:
    """Mean over runs, with the lowest and the highest."""
    means = [value.mean for value in values]
    return f"{sum(means) / len(means):.3f} ({min(means):.3f} to {max(means):.3f})"


def _overview(chapters: Sequence[Chapter]) -> Section:
    shares = [
        f"On {c.name}, what was learned earns {c.learned_mean / c.best.mean:.1%} of the best plan."
        for c in chapters
    ]
    table = Table(
        "Value per episode (± standard error), the context hidden",
        HEADER,
        [values_row(c) for c in chapters],
        "No memory: looks at time and state only, found with the true model known. Learned: by "
        "acting, from nothing; mean over runs (lowest to highest). Best plan: with memory and the "
        "true model known; no policy earns more than its upper bound. Informed: what could be "
        "earned if the context were told.",
    )
    picture = Picture(
        "What each policy earns",
        _values_figure(chapters),
        "As a share of the value with the context known (1.0). The step from no memory to the "
        "best plan is what memory, a belief over contexts, is worth. " + " ".join(shares),
    )
    return Section("In short", "", [table], [picture])


def _values_figure(chapters: Sequence[Chapter]) -> Figure:
    figure, (axes,) = canvas(3.0)
    labels = ("random", "no memory", "learned", "best plan")
    colours = (MUTED, COLOURS[1], COLOURS[0], COLOURS[2])
    for i, (label, colour) in enumerate(zip(labels, colours)):
        earned = [(c.random.mean, c.memoryless.mean, c.learned_mean, c.best.mean) for c in chapters]
        values = [row[i] / c.informed for row, c in zip(earned, chapters)]
        places = [k + 0.2 * (i - 1.5) for k in range(len(chapters))]
        axes.bar(places, values, width=0.18, color=colour)
        for place, value in zip(places, values):
            # A label that the line at 1 would strike through stands above it.
            height = 1.0 if 0.88 < value < 1.0 else value
            axes.annotate(
                f"{value:.2f}",
                (place, height),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
            )
        axes.scatter([], [], color=colour, marker="s", label=label)
    axes.axhline(1.0, color=MUTED, linestyle="--", linewidth=1.0)
    axes.set_xticks(range(len(chapters)), [c.name for c in chapters])
    axes.set_ylim(0.0, 1.12)
    axes.set_ylabel("share of value, context known")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    return figure


def _chapter(c: Chapter) -> list[Section]:
    M, model = c.model.n_contexts, c.model
    name = c.name.capitalize()
    hidden = Section(
        f"{name}: what is hidden",
        f"{_HIDDEN.get(c.name, '')}\n\n{M} contexts, {model.n_states} states, {model.n_actions} "
        f"actions, {model.horizon} steps an episode; separation delta = {c.delta:.3g}.",
        [sections.assumption_table(model, "the true model")],
        [sections.difference_picture(model, "the true model")],
    )
    return [hidden, _learning(c, name), _inferring(c, name), _certificates(c, name)]


def _learning(c: Chapter, name: str) -> Section:
    records = [record_of(f"{c.name}-{k}", run) for k, run in enumerate(c.runs)]
    references = {
        "best plan, model known": c.best.mean,
        "no memory, model known": c.memoryless.mean,
        "random actions": c.random.mean,
    }
    curves = sections.curves_section({"learned from nothing": records}, references)
    found = ", ".join(str(run.model.n_contexts) for run in c.runs)
    number = (
        f"The number of contexts was not told either; the runs found {found}."
        if c.told == "auto"
        else f"Told is only that there are {c.told} contexts."
    )
    text = (
        f"{len(c.runs)} runs of {c.runs[0].returns.size:,} episodes, exploration included. The "
        f"learner sees neither the model nor any context. {number} In the true model the final "
        f"policies earn {_several(c.learned)} per episode."
    )
    return Section(f"{name}: learning from nothing", text, (), curves.pictures)


def _inferring(c: Chapter, name: str) -> Section:
    ends = {label: values[:, -1].mean() for label, values in c.growth.items()}
    said = "; ".join(f"{label}: {value:.2f}" for label, value in ends.items())
    pictures = [
        Picture(
            "Belief in the true context",
            growth_figure(c.growth),
            "Mean over 2,000 episodes; the band holds the middle 80% of them. It starts at the "
            f"prior and should climb towards 1. At the end of an episode, {said}.",
        )
    ]
    learned = c.found.n_contexts == c.model.n_contexts
    run = c.runs[0]
    policy, believed = (run.policy, c.found) if learned else (c.plan.policy, c.model)
    pictures += sections.belief_pictures(c.model, policy, believed, seed=run.settings["seed"])
    whose = "learned" if learned else "true"
    return Section(
        f"{name}: how the context shows within an episode",
        f"The single episode below is seen by the filter of the {whose} model.",
        pictures=pictures,
    )


def _certificates(c: Chapter, name: str) -> Section:
    plans = {"true model": c.plan, "learned model (first run)": c.runs[0].plan}
    return Section(
        f"{name}: how good the plan is",
        "A planner's certificate holds in the model it was given: for the learned model it is a "
        "promise, and the table at the top says what the policy earned in truth.",
        [sections.certificate(plans)],
        [sections.bounds_picture(plans)],
    )


def _settings(chapters: Sequence[Chapter]) -> Section:
    groups = {
        c.name: [record_of(f"{c.name}-{k}", run) for k, run in enumerate(c.runs)] for c in chapters
    }
    runs = sections.runs_section(groups, "instance")
    return Section(
        "Runs, settings and timing", "", [*runs.tables, *sections.settings_tables(groups)]
    )
