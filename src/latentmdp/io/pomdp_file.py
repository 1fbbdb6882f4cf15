"""Cassandra's .pomdp format: the latent MDP as a flat POMDP.

Written: states are `begin`, then c{m}{node} for each context and node (`solver_files`:
s{s}z{z}t{t}, with a time only where there is one, and z only where rewards tell about the context).
From `begin` any action leads to the first node in context m with probability w_m nu_m(s), so that
the first state is seen before the first real action; it earns the expected initial bonus. The agent
observes the node. The value of `begin` is V*. An observation may depend on the action and the next
state only, which is why the last reward is part of the state.

Read: files of others too, if everything hidden in them follows from the first state and from what
was seen (`determined_pomdp`). The grammar is Cassandra's: names or numbers, wildcards, single
entries, rows and matrices, `uniform` and `identity`, all forms of `start`, costs as negative
rewards; what comes later replaces what came before. Without observations the states are observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp.errors import FormatError
from latentmdp.io.determined_pomdp import (
    MAX_EVENTS,
    Events,
    NumberTable,
    Pomdp,
    Variable,
    as_chances,
    as_number,
    check_sum,
    join,
)
from latentmdp.io.solver_files import Comments, SolverFormat, number, solver_form
from latentmdp.model import LatentMDP


def _lines(model: LatentMDP, discounted: bool) -> Iterator[str]:
    """The file, statement by statement."""
    form = solver_form(model, discounted=discounted, delay=1)
    M, nodes = form.n_contexts, form.nodes
    names = [[_state(m, node) for node in nodes] for m in range(M)]
    states = dict.fromkeys(name for by_node in names for name in by_node)
    yield f"discount: {number(form.discount)}\nvalues: reward\n"
    yield f"states: begin {' '.join(states)}\n"
    yield f"actions: {' '.join(f'a{a}' for a in range(form.n_actions))}\n"
    yield f"observations: {' '.join(nodes)}\n"
    yield "start: begin\n"
    for m, i in np.argwhere(form.first > 0.0):
        yield f"T: * : begin : {names[m][i]} {number(form.first[m, i])}\n"
    for a, m, i, j, p in form.transitions():
        if nodes[i] != "end":
            yield f"T: a{a} : {names[m][i]} : {names[m][j]} {number(p)}\n"
    if "end" in states:
        yield "T: * : end : end 1.0\n"
    yield f"O: * : begin : {nodes[0]} 1.0\n"
    for name, node in {names[m][i]: nodes[i] for m in range(M) for i in range(len(nodes))}.items():
        yield f"O: * : {name} : {node} 1.0\n"
    yield f"R: * : begin : * : * {number(model.initial_value())}\n"  # some solvers want one
    for a, m, i, payoff in form.payoffs():
        yield f"R: a{a} : {names[m][i]} : * : * {number(payoff)}\n"


def _state(m: int, node: str) -> str:
    """The end is the same in all contexts."""
    return node if node == "end" else f"c{m}{node}"


# -------------------------------------------------------------------------------- files of others

_STATEMENTS = ("discount", "values", "states", "actions", "observations", "start", "T", "O", "R")


class FlatFile:
    """The statements of a file: sparse T and O by (action, state), and rules for R in order."""

    def __init__(self, text: str) -> None:
        tokens = re.findall(r":|[^\s:]+", re.sub(r"#[^\n]*", " ", text))
        self.names: dict[str, list[str]] = {}
        self.index: dict[str, dict[str, int]] = {}
        self.discount, self.sign = -1.0, 1.0
        self.first: Floats | None = None
        self.tables: dict[str, NumberTable] = {}
        self.rules: list[tuple[int, int, int, int, float]] = []
        self.n_entries = 0
        openings = [
            i for i, token in enumerate(tokens) if token in _STATEMENTS and self._opens(tokens, i)
        ]
        if not openings or openings[0] != 0:
            raise FormatError("not a .pomdp file: it does not begin with a statement of one")
        for begin, end in zip(openings, [*openings[1:], len(tokens)]):
            self._statement(tokens[begin], tokens[begin + 1 : end])

    @staticmethod
    def _opens(tokens: list[str], i: int) -> bool:
        """Whether the word at `i` opens a statement rather than names something."""
        following = tokens[i + 1 : i + 3]
        if tokens[i] == "start" and following[:1] in (["include"], ["exclude"]):
            return following[1:] == [":"]
        return following[:1] == [":"] and (i == 0 or tokens[i - 1] != ":")

    def _statement(self, word: str, rest: list[str]) -> None:
        if word == "start":
            self._start(rest)
            return
        body = rest[1:]
        if word == "discount":
            self.discount = as_number(body[0] if body else "")
        elif word == "values":
            if body not in (["reward"], ["cost"]):
                raise FormatError(f"values must be reward or cost, got {' '.join(body)!r:.60}")
            self.sign = -1.0 if body == ["cost"] else 1.0
        elif word in ("T", "O"):
            self._probabilities(word, body)
        elif word == "R":
            self._reward(body)
        else:
            self._declare(word, body)

    def _declare(self, what: str, body: list[str]) -> None:
        if ":" in body or not body:
            raise FormatError(f"{what} must be names, or how many there are")
        if len(body) == 1 and re.fullmatch(r"[-+]?[\d.]+", body[0]):
            if not body[0].isdigit() or not 1 <= int(body[0][:9]) <= 1_000_000 or len(body[0]) > 9:
                raise FormatError(f"{what}: {body[0]:.20} is not between 1 and 1,000,000")
            body = [str(i) for i in range(int(body[0]))]
        if len(set(body)) < len(body):
            twice = next(name for name in body if body.count(name) > 1)
            raise FormatError(f"{what} names {twice!r} twice")
        self.names[what] = body
        self.index[what] = {name: i for i, name in enumerate(body)}

    def _count(self, what: str) -> int:
        if what not in self.names:
            raise FormatError(f"a statement uses {what} before they are declared")
        return len(self.names[what])

    def _find(self, what: str, name: str) -> int:
        """The number of a name, -1 for all of them."""
        if name == "*":
            return -1
        size = self._count(what)
        if name in self.index[what]:
            return self.index[what][name]
        if name.isdigit() and len(name) < 9 and int(name) < size:
            return int(name)
        raise FormatError(f"{name!r:.60} is none of the {what}")

    def _all(self, what: str, name: str) -> range:
        number = self._find(what, name)
        return range(self._count(what)) if number < 0 else range(number, number + 1)

    def _require_size(self, tokens: list[str], size: int, what: str) -> list[str]:
        if len(tokens) != size:
            raise FormatError(f"{what} must have {size} numbers, got {len(tokens)}")
        return tokens

    def _fields(self, word: str, body: list[str], most: int) -> tuple[list[str], list[str]]:
        """The names between colons, and what follows them."""
        fields: list[str] = []
        while True:
            if not body or body[0] == ":":
                raise FormatError(f"a name is missing in a statement {word}")
            fields.append(body[0])
            body = body[1:]
            if body[:1] != [":"]:
                break
            body = body[1:]
        if len(fields) > most or ":" in body:
            raise FormatError(f"{word}: {' : '.join(fields)!r:.80} has too many parts")
        return fields, body

    def _probabilities(self, word: str, body: list[str]) -> None:
        targets = "states" if word == "T" else "observations"
        fields, values = self._fields(word, body, 3)
        kinds = ("actions", "states", targets)
        where = [self._all(kind, name) for kind, name in zip(kinds, fields)]
        table = self.tables.setdefault(word, NumberTable([*map(self._count, kinds)], f"{word}:"))
        table.enter([*where, None, None][:3], values, f"{word}: {' : '.join(fields)}")

    def _room(self, entries: int) -> None:
        self.n_entries += entries
        if self.n_entries > MAX_EVENTS:
            raise FormatError(f"it has more than {MAX_EVENTS:,} rewards")

    def _reward(self, body: list[str]) -> None:
        kinds = ("actions", "states", "states", "observations")
        fields, values = self._fields("R", body, 4)
        self._observe_states()
        where = [self._find(kind, name) for kind, name in zip(kinds, fields)]
        sizes = [self._count(kind) for kind in kinds[len(fields) :]]
        if len(fields) < 2:
            raise FormatError("R needs an action and a state")
        self._room(int(np.prod(sizes)))
        what = f"R: {' : '.join(fields)}"
        numbers = map(as_number, self._require_size(values, int(np.prod(sizes)), what))
        table = np.array(list(numbers)).reshape(sizes)
        for index in np.ndindex(*sizes):
            a, x, n, o = [*where, *(int(i) for i in index)]
            self.rules.append((a, x, n, o, float(table[index])))

    def _start(self, rest: list[str]) -> None:
        S = self._count("states")
        if rest[0] in ("include", "exclude"):
            named = {self._find("states", name) for name in rest[2:]}
            begins = [(x in named) == (rest[0] == "include") for x in range(S)]
            self.first = np.array(begins, np.float64)
        elif rest[1:] == ["uniform"]:
            self.first = np.ones(S)
        elif len(rest) == 2 and (S > 1 or rest[1] in self.index["states"]):
            self.first = np.zeros(S)
            self.first[self._find("states", rest[1])] = 1.0
        else:
            self.first = as_chances(self._require_size(rest[1:], S, "start"), "start")
            check_sum(float(self.first.sum()), "start")
        if not self.first.any():
            raise FormatError("start leaves no state in which an episode begins")
        self.first = self.first / self.first.sum()

    def _observe_states(self) -> None:
        """Without observations the states are seen."""
        if "observations" not in self.names and "states" in self.names:
            self._declare("observations", self.names["states"])
            self._probabilities("O", ["*", "identity"])

    # ------------------------------------------------------------------------------ as a problem

    def pomdp(self) -> Pomdp:
        """Everything that can happen."""
        for what in ("states", "actions"):
            if what not in self.names:
                raise FormatError(f"not a .pomdp file: it declares no {what}")
        if not 0.0 < self.discount <= 1.0:
            raise FormatError("it has no discount in (0, 1]")
        self._observe_states()
        S, A = self._count("states"), self._count("actions")
        first = np.full(S, 1.0 / S) if self.first is None else self.first
        a, x, n, p = self._entries("T", S)
        b, y, o, q = self._entries("O", S)
        reached = np.unique(a * S + n)
        lacking = np.setdiff1d(reached, np.unique(b * S + y))
        if lacking.size:
            raise FormatError(
                f"O: action {self.names['actions'][lacking[0] // S]!r} and state "
                f"{self.names['states'][lacking[0] % S]!r} have no observation"
            )
        i, j = join(a * S + n, b * S + y)
        reward = self.sign * self._rewards(a[i], x[i], n[i], o[j])
        events = Events(x[i], a[i], n[i], o[j], p[i] * q[j], reward)
        variables = [Variable("", self.names["states"], np.arange(S), False)]
        named = (A, self.names["actions"], self.names["observations"])
        return Pomdp(self.discount, *named, variables, first, events)

    def _entries(self, word: str, S: int) -> tuple[Integers, Integers, Integers, Floats]:
        """(action, state, target, probability) above zero, rows that sum to one."""
        if word not in self.tables:
            raise FormatError(f"it has no statement {word}")
        places, p = self.tables[word].entries()
        row, target = np.divmod(places, self.tables[word].sizes[-1])
        totals = np.bincount(row, p)
        for r in np.unique(row[totals[row] != 1.0]).tolist():
            if totals[r] > 0.0 or word == "T":
                action, state = self.names["actions"][r // S], self.names["states"][r % S]
                check_sum(
                    float(totals[r]), f"{word}: the row of action {action!r}, state {state!r}"
                )
        row, target, p = row[p > 0.0], target[p > 0.0], p[p > 0.0]
        return row // S, row % S, target, p / totals[row]

    def _rewards(self, a: Integers, x: Integers, n: Integers, o: Integers) -> Floats:
        """What each event pays: by the last of the rules that fit it."""
        if not self.rules:
            return np.zeros(a.size)
        rules = np.array([rule[:4] for rule in self.rules], np.int64)
        paid, last = np.array([rule[4] for rule in self.rules]), np.full(a.size, -1)
        S, Z = self._count("states"), self._count("observations")
        named = rules >= 0
        for pattern in np.unique(named, axis=0):
            order = np.flatnonzero((named == pattern).all(axis=1))[::-1]
            scale = np.array([S * S * Z, S * Z, Z, 1]) * pattern  # 0 for what a rule leaves open
            # of equal rules the first in this order is the last in the file
            distinct, first = np.unique(rules[order] @ scale, return_index=True)
            keys = a * scale[0] + x * scale[1] + n * scale[2] + o * scale[3]
            event, j = join(keys, distinct)
            last[event] = np.maximum(last[event], order[first[j]])
        return np.where(last < 0, 0.0, paid[last])


FORMAT = SolverFormat(
    Comments(b"# "), lambda data: FlatFile(data.decode("latin-1")).pomdp(), _lines
)
