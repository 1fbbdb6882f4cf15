"""Latent MDPs among the POMDPs of other programs: the hidden part of the state never changes.

A POMDP is given as the list of what can happen: (x, a, x', o) with a probability and a reward. It
is a latent MDP if its states are pairs (context, what is seen), where the context never changes and
an agent always knows what is seen. `find_contexts` looks for such pairs in a flat list of states:

* states that are linked by transitions belong to one context, but for the state in which every
  episode begins and for absorbing states, which contexts may share;
* states that an agent cannot tell apart, because the same observation follows the same action in
  states that it could not tell apart before, look the same. No two of them may be in one context.

Contexts that never look the same are joined: what is seen tells which of them it is.

`latent_mdp` makes the model. Rewards of a POMDP are not observed: their means become the bonus, and
the only reward value is 0. Where several observations lead to the same look and say something about
the context, the last observation becomes part of the state. A look that nothing leaves and that
pays nothing is terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import Flags, Floats, Integers, first_index
from latentmdp.errors import FormatError
from latentmdp.model import LatentMDP
from latentmdp.outcomes import outcomes_from_entries, row_sums

MAX_EVENTS = 5_000_000
"""What can happen in a file's problem, at most: (x, a, x', o) with a probability above zero."""

TOLERANCE = 1e-5
"""How far the probabilities in a file may be from summing to one: people round them."""


class Events(NamedTuple):
    """What can happen, one entry each: in `state` of `context` under `action`."""

    context: Integers
    state: Integers
    action: Integers
    next_state: Integers
    observation: Integers
    probability: Floats
    reward: Floats


def take(events: Events, index: NDArray[np.integer] | Flags) -> Events:
    """Some of the events."""
    columns: list[Any] = [np.asarray(column)[index] for column in events]
    return Events(*columns)


class Declared(NamedTuple):
    """What a file says of itself before anything happens."""

    discount: float
    n_actions: int
    action_names: Sequence[str] | None
    observation_names: Sequence[str] | None


class Problem(NamedTuple):
    """A latent MDP in the making: events by context and look, and how an episode begins."""

    declared: Declared
    events: Events
    weights: Floats  # (M,)
    initial: Floats  # (M, V)
    context_names: Sequence[str] | None
    look_names: Sequence[str] | None  # V of them


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


def reachable(events: Events, first: Flags) -> Flags:
    """Which states can be met from the first ones, by a search from one state before them all."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    size, start = first.size, np.flatnonzero(first)
    rows = np.concatenate([events.state, np.full(start.size, size)])
    columns = np.concatenate([events.next_state, start])
    graph = coo_array((np.ones(rows.size), (rows, columns)), shape=(size + 1, size + 1)).tocsr()
    reached = np.zeros(size + 1, np.bool_)
    reached[breadth_first_order(graph, size, return_predecessors=False)] = True
    return reached[:-1]


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


# ------------------------------------------------------------------- contexts in a flat problem


def find_contexts(
    declared: Declared, events: Events, first: Floats, names: Sequence[str]
) -> Problem:
    """The contexts and looks of a flat problem; the contexts of its events are not yet known.

    Raises
    ------
    FormatError
        Naming two states of one context that cannot be told apart.
    """
    return _LookSearch(events, first, names).problem(declared)


