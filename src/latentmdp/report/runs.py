"""The report of runs and models as one HTML file."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from latentmdp.model import LatentMDP
from latentmdp.planning import QMDP, evaluate
from latentmdp.policies import UniformPolicy
from latentmdp.report import sections
from latentmdp.report.page import Section, Table, write_page
from latentmdp.report.records import Record, filled, group_records, read

__all__ = ["write_report"]


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    truth: LatentMDP | None = None,
    title: str = "Report",
) -> None:
    """Read runs and models, and write one page about them.

    Parameters
    ----------
    paths
        Runs (.parquet of `Run.save`, .npz of `Learned.save`) and models. Runs that differ only in
        their seed and world are drawn as one curve with its spread.
    out
        The HTML file.
    truth
        The true model: adds what to compare with, and true contexts to beliefs.
    """
    if not paths:
        raise ValueError("paths must name at least one run or model")
    began = time.perf_counter()
    found = {Path(path): read(path) for path in paths}
    records = [item for item in found.values() if isinstance(item, Record)]
    models = {p.name: item for p, item in found.items() if isinstance(item, LatentMDP)}
    groups = group_records(records)
    page: list[Section] = []
    if groups:
        page += [
            sections.runs_section(groups),
            sections.curves_section(groups, None if truth is None else _references(truth)),
        ]
    for name, members in groups.items():
        r = members[0]
        which = f"What was learned: {name}" + (f", run {r.name}" if len(members) > 1 else "")
        page.append(sections.model_section(which, filled(r.model), r.policy, r.plan, truth))
    for name, model in models.items():
        page.append(sections.model_section(f"Model {name}", model, None, None))
    tables = [*sections.settings_tables(groups), _timing(records, time.perf_counter() - began)]
    page.append(Section("Settings and timing", "", tables))
    counted = (_count(len(records), "run"), _count(len(models), "model"))
    lead = f"From {' and '.join(text for text in counted if text)}."
    write_page(out, title, lead, page)


def _references(truth: LatentMDP) -> dict[str, float]:
    plan = QMDP().plan(truth)
    assert plan.upper is not None, "Q-MDP always gives its informed bound"
    return {
        "context known (bound)": plan.upper,
        "Q-MDP on the true model": evaluate(truth, plan.policy, rng=0).mean,
        "random actions": evaluate(truth, UniformPolicy(), rng=0).mean,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


def _timing(records: Sequence[Record], own: float) -> Table:
    rows = [
        (
            r.name,
            "-" if r.seconds is None else f"{r.seconds:.2f}",
            "-" if r.seconds is None else f"{r.returns.size / r.seconds:.3g}",
            "-" if r.plan is None else f"{r.plan.seconds:.2f}",
        )
        for r in records
    ]
    rows.append(("this report", f"{own:.2f}", "-", "-"))
    return Table(
        "Wall-clock time",
        ("run", "seconds", "episodes a second", "of which final plan, seconds"),
        rows,
        "A dash: not recorded by this kind of run.",
    )
