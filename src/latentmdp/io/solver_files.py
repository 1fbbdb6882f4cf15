"""Latent MDPs as problems for other POMDP solvers: what the files of both formats share.

A solver knows a discounted problem without end. There are two ways to put a latent MDP so:

finite      the time is part of the state, and after H steps nothing is earned. A solver needs a
            discount g below one: it is the model's own, or H / (H + 1) for a model without
            discount, and what is earned at time t is multiplied by (discount / g)^t. So the
            optimum of the exported problem is V* itself, bonus included.
discounted  no time and no end, with the model's discount, which must be below one. A model without
            a horizon has only this form.

The agent sees a *node*: the state, the time, and which of the rewards it was that arrived with the
state, where that says something about the context. Only nodes that can be reached are written, and
only probabilities above zero. Solvers know no forbidden actions: where an action is not allowed it
does what the first allowed action of the state does, so it is never better, and a solver that
chooses it means that one. A terminal state is absorbing and earns nothing.

The file carries the model as JSON in its comments, with a digest of the rest of the file: what is
loaded is the model bit for bit, and a file that was changed is refused, as its tables no longer say
what its comments say. A file by another program has no such comments, and its tables are read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import storage
from latentmdp._util.arrays import Floats, Integers
from latentmdp.errors import FormatError
from latentmdp.io import json
from latentmdp.io.determined_pomdp import Pomdp, latent_mdp
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes, row_sums

MAX_STATES = 1 << 19
"""States of a latent MDP that is looked for in a file of others, unless more are allowed."""

CHECKER_SUFFIXES = (".prism", ".nm", ".pm", ".jani", ".drn", ".umb")
"""Files of model checkers, which `latentmdp.io.storm` reads."""

_TEXT = "latentmdp carries its model in the next {} lines; sha256 {}"
_MARK = re.compile(_TEXT.format(r"(\d{1,9})", "([0-9a-f]{64})").encode())


class Comments(NamedTuple):
    """How a format writes a line of comment, and what must stand before the first one."""

    opening: bytes
    closing: bytes = b""
    preamble: bytes = b""


class SolverForm(NamedTuple):
    """A model as a problem without end over (context, node)."""

    discount: float
    nodes: list[str]
    first: Floats  # (M, n): probability of the first node, w_m nu_m(s)
    steps: list[Step]  # what follows each node and action
    n_contexts: int
    n_actions: int
    horizon: int | None  # of the steps that nodes count; None where none are counted

    def transitions(self) -> Iterator[tuple[int, int, int, int, float]]:
        """(a, m, node, next node, probability) for everything that can happen."""
        for step in self.steps:
            for k, m in zip(*np.nonzero(step.probs)):
                yield step.action, int(m), step.node, int(step.targets[k]), float(step.probs[k, m])

    def payoffs(self, bonus: Floats | float = 0.0) -> Iterator[tuple[int, int, int, float]]:
        """(a, m, node, what is earned) where it is not zero; at first nodes a bonus (M,) more."""
        starts = self.first.sum(axis=0) > 0.0
        for step in self.steps:
            paid = step.payoffs + bonus if starts[step.node] else step.payoffs
            for m in np.flatnonzero(paid):
                yield step.action, int(m), step.node, float(paid[m])


class Step(NamedTuple):
    """What follows one node and action: the next nodes (k,), by context (k, M), and the payoff."""

    node: int
    action: int
    targets: Integers
    probs: Floats
    payoffs: Floats


def solver_form(model: LatentMDP, *, discounted: bool, delay: int) -> SolverForm:
    """The model in either form, for a file in which an episode begins at step `delay`."""
    if model.allow_unvisited:
        filled = row_sums(model.outcomes, model.outcomes.probs) > 0.5
        if not filled[model.allowed.ravel()].all() or (model.initial.sum(axis=1) <= 0.5).any():
            raise FormatError("a model with rows never visited is no POMDP: fill them first")
    H = None if discounted else model.horizon
    if H is None and model.discount >= 1.0:
        raise FormatError("the discounted form needs a model with a discount below 1")
    discount = model.discount if H is None or model.discount < 1.0 else H / (H + 1)
    return _Builder(model, H, discount, delay).form()


class _Builder:
    """Numbers the nodes that can be reached and lists what follows them."""

    def __init__(self, model: LatentMDP, H: int | None, discount: float, delay: int) -> None:
        self.model, self.H, self.discount = model, H, discount
        self.table = model.outcomes.informative()
        self.signal = _signals(self.table)
        self.rewards = model.planning_rewards() / discount**delay
        self.first_allowed = np.argmax(model.allowed, axis=1)
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.open: list[tuple[int, int, int]] = []

    def form(self) -> SolverForm:
        model = self.model
        joint = model.weights[:, None] * model.initial
        starts = np.flatnonzero(joint.any(axis=0))
        columns = [self._number(int(s), 0, 0) for s in starts]
        steps: list[Step] = []
        while self.open:
            steps.extend(self._steps(*self.open.pop(0)))
        nodes = [self._name(*node) for node in self.numbers]
        first = np.zeros((model.n_contexts, len(nodes)))
        first[:, columns] = joint[:, starts]
        return SolverForm(
            self.discount, nodes, first, steps, model.n_contexts, model.n_actions, self.H
        )

    def _number(self, s: int, signal: int, t: int) -> int:
        """The number of a node, a new one if it is met for the first time."""
        node = (-1, 0, 0) if self.H is not None and t >= self.H else (s, signal, t)
        if node not in self.numbers:
            self.numbers[node] = len(self.numbers)
            self.open.append(node)
        return self.numbers[node]

    def _name(self, s: int, signal: int, t: int) -> str:
        if s < 0:
            return "end"
        return f"s{s}" + (f"z{signal}" if signal else "") + ("" if self.H is None else f"t{t}")

    def _steps(self, s: int, signal: int, t: int) -> Iterator[Step]:
        M, _, A, _ = self.model.dimensions
        node = self.numbers[s, signal, t]
        sure, nothing = np.ones((1, M)), np.zeros(M)
        if s < 0 or self.model.terminal[s]:
            target = node if s < 0 or self.H is None else self._number(0, 0, self.H)
            for a in range(A):
                yield Step(node, a, np.array([target]), sure, nothing)
            return
        later = t if self.H is None else t + 1
        scale = 1.0 if self.H is None else (self.model.discount / self.discount) ** t
        for a in range(A):
            does = a if self.model.allowed[s, a] else int(self.first_allowed[s])
            payoffs = scale * self.rewards[:, s, does]
            if later == self.H:
                yield Step(node, a, np.array([self._number(0, 0, later)]), sure, payoffs)
                continue
            begin, end = self.table.starts[s * A + does : s * A + does + 2]
            arrivals = zip(self.table.next_state[begin:end], self.signal[begin:end])
            targets = [self._number(int(n), int(z), later) for n, z in arrivals]
            yield Step(node, a, np.array(targets), self.table.probs_of(slice(begin, end)), payoffs)


def _signals(table: Outcomes) -> NDArray[np.int64]:
    """Which of the outcomes of a row with the same next state each one is: 0, 1, ..."""
    rows = table.rows()
    new = np.ones(table.size, np.bool_)
    new[1:] = (rows[1:] != rows[:-1]) | (table.next_state[1:] != table.next_state[:-1])
    position = np.arange(table.size)
    return position - np.maximum.accumulate(np.where(new, position, 0))


def number(value: float) -> str:
    """A float to its last digit, without an exponent, with digits on both sides of the point."""
    return np.format_float_positional(value, unique=True, trim="0")


class SolverFormat(NamedTuple):
    """A format of POMDP solvers: its comments, how it says a problem, and how it is understood."""

    comments: Comments
    pomdp: Callable[[bytes], Pomdp]
    lines: Callable[[LatentMDP, bool], Iterable[str]] = lambda model, discounted: ()

    def write(self, stream: BinaryIO, model: LatentMDP, *, discounted: bool = False) -> None:
        """Write a model, after itself in comments, with its horizon or as a problem without end."""
        data = "".join(self.lines(model, discounted)).encode("ascii")
        # XML knows no "--" in a comment; in JSON it can only be part of a string.
        lines = json.to_text(model).encode().replace(b"--", b"-\\u002d").splitlines()
        mark = _TEXT.format(len(lines), hashlib.sha256(data).hexdigest())
        stream.write(self.comments.preamble)
        for line in [mark.encode(), *lines]:
            stream.write(self.comments.opening + line + self.comments.closing + b"\n")
        stream.write(data)

    def read(
        self, stream: BinaryIO, *, horizon: int | None = None, max_states: int = MAX_STATES
    ) -> LatentMDP:
        """The model in a file that `write` wrote, or the latent MDP in one of others."""
        model = read_model(stream, self.comments)
        if model is not None:
            return model if horizon is None else model.replace(horizon=horizon)
        size = storage.file_size(stream)
        if size > storage.MAX_TEXT:
            raise FormatError(f"{size:,} bytes of text; at most {storage.MAX_TEXT:,} are read")
        return latent_mdp(self.pomdp(stream.read()), horizon, max_states)


def read_model(stream: BinaryIO, comments: Comments) -> LatentMDP | None:
    """The model in a file's comments; None if there are none, as in files of other programs."""
    mark = None
    if stream.read(len(comments.preamble)) == comments.preamble:
        mark = _MARK.fullmatch(_comment(stream, comments, 200) or b"")
    if mark is None:
        return None
    text, room = [], storage.MAX_TEXT
    for _ in range(int(mark[1])):
        line = _comment(stream, comments, room)
        if line is None:
            raise FormatError("changed or truncated since latentmdp wrote it: write it again")
        text.append(line)
        room -= len(text[-1])
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    if digest.hexdigest().encode() != mark[2]:
        raise FormatError("changed or truncated since latentmdp wrote it: write it again")
    model = json.from_text(b"\n".join(text).decode("utf-8"))
    if not isinstance(model, LatentMDP):
        raise FormatError(f"carries a {type(model).__name__}, not a model")
    return model


def _comment(stream: BinaryIO, comments: Comments, room: int) -> bytes | None:
    """The text of the next line, if it is a comment of at most `room` bytes."""
    line = stream.readline(max(room, 0) + len(comments.opening) + len(comments.closing) + 1)
    end = comments.closing + b"\n"
    if not line.startswith(comments.opening) or not line.endswith(end):
        return None
    return line[len(comments.opening) : len(line) - len(end)]