class _LookSearch:
    def __init__(self, events: Events, first: Floats, names: Sequence[str]) -> None:
        self.names, self.first, self.size = names, first, first.size
        self.start = np.flatnonzero(first)
        self.reachable = reachable(events, first > 0.0)
        self.events = take(events, self.reachable[events.state])
        x, n = self.events.state, self.events.next_state
        leaves = np.zeros(self.size, np.bool_)
        leaves[x[x != n]] = True
        self.absorbing = self.reachable & ~leaves
        entered = np.zeros(self.size, np.bool_)
        entered[n] = True
        only = int(self.start[0])
        alone = self.start.size == 1 and not entered[only] and not self.absorbing[only]
        self.entrance = only if alone else -1
        self.part, self.n_parts = self._parts()
        self.blind = self.entrance < 0 and not self._one_each(self.start)
        self.look = self._looks()

    def _parts(self) -> tuple[Integers, int]:
        """The connected part of each state, -1 for the entrance and what several parts share."""
        x, n = self.events.state, self.events.next_state
        inner = self.reachable & ~self.absorbing
        if self.entrance >= 0:
            inner[self.entrance] = False
        linked = inner[x] & inner[n]
        label = _components(x[linked], n[linked], self.size)
        part = np.where(inner, label, -1)
        # An absorbing state belongs to the one part that leads to it, or is a part of its own.
        into = self.absorbing[n] & (x != n) & (part[x] >= 0)
        ends, sources = np.unique(np.stack([n[into], part[x[into]]]), axis=1)
        count = np.bincount(ends, minlength=self.size)
        alone = self.absorbing & (count == 0)
        part[alone] = label[alone]
        once = count[ends] == 1
        part[ends[once]] = sources[once]
        labels, part_of = np.unique(part, return_inverse=True)
        shift = int(labels[0] == -1)
        return part_of.ravel() - shift, max(1, labels.size - shift)

    def _one_each(self, states: Integers) -> bool:
        """Whether these states are in different parts, so that they can look the same."""
        parts = self.part[states]
        return bool((parts >= 0).all()) and np.unique(parts).size == parts.size

    def _looks(self) -> Integers:
        """What each state looks like, as the smallest partition that the observations allow."""
        events = self.events
        look = np.arange(self.size)
        if self.entrance < 0 and not self.blind:
            look[self.start] = self.start[0]
        from_start = np.isin(events.state, self.start) & self.blind
        extra = take(events, from_start)
        action = np.concatenate([events.action, extra.action])
        observation = np.concatenate([events.observation, extra.observation])
        arrival = np.concatenate([events.next_state, extra.next_state])
        while True:
            before = np.concatenate([look[events.state], np.full(extra.state.size, self.size)])
            keys = np.stack([before, action, observation])
            _, group = np.unique(keys, axis=1, return_inverse=True)
            members = look[arrival]
            n = int(group.max()) + 1 if group.size else 0
            joined = _components(members, self.size + group.ravel(), self.size + n)
            _, firsts, new = np.unique(joined[look], return_index=True, return_inverse=True)
            distinct, old = np.unique(look, return_inverse=True)
            if firsts.size == distinct.size:
                return old
            look = firsts[new]  # called by its first state, so that numbers stay below the size

    def _contexts(self) -> tuple[Integers, int]:
        """The context of each state, -1 for all of them, and M.

        Parts that never look the same are joined.
        """
        lookers: list[set[int]] = [set() for _ in range(self.n_parts)]
        single = np.bincount(self.look[self.reachable], minlength=self.size) == 1
        members: list[dict[int, int]] = [{} for _ in range(self.n_parts)]
        for x in np.flatnonzero(self.reachable & (self.part >= 0)):
            part, look = int(self.part[x]), int(self.look[x])
            other = members[part].setdefault(look, int(x))
            if other != x:
                raise FormatError(self._indistinct(other, int(x)))
            if not single[look]:
                lookers[part].add(look)
        colours: list[set[int]] = []
        colour_of = []
        for looks in lookers:
            colour = next((c for c, used in enumerate(colours) if not used & looks), len(colours))
            if colour == len(colours):
                colours.append(set())
            colours[colour] |= looks
            colour_of.append(colour)
        M = len(colours)
        return np.where(self.part < 0, -1 if M > 1 else 0, np.array(colour_of)[self.part]), M

    def _indistinct(self, x: int, y: int) -> str:
        return (
            f"it is no latent MDP: the states {self.names[x]!r} and {self.names[y]!r} can follow "
            "one another, and observations do not tell them apart, so something hidden moves"
        )

    def problem(self, declared: Declared) -> Problem:
        contexts, M = self._contexts()
        V = int(self.look.max()) + 1
        begin = V if self.blind else int(self.look[self.start[0]])
        weights, opening = self._opening(contexts, M)
        events = take(self.events, self.events.state != self.entrance)
        entry, context = _by_context(contexts[events.state], M)
        spread = take(events, entry)
        spread = spread._replace(
            context=context,
            state=self.look[spread.state],
            next_state=self.look[spread.next_state],
        )
        if self.blind or self.entrance >= 0:
            opening = opening._replace(
                state=np.full(opening.state.size, begin),
                next_state=self.look[opening.next_state],
            )
            spread = Events(*(np.concatenate(pair) for pair in zip(spread, opening)))
        initial = np.zeros((M, V + 1))
        initial[:, begin] = 1.0
        looks = [*self._look_names(V, declared.observation_names), "begin"]
        return Problem(declared, spread, weights, initial, None, looks)

    def _opening(self, contexts: Integers, M: int) -> tuple[Floats, Events]:
        """The weights of the contexts, and what follows the first, unseen state in each."""
        if self.entrance >= 0:
            events = take(self.events, self.events.state == self.entrance)
            keys, share = events.next_state, events.probability
            groups = events.action
        else:
            keys, share = self.start, self.first[self.start]
            groups = np.zeros(self.start.size, np.int64)
            events = take(self.events, np.isin(self.events.state, self.start))
        weights: Floats | None = None
        for group in np.unique(groups):
            telling = (groups == group) & (contexts[keys] >= 0)
            mass = np.bincount(contexts[keys[telling]], share[telling], M)
            masses = mass / mass.sum() if mass.sum() > 0.0 else np.eye(M)[0]
            if weights is not None and np.abs(masses - weights).max() > TOLERANCE:
                raise FormatError(
                    f"it is no latent MDP: the first action, in {self.names[self.entrance]!r}, "
                    "changes what is hidden"
                )
            weights = masses if weights is None else weights
        assert weights is not None
        source = events.next_state if self.entrance >= 0 else events.state
        chance = events.probability
        if self.entrance < 0:
            chance = chance * self.first[events.state]
        entry, context = _by_context(contexts[source], M)
        possible = weights[context] > 0.0
        entry, context = entry[possible], context[possible]
        scale = np.where(contexts[source[entry]] >= 0, weights[context], 1.0)
        opening = take(events, entry)
        return weights, opening._replace(context=context, probability=chance[entry] / scale)

    def _look_names(self, V: int, observations: Sequence[str] | None) -> list[str]:
        """The observation that always and only comes with a look, or its first state's name."""
        names = [""] * V
        for x in range(self.size - 1, -1, -1):
            names[self.look[x]] = self.names[x]
        if observations is None:
            return names
        pairs = np.stack([self.look[self.events.next_state], self.events.observation])
        looks, observed = np.unique(pairs, axis=1)
        once = np.bincount(looks, minlength=V)[looks] == 1
        once &= np.bincount(observed, minlength=len(observations))[observed] == 1
        called = list(names)
        for v, o in zip(looks[once], observed[once]):
            called[v] = observations[o]
        return called if len(set(called)) == V else names


