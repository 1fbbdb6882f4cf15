"""Experiments of the paper in a report: claims and verdicts, panels and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from latentmdp._util import COLOURS, INK, MUTED, canvas, in_words, legend, plural
from latentmdp.experiments import Experiment, Panel, draw_panel
from latentmdp.report.page import Picture, Section, Table, facts_table


def experiment_section(name: str, experiment: Experiment) -> Section:
    """The claims of the paper beside what was measured, and the figure, a panel at a time."""
    findings = experiment.findings
    verdicts = [claim.held for claim in findings.claims]
    held, judged = verdicts.count(True), len(verdicts) - verdicts.count(None)
    claims = Table(
        "What the paper claims, and what was measured",
        ("verdict", "the paper", "measured here"),
        [(c.verdict, c.paper, c.measured) for c in findings.claims],
        f"{held} of {plural(judged, 'claim')} held, judged by the numbers of these runs alone.",
        words=("the paper", "measured here"),
    )
    pictures = [Picture(p.title, panel_figure(p), p.caption) for p in findings.panels]
    return Section(f"{findings.title} ({name})", findings.description, [claims], pictures)


def panel_figure(panel: Panel) -> Figure:
    """A panel in the width and the colours of a page."""
    # Longer names would be cut off in two columns; a line of the legend takes 0.2 inches.
    columns = 1 if any(len(line.name) > 26 for line in panel.lines) else 2
    figure, (axes,) = canvas(3.6 + 0.2 * -(-len(panel.lines) // columns))
    draw_panel(axes, panel, (*COLOURS, INK), MUTED)
    legend(axes, columns)
    return figure


def experiment_settings(name: str, experiment: Experiment) -> Table:
    """What the runs have in common, and what they run through."""
    values_by_name: dict[str, list[Any]] = {}
    for run in experiment.runs:
        for key, value in run.values.items():
            if value not in values_by_name.setdefault(key, []):
                values_by_name[key].append(value)
    ranges = {key: _range(values) for key, values in values_by_name.items()}
    return facts_table(
        f"Settings: {name}",
        {"runs": len(experiment.runs), "latentmdp": experiment.version, **ranges},
        "Several values: there are runs for each. A seed fixes the instance and every random "
        "choice of a run.",
    )


def _range(values: Sequence[Any]) -> str:
    """Values in words: consecutive integers by their ends."""
    whole = all(type(value) is int for value in values)
    if whole and len(values) > 2 and sorted(values) == list(range(min(values), max(values) + 1)):
        return f"{min(values)} to {max(values)} ({len(values)} of them)"
    return in_words([str(value) for value in values], most=12)
