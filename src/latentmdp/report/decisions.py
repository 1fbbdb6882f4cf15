"""Decision tables: a policy on one page, as state x region of beliefs -> action.

For every state the table has the action at one belief, by default the weights of the contexts, and
the actions on the straight lines from there to certainty of each context, with the probability of
that context from which on each is taken. With two contexts these lines hold every belief, so the
table is the whole policy of that time; with more it is exact on the lines.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import Floats, atomic_write, markdown_table, names, plural, require_writable
from latentmdp.model import LatentMDP
from latentmdp.planning import (
    ActionRule,
    TurningPoint,
    action_rule,
    belief_at,
    checked_time,
    switches,
    towards,
)
from latentmdp.policies import Policy
from latentmdp.report.page import Table, context_labels


@dataclass(frozen=True, eq=False)
class Rule:
    """What is done in a state: at the belief of the table, and on the way to each context.

    `action` is None in a terminal state; the turning points are all changes of the action, context
    by context, in the order in which they are met.
    """

    state: int
    action: int | None
    turning_points: tuple[TurningPoint, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DecisionTable:
    """The actions of a policy at time `t`, by state and belief; one rule for each state."""

    model: LatentMDP
    belief: Floats
    t: int
    rules: tuple[Rule, ...]

    def __repr__(self) -> str:
        changes = sum(len(rule.turning_points) for rule in self.rules)
        return (
            f"DecisionTable({plural(len(self.rules), 'state')}, t={self.t}, "
            f"{plural(changes, 'turning point')})"
        )

    def __str__(self) -> str:
        return self.to_markdown().rstrip("\n")

    def to_markdown(self) -> str:
        """A table for a document."""
        return "".join(f"{line}\n" for line in markdown_table(self.header(), self.cells()))

    def to_csv(self) -> str:
        """A row for every state, context and action: from which probability of it on."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("state", "context", "from_probability", "action"))
        for rule in self.rules:
            state = self._state(rule.state)
            if rule.action is None:
                writer.writerow((state, "", "", ""))
                continue
            for m, name in enumerate(context_labels(self.model)):
                writer.writerow((state, name, float(self.belief[m]), self._action(rule.action)))
                for share, action in _changes(rule, m):
                    writer.writerow((state, name, share, self._action(action)))
        return stream.getvalue()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a .md or a .csv file."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".md", ".csv"):
            raise ValueError(f"a decision table is written as .md or .csv, got {str(path)!r}")
        require_writable(path)
        text = self.to_markdown() if suffix == ".md" else self.to_csv()
        with atomic_write(path) as stream:
            stream.write(text.encode())

    def _state(self, s: int) -> str:
        return names.label("state", s, self.model.state_names)

    def _action(self, a: int) -> str:
        return names.label("action", a, self.model.action_names)

    def header(self) -> tuple[str, ...]:
        """What the columns are called."""
        contexts = context_labels(self.model)
        shares = ", ".join(f"{c} {b:.0%}" for c, b in zip(contexts, self.belief.tolist()))
        return ("state", f"at {shares}", *(f"growing sure of {c}" for c in contexts))

    def cells(self) -> list[tuple[str, ...]]:
        """The rows in words."""
        return [tuple(self._row(rule)) for rule in self.rules]

    def _row(self, rule: Rule) -> Iterator[str]:
        yield self._state(rule.state)
        if rule.action is None:
            yield "the episode is over"
            yield from [""] * self.model.n_contexts
            return
        yield self._action(rule.action)
        for m in range(self.model.n_contexts):
            changes = [f"{self._action(a)} from {share:.1%}" for share, a in _changes(rule, m)]
            yield "; ".join(changes) or "the same"


def page_table(table: DecisionTable) -> Table:
    """The table in an HTML report."""
    model = table.model
    when = model.duration.step(table.t)
    whole = " With two contexts that is every belief." if model.n_contexts == 2 else ""
    caption = (
        f"What the policy does{when}: at the belief in the heading of the second column, and from "
        "which probability of a context on it does something else, while the other contexts keep "
        f"their proportions.{whole}"
    )
    header = table.header()
    return Table("Decision table", header, table.cells(), caption, words=header[1:])


def _changes(rule: Rule, context: int) -> list[tuple[float, int]]:
    """(probability of the context, action from there on) of a rule."""
    return [
        (float(point.belief[context]), point.action)
        for point in rule.turning_points
        if point.context == context and point.belief is not None and point.action is not None
    ]


def decision_table(
    model: LatentMDP,
    policy: Policy,
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int = 0,
    states: Iterable[int | str] | None = None,
) -> DecisionTable:
    """The actions of a policy by state and region of beliefs.

    Of a `PolicyGraph` it shows, at each belief, the node that is best among those it can be at. A
    `MixturePolicy` has a table for each of its `parts`.

    Parameters
    ----------
    belief
        Where the lines to the contexts begin; by default the weights of the contexts.
    t
        Time in the episode, from 0.
    states
        Which states, by index or by name; by default all of them.
    """
    rule, t = action_rule(policy, model), checked_time(t, model)
    b = belief_at(model, belief, model.weights)
    listed = range(model.n_states) if states is None else states
    rules = []
    for state in listed:
        s = names.to_index("states", state, model.state_names, model.n_states)
        action = None if model.terminal[s] else int(np.argmax(rule.probabilities(t, s, b)))
        points = () if action is None else tuple(_all_changes(rule, t, s, b))
        rules.append(Rule(s, action, points))
    return DecisionTable(model, b, t, tuple(rules))


def _all_changes(rule: ActionRule, t: int, s: int, belief: Floats) -> Iterator[TurningPoint]:
    vectors, labels = rule.vectors(t, s)
    for m in range(belief.size) if len(vectors) else ():
        for x, action in switches(vectors, labels, belief, m)[1:]:
            yield TurningPoint(m, towards(belief, m, x), action)
