"""Decision tables: a policy on one page, as phase x state x region of beliefs -> action.

For every state a table has the action at one belief b, by default the weights of the contexts, and
the actions on the straight lines from there to certainty of each context, with the probability of
that context from which on each is taken. With two contexts these lines hold every belief; with more
the table is read by the context m whose probability has grown most, the largest b'(m) - b(m).

A policy of an episode that ends changes with time, so there is a table for each **phase**: steps in
which it takes the same actions, with thresholds that differ by no more than `tolerance` from those
of its first step, which are printed. States, and contexts in a state, that cannot occur in a phase
are blank.

A table that is read in this way is a policy again (`DecisionTable.as_policy`). As printed, rounded
thresholds included, it is evaluated in the model, and what it earns stands below the table. That
policy is one of alpha vectors: with d(m) = b'(m) - b(m), and all thresholds of a state, less b(m),
in rising order c_1 <= ... <= c_K, the function

    phi(d) = max_k  (k + 1) d - (c_1 + ... + c_k)          (k = 0, ..., K)

is convex with a kink at every threshold and increases, so max_m phi(d(m)) is attained by the
context that has grown most, in the piece where its probability lies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from latentmdp import plot
from latentmdp._util import names
from latentmdp._util.arrays import Flags, Floats
from latentmdp._util.storage import atomic_write, require_writable
from latentmdp._util.words import listed, markdown_table, plural
from latentmdp.model import LatentMDP
from latentmdp.planning import (
    ActionRule,
    Robust,
    Value,
    action_rule,
    belief_at,
    checked_time,
    evaluate,
    explain,
)
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy
from latentmdp.report.page import (
    Picture,
    Section,
    Table,
    context_labels,
    csv_text,
    drawn,
    sizes,
    write_page,
)
from latentmdp.report.plans import risk_table

Change = tuple[float, int]
"""(probability of a context, the action from there on)."""


@dataclass(frozen=True)
class Rule:
    """What is done in a state: at the belief of the table, and on the way to each context.

    Attributes
    ----------
    action
        At the belief of the table; None in a terminal state.
    changes
        For each context m with which the policy can come to the state in this phase: the
        probabilities of m at which something else is done, and what, in their order.
    """

    state: int
    action: int | None
    changes: Mapping[int, tuple[Change, ...]]

    def agrees(self, other: Rule, tolerance: float) -> bool:
        """Whether the actions are the same where both can occur, and thresholds nearly so."""
        pairs = [(self.changes[m], other.changes[m]) for m in self.changes.keys() & other.changes]
        same = not pairs or self.action == other.action
        for mine, theirs in pairs:
            near = (a == b and abs(x - y) <= tolerance for (x, a), (y, b) in zip(mine, theirs))
            same = same and len(mine) == len(theirs) and all(near)
        return same

    def joined(self, other: Rule) -> Rule:
        """Both, where each can occur."""
        merged = {**other.changes, **self.changes}
        return replace(self if self.changes else other, changes=merged)


@dataclass(frozen=True)
class PhaseTable:
    """Steps in which one table holds: from `first` to `last`, both included; None: to no end."""

    first: int
    last: int | None
    rules: tuple[Rule, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DecisionTable:
    """The actions of a policy, by phase, state and belief; `str` is a table in Markdown.

    Attributes
    ----------
    whole
        Whether all states and all steps are there, so that the table is a policy.
    """

    model: LatentMDP
    policy: Policy
    belief: Floats
    phases: tuple[PhaseTable, ...]
    whole: bool

    def __repr__(self) -> str:
        changes = sum(len(c) for p in self.phases for r in p.rules for c in r.changes.values())
        states = len(self.phases[0].rules)
        return (
            f"DecisionTable({plural(states, 'state')}, {plural(len(self.phases), 'phase')}, "
            f"{plural(changes, 'turning point')})"
        )

    def __str__(self) -> str:
        return self.to_markdown().rstrip("\n")

    def _repr_html_(self) -> str:
        from latentmdp.report.page import html_tables

        return html_tables(page_tables(self))

    def to_markdown(self) -> str:
        """The tables for a document, with what they earn below."""
        lines = []
        for phase in self.phases:
            when = self.steps(phase)
            lines += [f"**{when}**", ""] * bool(when and len(self.phases) > 1)
            lines += [*markdown_table(self.header(), self.cells(phase)), ""]
        lines += [text for sentence in self.notes() for text in (sentence, "")]
        return "\n".join(lines[:-1]) + "\n"

    def to_csv(self) -> str:
        """A row for every phase, state, context and action: from which probability of it on."""
        return csv_text(self._csv_rows()).decode()

    def _csv_rows(self) -> Iterator[tuple[Any, ...]]:
        contexts = context_labels(self.model)
        yield "from_step", "to_step", "state", "context", "from_probability", "action"
        for phase in self.phases:
            for rule in phase.rules:
                where = (phase.first, phase.last, self._state(rule.state))
                if rule.action is None:
                    yield from [(*where, "", "", "")] * bool(rule.changes)
                    continue
                for m, changes in sorted(rule.changes.items()):
                    for share, action in ((float(self.belief[m]), rule.action), *changes):
                        yield *where, contexts[m], share, self._action(action)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a .md or a .csv file."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".md", ".csv"):
            raise ValueError(f"a decision table is written as .md or .csv, got {str(path)!r}")
        require_writable(path)
        text = self.to_markdown() if suffix == ".md" else self.to_csv()
        with atomic_write(path) as stream:
            stream.write(text.encode())

    def as_policy(self) -> AlphaVectorPolicy:
        """The table as printed, followed by its own words; see `latentmdp.report.decisions`."""
        if not self.whole:
            raise ValueError("a table of some states or of one step is no policy")
        vectors, actions, sizes, model = [], [], [0], self.model
        sets = [[self._vectors(rule) for rule in phase.rules] for phase in self.phases]
        for phase, of_phase in zip(self.phases, sets):
            for _ in range(1 if phase.last is None else phase.last + 1 - phase.first):
                vectors += [part for part, _ in of_phase]
                actions += [labels for _, labels in of_phase]
                sizes += [len(labels) for _, labels in of_phase]
        smoothing = getattr(getattr(self.policy, "nodes", self.policy), "smoothing", 0.0)
        flat = np.concatenate([np.asarray(a, dtype=np.int64) for a in actions])
        return AlphaVectorPolicy(np.concatenate(vectors), flat, np.cumsum(sizes), model, smoothing)

    def _vectors(self, rule: Rule) -> tuple[Floats, list[int]]:
        """The alpha vectors (n, M) of a row as it is printed, and their actions."""
        M = self.model.n_contexts
        if rule.action is None:
            return np.empty((0, M)), []
        columns = (rule.changes.get(m, ()) for m in range(M))
        printed = [[(round(x, 3), a) for x, a in column] for column in columns]
        cuts = sorted({x - b for b, column in zip(self.belief, printed) for x, _ in column})
        pieces = [-np.inf, *cuts]
        heights = np.concatenate([[0.0], -np.cumsum(cuts)])
        vectors, labels = [], []
        for k in reversed(range(len(pieces))):  # at a threshold itself the later action is taken
            for m in range(M):
                taken = [a for x, a in printed[m] if x - self.belief[m] <= pieces[k]]
                vector = np.full(M, heights[k] - (k + 1) * self.belief[m])
                vector[m] += k + 1
                vectors.append(vector)
                labels.append(taken[-1] if taken else rule.action)
        return np.array(vectors), labels

    @cached_property
    def values(self) -> tuple[Value, Value]:
        """What the table as printed earns in the model, and what the policy does."""
        printed = evaluate(self.model, self.as_policy(), rng=0)
        return printed, evaluate(self.model, self.policy, rng=0)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What `explain` warns of in each state, in the first phase in which it can occur."""
        where, seen = dict[str, list[str]](), set[int]()
        for phase in self.phases:
            for rule in phase.rules:
                if rule.changes and rule.action is not None and rule.state not in seen:
                    seen.add(rule.state)
                    told = explain(self.model, self.policy, rule.state, self.belief, phase.first)
                    here = f"{self._state(rule.state)}{self.model.duration.step(phase.first)}"
                    for text in told.warnings:
                        where.setdefault(text, []).append(here)
        return tuple(f"{text} ({listed(places)})" for text, places in where.items())

    def notes(self) -> Iterator[str]:
        """What stands below the tables: what they earn as printed, and warnings."""
        if self.whole:
            printed, own = self.values
            loss = own.mean - printed.mean
            error = float(np.hypot(printed.stderr or 0.0, own.stderr or 0.0))
            share = f" ({abs(loss / own.mean):.1%})" if own.mean else ""
            lost = f"{abs(loss):.3g} {'less' if loss > 0 else 'more'}{share} than"
            if abs(loss) <= max(2.0 * error, 5e-4 * abs(own.mean)):
                lost = "as much as"
            off = max(printed.stderr or 0.0, own.stderr or 0.0)
            yield (
                f"Followed as printed, this earns {printed.mean:.4g} per episode, {lost} the "
                f"policy it was made from, which earns {own.mean:.4g}"
                + (f" (simulated; standard error {off:.1g})." if off else ".")
            )
        few = 5  # more would bury the rest
        for text in self.warnings[:few]:
            yield f"Warning: {text}."
        if len(self.warnings) > few:
            yield f"Warning: {len(self.warnings) - few} more of this kind; see `lm.explain`."

    def steps(self, phase: PhaseTable) -> str:
        """The steps of a phase in words; empty where all steps are alike."""
        if phase.last is None:
            return ""
        several = phase.last > phase.first
        which = f"Steps {phase.first} to {phase.last}" if several else f"Step {phase.first}"
        return f"{which} of {self.model.horizon}"

    def _state(self, s: int) -> str:
        return names.label("state", s, self.model.state_names)

    def _action(self, a: int) -> str:
        return names.label("action", a, self.model.action_names)

    def header(self) -> tuple[str, ...]:
        """What the columns are called."""
        contexts = context_labels(self.model)
        shares = ", ".join(f"{c} {b:.1%}" for c, b in zip(contexts, self.belief.tolist()))
        return ("state", f"at {shares}", *(f"growing sure of {c}" for c in contexts))

    def cells(self, phase: PhaseTable) -> list[tuple[str, ...]]:
        """The rows of a phase in words."""
        return [tuple(self._row(rule)) for rule in phase.rules]

    def _row(self, rule: Rule) -> Iterator[str]:
        yield self._state(rule.state)
        over = "the episode is over" if rule.action is None else self._action(rule.action)
        yield over if rule.changes else ""
        for m in range(self.model.n_contexts):
            steps = [f"{self._action(a)} from {share:.1%}" for share, a in rule.changes.get(m, ())]
            can_occur = m in rule.changes and rule.action is not None
            yield ("; ".join(steps) or "the same") * can_occur


