"""The sections of a report: settings, curves, what was learned, bounds and timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latentmdp.model import LatentMDP
from latentmdp.planning import HSVI, Plan, evaluate
from latentmdp.policies import Policy
from latentmdp.report.beliefs import (
    bars_figure,
    context_names,
    play_episode,
    simplex_figure,
)
from latentmdp.report.curves import error_figure, returns_figure, window_of
from latentmdp.report.differences import differences_figure
from latentmdp.report.figures import bounds_figure
from latentmdp.report.page import Picture, Section, Table
from latentmdp.report.records import Record, shared_settings
from latentmdp.theory.diagnosis import diagnose

__all__ = [
    "assumption_table",
    "belief_pictures",
    "bounds_picture",
    "certificate",
    "certify",
    "curves_section",
    "difference_picture",
    "model_section",
    "runs_section",
    "settings_tables",
]

Groups = Mapping[str, Sequence[Record]]

_PLAN_SECONDS = 10.0


def runs_section(groups: Groups, grouped_by: str = "method") -> Section:
    """One row per run, with what its group is called."""
    rows = [
        (
            r.name,
            name,
            str(r.returns.size),
            str(r.seed),
            f"{r.returns[-window_of(r.returns.size) :].mean():.4g}",
            f"{r.returns.mean():.4g}",
            "-" if r.seconds is None else f"{r.seconds:.1f}",
        )
        for name, records in groups.items()
        for r in records
    ]
    header = ("run", grouped_by, "episodes", "seed", "return at the end", "mean return", "seconds")
    table = Table(
        "Runs",
        header,
        rows,
        "Returns are per episode; at the end: over the last tenth of the episodes, 1,000 at most. "
        "The seed fixes every random choice of a run.",
        words=(grouped_by,),
    )
    return Section("Runs and seeds", "", [table])


def settings_tables(groups: Groups) -> list[Table]:
    """What the runs of each group have in common."""
    return [
        Table(
            f"Settings: {name}",
            ("setting", "value"),
            [(key, str(value)) for key, value in shared_settings(records[0]).items()],
            words=("value",),
        )
        for name, records in groups.items()
    ]


def _goal(references: Mapping[str, float]) -> str:
    """What a curve should come near: the best of what can be earned, which a bound need not be."""
    earned = [name for name in references if "bound" not in name]
    return f" near the line of: {max(earned, key=references.__getitem__)}" if earned else ""


def curves_section(groups: Groups, references: Mapping[str, float] | None = None) -> Section:
    """Return and, where the truth was known, model error over episodes."""
    spread = (
        " The band is one standard deviation over runs."
        if any(len(records) > 1 for records in groups.values())
        else " A single run has no band: give several runs to see the spread."
    )
    pictures = [
        Picture(
            "Return over episodes",
            returns_figure({n: [r.returns for r in rs] for n, rs in groups.items()}, references),
            "Mean return of the last tenth of the episodes so far, 1,000 at most. It should climb "
            f"and flatten{_goal(references or {})}.{spread}",
        )
    ]
    errors = {n: [r.error for r in rs] for n, rs in groups.items()}
    if any(np.isfinite(values).any() for curves in errors.values() for _, values in curves):
        pictures.append(
            Picture(
                "Model error over episodes",
                error_figure(errors),
                "Sum over contexts, states and actions of the L1 distance between the estimated "
                "and the true distribution of what follows, up to relabelling. It should fall; "
                "episodes at which the number of contexts was wrong have no error and are left "
                "out." + spread,
            )
        )
    return Section("How learning went", "", pictures=pictures)


def belief_pictures(
    world: LatentMDP, policy: Policy, believed: LatentMDP, seed: int = 0
) -> list[Picture]:
    """Bars, and a path in the triangle for three contexts, over one episode."""
    episode = play_episode(world, policy, believed, seed)
    names = context_names(world if world.n_contexts == believed.n_contexts else believed)
    true = names[episode.true]
    pictures = [
        Picture(
            "Belief along one episode",
            bars_figure(episode, names),
            "The median of 101 episodes by how fast the truth shows. Each bar divides one unit "
            "of probability among the contexts; the strong colour at the bottom is the true one, "
            f"{true}, which the agent is never told. It ends at "
            f"{episode.beliefs[-1, episode.true]:.2f}, from {episode.beliefs[0, episode.true]:.2f}"
            " before the first step.",
        )
    ]
    if believed.n_contexts == 3:
        pictures.append(
            Picture(
                "The same belief in the triangle",
                simplex_figure(episode, names),
                "A corner means certainty of one context, the centre ignorance. The dots are the "
                f"steps of the episode; they should walk to the corner of {true}.",
            )
        )
    return pictures


def difference_picture(model: LatentMDP, what: str) -> Picture:
    """Maps of the distances between contexts."""
    return Picture(
        "Where the contexts differ",
        differences_figure(model),
        "L1 distance between two contexts in the distribution of next state and reward, for each "
        "state (row) and action (column): clear means the same (0), full colour means nothing in "
        f"common (2). Strong cells are where acting tells contexts apart. From {what}.",
    )


def assumption_table(model: LatentMDP, what: str) -> Table:
    """What `diagnose` says of a model."""
    return Table(
        "Which assumptions of the theory hold",
        ("assumption", "number", "verdict"),
        diagnose(model).rows(),
        f"Measured on {what}, with uniformly random actions where a policy matters.",
        words=("number", "verdict"),
    )


def certify(model: LatentMDP, time_limit: float = _PLAN_SECONDS) -> Plan:
    """Plan to a gap of 1 %, for the bounds."""
    return HSVI(gap=0.01, time_limit=time_limit).plan(model)


def certificate(plans: Mapping[str, Plan]) -> Table:
    """Bounds, gap and time of plans."""
    rows = [
        (
            name,
            "-" if plan.lower is None else f"{plan.lower:.4f}",
            "-" if plan.upper is None else f"{plan.upper:.4f}",
            "-" if plan.gap is None else f"{plan.gap:.2%}",
            f"{plan.seconds:.2f}",
            "reached what was asked" if plan.converged else plan.message or "stopped at a limit",
        )
        for name, plan in plans.items()
    ]
    return Table(
        "Certificates of the planner",
        ("model", "lower", "upper", "gap", "seconds", "outcome"),
        rows,
        "In that model the policy earns at least the lower bound per episode, and no policy, with "
        "whatever memory, earns more than the upper.",
        words=("outcome",),
    )


def bounds_picture(plans: Mapping[str, Plan]) -> Picture:
    """How the bounds closed."""
    return Picture(
        "Bounds of the planner",
        bounds_figure({name: plan.history for name, plan in plans.items()}),
        "The optimal value per episode lies between the solid and the dashed line of one colour; "
        "the shaded gap is what is not known, and it should close.",
    )


def model_section(
    title: str,
    model: LatentMDP,
    policy: Policy | None,
    plan: Plan | None,
    truth: LatentMDP | None = None,
) -> Section:
    """A model, given or learned: beliefs, differences, assumptions, bounds."""
    plan = certify(model) if plan is None else plan
    policy = plan.policy if policy is None else policy
    known = truth is not None and truth.n_contexts == model.n_contexts
    world = truth if truth is not None and known else model
    text = (
        "The belief is that of the learned filter, in an episode of the true model."
        if known
        else "The belief is over an episode simulated from the model itself."
    )
    if truth is not None:
        earned = evaluate(truth, policy, rng=0)
        text += f" In the true model the policy earns {earned.mean:.4g} per episode."
    pictures = [
        *belief_pictures(world, policy, model),
        difference_picture(model, "this model"),
        *([bounds_picture({"HSVI": plan})] if plan.history else []),
    ]
    tables = [certificate({"this model": plan}), assumption_table(model, "this model")]
    return Section(title, text, tables, pictures)
