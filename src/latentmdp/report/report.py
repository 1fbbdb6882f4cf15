"""The report of runs, outcomes, experiments and models as one HTML file, and its sections.

The return at the end of a run is its mean over the last tenth of the episodes, and each point of a
curve is a mean over as many: those before it. The belief b(m) along an episode is that of a filter.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from latentmdp import io, plot
from latentmdp._util.arrays import Floats, Integers, normalised
from latentmdp._util.figures import COLOURS, INK, MUTED, canvas, legend
from latentmdp._util.results import in_words
from latentmdp._util.storage import require_writable
from latentmdp._util.words import listed, plural
from latentmdp.belief import posterior
from latentmdp.errors import FormatError
from latentmdp.experiments import Experiment, Panel, draw_panel, read_experiment
from latentmdp.model import LatentMDP
from latentmdp.offline import Solved
from latentmdp.online import Run
from latentmdp.planning import HSVI, QMDP, Plan, evaluate
from latentmdp.policies import AlphaVectorPolicy, HistoryPolicy, Policy, UniformPolicy
from latentmdp.report.decisions import decision_table, page_tables, policy_pictures, reading
from latentmdp.report.page import (
    Picture,
    Section,
    Table,
    context_labels,
    drawn,
    facts_table,
    write_page,
)
from latentmdp.report.plans import bounds_picture, certificate, compact_table, risk_table
from latentmdp.report.solved import solved_section
from latentmdp.simulation import simulate
from latentmdp.theory import diagnose

# What a section of a model leaves out, and says so, because it would take minutes.
_MOST_STATES = 30
"""Rows of a decision table that a reader of the page still looks through."""
_MOST_VALUES = 1_000
"""Steps x states x contexts up to which a compact plan takes seconds."""
_MOST_ENTRIES = 10**6
"""Entries of P(s', z | s, a) up to which the assumptions are measured in seconds."""


_NOT_SHARED = ("seed", "key", "world")
"""Settings in which the runs of one group may differ."""

_METHODS = {"Refit": "learn", "PSRStart": "learn, spectral start"}
"""Learners whose command or function has another name."""


@dataclass(frozen=True, eq=False)
class Record:
    """A run and its name, that of its file."""

    name: str
    run: Run

    @property
    def method(self) -> str:
        """The learner, and which contexts it assumes."""
        settings = self.run.settings
        learner = settings.get("learner", "")
        method = _METHODS.get(learner, learner)
        return f"{method}, contexts {settings['contexts']}" if "contexts" in settings else method

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings but for the seed and the world."""
        return {name: v for name, v in self.run.settings.items() if name not in _NOT_SHARED}


Groups = Mapping[str, Sequence[Record]]


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
        truth = io.load_as(LatentMDP, truth, "a model")
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


# --------------------------------------------------------------------------------------------- runs


def read(path: str | os.PathLike[str]) -> Record | Solved | Experiment | LatentMDP:
    """A run, what `solve` found, or a model; a folder is that of an experiment."""
    source = Path(path)
    if source.is_dir():
        return read_experiment(source)
    content = io.load(source)
    if isinstance(content, Run):
        return Record(source.stem, content)
    if isinstance(content, LatentMDP | Solved):
        return content
    raise FormatError(
        f"{source} holds {type(content).__name__}: a report needs runs, outcomes of `learn` or "
        "`solve`, folders of experiments, or models"
    )


def group_records(records: list[Record]) -> dict[str, list[Record]]:
    """Runs that differ in seed or world only, by a name for each group."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        shared = json.dumps(record.shared_settings, sort_keys=True)
        groups.setdefault(record.method + shared, []).append(record)
    methods = [members[0].method for members in groups.values()]
    return {
        method if methods.count(method) == 1 else f"{method} ({members[0].name})": members
        for method, members in zip(methods, groups.values())
    }


def filled(model: LatentMDP) -> LatentMDP:
    """The model with rows that were never visited made uniform, so that it can be played."""
    if not model.allow_unvisited:
        return model
    tables = (model.transitions, model.reward_probs, model.initial)
    rows = [normalised(table, np.ones(table.shape[-1])) for table in tables]
    uniform = dict(zip(("transitions", "rewards", "initial"), rows))
    return model.replace(**uniform, bonus=None, initial_bonus=None, allow_unvisited=False)


def runs_section(groups: Groups, grouped_by: str = "method") -> Section:
    """One row per run, with what its group is called."""
    rows: list[tuple[Any, ...]] = []
    for name, records in groups.items():
        for r in records:
            run, seed = r.run, r.run.settings.get("seed")
            earned = (run.trailing_return(), run.value, float(run.returns.mean()))
            rows.append((r.name, name, run.n_episodes, seed, *earned, run.seconds))
    columns = ("value of the policy", "mean return", "seconds")
    table = Table(
        "Runs",
        ("run", grouped_by, "episodes", "seed", "return at the end", *columns),
        rows,
        "Returns are per episode; at the end: over the last tenth of the episodes. The value of "
        "the policy is from episodes of its own that nothing was learned from, with a 95 % "
        "interval; a dash: the learner does not try its last policy. The seed fixes every random "
        "choice of a run.",
        words=(grouped_by,),
    )
    return Section("Runs and seeds", "\n\n".join(_warnings(groups)), [table])


def _warnings(groups: Groups) -> Iterator[str]:
    """What the runs themselves advise against, each once with the runs it is about."""
    runs: dict[str, list[str]] = {}
    for record in (r for records in groups.values() for r in records):
        for message in record.run.warnings:
            runs.setdefault(message, []).append(record.name)
    for message, where in runs.items():
        yield f"Warning ({listed(where)}): {message}."


def settings_tables(groups: Groups) -> list[Table]:
    """What the runs of each group have in common."""
    return [facts_table(f"Settings: {n}", rs[0].shared_settings) for n, rs in groups.items()]


def curves_section(groups: Groups, references: Mapping[str, float] | None = None) -> Section:
    """Return and, where the truth was known, model error over episodes."""
    references = references or {}
    spread = (
        " The band is one standard deviation over runs."
        if any(len(records) > 1 for records in groups.values())
        else " A single run has no band: give several runs to see the spread."
    )
    earned = [name for name in references if "bound" not in name]  # which nobody need reach
    goal = f" near the line of: {max(earned, key=references.__getitem__)}" if earned else ""
    runs = {name: [record.run for record in records] for name, records in groups.items()}
    pictures = [
        drawn(
            "Return over episodes",
            "Each point is the mean return of the episodes before it, a tenth of the run; the last "
            "point is the return at the end. It should climb and flatten"
            f"{goal}.{spread}",
            lambda axes: plot.returns(runs, axes, references=references),
        )
    ]
    every = [run for members in runs.values() for run in members]
    if any(np.isfinite(run.error_curve.values).any() for run in every):
        pictures.append(
            drawn(
                "Model error over episodes",
                "Sum over contexts, states and actions of the L1 distance between the estimated "
                "and the true distribution of what follows, up to relabelling. It should fall; "
                "episodes at which the number of contexts was wrong have no error and are left "
                "out." + spread,
                lambda axes: plot.model_errors(runs, axes),
            )
        )
    return Section("How learning went", "", pictures=pictures)


# ----------------------------------------------------------------------------- beliefs and contexts


def belief_picture(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, seed: int = 0
) -> Picture:
    """The belief along a typical episode of the world, seen through a filter on `believed`.

    Of 101 episodes it is the one with the median belief in the true context, averaged over steps.
    """
    along, true_contexts = beliefs_along(world, policy, believed, 101, seed)
    speed = np.take_along_axis(along, true_contexts[:, None, None], axis=2).mean(axis=(1, 2))
    typical = int(np.argsort(speed, kind="stable")[len(speed) // 2])
    path, true = along[typical], int(true_contexts[typical])
    called = context_labels(world if world.n_contexts == believed.n_contexts else believed)
    return drawn(
        "Belief along one episode",
        "The median of 101 episodes by how fast the truth shows. Each bar divides one unit of "
        "probability among the contexts; the strong colour at the bottom is the true one, "
        f"{called[true]}, which the agent is never told. It ends at {path[-1, true]:.2f}, from "
        f"{path[0, true]:.2f} before the first step.",
        lambda axes: plot.beliefs(path, axes, context_names=called, true=true),
    )


def groups_picture(model: LatentMDP, what: str) -> Picture:
    """What tells contexts apart."""
    return drawn(
        "How the contexts differ",
        "A row is where an episode begins, or what follows a state and an action; its dots are the "
        "probabilities in each context. The rows are those where two contexts are furthest apart: "
        f"acting there tells them apart. From {what}.",
        lambda axes: plot.groups(model, axes),
        1.4 + 0.34 * min(12, model.n_states * model.n_actions + 1),
    )


def beliefs_along(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, episodes: int, seed: int
) -> tuple[Floats, Integers]:
    """Beliefs (N, H + 1, M) of a filter on `believed`, and the true contexts (N,) in its labels."""
    logs = simulate(world, policy, episodes, rng=seed)
    # The filter's alpha: an outcome that a learned model calls impossible must not end the belief,
    # and no bar of a picture may move.
    smoothing = min(1e-4, 0.1 / (believed.n_states * believed.n_rewards))
    along = posterior(believed, logs.without_contexts(), smoothing, along=True)
    standing_for = linear_sum_assignment(world.distances(believed))[1]
    true = np.asarray(standing_for, dtype=np.int64)[np.asarray(logs.contexts)]
    # An episode that ended keeps its last belief.
    last = np.minimum(np.arange(logs.longest + 1), logs.lengths[:, None])
    return along[(logs.offsets[:-1] + np.arange(episodes))[:, None] + last], true


# ------------------------------------------------------------------------- experiments of the paper


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
    figure, axes = canvas(3.6 + 0.2 * -(-len(panel.lines) // columns))
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