def page_tables(table: DecisionTable, about: str = "") -> list[Table]:
    """The tables in an HTML page, a table for each phase; the last has the notes."""
    header, tables = table.header(), []
    for phase in table.phases:
        title = " · ".join(filter(None, (about, table.steps(phase)))) or "Decision table"
        tables.append(Table(title, header, table.cells(phase), "", words=header[1:]))
    return [*tables[:-1], replace(tables[-1], caption=" ".join(table.notes()))]


def reading(model: LatentMDP) -> str:
    """How to read a decision table."""
    several = "the table of the step, then " if model.horizon else ""
    text = f"Find {several}the row of the state. Its second column is the action at the belief in "
    if model.n_contexts == 1:
        return f"{text}the heading."
    return (
        f"{text}the heading. Then take the column of the context whose probability has grown most "
        "since: it says from which probability of it on something else is done. A blank cell "
        "cannot occur."
    )


def policy_pictures(model: LatentMDP, policy: Policy, most: int = 4) -> list[Picture]:
    """What is done in the first states in which a belief decides, and which state follows which."""
    rule, pictures = action_rule(policy, model), []
    several = [s for s in range(model.n_states) if np.unique(rule.vectors(0, s)[1]).size > 1]
    for s in several[:most]:
        caption = (
            "A bar leads from the weight of a context (the mark) to certainty of it; its colour is "
            f"the action taken{model.duration.step(0)}."
        )
        name = names.label("state", s, model.state_names)
        draw = partial(plot.policy, policy, s, model.weights, 0)
        height = 1.2 + 0.36 * min(model.n_contexts, 12)
        pictures.append(drawn(f"By belief: {name}", caption, draw, height))
    caption = (
        "A node is a state and the action taken there, as large as it is often visited; an arrow "
        "leads to what follows, as wide as it is likely. Moves less likely than 5 % are not drawn."
    )
    return [*pictures, drawn("How episodes go", caption, partial(plot.graph, model, policy), 5.2)]


