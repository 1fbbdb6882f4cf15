"""Latent MDPs among the POMDPs of other programs: the hidden state follows from what was seen.

A POMDP is given as the list of what can happen: (x, a, x', o) with a probability and a reward. A
part of the state may be visible. A *sight* is the visible part of x' together with o. The POMDP is
a latent MDP if, given the state in which an episode began, what was done and what was seen, the
state is known: the context is then the hidden part of the first state. That is so if no state that
can be reached has two successors with the same sight.

The states of the latent MDP are nodes, found breadth first: the state in which each context would
be, or that the context is impossible. Vectors of states that nowhere contradict one another and
come with the same sight are one node. Where several sights lead to the same node and say different
things about the context, the sight becomes part of the state. Contexts that are in different states
nowhere, but for a first node that is never entered again, are joined: they differ in how an episode
begins only. So a hidden part that never moves, a rock that is known to be bad once it was sampled,
and a flat list of states in which contexts have to be found are all the same to this.

Two things are read as what they stand for. A first state that is left for ever, and from which the
same states follow whatever is done, is a draw before the episode: each successor is a context. And
a hidden state that is drawn anew as at the start begins another episode: this one ends.

Rewards of a POMDP are not observed: their means become the bonus, and the only reward value is 0. A
node that nothing leaves and that pays nothing is terminal.
"""

from __future__ import annotations

import math
import warnings
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Flags, Floats, Integers, segments
from latentmdp._util.cycles import reaching
from latentmdp._util.memory import free_memory, require_memory
from latentmdp.errors import FormatError, ModelError
from latentmdp.model import LatentMDP
from latentmdp.outcomes import ContextVectors, Outcomes, numbered

if TYPE_CHECKING:
    from latentmdp.io.kernels import Entries, FoundNodes, Functions, Groups

MAX_EVENTS = 1 << 24
"""What can happen in a file's problem, at most: (x, a, x', o) with a probability above zero."""

TOLERANCE = 1e-5
"""How far the probabilities in a file may be from summing to one: people round them."""

_ROUGH = 0.0101
"""How far they may be with a warning: three thirds of two digits are .99."""


class Events(NamedTuple):
    """What can happen, one entry each: in `state` under `action`."""

    state: Integers
    action: Integers
    next_state: Integers
    observation: Integers
    probability: Floats
    reward: Floats


class Variable(NamedTuple):
    """A part of the state: what its values are called, and its value in every state, (X,)."""

    name: str  # empty where there is only one
    values: Sequence[str]
    column: Integers
    is_visible: bool


class Pomdp(NamedTuple):
    """A POMDP of X states: what can happen, and how an episode begins."""

    discount: float
    n_actions: int
    action_names: Sequence[str]
    observation_names: Sequence[str]
    variables: Sequence[Variable]
    first: Floats  # (X,)
    events: Events

    def part(self, visible: bool) -> Integers:
        """The visible or the hidden part of every state, as one number."""
        number = np.zeros(self.first.size, np.int64)
        for variable in self.variables:
            if variable.is_visible == visible:
                number = number * (int(variable.column.max()) + 1) + variable.column
        return number

    def state_name(self, x: int) -> str:
        """What a state is called."""
        return " ".join(v.values[v.column[x]] for v in self.variables)


def take(events: Events, index: NDArray[np.integer] | Flags) -> Events:
    """Some of the events."""
    columns: list[Any] = [np.asarray(column)[index] for column in events]
    return Events(*columns)


def as_number(token: str) -> float:
    """The finite number that a word of a file is."""
    try:
        value = float(token)
    except ValueError:
        raise FormatError(f"{token!r:.60} is no number") from None
    if not -np.inf < value < np.inf:
        raise FormatError(f"{token!r:.60} is not finite")
    return value


def as_chances(tokens: Sequence[str], what: str) -> Floats:
    """Words of a file as probabilities."""
    values = np.array([as_number(token) for token in tokens])
    if (values < 0.0).any() or (values > 1.0 + TOLERANCE).any():
        raise FormatError(f"{what:.80}: probabilities lie in [0, 1]")
    return values


