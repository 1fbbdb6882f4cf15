"""The POMDPX format of the APPL toolkit: the latent MDP as a factored POMDP [ong2010].

Written: the state variable `context` is hidden, `node` is fully observed (`solver_files`: the
state, the time where there is one, and what the last reward tells), and there is no other
observation. The reward variable is called `payoff`. In the discounted form there is no place for an
initial bonus, so a model with one has no such form. One observed variable, with no parent in its
own time slice, is what SARSOP reads and does best with.

Read: files of others too, if everything hidden in them follows from the first state and from what
was seen (`determined_pomdp`). Tables (`type="TBL"`) are read, decision diagrams are not. A file
with a document type or entities is refused.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import storage
from latentmdp._util.arrays import Floats, Integers
from latentmdp.errors import FormatError
from latentmdp.io.determined_pomdp import (
    MAX_EVENTS,
    Events,
    NumberTable,
    Pomdp,
    Variable,
    as_number,
    check_sum,
    join,
)
from latentmdp.io.solver_files import Comments, SolverForm, SolverFormat, number, solver_form
from latentmdp.model import LatentMDP


def _document(model: LatentMDP, discounted: bool) -> Iterator[str]:
    form = solver_form(model, discounted=discounted, delay=0)
    if not form.horizon and model.initial_bonus is not None:
        raise FormatError("the discounted form of POMDPX has no place for an initial bonus")
    yield (
        '<pomdpx version="1.0" id="latentmdp" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="pomdpx.xsd">\n'
    )
    yield "<Description>A latent MDP: the context is hidden</Description>\n"
    yield f"<Discount>{number(form.discount)}</Discount>\n"
    contexts = " ".join(f"c{m}" for m in range(form.n_contexts))
    actions = " ".join(f"a{a}" for a in range(form.n_actions))
    yield _section(
        "Variable",
        _state_variable("context", contexts, "false"),
        _state_variable("node", " ".join(form.nodes), "true"),
        f'<ActionVar vname="action"><ValueEnum>{actions}</ValueEnum></ActionVar>\n',
        '<RewardVar vname="payoff"/>\n',
    )
    yield _section("InitialStateBelief", *_initial_belief(form, model))
    entries = (
        (f"a{a} c{m} {form.nodes[i]} {form.nodes[j]}", number(p))
        for a, m, i, j, p in form.transitions()
    )
    yield _section(
        "StateTransitionFunction",
        _table("context_1", "context_0", [("- -", _numbers(np.eye(form.n_contexts)))]),
        _table("node_1", "action context_0 node_0", entries),
    )
    bonus = 0.0 if model.initial_bonus is None else model.initial_bonus
    payoffs = ((f"a{a} c{m} {form.nodes[i]}", number(p)) for a, m, i, p in form.payoffs(bonus))
    every = chain([("* * *", "0.0")], payoffs)
    earned = _table("payoff", "action context_0 node_0", every, "Func", "ValueTable")
    yield _section("RewardFunction", earned)
    yield "</pomdpx>\n"


def _section(tag: str, *parts: str) -> str:
    return "".join([f"<{tag}>\n", *parts, f"</{tag}>\n"])


def _state_variable(name: str, values: str, observed: str) -> str:
    return (
        f'<StateVar vnamePrev="{name}_0" vnameCurr="{name}_1" fullyObs="{observed}">'
        f"<ValueEnum>{values}</ValueEnum></StateVar>\n"
    )


def _initial_belief(form: SolverForm, model: LatentMDP) -> Iterator[str]:
    first = form.first.sum(axis=0)
    starts = np.flatnonzero(first)
    yield _table("node_0", "null", ((form.nodes[i], number(first[i])) for i in starts))
    prior = _numbers(model.weights)
    if (model.initial == model.initial[0]).all():
        yield _table("context_0", "null", [("-", prior)])
    else:
        # Where no episode begins there is the prior, as every row must sum to one.
        posterior = form.first[:, starts] / first[starts]
        posterior_at = {form.nodes[i]: _numbers(posterior[:, k]) for k, i in enumerate(starts)}
        rows = ((f"{node} -", posterior_at.get(node, prior)) for node in form.nodes)
        yield _table("context_0", "node_0", rows)


def _numbers(values: Floats) -> str:
    return " ".join(number(x) for x in values.ravel())


def _table(
    variable: str,
    parents: str,
    entries: Iterable[tuple[str, str]],
    element: str = "CondProb",
    values: str = "ProbTable",
) -> str:
    parts = [f'<{element}><Var>{variable}</Var><Parent>{parents}</Parent><Parameter type="TBL">\n']
    for instance, text in entries:
        parts.append(f"<Entry><Instance>{instance}</Instance><{values}>{text}</{values}></Entry>\n")
    return "".join([*parts, f"</Parameter></{element}>\n"])


# -------------------------------------------------------------------------------- files of others


def _root(data: bytes) -> ET.Element:
    """The root of an XML text that has no document type, so no entities and nothing external."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:200]:
        raise FormatError("its text is not in UTF-8 or Latin-1")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text, count=1)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise FormatError("a document type and entities are refused")
    # Prose, where people write what is no XML, such as a bare ampersand.
    text = re.sub(r"<Description>[^<]*</Description>", "", text)
    if text.count("<") > storage.MAX_CONTAINERS:
        raise FormatError(f"it has more than {storage.MAX_CONTAINERS:,} elements")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise FormatError(f"not a POMDPX file, its XML is broken: {error}") from None
    if root.tag.lower() != "pomdpx":
        raise FormatError(f"not a POMDPX file: its root is <{root.tag[:40]}>")
    return root