def decision_table(
    model: LatentMDP,
    policy: Policy,
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int | None = None,
    states: Iterable[int | str] | None = None,
    tolerance: float = 0.05,
) -> DecisionTable:
    """The actions of a policy by phase of the episode, state and region of beliefs.

    Of a `PolicyGraph` it shows, at each belief, the node that is best among those it can be at. A
    `MixturePolicy` has a table for each of its `parts`.

    Parameters
    ----------
    belief
        Where the lines to the contexts begin; by default the weights of the contexts.
    t
        One time in the episode, from 0; by default all of them, by phases.
    states
        Which states, by index or by name; by default all of them.
    tolerance
        How far a threshold of a phase may lie from what is printed.
    """
    rule = action_rule(policy, model)
    b = belief_at(model, belief, model.weights)
    every = range(model.n_states)
    listing = [
        names.to_index("states", state, model.state_names, model.n_states)
        for state in (every if states is None else states)
    ]
    times = range(model.n_layers) if t is None else [checked_time(t, model)]
    reached = _reached(model, rule, b) if t is None else None
    phases: list[PhaseTable] = []
    for time in times:
        possible = np.ones((model.n_contexts, model.n_states), bool)
        possible = possible if reached is None else next(reached)
        rules = tuple(_rule(model, rule, time, s, b, possible[:, s]) for s in listing)
        last = None if model.horizon is None else time
        before = phases[-1].rules if phases else ()
        if before and all(old.agrees(new, tolerance) for old, new in zip(before, rules)):
            joined = tuple(old.joined(new) for old, new in zip(before, rules))
            phases[-1] = PhaseTable(phases[-1].first, last, joined)
        else:
            phases.append(PhaseTable(time, last, rules))
    return DecisionTable(model, policy, b, tuple(phases), t is None and states is None)


