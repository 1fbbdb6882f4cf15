"""The report of runs, outcomes, experiments and models as one HTML file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from latentmdp._util import listed, plural, require_writable
from latentmdp.experiments import Experiment
from latentmdp.io import load_as
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.planning import HSVI, QMDP, Plan, evaluate
from latentmdp.policies import AlphaVectorPolicy, HistoryPolicy, Policy, UniformPolicy
from latentmdp.report.contexts import belief_picture, groups_picture
from latentmdp.report.decisions import decision_table, page_tables, policy_pictures, reading
from latentmdp.report.experiments import experiment_section, experiment_settings
from latentmdp.report.page import Section, Table, facts_table, write_page
from latentmdp.report.plans import bounds_picture, certificate, compact_table, risk_table
from latentmdp.report.records import (
    Record,
    curves_section,
    filled,
    group_records,
    read,
    runs_section,
    settings_tables,
)
from latentmdp.report.solved import solved_section
from latentmdp.theory import diagnose

# What a section of a model leaves out, and says so, because it would take minutes.
_MOST_STATES = 30
"""Rows of a decision table that a reader of the page still looks through."""
_MOST_VALUES = 1_000
"""Steps x states x contexts up to which a compact plan takes seconds."""
_MOST_ENTRIES = 10**6
"""Entries of P(s', z | s, a) up to which the assumptions are measured in seconds."""


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    truth: LatentMDP | str | os.PathLike[str] | None = None,
    title: str = "Report",
) -> None:
    """Read runs, outcomes, experiments and models, and write one page about all of them.

    Parameters
    ----------
    paths
        Files of runs, of outcomes of `solve` and of models, and folders that `reproduce` wrote, in
        any mixture. Runs that differ only in their seed and world are drawn as one curve with its
        spread.
    out
        The HTML file.
    truth
        The true model, or its file: adds what to compare with, and true contexts to beliefs.
    """
    if not paths:
        raise ValueError("paths must name at least one run or model")
    require_writable(out)
    began = time.perf_counter()
    compared = ""
    if isinstance(truth, str | os.PathLike):
        compared = f", compared with the true model of {Path(truth).name}"
        truth = load_as(LatentMDP, truth, "a model")
    contents = {str(path): read(path) for path in paths}
    records = [item for item in contents.values() if isinstance(item, Record)]
    models = {Path(p).name: item for p, item in contents.items() if isinstance(item, LatentMDP)}
    solved = {Path(p).stem: item for p, item in contents.items() if isinstance(item, Solved)}
    experiments = {p: item for p, item in contents.items() if isinstance(item, Experiment)}
    groups = group_records(records)
    page = [
        *(section for name, item in solved.items() for section in _solved(name, item, truth)),
        *_runs(groups, truth),
        *(model_section(f"Model {name}", m, None, None) for name, m in models.items()),
        *(experiment_section(name, item) for name, item in experiments.items()),
    ]
    tables = [
        *settings_tables(groups),
        *(facts_table(f"Settings: {name}", item.settings) for name, item in solved.items()),
        *(experiment_settings(name, item) for name, item in experiments.items()),
        _timing(records, solved, experiments, time.perf_counter() - began),
    ]
    counts = (
        (len(records), "run", None),
        (len(solved), "solved set of logs", "solved sets of logs"),
        (len(experiments), "experiment", None),
        (len(models), "model", None),
    )
    lead = listed([plural(n, one, many) for n, one, many in counts if n])
    write_page(
        out, title, f"From {lead}{compared}.", [*page, Section("Settings and timing", "", tables)]
    )


def _runs(groups: dict[str, list[Record]], truth: LatentMDP | None) -> Iterator[Section]:
    """All runs, their curves, and one of each group in detail."""
    if groups:
        yield runs_section(groups)
        yield curves_section(groups, None if truth is None else _references(truth))
    for name, members in groups.items():
        r = members[0]
        which = f"What was learned: {name}" + (f", run {r.name}" if len(members) > 1 else "")
        yield model_section(which, filled(r.run.model), r.run.policy, r.run.plan, truth)


def _solved(name: str, solved: Solved, truth: LatentMDP | None) -> Iterator[Section]:
    yield solved_section(name, solved, truth)
    which = f"What was found in the logs: {name}"
    yield model_section(which, filled(solved.model), solved.policy, solved.plan, truth)


