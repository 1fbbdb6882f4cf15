"""The demonstration: acting and learning with hidden contexts on two instances, as one page.

For each instance: what is hidden; what acting at random, the best memoryless policy and the best
policy with memory earn where the model is known; what a learner that starts from nothing finds and
earns, over several seeds; how its belief in the true context grows within an episode; and the
planner's certificate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from latentmdp._util.arrays import Floats
from latentmdp._util.figures import COLOURS, MUTED, band, legend
from latentmdp._util.results import Worded, cell
from latentmdp._util.words import plural
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.online import learn
from latentmdp.planning import HSVI, Memoryless, Value, context_values, evaluate
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.report.page import Section, Table, drawn, sizes, write_page
from latentmdp.report.report import (
    Record,
    beliefs_along,
    curves_section,
    model_section,
    runs_section,
    settings_tables,
)
from latentmdp.theory import separation


@dataclass(frozen=True)
class Sizes:
    """An instance of the demonstration and how much is played on it."""

    arguments: dict[str, Any]
    contexts: int | Literal["auto"]
    episodes: int
    seeds: int
    plan_seconds: float
    value_episodes: int = 400_000

    @property
    def steps(self) -> int:
        """How often `demonstrate` reports."""
        return 3 + self.seeds


_SEPARATED: dict[str, Any] = {"contexts": 3, "actions": 2, "delta": 0.8, "rewards": "own"}
_LARGE = {**_SEPARATED, "states": 7, "horizon": 20}
_SMALL = {**_SEPARATED, "states": 5, "horizon": 12}
INSTANCES = {
    "visitor": Sizes({}, contexts=5, episodes=20_000, seeds=2, plan_seconds=3.0),
    "separated": Sizes(_LARGE, contexts="auto", episodes=800, seeds=3, plan_seconds=3.0),
}
"""What `latentmdp demo` plays."""

QUICK = {
    "visitor": Sizes({}, 5, episodes=150, seeds=2, plan_seconds=0.5, value_episodes=2_000),
    "separated": Sizes(_SMALL, 3, episodes=150, seeds=2, plan_seconds=0.5, value_episodes=2_000),
}
"""A small version, in seconds."""


@dataclass(frozen=True, eq=False)
class Demonstration:
    """What was found on one instance.

    Attributes
    ----------
    facts
        What policies earn per episode, the context hidden: of "random" actions, of the "memoryless"
        policy found by coordinate ascent, of what was "learned", and of the "best", the plan for
        the true model, between its "lower" and "upper" bound; "full_information" is the value if
        the context were known. "belief" is that in the true context after each step.
    records
        The runs of the learner.
    sections
        The part of the page that is about it.
    """

    name: str
    facts: Mapping[str, Any]
    records: Sequence[Record]
    sections: Sequence[Section]


def demonstrate(
    name: str,
    amounts: Sizes,
    seed: int,
    report: Callable[[str], None],
    say: Callable[[str, str], None] = lambda text, subject: None,
) -> Demonstration:
    """Play one instance; `report` is called with what is done next, `say` with what is known."""
    model = make(name, rng=seed, **amounts.arguments)

    def worth(policy: Policy | HistoryPolicy) -> Value:
        return evaluate(model, policy, episodes=amounts.value_episodes, rng=seed)

    say(_HIDDEN[name], name)
    report(f"{name}: planning with the true model")
    values = {"random": worth(UniformPolicy())}
    say(f"{values['random'].mean:.3f} per episode", "random actions earn")
    planner = HSVI(gap=0.01, time_limit=amounts.plan_seconds)
    plan, informed = planner.plan(model), float(model.weights @ context_values(model))
    proved = f"{plan.lower:.3f}, and no policy more than {plan.upper:.3f}"
    say(f"{proved}; told what is hidden, {informed:.3f} at most", "with the model, a plan earns")
    report(f"{name}: the best policy without memory")
    values["memoryless"] = worth(Memoryless(method="cadp").plan(model).policy)
    values["best"] = worth(plan.policy)
    records = []
    for k in range(amounts.seeds):
        report(f"{name}: learning from nothing, {amounts.episodes:,} episodes, run {k + 1}")
        run = learn(model, amounts.contexts, amounts.episodes, rng=seed + k, planner=planner)
        records.append(Record(f"{name}-{k}", run))
    report(f"{name}: watching beliefs and counting returns")
    means = [worth(record.run.policy).mean for record in records]
    learned = f"{np.mean(means):.3f} ({min(means):.3f} to {max(means):.3f})"
    found = [record.run.model.n_contexts for record in records]
    numbers = ", ".join(map(str, found))
    say(f"{learned} per episode; contexts found: {numbers}", "from nothing it learned")
    filters: dict[str, tuple[Policy | HistoryPolicy, LatentMDP]] = {"true": (plan.policy, model)}
    if found[0] == model.n_contexts:
        filters["learned"] = records[0].run.policy, records[0].run.model
    beliefs = {
        f"filter with the {which} model": growth(model, policy, believed, seed=seed)
        for which, (policy, believed) in filters.items()
    }
    facts = {
        "separation": float(separation(model)),
        **{policy: _with_error(value) for policy, value in values.items()},
        "learned": Worded(means, learned),
        "best_stderr": values["best"].stderr,
        "lower": plan.lower,
        "upper": plan.upper,
        "full_information": informed,
        "contexts": model.n_contexts,
        "found_contexts": found,
        "belief": beliefs["filter with the true model"].mean(axis=0),
    }
    title = name.capitalize()
    known = model_section(f"{title}: what is hidden, and the best plan", model, None, plan)
    about = (
        f"{_HIDDEN[name]}\n\n{sizes(model).capitalize()}; separation delta = "
        f"{facts['separation']:.3g}.\n\n{known.text}"
    )
    references = {
        "best plan, model known": values["best"].mean,
        "no memory, model known": values["memoryless"].mean,
        "random actions": values["random"].mean,
    }
    told = (
        f"The number of contexts was not told either; the runs found {numbers}."
        if amounts.contexts == "auto"
        else f"Told is only that there are {amounts.contexts} contexts."
    )
    ends = "; ".join(f"{which}: {paths[:, -1].mean():.2f}" for which, paths in beliefs.items())
    growing = drawn(
        "Belief in the true context",
        f"Mean over {len(beliefs['filter with the true model']):,} episodes; the band holds the "
        "middle 80% of them. It starts at the prior and should climb towards 1. At the end of an "
        f"episode, {ends}.",
        lambda axes: draw_growth(axes, beliefs),
    )
    learning = Section(
        f"{title}: learning from nothing",
        f"{plural(len(records), 'run')} of {plural(amounts.episodes, 'episode')}, exploration "
        f"included. The learner sees neither the model nor any context. {told} In the true model "
        f"the final policies earn {learned} per episode.",
        pictures=[*curves_section({"learned from nothing": records}, references).pictures, growing],
    )
    return Demonstration(name, facts, records, [replace(known, text=about), learning])


def growth(
    world: LatentMDP,
    policy: Policy | HistoryPolicy,
    believed: LatentMDP,
    episodes: int = 2_000,
    seed: int = 0,
) -> Floats:
    """Belief in the true context after 0, 1, ..., H steps of many episodes, (N, H + 1).

    The standard error of the mean of so many `episodes` is about 0.01.
    """
    along, true = beliefs_along(world, policy, believed, episodes, seed)
    return np.asarray(np.take_along_axis(along, true[:, None, None], axis=2)[..., 0])


def draw_growth(axes: Axes, curves: dict[str, Floats]) -> None:
    """Mean belief in the true context along an episode, with the middle 80% of episodes."""
    for i, (name, values) in enumerate(curves.items()):
        spread = tuple(np.quantile(values, (0.1, 0.9), axis=0))
        band(axes, np.arange(values.shape[1]), values, COLOURS[i], name, spread=spread)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="steps taken in the episode", ylabel="belief in the true context")
    axes.set_ylim(0.0, 1.02)
    legend(axes, columns=1)


COLUMNS = {
    "random": "random",
    "memoryless": "no memory",
    "learned": "learned",
    "best": "best plan",
    "upper": "upper bound",
    "full_information": "informed",
}
"""Facts that stand in the table of values, and what their columns are called."""

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


def write_demo(path: str | os.PathLike[str], demos: Sequence[Demonstration]) -> None:
    """Write the page."""
    groups = {demo.name: demo.records for demo in demos}
    tables = [*runs_section(groups, "instance").tables, *settings_tables(groups)]
    page = [
        _overview(demos),
        *(section for demo in demos for section in demo.sections),
        Section("Runs, settings and timing", "", tables),
    ]
    write_page(path, "Latent MDPs: acting well when the context is hidden", _LEAD, page)


def values_table(demos: Sequence[Demonstration]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table of values."""
    rows = [[demo.name, *(cell(demo.facts[name]) for name in COLUMNS)] for demo in demos]
    return ["instance", *COLUMNS.values()], rows


