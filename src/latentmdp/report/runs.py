"""The report of runs, outcomes, experiments and models as one HTML file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latentmdp.experiments.manifest import Experiment
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.planning import QMDP, evaluate
from latentmdp.policies import UniformPolicy
from latentmdp.report import sections
from latentmdp.report.experiments import experiment_section, settings_table, timing_table
from latentmdp.report.page import Section, Table, write_page
from latentmdp.report.records import Record, filled, group_records, read
from latentmdp.report.solved import solved_section, solved_settings

__all__ = ["write_report"]


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    truth: LatentMDP | None = None,
    title: str = "Report",
) -> None:
    """Read runs, outcomes, experiments and models, and write one page about all of them.

    Parameters
    ----------
    paths
        Runs, outcomes of `learn` and `solve` and models, as `lm.save` wrote them, and folders that
        `reproduce` wrote, in any mixture. Runs that differ only in their seed and world are drawn
        as one curve with its spread.
    out
        The HTML file.
    truth
        The true model: adds what to compare with, and true contexts to beliefs.
    """
    if not paths:
        raise ValueError("paths must name at least one run or model")
    began = time.perf_counter()
    found = {str(path): read(path) for path in paths}
    records = [item for item in found.values() if isinstance(item, Record)]
    models = {Path(p).name: item for p, item in found.items() if isinstance(item, LatentMDP)}
    solved = {Path(p).stem: item for p, item in found.items() if isinstance(item, Solved)}
    experiments = {p: item for p, item in found.items() if isinstance(item, Experiment)}
    groups = group_records(records)
    page = [
        *_runs(groups, truth),
        *(section for name, item in solved.items() for section in _solved(name, item, truth)),
        *(experiment_section(name, item) for name, item in experiments.items()),
        *(sections.model_section(f"Model {name}", m, None, None) for name, m in models.items()),
    ]
    tables = [
        *sections.settings_tables(groups),
        *(solved_settings(name, item) for name, item in solved.items()),
        *(settings_table(name, item) for name, item in experiments.items()),
        *([timing_table(experiments)] if experiments else []),
        _timing(records, solved, time.perf_counter() - began),
    ]
    counts = (
        (len(records), "run", "runs"),
        (len(solved), "solved set of logs", "solved sets of logs"),
        (len(experiments), "experiment", "experiments"),
        (len(models), "model", "models"),
    )
    lead = _listed([f"{n} {one if n == 1 else many}" for n, one, many in counts if n])
    write_page(out, title, f"From {lead}.", [*page, Section("Settings and timing", "", tables)])


def _runs(groups: dict[str, list[Record]], truth: LatentMDP | None) -> Iterator[Section]:
    """All runs, their curves, and one of each group in detail."""
    if groups:
        yield sections.runs_section(groups)
        yield sections.curves_section(groups, None if truth is None else _references(truth))
    for name, members in groups.items():
        r = members[0]
        which = f"What was learned: {name}" + (f", run {r.name}" if len(members) > 1 else "")
        yield sections.model_section(which, filled(r.model), r.policy, r.plan, truth)


def _solved(name: str, solved: Solved, truth: LatentMDP | None) -> Iterator[Section]:
    yield solved_section(name, solved, truth)
    which = f"What was found in the logs: {name}"
    yield sections.model_section(which, filled(solved.model), solved.policy, solved.plan, truth)


def _references(truth: LatentMDP) -> dict[str, float]:
    plan = QMDP().plan(truth)
    assert plan.upper is not None, "Q-MDP always gives its informed bound"
    return {
        "context known (bound)": plan.upper,
        "Q-MDP on the true model": evaluate(truth, plan.policy, rng=0).mean,
        "random actions": evaluate(truth, UniformPolicy(), rng=0).mean,
    }


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), parts[-1]])


def _timing(records: Sequence[Record], solved: Mapping[str, Solved], own: float) -> Table:
    rows = [
        (
            r.name,
            "-" if r.seconds is None else f"{r.seconds:.2f}",
            f"{r.returns.size / r.seconds:.3g}" if r.seconds else "-",
            "-" if r.plan is None else f"{r.plan.seconds:.2f}",
        )
        for r in records
    ]
    for name, outcome in solved.items():
        rows.append((name, f"{outcome.seconds:.2f}", "-", f"{outcome.plan.seconds:.2f}"))
    rows.append(("this report", f"{own:.2f}", "-", "-"))
    return Table(
        "Wall-clock time",
        ("run", "seconds", "episodes a second", "of which final plan, seconds"),
        rows,
        "A dash: not recorded, or not a matter of this kind of run.",
    )
