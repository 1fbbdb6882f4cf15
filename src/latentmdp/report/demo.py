"""The demonstration: acting and learning with hidden contexts on two instances, as one page.

For each instance: what is hidden; what acting at random, the best memoryless policy and the best
policy with memory earn where the model is known; what a learner that starts from nothing finds and
earns, over several seeds; how its belief in the true context grows within an episode; and the
planner's certificate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from latentmdp._util import COLOURS, MUTED, Floats, Worded, in_words, legend, plural
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.online import Run, learn
from latentmdp.planning import HSVI, QMDP, Memoryless, Plan, Value, evaluate
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.report.contexts import draw_growth, growth
from latentmdp.report.page import Section, Table, drawn, sizes, write_page
from latentmdp.report.records import Record, curves_section, runs_section, settings_tables
from latentmdp.report.report import model_section
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
    delta
        Separation: the least L1 distance between two contexts over all (s, a).
    values
        What policies earn per episode, the context hidden: of "random" actions, of the "memoryless"
        policy found by coordinate ascent, and of the "best", the plan for the true model.
    informed
        The value if the context were known: no policy earns more.
    plan
        The certificate for the true model.
    declared
        The number of contexts as the learner was told it; "auto" if it had to find out.
    runs, learned
        The runs of the learner, and what the final policy of each earns in the true model.
    growth
        Belief in the true context along episodes (N, H + 1), by whose filter.
    """

    name: str
    model: LatentMDP
    delta: float
    values: dict[str, Value]
    informed: float
    plan: Plan
    declared: int | Literal["auto"]
    runs: tuple[Run, ...]
    learned: tuple[Value, ...]
    growth: dict[str, Floats]

    @property
    def records(self) -> list[Record]:
        """The runs as a report lists them."""
        return [Record(f"{self.name}-{k}", run) for k, run in enumerate(self.runs)]

    def facts(self) -> dict[str, Any]:
        """What each policy earns, and how the belief in the true context grows."""
        return {
            "separation": self.delta,
            **{name: _with_error(value) for name, value in self.values.items()},
            "learned": Worded([value.mean for value in self.learned], _several(self.learned)),
            "best_stderr": self.values["best"].stderr,
            "lower": self.plan.lower,
            "upper": self.plan.upper,
            "full_information": self.informed,
            "contexts": self.model.n_contexts,
            "found_contexts": [run.model.n_contexts for run in self.runs],
            "belief": self.growth["filter with the true model"].mean(axis=0),
        }

    @property
    def means(self) -> dict[str, float]:
        """What each policy earns per episode, the learned ones averaged over the runs."""
        learned = float(np.mean([value.mean for value in self.learned]))
        return {name: value.mean for name, value in self.values.items()} | {"learned": learned}


def demonstrate(
    name: str,
    sizes: Sizes,
    seed: int,
    report: Callable[[str], None],
    say: Callable[[str, str], None] = lambda text, subject: None,
) -> Demonstration:
    """Play one instance; `report` is called with what is done next, `say` with what is known."""
    model = make(name, rng=seed, **sizes.arguments)
    say(_HIDDEN.get(name, ""), name)
    report(f"{name}: planning with the true model")
    random = evaluate(model, UniformPolicy(), episodes=sizes.value_episodes, rng=seed)
    say(f"{random.mean:.3f} per episode", "random actions earn")
    planner = HSVI(gap=0.01, time_limit=sizes.plan_seconds)
    plan = planner.plan(model)
    informed = QMDP().plan(model).upper
    assert informed is not None, "Q-MDP always gives its informed bound"
    proved = f"{plan.lower:.3f}, and no policy more than {plan.upper:.3f}"
    say(f"{proved}; told what is hidden, {informed:.3f} at most", "with the model, a plan earns")
    report(f"{name}: the best policy without memory")
    policies: dict[str, Policy | HistoryPolicy] = {
        "random": UniformPolicy(),
        "memoryless": Memoryless(method="cadp").plan(model).policy,
        "best": plan.policy,
    }
    runs = []
    for k in range(sizes.seeds):
        report(f"{name}: learning from nothing, {sizes.episodes:,} episodes, run {k + 1}")
        runs.append(learn(model, sizes.contexts, sizes.episodes, rng=seed + k, planner=planner))
    report(f"{name}: watching beliefs and counting returns")

    def worth(policy: Policy | HistoryPolicy) -> Value:
        return evaluate(model, policy, episodes=sizes.value_episodes, rng=seed)

    first, learned = runs[0], tuple(worth(run.policy) for run in runs)
    found = ", ".join(str(run.model.n_contexts) for run in runs)
    say(f"{_several(learned)} per episode; contexts found: {found}", "from nothing it learned")
    curves = {"filter with the true model": growth(model, plan.policy, model, seed=seed)}
    if first.model.n_contexts == model.n_contexts:
        curves["filter with the learned model"] = growth(
            model, first.policy, first.model, seed=seed
        )
    return Demonstration(
        name=name,
        model=model,
        delta=float(separation(model)),
        values={name: worth(policy) for name, policy in policies.items()},
        informed=informed,
        plan=plan,
        declared=sizes.contexts,
        runs=tuple(runs),
        learned=learned,
        growth=curves,
    )


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
        *(section for demo in demos for section in _sections(demo)),
        Section("Runs, settings and timing", "", tables),
    ]
    write_page(path, "Latent MDPs: acting well when the context is hidden", _LEAD, page)