def _references(truth: LatentMDP) -> dict[str, float]:
    plan = QMDP().plan(truth)
    assert plan.upper is not None, "Q-MDP always gives its informed bound"
    return {
        "context known (bound)": plan.upper,
        "Q-MDP on the true model": evaluate(truth, plan.policy, rng=0).mean,
        "random actions": evaluate(truth, UniformPolicy(), rng=0).mean,
    }


def model_section(
    title: str,
    model: LatentMDP,
    policy: Policy | HistoryPolicy | None,
    plan: Plan | None,
    truth: LatentMDP | None = None,
) -> Section:
    """A model, given or learned: decisions, risk, bounds, beliefs, differences, assumptions."""
    plan = HSVI(gap=0.01, time_limit=10.0).plan(model) if plan is None else plan
    policy = plan.policy if policy is None else policy
    comparable = truth is not None and truth.n_contexts == model.n_contexts
    world = truth if truth is not None and comparable else model
    text = (
        "The belief is that of the learned filter, in an episode of the true model."
        if comparable
        else "The belief is over an episode simulated from the model itself."
    )
    if truth is not None:
        earned = evaluate(truth, policy, rng=0)
        text += f" In the true model the policy earns {earned.mean:.4g} per episode."
    decisions, compact = [], None
    if _believes_in(policy, model):
        if model.n_states <= _MOST_STATES:
            decisions = page_tables(decision_table(model, policy), "What to do")
            text += f" {reading(model)}"
        else:
            text += " `latentmdp explain --out` writes the decisions of so many states."
    if model.n_layers * model.n_states * model.n_contexts <= _MOST_VALUES:
        compact = compact_table(plan)
    else:
        text += " `plan.compact` was left out: with so many steps and states it takes long."
    apart = model.n_contexts > 1  # of one context nothing is to be told
    pictures = [
        *([belief_picture(world, policy, model)] if apart else []),
        *(policy_pictures(model, policy) if _believes_in(policy, model) else ()),
        *([groups_picture(model, "this model")] if apart else []),
        *([bounds_picture(plan)] if plan.history else []),
    ]
    tables = [
        *decisions,
        risk_table(model, {"this policy": policy}),
        certificate(plan),
        *filter(None, [compact]),
    ]
    M, S, A, Z = model.dimensions
    if model.horizon and M * S * A * S * Z <= _MOST_ENTRIES:
        tables.append(assumption_table(model, "this model"))
    else:
        text += " The assumptions of the theory are measured of small models whose episodes end."
    return Section(title, text, tables, pictures)


def _believes_in(policy: Policy | HistoryPolicy, model: LatentMDP) -> TypeGuard[AlphaVectorPolicy]:
    """Whether a policy acts on beliefs over the contexts of a model."""
    return isinstance(policy, AlphaVectorPolicy) and policy.model.n_contexts == model.n_contexts


def assumption_table(model: LatentMDP, what: str) -> Table:
    """What `diagnose` says of a model."""
    return Table(
        "Which assumptions of the theory hold",
        ("assumption", "number", "verdict"),
        diagnose(model).rows(),
        f"Measured on {what}, with uniformly random actions where a policy matters.",
        words=("number", "verdict"),
        folded=True,
    )


def _timing(
    records: Sequence[Record],
    solved: Mapping[str, Solved],
    experiments: Mapping[str, Experiment],
    seconds: float,
) -> Table:
    rows: list[tuple[Any, ...]] = []
    for r in records:
        rate = r.run.n_episodes / r.run.seconds if r.run.seconds else None
        rows.append((r.name, r.run.seconds, rate, getattr(r.run.plan, "seconds", None)))
    for name, outcome in solved.items():
        rows.append((name, outcome.seconds, None, outcome.plan.seconds))
    for name, item in experiments.items():
        timed = [run.seconds for run in item.runs if run.seconds is not None]
        rows.append((f"{name}, {plural(len(item.runs), 'run')}", sum(timed) or None, None, None))
    rows.append(("this report", seconds, None, None))
    return Table(
        "Wall-clock time",
        ("run", "seconds", "episodes a second", "of which final plan, seconds"),
        rows,
        "Those of an experiment are added up over its runs, which may have gone side by side. A "
        "dash: not recorded, or not a matter of this kind of run.",
    )