class _Variable(NamedTuple):
    """A variable: what it is called before and after a step, and its values."""

    before: str
    after: str
    values: list[str]
    observed: bool


class _Table(NamedTuple):
    """A table over (parents, variable), sparse: the joint values of all axes, and their numbers."""

    axes: list[str]
    places: Integers  # (k,), rising
    numbers: Floats


class _Joined(NamedTuple):
    """Assignments of variables, one column each, with their probabilities."""

    columns: dict[str, Integers]
    probability: Floats


class _FactoredFile:
    def __init__(self, root: ET.Element) -> None:
        self.discount = as_number(self._text(root, "Discount"))
        if not 0.0 < self.discount <= 1.0:
            raise FormatError(f"its discount is {self.discount:g}, must lie in (0, 1]")
        variables = root.find("Variable")
        if variables is None:
            raise FormatError("not a POMDPX file: it declares no variables")
        self.values: dict[str, list[str]] = {}
        self.states = [self._state_variable(e) for e in variables.findall("StateVar")]
        self.observations = [self._plain(e, "o") for e in variables.findall("ObsVar")]
        self.actions = [self._plain(e, "a") for e in variables.findall("ActionVar")]
        if not self.states or not self.actions:
            raise FormatError("it needs a state variable and an action variable")
        self.first = self._tables(root, "InitialStateBelief")
        self.moves = self._tables(root, "StateTransitionFunction")
        self.sights = self._tables(root, "ObsFunction")
        self.rewards = self._tables(root, "RewardFunction", "Func")

    # ------------------------------------------------------------------------------- the text

    def _text(self, element: ET.Element, tag: str) -> str:
        text = element.findtext(tag)
        if text is None:
            raise FormatError(f"<{element.tag}> has no <{tag}>")
        return text.strip()

    def _name(self, element: ET.Element, attribute: str) -> str:
        name = element.get(attribute)
        if not name or name in self.values:
            raise FormatError(f"<{element.tag}> has no {attribute} of its own, got {name!r:.60}")
        return name

    def _values(self, element: ET.Element, letter: str) -> list[str]:
        count = element.findtext("NumValues")
        if count is None:
            values = self._text(element, "ValueEnum").split()
        elif count.strip().isdigit() and len(count.strip()) < 7:
            values = [f"{letter}{i}" for i in range(int(count))]
        else:
            raise FormatError(f"<NumValues> is {count!r:.40}, must be a number below a million")
        if not values or len(set(values)) < len(values):
            raise FormatError(f"the values of <{element.tag}> must be distinct names")
        return values

    def _state_variable(self, element: ET.Element) -> _Variable:
        before, after = self._name(element, "vnamePrev"), self._name(element, "vnameCurr")
        values = self._values(element, "s")
        self.values[before] = self.values[after] = values
        return _Variable(before, after, values, element.get("fullyObs", "").lower() == "true")

    def _plain(self, element: ET.Element, letter: str) -> _Variable:
        name, values = self._name(element, "vname"), self._values(element, letter)
        self.values[name] = values
        return _Variable(name, name, values, True)

    def _tables(self, root: ET.Element, section: str, tag: str = "CondProb") -> dict[str, Any]:
        """The tables of a section by variable; several functions of one reward are a list."""
        tables: dict[str, Any] = {}
        parent = root.find(section)
        for number_, element in enumerate([] if parent is None else parent.findall(tag)):
            variable = self._text(element, "Var")
            if tag == "CondProb" and variable not in self.values:
                raise FormatError(f"<{section}> speaks of {variable!r:.60}, which is not declared")
            key = variable if tag == "CondProb" else f"{number_} {variable}"
            if key in tables:
                raise FormatError(f"<{section}> has two tables of {variable!r:.60}")
            tables[key] = self._table(element, variable, is_chance=tag == "CondProb")
        return tables

    def _table(self, element: ET.Element, variable: str, is_chance: bool) -> _Table:
        axes = [p for p in self._text(element, "Parent").split() if p != "null"]
        unknown = [axis for axis in axes if axis not in self.values]
        if unknown:
            raise FormatError(f"the table of {variable!r:.60} has an unknown parent {unknown[0]!r}")
        axes += [variable] if is_chance else []
        sizes = [len(self.values[axis]) for axis in axes]
        if np.prod([float(size) for size in sizes]) > 2.0**62:
            raise FormatError(f"the table of {variable!r:.60} is too large")
        parameter = element.find("Parameter")
        if parameter is None or parameter.get("type", "TBL") != "TBL":
            raise FormatError(
                f'the table of {variable!r:.60} is a decision diagram: only type="TBL" is read'
            )
        table = NumberTable(sizes, f"the table of {variable!r:.60}")
        for entry in parameter.findall("Entry"):
            tokens = self._text(entry, "Instance").split()
            if not axes and tokens in (["null"], ["-"], ["*"]):
                tokens = []
            if len(tokens) != len(axes):
                raise FormatError(
                    f"an instance {' '.join(tokens)!r:.60} must name {len(axes)} values"
                )
            where = [self._named(token, axis) for token, axis in zip(tokens, axes)]
            text = self._text(entry, "ProbTable" if is_chance else "ValueTable").split()
            table.enter(where, text, f"the entry {' '.join(tokens)!r:.60}", is_chance)
        places, numbers = table.entries()
        return _Table(axes, places[numbers != 0.0], numbers[numbers != 0.0])

    def _named(self, token: str, axis: str) -> range | None:
        """The values that a word stands for: `-` runs over a table, `*` stands for all."""
        values = self.values[axis]
        if token not in ("-", "*", *values):
            raise FormatError(f"{token!r:.60} is no value of {axis!r}")
        if token in ("-", "*"):
            return None if token == "-" else range(len(values))
        return range(values.index(token), values.index(token) + 1)

    # -------------------------------------------------------------------------------- the problem

    def pomdp(self) -> Pomdp:
        """Everything that can happen; the fully observed variables are the visible part."""
        steps, start, sizes = self._steps(), self._start(), [len(v.values) for v in self.states]
        before, after = [v.before for v in self.states], [v.after for v in self.states]
        acting, seen = [v.before for v in self.actions], [v.before for v in self.observations]
        size = int(np.prod(sizes))
        first = np.bincount(self._index(before, start.columns), start.probability, size)
        columns = np.unravel_index(np.arange(size), sizes)
        called = before if len(before) > 1 else [""]
        parts = zip(called, self.states, columns)
        variables = [Variable(name, v.values, column, v.observed) for name, v, column in parts]
        every = (before, acting, after, seen)
        x, a, n, o = (self._index(names, steps.columns) for names in every)
        events = Events(x, a, n, o, steps.probability, self._reward(steps))
        actions = self._names(self.actions)
        named = (len(actions), actions, self._names(self.observations))
        return Pomdp(self.discount, *named, variables, first / first.sum(), events)

    def _names(self, variables: list[_Variable]) -> list[str]:
        """What each joint value is called."""
        names = [""]
        for variable in variables:
            names = [f"{name} {value}".strip() for name in names for value in variable.values]
        return names

    def _index(self, names: list[str], columns: Mapping[str, NDArray[Any]]) -> Integers:
        """The joint value of some variables as one number."""
        size = next(iter(columns.values())).size
        index = np.zeros(size, np.int64)
        for name in names:
            index = index * len(self.values[name]) + columns[name]
        return index

    def _start(self) -> _Joined:
        """The joint distribution of the state at the start."""
        empty = _Joined({"": np.zeros(1, np.int64)}, np.ones(1))
        joint = self._product(empty, {v.before: v for v in self.states}, self.first)
        check_sum(float(joint.probability.sum()), "the initial belief")
        return joint

    def _steps(self) -> _Joined:
        """Everything that can happen: (state, action, next state, observation)."""
        sizes = [len(v.values) for v in (*self.actions, *self.states)]
        if np.prod([float(size) for size in sizes]) > MAX_EVENTS:
            raise FormatError(f"it has more than {MAX_EVENTS:,} pairs of a state and an action")
        names = [v.before for v in (*self.actions, *self.states)]
        grid = np.indices(sizes, np.min_scalar_type(max(sizes)), sparse=True)
        columns = {n: np.broadcast_to(g, sizes).ravel() for n, g in zip(names, grid)}
        joined = _Joined(columns, np.ones(int(np.prod(sizes))))
        joined = self._product(joined, {v.after: v for v in self.states}, self.moves)
        joined = self._product(joined, {v.after: v for v in self.observations}, self.sights)
        totals = self._index(names, joined.columns)
        sums = np.bincount(totals, joined.probability, int(np.prod(sizes)))
        worst = int(np.argmax(np.abs(sums - 1.0)))
        values = np.unravel_index(worst, sizes)
        assignment = " ".join(self.values[n][int(i)] for n, i in zip(names, values))
        check_sum(float(sums[worst]), f"what follows {assignment!r:.80}")
        return joined

    def _product(
        self, joined: _Joined, variables: dict[str, _Variable], tables: dict[str, Any]
    ) -> _Joined:
        """Each assignment times the distributions of more variables, parents first."""
        remaining = dict(variables)
        while remaining:
            known = set(joined.columns)
            ready = [v for v in remaining if v in tables and known.issuperset(tables[v].axes[:-1])]
            if not ready:
                name = next(iter(remaining))
                raise FormatError(
                    f"there is no distribution of {name!r:.60}, or its parents are not known"
                )
            name = ready[0]
            del remaining[name]
            axes, places, numbers = tables[name]
            parents, value = np.divmod(places, len(self.values[name]))
            i, j = join(self._index(axes[:-1], joined.columns), parents)
            joined = _Joined(
                {other: column[i] for other, column in joined.columns.items()}
                | {name: value[j].astype(np.min_scalar_type(len(self.values[name])))},
                joined.probability[i] * numbers[j],
            )
        return joined

    def _reward(self, steps: _Joined) -> Floats:
        """What every event pays: the functions of all reward variables together."""
        paid = np.zeros(steps.probability.size)
        for name, table in self.rewards.items():
            unknown = set(table.axes) - set(steps.columns)
            if unknown:
                raise FormatError(f"the reward {name!r:.60} depends on {min(unknown)!r}")
            events, entries = join(self._index(table.axes, steps.columns), table.places)
            paid[events] += table.numbers[entries]  # an event has one entry at most
        return paid


FORMAT = SolverFormat(
    Comments(b"<!-- ", b" -->", b'<?xml version="1.0" encoding="ISO-8859-1"?>\n'),
    lambda data: _FactoredFile(_root(data)).pomdp(),
    _document,
)