def _rule(
    model: LatentMDP, rule: ActionRule, t: int, s: int, belief: Floats, possible: Flags
) -> Rule:
    """What is done in a state at time t."""
    contexts = np.flatnonzero(possible).tolist()
    if model.terminal[s]:
        return Rule(s, None, dict.fromkeys(contexts, ()))
    ways = rule.ways(t, s, belief)
    return Rule(s, ways[0][0][1], {m: tuple(ways[m][1:]) for m in contexts})


def _reached(model: LatentMDP, rule: ActionRule, belief: Floats) -> Iterator[Flags]:
    """In which states the policy can be at each time if a context is in force, (M, S)."""
    table, S, A = model.outcomes, model.n_states, model.n_actions
    rows = np.repeat(np.arange(S * A), np.diff(table.starts))
    here = (model.initial > 0.0) & (model.weights > 0.0)[:, None]
    for t in range(model.n_layers):
        taken = np.zeros((S, A), bool)
        for s in np.flatnonzero(~model.terminal).tolist():
            labels = rule.vectors(t, s)[1]
            taken[s, labels if len(labels) else rule.probabilities(t, s, belief) > 0.0] = True
        moves = (taken.ravel()[rows][:, None] & (table.probs > 0.0)).T  # (M, outcomes)
        while True:
            reached = np.zeros_like(here)
            context, outcome = np.nonzero(moves & here[:, rows // A])
            reached[context, table.next_state[outcome]] = True
            if model.horizon is not None:
                break
            before, here = here, here | reached  # without an end: at any time
            if (before == here).all():
                break
        yield here
        here = reached


def write_decision_page(
    model: LatentMDP,
    policy: Policy,
    out: str | os.PathLike[str],
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int | None = None,
    title: str = "Decision table",
) -> None:
    """Write what a policy does, and what it earns in each context, as one HTML page.

    Parameters
    ----------
    out
        The HTML file.
    belief
        Where the lines of the table begin; by default the weights of the contexts.
    t
        One time in the episode, from 0; by default all of them, by phases.
    """
    require_writable(out)
    tables = list(_tables(model, policy, belief, t))
    # The best worst case is bounded this closely, or as far as ten seconds lead.
    careful = Robust("worst-case", gap=0.02, time_limit=10.0).plan(model)
    compared = {"this policy": policy, "best for the worst case": careful.policy}
    bounds = cast(tuple[float, float], (careful.lower, careful.upper))
    risk = risk_table(model, compared, bounds)
    pictures = policy_pictures(model, policy) if isinstance(policy, AlphaVectorPolicy) else []
    page = [
        Section("What to do", reading(model), tables),
        Section(
            "What it earns, and in the worst case",
            "Costs are negative numbers. The last column is a policy that is made for the worst "
            "case: it shows what caution would earn in each context, and what it costs on average.",
            [risk],
            pictures,
        ),
    ]
    write_page(out, title, f"{sizes(model)}; which of the models holds is not known.", page)


def _tables(
    model: LatentMDP, policy: Policy, belief: ArrayLike | Mapping[str, float] | None, t: int | None
) -> Iterator[Table]:
    """The decision tables, or those of each policy that a mixture may draw."""
    if not isinstance(policy, MixturePolicy):
        yield from page_tables(decision_table(model, policy, belief, t))
        return
    for i, (part, share) in enumerate(zip(policy.parts, policy.weights.tolist())):
        about = f"Policy {i + 1}, drawn at the start with probability {share:.3g}"
        yield from page_tables(decision_table(model, part, belief, t), about)