def _by_context(contexts: Integers, M: int) -> tuple[Integers, Integers]:
    """(i, m) for every entry i and each context m that it is in: one, or all M where it is -1."""
    counts = np.where(contexts < 0, M, 1)
    entry = np.repeat(np.arange(contexts.size), counts)
    within = np.arange(entry.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return entry, np.where(contexts[entry] < 0, within, contexts[entry])


def _components(rows: Integers, columns: Integers, size: int) -> Integers:
    """The connected component of each of `size` nodes of a graph without directions."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(rows.size), (rows, columns)), shape=(size, size))
    return connected_components(graph, directed=False)[1].astype(np.int64)


# -------------------------------------------------------------------------------------- the model


def latent_mdp(problem: Problem, horizon: int | None) -> LatentMDP:
    """The model of a problem; without a horizon it has no end."""
    declared = problem.declared
    if not horizon and declared.discount >= 1.0:
        raise FormatError(
            "its discount is 1, so it needs an end: load(path, horizon=...) gives it one"
        )
    events, A = problem.events, declared.n_actions
    M = problem.weights.size
    split = _split_looks(events, M)
    # A state is a look, or a look and the observation that came with it; -1: none came.
    observed = np.where(split[events.next_state], events.observation, -1)
    starts = np.flatnonzero(problem.initial.any(axis=0))
    keys = np.stack(
        [np.append(events.next_state, starts), np.append(observed, np.full_like(starts, -1))]
    )
    pairs, number = np.unique(keys, axis=1, return_inverse=True)
    arrival, begin = np.split(number.ravel(), [events.state.size])
    S = pairs.shape[1]
    i, j = join(pairs[0], events.state)
    state, entries = i, take(events, j)
    row = state * A + entries.action
    cells = entries.context * S * A + row
    totals = np.bincount(cells, entries.probability, M * S * A)
    probability = entries.probability / totals[cells]
    bonus = np.bincount(cells, probability * entries.reward, M * S * A).reshape(M, S, A)
    outcomes = outcomes_from_entries(
        row, arrival[j], np.zeros(row.size, np.int64), entries.context, probability, (M, S, A, 1)
    )
    # A context that never sees a look may do there what it will: as the first that does.
    filled, rows = row_sums(outcomes, outcomes.probs) > 0.0, outcomes.rows()
    example = np.where(filled, np.arange(M), filled.argmax(axis=1)[:, None])
    probs = np.take_along_axis(outcomes.probs, example[rows], axis=1)
    bonus = np.take_along_axis(bonus.reshape(M, -1), example.T, axis=0).reshape(M, S, A)
    missing = (~filled.any(axis=1)).reshape(S, A)
    if missing.any():
        s, a = first_index(missing)
        name = None if declared.action_names is None else declared.action_names[a]
        raise FormatError(f"nothing follows action {name or a} in {_name(problem, pairs[:, s])}")
    stays = np.ones(S, np.bool_)
    stays[(rows // A)[pairs[0][rows // A] != pairs[0][outcomes.next_state]]] = False
    terminal = stays & ~bonus.any(axis=(0, 2))
    if terminal.all():
        terminal[:] = False
    table = outcomes._replace(probs=probs).where(~terminal[rows // A])
    initial = np.zeros((M, S))
    initial[:, begin] = problem.initial[:, starts]
    return LatentMDP.from_outcomes(
        *table,
        n_states=S,
        horizon=horizon,
        discount=declared.discount,
        reward_values=[0.0],
        reward_model="state-action",
        allowed=np.repeat(~terminal[:, None], A, axis=1),
        initial=initial,
        weights=problem.weights,
        bonus=bonus,
        context_names=problem.context_names,
        action_names=declared.action_names,
        state_names=None
        if problem.look_names is None
        else distinct_names([_name(problem, pair) for pair in pairs.T]),
    )


def _name(problem: Problem, pair: Integers) -> str:
    look, observed = (int(x) for x in pair)
    name = str(look) if problem.look_names is None else problem.look_names[look]
    if observed < 0:
        return name
    names = problem.declared.observation_names
    return f"{name} {observed if names is None else names[observed]}"


def distinct_names(names: Sequence[str]) -> list[str] | None:
    """The names, or None if two are the same or if they are mere numbers."""
    plain = all(name == str(i) for i, name in enumerate(names))
    return None if plain or len(set(names)) < len(names) else list(names)


def _split_looks(events: Events, M: int) -> Flags:
    """Which looks come with several observations that say something about the context."""
    size = int(max(events.next_state.max(), events.state.max())) + 1
    keys = np.stack([events.state, events.action, events.next_state, events.observation])
    distinct, index = np.unique(keys, axis=1, return_inverse=True)
    flat = np.bincount(
        index.ravel() * M + events.context, events.probability, distinct.shape[1] * M
    )
    probs = flat.reshape(-1, M)
    shares = probs / probs.sum(axis=1, keepdims=True)
    same = (distinct[:3, 1:] == distinct[:3, :-1]).all(axis=0)
    tells = np.abs(np.diff(shares, axis=0)).max(axis=1, initial=0.0) > 1e-9
    split = np.zeros(size, np.bool_)
    split[distinct[2, 1:][same & tells]] = True
    return split