def _with_error(value: Value) -> Worded:
    error = "" if value.exact else f" ± {value.stderr:.3f}"
    return Worded(value.mean, f"{value.mean:.3f}{error}")


def _overview(demos: Sequence[Demonstration]) -> Section:
    table = Table(
        "Value per episode (± standard error), the context hidden",
        *values_table(demos),
        "No memory: looks at time and state only, found with the true model known. Learned: by "
        "acting, from nothing; mean over runs (lowest to highest). Best plan: with memory and the "
        "true model known; no policy earns more than its upper bound. Informed: what could be "
        "earned if the context were told.",
    )
    shares = [
        f"On {d.name}, what was learned earns {_mean(d, 'learned') / _mean(d, 'best'):.1%} of the "
        "best plan."
        for d in demos
    ]
    picture = drawn(
        "What each policy earns",
        "As a share of the value with the context known (1.0). The step from no memory to the "
        "best plan is what memory, a belief over contexts, is worth. " + " ".join(shares),
        lambda axes: _draw_values(axes, demos),
        3.0,
    )
    return Section("In short", "", [table], [picture])


def _mean(demo: Demonstration, name: str) -> float:
    """What a policy earns per episode, the learned ones on average over the runs."""
    return float(np.mean(demo.facts[name].value))


def _draw_values(axes: Axes, demos: Sequence[Demonstration]) -> None:
    for i, (name, colour) in enumerate(zip(COLUMNS, (MUTED, COLOURS[1], COLOURS[0], COLOURS[2]))):
        values = [_mean(d, name) / d.facts["full_information"] for d in demos]
        positions = np.arange(len(demos)) + 0.2 * (i - 1.5)
        bars = axes.bar(positions, values, width=0.18, color=colour, label=COLUMNS[name])
        axes.bar_label(bars, fmt="%.2f", fontsize=8.5, padding=2)
    axes.set_xticks(range(len(demos)), [d.name for d in demos])
    axes.set(ylim=(0.0, 1.12), ylabel="share of value, context known")
    legend(axes, columns=4)