def check_sum(total: float, what: str) -> None:
    """Refuse probabilities that do not sum to one; warn where they nearly do."""
    if abs(total - 1.0) > _ROUGH:
        raise FormatError(f"{what} sums to {total:.9g}, must sum to 1")
    if abs(total - 1.0) > TOLERANCE:
        warnings.warn(f"{what} sums to {total:.9g}: it was made to sum to 1", stacklevel=2)


class NumberTable:
    """Numbers by values of some axes, as the entries of a file give them.

    An entry says for each axis which values it speaks of, or None: then it has a number for each of
    them, where the last such axis runs first. What comes later counts.
    """

    def __init__(self, sizes: Sequence[int], name: str) -> None:
        self.sizes, self.name = sizes, name
        self._places, self._numbers = array("q"), array("d")
        self._cleared: list[tuple[int, list[int]]] = []  # so many entries are void in these rows

    def enter(
        self, where: Sequence[range | None], text: list[str], what: str, is_chance: bool = True
    ) -> None:
        """Read the numbers of an entry, which messages call `what`."""
        table = [size for axis, size in zip(where, self.sizes) if axis is None]
        every = [range(n) if axis is None else axis for axis, n in zip(where, self.sizes)]
        if text == ["uniform"]:
            self._put(every, every, [1.0 / self.sizes[-1]])
        elif text == ["identity"]:
            if len(table) != 2 or table[0] != table[1] or where[-1] is not None:
                raise FormatError("identity needs a square table")
            self._require_room(math.prod(map(len, every[:-1])))
            rows, column = self._flat(every[:-1], where[:-1])
            self._cleared.append((len(self._places), rows))
            self._places.extend([row * table[1] + i for row, i in zip(rows, column)])
            self._numbers.extend([1.0] * len(rows))
        elif len(text) != math.prod(table):
            raise FormatError(f"{what} must have {math.prod(table)} numbers, got {len(text)}")
        else:
            numbers = as_chances(text, what).tolist() if is_chance else [*map(as_number, text)]
            self._put(every, where, numbers)

    def _put(
        self, every: Sequence[range], where: Sequence[range | None], numbers: list[float]
    ) -> None:
        self._require_room(math.prod(map(len, every)))
        places, which = self._flat(every, where)
        self._places.extend(places)
        self._numbers.extend([numbers[k] for k in which])

    def _require_room(self, more: int) -> None:
        if len(self._places) + more > MAX_EVENTS:
            raise FormatError(f"{self.name} has more than {MAX_EVENTS:,} entries")

    def _flat(
        self, every: Sequence[range], where: Sequence[range | None]
    ) -> tuple[list[int], list[int]]:
        """The places that an entry speaks of, and which of its numbers each of them has."""
        places, which = [0], [0]
        for some, axis, size in zip(every, where, self.sizes):
            places = [place * size + i for place in places for i in some]
            which = [k * size + i if axis is None else k for k in which for i in some]
        return places, which

    def entries(self) -> tuple[Integers, Floats]:
        """The places that any entry speaks of, rising, and their numbers."""
        places, numbers = np.array(self._places, np.int64), np.array(self._numbers)
        kept = np.ones(places.size, np.bool_)
        for end, rows in self._cleared:
            kept[:end] &= ~np.isin(places[:end] // self.sizes[-1], rows)
        distinct, last = np.unique(places[kept][::-1], return_index=True)
        return distinct, numbers[kept][::-1][last]


def join(keys: Integers, table_keys: Integers) -> tuple[Integers, Integers]:
    """Pairs (i, j) with keys[i] == table_keys[j], by i; refused where there are too many."""
    order = np.argsort(table_keys, kind="stable")
    ordered = table_keys[order]
    low, high = np.searchsorted(ordered, keys, "left"), np.searchsorted(ordered, keys, "right")
    counts = high - low
    if counts.sum() > MAX_EVENTS:
        raise FormatError(f"more than {MAX_EVENTS:,} different things can happen in it")
    first = np.repeat(np.arange(keys.size), counts)
    ends = np.cumsum(counts)
    within = np.arange(first.size) - np.repeat(ends - counts, counts)
    return first, order[low[first] + within]


# ------------------------------------------------------- what a POMDP says between the lines


class _EventGroups(NamedTuple):
    """Events in the order of (x, a, sight), and how they are grouped by it."""

    events: Events
    group: Integers  # of each event
    undetermined: Flags  # of each group: whether several states are possible


def _grouped(pomdp: Pomdp) -> _EventGroups:
    events, A, Y = pomdp.events, pomdp.n_actions, len(pomdp.observation_names)
    sight = pomdp.part(visible=True)[events.next_state] * Y + events.observation
    row = events.state * A + events.action
    order = np.lexsort((events.next_state, sight, row))
    row, sight = row[order], sight[order]
    new = np.append(True, (np.diff(row) != 0) | (np.diff(sight) != 0))[: row.size]
    group, ordered = np.cumsum(new) - 1, take(events, order)
    differs = ~new & np.append(True, np.diff(ordered.next_state) != 0)[: row.size]
    return _EventGroups(ordered, group, np.bincount(group, differs) > 0)


def _with_ends(pomdp: Pomdp, groups: _EventGroups) -> Pomdp:
    """Where the hidden state is drawn anew as at the start, the episode ends."""
    events, group, undetermined = groups
    seen = pomdp.part(visible=True)
    share = pomdp.first / np.maximum(np.bincount(seen, pomdp.first), 1e-300)[seen]
    total = np.bincount(group, events.probability)
    conditional = events.probability / total[group]
    expected = share[events.next_state]
    differs = np.bincount(group, np.abs(conditional - expected) > TOLERANCE)
    covered = np.bincount(group, expected)
    ends = undetermined & (differs == 0.0) & (np.abs(covered - 1.0) < TOLERANCE)
    if not ends.any():
        return pomdp
    begins = np.flatnonzero(np.append(True, np.diff(group) != 0))[ends]
    after = sorted({pomdp.action_names[a] for a in events.action[begins]})
    warnings.warn(
        f"after {', '.join(after):.200} the hidden state is drawn anew: read as the end of the "
        "episode",
        stacklevel=2,
    )
    end, A = pomdp.first.size, pomdp.n_actions
    paid = np.bincount(group, conditional * events.reward)
    ending = take(events, begins)._replace(
        next_state=np.full(begins.size, end), probability=total[ends], reward=paid[ends]
    )
    for_ever = Events(
        np.full(A, end), np.arange(A), np.full(A, end), np.full(A, len(pomdp.observation_names)),
        np.ones(A), np.zeros(A),
    )  # fmt: skip
    others = take(events, ~ends[group])
    return pomdp._replace(
        observation_names=[*pomdp.observation_names, "end"],
        variables=[
            v._replace(values=[*v.values, "end"], column=np.append(v.column, len(v.values)))
            for v in pomdp.variables
        ],
        first=np.append(pomdp.first, 0.0),
        events=Events(*(np.concatenate(parts) for parts in zip(others, ending, for_ever))),
    )


def _with_draws(pomdp: Pomdp, groups: _EventGroups) -> Pomdp:
    """A first state that is left for ever, whatever is done, as a draw before the episode."""
    events, group, undetermined = groups
    open_ = np.unique(events.state[undetermined[group]])
    entered = np.isin(open_, events.next_state)
    drawn = open_[(pomdp.first[open_] > 0.0) & ~entered]
    copies: list[tuple[int, int, float]] = []  # (first state, its successor, probability)
    for x in drawn.tolist():
        here = take(events, events.state == x)
        successors, k = np.unique(here.next_state, return_inverse=True)
        law = np.zeros((pomdp.n_actions, successors.size))
        np.add.at(law, (here.action, k.ravel()), here.probability)
        law = law[law.any(axis=1)]  # of the actions that are offered
        if np.abs(law - law[0]).max() <= TOLERANCE:
            copies += [(x, int(n), float(pomdp.first[x] * p)) for n, p in zip(successors, law[0])]
    if not copies:
        return pomdp
    origin, target, weight = (np.array(column) for column in zip(*copies))
    X, number = pomdp.first.size, np.arange(len(copies))
    chance = weight / pomdp.first[origin]
    i, j = join(origin * X + target, events.state * X + events.next_state)
    opening = take(events, j)._replace(
        state=X + number[i], probability=events.probability[j] / chance[i]
    )
    others = take(events, ~np.isin(events.state, origin))
    first = np.append(pomdp.first, weight)
    first[origin] = 0.0
    return pomdp._replace(
        variables=[
            v._replace(column=np.append(v.column, v.column[origin])) for v in pomdp.variables
        ],
        first=first,
        events=Events(*(np.concatenate(parts) for parts in zip(others, opening))),
    )


def _require_determined(pomdp: Pomdp, groups: _EventGroups) -> Integers:
    """The states that can be reached, in the order of a search; refused where one is not known."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    events, group, undetermined = groups
    X, begin = pomdp.first.size, np.flatnonzero(pomdp.first)
    # One more state, X, from which the first ones follow.
    rows = np.append(events.state, np.full(begin.size, X))
    columns = np.append(events.next_state, begin)
    graph = coo_array((np.ones(rows.size), (rows, columns)), shape=(X + 1, X + 1)).tocsr()
    order, before = breadth_first_order(graph, X, return_predecessors=True)
    open_ = np.zeros(X + 1, np.bool_)
    open_[events.state[undetermined[group]]] = True
    if not open_[order].any():
        return order[1:].astype(np.int64)
    x = int(order[np.argmax(open_[order])])
    e = int(np.argmax((events.state == x) & undetermined[group]))
    path, alternatives = [e], events.next_state[group == group[e]]
    while before[x] != X:
        last, x = x, int(before[x])
        path.insert(0, int(np.argmax((events.state == x) & (events.next_state == last))))
    told = "; ".join(_told(pomdp, take(events, np.array([e]))) for e in path)
    one, two = alternatives[:2].tolist()
    moving = next(v.name for v in pomdp.variables if v.column[one] != v.column[two])
    raise FormatError(
        f"it is no latent MDP: from {pomdp.state_name(x)!r:.80}, after {told:.400}, the state may "
        f"be {pomdp.state_name(one)!r:.80} or {pomdp.state_name(two)!r:.80}, so "
        f"{f'the hidden variable {moving!r}' if moving else 'what is hidden'} moves"
    )


def _told(pomdp: Pomdp, event: Events) -> str:
    """An action and what is seen after it, in words."""
    x, visible = int(event.next_state[0]), [v for v in pomdp.variables if v.is_visible]
    seen = [v.values[v.column[x]] for v in visible]
    if len(pomdp.observation_names) > 1 or not seen:
        seen.append(pomdp.observation_names[event.observation[0]])
    return f"{pomdp.action_names[event.action[0]]} and {' '.join(seen)!r}"


# ------------------------------------------------------------------------------------- the nodes


class _Problem(NamedTuple):
    """The states that can be reached, numbered anew, and what the kernels see of them."""

    pomdp: Pomdp
    sights: Integers  # (2, Y): visible part and observation of each sight
    context: Integers  # (X,): of the first states, -1 for others
    visible: Integers  # (X,): v
    hidden: Integers  # (X,): q
    groups: Groups

    @property
    def n_hidden(self) -> int:
        """Q."""
        return int(self.hidden.max()) + 1

    def states(self, nodes: _Nodes, some: Integers) -> Integers:
        """The state of each context in some nodes, (k, M), -1 where it cannot be there."""
        codes = self.visible * self.n_hidden + self.hidden
        hidden = nodes.hidden[nodes.found.vector[some]]
        wanted = nodes.found.visible[some, None] * self.n_hidden + hidden.astype(np.int64)
        order = np.argsort(codes)
        place = np.searchsorted(codes, wanted, sorter=order)
        return np.where(hidden < 0.0, -1, order[np.minimum(place, order.size - 1)])


def _reached(pomdp: Pomdp, order: Integers) -> _Problem:
    A, X = pomdp.n_actions, order.size
    number = np.full(pomdp.first.size, -1)
    number[order] = np.arange(X)
    events = take(pomdp.events, number[pomdp.events.state] >= 0)
    events = events._replace(state=number[events.state], next_state=number[events.next_state])
    row = events.state * A + events.action
    totals = np.bincount(row, events.probability, X * A)
    events = events._replace(probability=events.probability / totals[row])
    pomdp = pomdp._replace(
        variables=[v._replace(column=v.column[order]) for v in pomdp.variables],
        first=pomdp.first[order] / pomdp.first[order].sum(),
        events=events,
    )
    Y = len(pomdp.observation_names)
    seen = pomdp.part(visible=True)[events.next_state] * Y + events.observation
    sights, sight = np.unique(seen, return_inverse=True)
    visible, hidden = (
        np.unique(pomdp.part(visible=which), return_inverse=True)[1] for which in (True, False)
    )
    if np.unique(visible * X + hidden).size < X:  # draws before the episode may look alike
        hidden = np.arange(X)
    context, begin = np.full(X, -1), np.flatnonzero(pomdp.first)
    context[begin] = np.unique(hidden[begin], return_inverse=True)[1]
    groups = _groups_of(events, A, sight, visible, hidden)
    return _Problem(pomdp, np.stack(np.divmod(sights, Y)), context, visible, hidden, groups)


def _groups_of(
    events: Events, A: int, sight: Integers, visible: Integers, hidden: Integers
) -> Groups:
    """What may be seen after every row v A + a, and functions of q, equal ones kept once."""
    from latentmdp.io.kernels import Functions, Groups

    def functions(starts: Integers, place: Integers, value: Any) -> tuple[Functions, Integers]:
        """The distinct ones of functions with these entries, and which of them each one is."""
        distinct, code = np.unique(value, return_inverse=True)
        number, first = numbered(starts, place * distinct.size + code)
        position, entries = segments(starts, first)
        kept = np.searchsorted(position, np.arange(first.size + 1))
        return Functions(kept, place[entries], value[entries]), number

    Y, Q, rows = int(sight.max()) + 1, int(hidden.max()) + 1, A * (int(visible.max()) + 1)
    row = visible[events.state] * A + events.action
    # Some events may be listed twice, as where several goals of a checker's file are made one.
    codes, first, event = np.unique(
        (row * Y + sight) * Q + hidden[events.state], return_index=True, return_inverse=True
    )
    chance_of = np.bincount(event, events.probability)
    key, place = np.divmod(codes, Q)
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    starts = np.append(heads, key.size)
    moves, move = functions(starts, place, hidden[events.next_state[first]].astype(np.float64))
    chances, chance = functions(starts, place, chance_of)
    paid = np.bincount(events.state * A + events.action, events.probability * events.reward)
    x, a = np.divmod(np.flatnonzero(paid), A)
    by_row = np.argsort((visible[x] * A + a) * Q + hidden[x])
    x, a = x[by_row], a[by_row]
    ends = np.searchsorted(visible[x] * A + a, np.arange(rows + 1))
    payoffs, pays = functions(ends, hidden[x], paid[x * A + a])
    after = np.empty(Y, np.int64)
    after[sight] = visible[events.next_state]
    begins = np.searchsorted(key[heads] // Y, np.arange(rows + 1))
    return Groups(begins, key[heads] % Y, move, chance, pays, after, moves, chances, payoffs)


class _Nodes(NamedTuple):
    """The nodes, and by rows i A + a what can be seen there and which node it leads to."""

    found: FoundNodes
    entries: Entries
    first: Integers  # nodes in which an episode begins
    seen: Integers  # of each entry
    target: Integers
    split: Flags  # (N,): whether the sight is part of the state

    @property
    def hidden(self) -> Floats:
        """The distinct vectors of hidden parts, (H, M)."""
        known: Floats = self.found.vectors.known
        return known[: int(self.found.vectors.size[0])]


def _nodes(problem: _Problem, max_states: int) -> _Nodes:
    """The nodes, breadth first."""
    from latentmdp.io import kernels

    pomdp, groups = problem.pomdp, problem.groups
    A, M, Q = pomdp.n_actions, int(problem.context.max()) + 1, problem.n_hidden
    # A first node is where its visible part is seen, whatever else is.
    is_shown = any(v.is_visible for v in pomdp.variables)
    if not is_shown and M * M > 64 * MAX_EVENTS:  # pairs of them, which may be one
        raise FormatError(f"{M:,} first states that look the same are too many to be compared")
    begin = np.flatnonzero(pomdp.first)
    shown, of_start = np.unique(problem.visible[begin], return_inverse=True)
    require_memory(8.0 * M * shown.size, f"first states of {M:,} contexts")
    first = np.full((shown.size, M), -1.0)
    first[of_start.ravel(), problem.context[begin]] = problem.hidden[begin]
    # A quarter of what is free: vectors are copied into larger arrays.
    found = kernels.explore(A, Q, groups, shown, first, is_shown, max_states, free_memory() / 4.0)
    if not found.is_whole or found.visible.size > max_states:
        raise FormatError(
            f"as a latent MDP it has more than {min(max_states, found.visible.size):,} states of "
            f"{M:,} contexts: load(path, max_states=...) allows more, if there is memory"
        )
    entries = kernels.list_entries(A, Q, groups, found)
    # Where a sight says something in one node, it is part of every state that looks the same: then
    # a node in which more is known stays one in which the rest was ruled out.
    split = np.bincount(found.visible, entries.split)[found.visible] > 0.0
    seen = groups.sight[entries.group]
    return _Nodes(found, entries, np.arange(shown.size), seen, entries.target, split)


# -------------------------------------------------------------------------------------- the model


def latent_mdp(pomdp: Pomdp, horizon: int | None, max_states: int) -> LatentMDP:
    """The model of a POMDP; without a horizon it has no end.

    Raises
    ------
    FormatError
        If a hidden state is not determined, with the shortest sequence of actions and observations
        after which it is not, or if there are more than `max_states` nodes.
    """
    groups = _grouped(pomdp)
    for reading in (_with_ends, _with_draws):
        if groups.undetermined.any():
            pomdp = reading(pomdp, groups)
            groups = _grouped(pomdp)
    problem = _reached(pomdp, _require_determined(pomdp, groups))
    nodes = _nodes(problem, max_states)
    _require_same_actions(problem, nodes)
    return _model(problem, nodes, horizon)


def _require_same_actions(problem: _Problem, nodes: _Nodes) -> None:
    """What is possible is seen: in a node all contexts have the same actions."""
    pomdp = problem.pomdp
    offered = np.zeros((pomdp.first.size, pomdp.n_actions), np.bool_)
    offered[pomdp.events.state, pomdp.events.action] = True
    for a in np.flatnonzero(~offered.all(axis=0)).tolist():
        x = problem.states(nodes, np.arange(nodes.split.size))
        offers = np.append(offered[:, a], False)[x]
        lacks = (x >= 0) & ~offers & np.any(offers, axis=1, keepdims=True)
        for lacking in x[lacks][:1].tolist():
            raise FormatError(
                f"nothing follows action {pomdp.action_names[a]} in {pomdp.state_name(lacking)}, "
                "but something does in other states that look the same"
            )


def _model(problem: _Problem, nodes: _Nodes, horizon: int | None) -> LatentMDP:
    from scipy.sparse import csr_array  # a model of another kind is loaded without scipy

    from latentmdp.io import kernels

    pomdp, found = problem.pomdp, nodes.found
    A, N, Y = pomdp.n_actions, found.visible.size, problem.sights.shape[1]
    row = np.repeat(np.arange(N * A), np.diff(nodes.entries.starts))
    node = row // A
    reached, entered = _reached_nodes(nodes, node)
    terminal = _terminal(problem, nodes, node)
    if terminal[reached].all():
        terminal[:] = False
    nodes = _with_one_end(problem, nodes, terminal)
    reached, entered = _reached_nodes(nodes, node)
    # A state is a node, or a node and the sight that came with it; -1: none came.
    came = np.where((nodes.split & ~terminal)[nodes.target], nodes.seen, -1)
    is_live = reached & ~terminal
    live = is_live[node]
    keys = np.append(nodes.first * (Y + 1), (nodes.target * (Y + 1) + came + 1)[live])
    states, number = np.unique(keys, return_inverse=True)
    pairs = np.stack([states // (Y + 1), states % (Y + 1) - 1])
    S, arrival = states.size, np.full(row.size, -1)
    arrival[live] = number[nodes.first.size :]
    # The outcomes of a row in rising order of the next state; sights to the same one are added.
    order = np.lexsort((arrival, row))
    new = np.append(True, (np.diff(row[order]) != 0) | (np.diff(arrival[order]) != 0))
    outcome = np.empty(row.size, np.int64)
    outcome[order] = np.cumsum(new) - 1
    of_row = np.searchsorted(row[order][new], np.arange(N * A + 1))
    counts = np.diff(of_row).reshape(N, A) * ~terminal[:, None]
    starts = np.concatenate([[0], np.cumsum(counts[pairs[0]].ravel())])
    of_state = pairs[0][:, None] * A + np.arange(A)
    _, position = segments(of_row, of_state[~terminal[pairs[0]]].ravel())
    group, weights, initial, share, mixed_as = _groups(problem, nodes, reached, entered)
    G, members = weights.size, np.argsort(group, kind="stable")
    parts = kernels.Parts(
        mixed_as, share, members, np.searchsorted(group[members], np.arange(G + 1))
    )
    pattern, pay, chances, earned = kernels.fill(
        A, problem.n_hidden, problem.groups, found, nodes.entries, is_live, outcome, of_row[-1],
        parts,
    )  # fmt: skip
    first = number[: nodes.first.size]
    entries = np.repeat(np.arange(G), first.size), np.tile(first, G)
    begin = csr_array((initial.ravel(), entries), shape=(G, S))
    next_state = arrival[order][new][position].astype(np.int32)
    distinct, rewards = (part.known[: part.size[0]].copy() for part in (chances, earned))
    unseen = np.zeros(position.size, np.int32)
    table = Outcomes(starts, next_state, unseen, distinct, pattern[position])
    others = {
        "horizon": horizon,
        "discount": pomdp.discount,
        "initial": begin,
        "bonus": ContextVectors(rewards, pay[of_state.ravel()]),
        "weights": weights,
        "context_names": _context_names(problem, group),
        "action_names": distinct_names(pomdp.action_names),
        "state_names": _state_names(problem, nodes, pairs, live),
    }
    allowed = counts[pairs[0]] > 0
    # Table and bonus are right by construction.
    try:
        return LatentMDP._of_table(table.frozen(), allowed, np.zeros(1), "state-action", others)
    except ModelError as error:
        raise FormatError(f"{error}; load(path, horizon=...) gives it an end") from None


def _reached_nodes(nodes: _Nodes, node: Integers) -> tuple[Flags, Flags]:
    """Which nodes an episode can be in, and which of them are entered on the way."""
    begins = np.isin(np.arange(nodes.split.size), nodes.first)
    reached = reaching(begins.size, nodes.target, node, begins)
    entered = np.zeros_like(reached)
    entered[nodes.target[reached[node]]] = True
    return reached, entered


def _terminal(problem: _Problem, nodes: _Nodes, node: Integers) -> Flags:
    """Which nodes nothing leaves, and where nothing is paid."""
    stays = np.ones(nodes.split.size, np.bool_)
    stays[node[nodes.target != node]] = False
    pays = np.zeros(problem.pomdp.first.size + 1, np.bool_)  # the last is that of no state, -1
    pays[problem.pomdp.events.state[problem.pomdp.events.reward != 0.0]] = True
    stays[stays] = ~pays[problem.states(nodes, np.flatnonzero(stays))].any(axis=1)
    return stays


def _with_one_end(problem: _Problem, nodes: _Nodes, terminal: Flags) -> _Nodes:
    """What leads to a terminal node leads to the first of those with the same visible part."""
    if not any(v.is_visible for v in problem.pomdp.variables):
        return nodes
    ends = np.flatnonzero(terminal)
    _, first, number = np.unique(nodes.found.visible[ends], return_index=True, return_inverse=True)
    leader = np.arange(terminal.size)
    leader[ends] = ends[first[number]]
    return nodes._replace(target=leader[nodes.target])


def _groups(
    problem: _Problem, nodes: _Nodes, reached: Flags, entered: Flags
) -> tuple[Integers, Floats, Floats, Floats, Integers]:
    """Contexts that are nowhere in different states are one: the group of each context (M,).

    And weights (G,) and probabilities of the first nodes (G, k); how contexts are mixed in first
    nodes that are never entered, (k, M), and which row of it a node has, -1 for none.
    """
    from latentmdp.io import kernels

    first = problem.states(nodes, nodes.first)
    chance = np.append(problem.pomdp.first, 0.0)[first]  # (k, M)
    group = np.empty(first.shape[1], np.int64)
    if any(v.is_visible for v in problem.pomdp.variables):  # contexts are what the file says
        G = group.size
        group[:] = np.arange(G)
    else:
        columns = nodes.hidden[nodes.found.vector[reached & entered]]
        G = kernels.join_contexts(np.ascontiguousarray(columns.T), group)
    joint = np.stack([np.bincount(group, part, G) for part in chance], axis=1)
    weights = joint.sum(axis=1)
    mixed_as = np.full(reached.size, -1)
    mixed_as[nodes.first] = np.where(entered[nodes.first], -1, np.arange(nodes.first.size))
    return group, weights / weights.sum(), joint / weights[:, None], chance, mixed_as


# -------------------------------------------------------------------------------------- the names


def distinct_names(names: Sequence[str]) -> list[str] | None:
    """The names, or None if two are the same or if they are mere numbers."""
    plain = all(name == str(i) for i, name in enumerate(names))
    return None if plain or len(set(names)) < len(names) else list(names)


def _context_names(problem: _Problem, group: Integers) -> list[str] | None:
    """The hidden part of the first state, where a context is not made of several."""
    if np.unique(group).size < group.size:
        return None
    names = [""] * group.size
    for x in np.flatnonzero(problem.context >= 0):
        hidden = (v for v in problem.pomdp.variables if not v.is_visible)
        names[problem.context[x]] = " ".join(v.values[v.column[x]] for v in hidden)
    return distinct_names(names)


def _state_names(
    problem: _Problem, nodes: _Nodes, pairs: Integers, live: Flags
) -> list[str] | None:
    """What is seen in each state: the visible part and, where it is part of the state, the sight.

    Nodes that look the same are told apart by what is known of the hidden part. Where nothing is
    visible, the observation that always and only comes with a node is its name.
    """
    pomdp, observed = problem.pomdp, problem.pomdp.observation_names
    (_, anywhere), (_, anyhow) = (
        np.unique(part, return_index=True) for part in (problem.visible, problem.hidden)
    )
    called = _words_of(pomdp, anywhere[:, None], True)
    looks = [called[v] for v in nodes.found.visible.tolist()]
    anyone = nodes.hidden.max(axis=1)[:, None]
    vectors = np.where(nodes.hidden < 0.0, anyone, nodes.hidden).astype(np.int64)
    called = _words_of(pomdp, anyhow[vectors], False)
    known = [called[h] for h in nodes.found.vector.tolist()]
    count = Counter(looks[i] for i in np.unique(pairs[0]))
    names = [f"{a} {b}".strip() if count[a] > 1 or not a else a for a, b in zip(looks, known)]
    Y = problem.sights.shape[1]
    target, seen = np.divmod(np.unique(nodes.target[live] * Y + nodes.seen[live]), Y)
    once = np.bincount(target, minlength=len(names))[target] == 1
    once &= np.bincount(seen, minlength=Y)[seen] == 1
    for i, y in zip(target[once], seen[once]):
        names[i] = names[i] or observed[problem.sights[1, y]]
    first = set(nodes.first.tolist())
    taken: Counter[str] = Counter()
    distinct = []
    for i, y in pairs.T.tolist():
        name = names[i] or ("begin" if i in first else "node")
        name += f" {observed[problem.sights[1, y]]}" if y >= 0 else ""
        taken[name] += 1
        distinct.append(name if taken[name] == 1 else f"{name} #{taken[name]}")
    return distinct_names(distinct)


def _words_of(pomdp: Pomdp, states: Integers, visible: bool) -> list[str]:
    """What the visible part of states (n, k) is called, or what is known of the hidden one."""
    begin, words = np.flatnonzero(pomdp.first), [[""] * len(states)]
    for variable in (v for v in pomdp.variables if v.is_visible == visible):
        column = variable.column[states]
        known = (column == column[:, :1]).all(axis=1)
        if not visible and np.unique(variable.column[begin]).size == 1:
            known &= column[:, 0] != variable.column[begin[0]]  # no news
        label = f"{variable.name}=" if variable.name and not visible else ""
        called = np.array([label + value for value in variable.values], object)
        words.append(np.where(known, called[column[:, 0]], "").tolist())
    return [" ".join(filter(None, row)) for row in zip(*words)]