def values_table(demos: Sequence[Demonstration]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table of values."""
    rows = []
    for demo in demos:
        facts = demo.facts()
        rows.append([demo.name, *(in_words(facts[name], digits=4) or "-" for name in COLUMNS)])
    return ["instance", *COLUMNS.values()], rows


def _with_error(value: Value) -> Worded:
    error = "" if value.exact else f" ± {value.stderr:.3f}"
    return Worded(value.mean, f"{value.mean:.3f}{error}")


def _several(values: Sequence[Value]) -> str:
    """Mean over runs, with the lowest and the highest."""
    means = [value.mean for value in values]
    return f"{sum(means) / len(means):.3f} ({min(means):.3f} to {max(means):.3f})"


def _overview(demos: Sequence[Demonstration]) -> Section:
    shares = [
        f"On {d.name}, what was learned earns {d.means['learned'] / d.means['best']:.1%} of the "
        "best plan."
        for d in demos
    ]
    table = Table(
        "Value per episode (± standard error), the context hidden",
        *values_table(demos),
        "No memory: looks at time and state only, found with the true model known. Learned: by "
        "acting, from nothing; mean over runs (lowest to highest). Best plan: with memory and the "
        "true model known; no policy earns more than its upper bound. Informed: what could be "
        "earned if the context were told.",
    )
    picture = drawn(
        "What each policy earns",
        "As a share of the value with the context known (1.0). The step from no memory to the "
        "best plan is what memory, a belief over contexts, is worth. " + " ".join(shares),
        lambda axes: _draw_values(axes, demos),
        3.0,
    )
    return Section("In short", "", [table], [picture])


def _draw_values(axes: Axes, demos: Sequence[Demonstration]) -> None:
    for i, (name, colour) in enumerate(zip(COLUMNS, (MUTED, COLOURS[1], COLOURS[0], COLOURS[2]))):
        values = [d.means[name] / d.informed for d in demos]
        positions = np.arange(len(demos)) + 0.2 * (i - 1.5)
        bars = axes.bar(positions, values, width=0.18, color=colour, label=COLUMNS[name])
        axes.bar_label(bars, fmt="%.2f", fontsize=8.5, padding=2)
    axes.set_xticks(range(len(demos)), [d.name for d in demos])
    axes.set(ylim=(0.0, 1.12), ylabel="share of value, context known")
    legend(axes, columns=4)


def _sections(d: Demonstration) -> list[Section]:
    """What is hidden, with the plan for those who know the models; and learning from nothing."""
    name = d.name.capitalize()
    known = model_section(f"{name}: what is hidden, and the best plan", d.model, None, d.plan)
    text = (
        f"{_HIDDEN.get(d.name, '')}\n\n{sizes(d.model).capitalize()}; separation delta = "
        f"{d.delta:.3g}.\n\n{known.text}"
    )
    return [replace(known, text=text), _learning(d, name)]


def _learning(d: Demonstration, name: str) -> Section:
    references = {
        "best plan, model known": d.means["best"],
        "no memory, model known": d.means["memoryless"],
        "random actions": d.means["random"],
    }
    curves = curves_section({"learned from nothing": d.records}, references)
    numbers = ", ".join(str(run.model.n_contexts) for run in d.runs)
    number = (
        f"The number of contexts was not told either; the runs found {numbers}."
        if d.declared == "auto"
        else f"Told is only that there are {d.declared} contexts."
    )
    text = (
        f"{plural(len(d.runs), 'run')} of {plural(d.runs[0].returns.size, 'episode')}, exploration "
        f"included. The learner sees neither the model nor any context. {number} In the true model "
        f"the final policies earn {_several(d.learned)} per episode."
    )
    ends = {label: values[:, -1].mean() for label, values in d.growth.items()}
    beliefs = "; ".join(f"{label}: {value:.2f}" for label, value in ends.items())
    episodes = len(next(iter(d.growth.values())))
    growing = drawn(
        "Belief in the true context",
        f"Mean over {episodes:,} episodes; the band holds the middle 80% of them. It starts at the "
        f"prior and should climb towards 1. At the end of an episode, {beliefs}.",
        lambda axes: draw_growth(axes, d.growth),
    )
    return Section(f"{name}: learning from nothing", text, (), [*curves.pictures, growing])
