"""The loops that turn a POMDP whose hidden state is determined into nodes of a latent MDP.

A state is (v, q): its visible and its hidden part. A *row* is v A + a, and its *groups* are the
sights that may follow. To a group belong two functions of the hidden part: where it goes (`move`),
and how likely the sight is (`chance`); to a row, what it pays. Most are the same for very many
groups, and are kept once.

A node is (v, h), where h is the number of a vector of M numbers: the hidden part in which each
context is there, -1 where the context cannot be there. Vectors are kept once too, so that what
follows is found once for each (h, function): in RockSample h says which rocks were sampled, and
there are a hundred times as many nodes.

What was found is kept in a table of pairs of numbers. It holds, for every pair of a vector and a
sight that was ever met, the node that stands for it. A node only gains contexts, never loses any,
so that it stands for the vector for ever.
"""

from typing import Any, NamedTuple

import numpy as np

from latentmdp._kernels import njit

MOVED, SEEN, BARE, CHANCE, PAID, SUM = range(6)
"""What a pair of numbers is: (vector, move), (vector, sight), (vector, v); (vector, chance),
(vector, pay), (a vector of numbers, another)."""


class Functions(NamedTuple):
    """Functions of the hidden part: each lists where it is not 0, or for a move not -1."""

    starts: Any  # (F + 1,)
    place: Any  # (n,): q
    value: Any  # (n,)


class Groups(NamedTuple):
    """What may be seen after every row, and the functions that belong to it."""

    starts: Any  # (V A + 1,)
    sight: Any  # (n,)
    move: Any  # (n,), among `moves`
    chance: Any  # (n,), among `chances`
    pays: Any  # (V A,), among `payoffs`
    after: Any  # (Y,): the visible part of each sight
    moves: Functions
    chances: Functions
    payoffs: Functions


class Vectors(NamedTuple):
    """Distinct vectors, with room for more."""

    known: Any  # (room, G)
    slots: Any  # (4 room,): open-addressed table of their numbers, -1 where a slot is empty
    size: Any  # (1,): how many there are


class NumberedPairs(NamedTuple):
    """Numbers by pairs of numbers, with room for more."""

    keys: Any  # (room,): 0 where a slot is empty
    values: Any  # (room,)
    size: Any  # (1,)


class FoundNodes(NamedTuple):
    """The nodes that were found."""

    visible: Any  # (N,)
    vector: Any  # (N,): h
    vectors: Vectors
    pairs: NumberedPairs
    is_whole: bool  # whether these are all


class Entries(NamedTuple):
    """What can be seen in every row i A + a of nodes, and which node it leads to."""

    starts: Any  # (N A + 1,)
    group: Any  # (n,)
    target: Any  # (n,)
    split: Any  # (N,): whether two groups of a row lead there that tell contexts apart


class Parts(NamedTuple):
    """What contexts do together: those of a group, and in some nodes mixed by shares."""

    mixed_as: Any  # (N,): the shares of a node, -1 where each group is as its first member
    share: Any  # (k, M)
    members: Any  # (M,): the contexts of all groups
    starts: Any  # (G + 1,)


@njit(cache=True)
def no_vectors(G):
    """Room for vectors of G numbers."""
    return Vectors(np.empty((64, G)), np.full(256, -1, np.int32), np.zeros(1, np.int64))


@njit(cache=True)
def no_pairs():
    """Room for pairs."""
    return NumberedPairs(np.zeros(1024, np.uint64), np.empty(1024, np.int64), np.zeros(1, np.int64))


@njit(cache=True)
def _number(vector, vectors):
    """The number of a vector among those known, where it is entered if it is new."""
    code = np.uint64(1)
    for x in vector.view(np.uint64):
        code = (code ^ x) * np.uint64(0xBF58476D1CE4E5B9)
        code ^= code >> np.uint64(29)
    slot = code % np.uint64(vectors.slots.size)
    while vectors.slots[slot] >= 0:
        known = vectors.known[vectors.slots[slot]]
        same = True
        for g in range(vector.size):
            if known[g] != vector[g]:
                same = False
                break
        if same:
            return vectors.slots[slot]
        slot = (slot + np.uint64(1)) % np.uint64(vectors.slots.size)
    vectors.slots[slot] = vectors.size[0]
    vectors.known[vectors.size[0]] = vector
    vectors.size[0] += 1
    return vectors.slots[slot]


@njit(cache=True)
def _with_room(vectors, more):
    """The same vectors with room for so many more."""
    n, G = vectors.size[0], vectors.known.shape[1]
    if n + more <= len(vectors.known):
        return vectors
    room = 2 * (n + more)
    larger = Vectors(np.empty((room, G)), np.full(4 * room, -1, np.int32), np.zeros(1, np.int64))
    for i in range(n):
        _number(vectors.known[i], larger)
    return larger


@njit(cache=True)
def _slot(kind, one, two, pairs):
    """The slot of a pair, and the key that is there if it is known."""
    key = ((np.uint64(one) << np.uint64(30) | np.uint64(two)) * np.uint64(5)) + np.uint64(kind + 1)
    code = key * np.uint64(0x9E3779B97F4A7C15)
    mask = np.uint64(pairs.keys.size - 1)
    slot = (code >> np.uint64(20)) & mask
    while pairs.keys[slot] != 0 and pairs.keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot, key


@njit(cache=True)
def _set(slot, key, value, pairs):
    """Enter a pair in an empty slot."""
    pairs.keys[slot], pairs.values[slot] = key, value
    pairs.size[0] += 1


@njit(cache=True)
def _larger(pairs, more):
    """The same pairs with room for so many more."""
    if 2 * (pairs.size[0] + more) <= pairs.keys.size:
        return pairs
    room = pairs.keys.size
    while 2 * (pairs.size[0] + more) > room:
        room *= 2
    larger = NumberedPairs(np.zeros(room, np.uint64), np.empty(room, np.int64), pairs.size)
    mask = np.uint64(room - 1)
    for i in range(pairs.keys.size):
        if pairs.keys[i] != 0:
            slot = (pairs.keys[i] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & mask
            while larger.keys[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            larger.keys[slot], larger.values[slot] = pairs.keys[i], pairs.values[i]
    return larger


@njit(cache=True)
def _scatter(f, functions, dense, blank):
    """Write a function into an array (Q,), or, with a number for `blank`, that number."""
    for e in range(functions.starts[f], functions.starts[f + 1]):
        dense[functions.place[e]] = functions.value[e] if np.isnan(blank) else blank


@njit(cache=True)
def _moved(h, move, moves, dense, vectors, pairs, vector):
    """The number of the vector to which a move leads from h, -1 where no context goes."""
    slot, key = _slot(MOVED, h, move, pairs)
    if pairs.keys[slot] == 0:
        _scatter(move, moves, dense, np.nan)
        possible = False
        for m in range(vector.size):
            q = vectors.known[h, m]
            vector[m] = -1.0 if q < 0.0 else dense[np.int64(q)]
            possible = possible or vector[m] >= 0.0
        _scatter(move, moves, dense, -1.0)
        _set(slot, key, _number(vector, vectors) if possible else -1, pairs)
    return pairs.values[slot]


@njit(cache=True)
def _stands(vector, other):
    """Whether one vector stands for another: it has all its contexts, in the same places."""
    for m in range(vector.size):  # noqa: SIM110 - numba compiles loops, not generators
        if other[m] >= 0.0 and other[m] != vector[m]:
            return False
    return True


@njit(cache=True)
def _longer(array):
    """A copy with room for twice as much."""
    larger = np.empty(2 * array.size, array.dtype)
    larger[: array.size] = array
    return larger


@njit(cache=True)
def _shared(one, other):
    """In how many contexts two vectors say the same; -1 where they contradict each other."""
    shared = 0
    for m in range(one.size):
        if one[m] >= 0.0 and other[m] >= 0.0:
            if one[m] != other[m]:
                return -1
            shared += 1
    return shared


@njit(cache=True)
def explore(A, Q, groups, begins, first, shown, most, memory):
    """The nodes, found breadth first; None where there are more than `most`, or the memory is full.

    `begins` are the visible parts of the first nodes and `first` (k, M) their vectors; `shown` says
    whether a first node is where its visible part is seen, whatever else is.

    For a vector that was not met before with this sight: stay, where the node itself stands for it;
    else a node that does; else the node among those of the sight (linked lists by `heads`, `links`,
    `linked`) that shares most contexts and contradicts none, which gains the others; else a new
    one. A node that gains contexts is looked at again.
    """
    M, Y = first.shape[1], groups.after.size
    vectors, pairs = _with_room(no_vectors(M), len(first)), no_pairs()
    n, n_links = len(first), 0
    visible, number = np.empty(2 * n + 64, np.int64), np.empty(2 * n + 64, np.int64)
    open_, seen_all, checked = np.ones(2 * n + 64, np.bool_), True, 0
    heads, links = np.full(Y, -1), np.empty(2 * Y + 64, np.int64)
    linked, at = np.empty(2 * Y + 64, np.int64), np.full(groups.starts.size // A, -1)
    for i in range(n):
        visible[i], number[i], at[begins[i]] = begins[i], _number(first[i], vectors), i
        pairs = _larger(pairs, 1)
        if shown:
            slot, key = _slot(BARE, number[i], begins[i], pairs)
            _set(slot, key, i, pairs)
    for y in range(Y):
        if shown and at[groups.after[y]] >= 0:
            heads[y], links[n_links], linked[n_links] = n_links, -1, at[groups.after[y]]
            n_links += 1
    dense, vector = np.full(Q, -1.0), np.empty(M)
    widest = int(np.diff(groups.starts).max())
    changed = True
    while changed:
        changed, i = False, 0
        while i < n:
            if not open_[i]:
                i += 1
                continue
            open_[i], changed = False, True  # opened again if it gains contexts meanwhile
            for row in range(visible[i] * A, (visible[i] + 1) * A):
                vectors, pairs = _with_room(vectors, 2 * widest), _larger(pairs, 3 * widest)
                if n > most or 8.0 * M * len(vectors.known) > memory:
                    return FoundNodes(visible[:n], number[:n], vectors, pairs, False)
                if n + widest > visible.size:
                    visible, number = _longer(visible), _longer(number)
                    open_ = _longer(open_)
                if n_links + widest > links.size:
                    links, linked = _longer(links), _longer(linked)
                for g in range(groups.starts[row], groups.starts[row + 1]):
                    y, move = groups.sight[g], groups.move[g]
                    h = _moved(number[i], move, groups.moves, dense, vectors, pairs, vector)
                    if h < 0:
                        continue
                    slot, key = _slot(SEEN, h, y, pairs)
                    if pairs.keys[slot] != 0:
                        continue
                    v, met = groups.after[y], vectors.known[h]
                    bare, bare_key = _slot(BARE, h, v, pairs)
                    node, listed = -1, pairs.keys[bare] != 0
                    if v == visible[i] and _stands(vectors.known[number[i]], met):
                        node = i
                    elif listed:
                        node = pairs.values[bare]
                    else:
                        while seen_all and checked < vectors.size[0]:
                            seen_all = vectors.known[checked].min() >= 0.0
                            checked += 1
                        # Vectors of all contexts contradict each other if they differ.
                        best, link = -1, -1 if seen_all else heads[y]
                        while link >= 0:
                            shared = _shared(met, vectors.known[number[linked[link]]])
                            if shared > best:
                                node, best = linked[link], shared
                            link = links[link]
                        if node < 0:
                            node, n = n, n + 1
                            visible[node], number[node], open_[node] = v, h, True
                        elif not _stands(vectors.known[number[node]], met):
                            for m in range(M):
                                vector[m] = max(vectors.known[number[node], m], met[m])
                            number[node], open_[node] = _number(vector, vectors), True
                    _set(slot, key, node, pairs)
                    if not listed:
                        bare, bare_key = _slot(BARE, h, v, pairs)  # the other may be there now
                        _set(bare, bare_key, node, pairs)
                    if node != i:
                        links[n_links], linked[n_links] = heads[y], node
                        heads[y] = n_links
                        n_links += 1
            i += 1
    return FoundNodes(visible[:n], number[:n], vectors, pairs, True)


@njit(cache=True)
def _differ(h, one, two, chances, dense, shares):
    """Whether two sights after a vector have different shares of contexts, beyond rounding."""
    if one == two:
        return False
    for side, f in enumerate((one, two)):
        _scatter(f, chances, dense, np.nan)
        for m in range(h.size):
            shares[side, m] = dense[np.int64(h[m])] if h[m] >= 0.0 else 0.0
        shares[side] /= shares[side].sum()
        _scatter(f, chances, dense, 0.0)
    return np.abs(shares[0] - shares[1]).max() > 1e-9


@njit(cache=True)
def list_entries(A, Q, groups, nodes):
    """What can be seen in every node, where it leads, and which nodes are told apart by sights."""
    N, n, total = nodes.visible.size, 0, 0
    for v in nodes.visible:
        total += groups.starts[(v + 1) * A] - groups.starts[v * A]
    starts, split = np.empty(N * A + 1, np.int64), np.zeros(N, np.bool_)
    group, target = np.empty(total, np.int64), np.empty(total, np.int64)
    leads, dense = np.full(N, -1), np.zeros(Q)
    shares, values = np.empty((2, nodes.vectors.known.shape[1])), nodes.pairs.values
    for i in range(N):
        h = nodes.vector[i]
        for a in range(A):
            row, starts[i * A + a] = nodes.visible[i] * A + a, n
            for g in range(groups.starts[row], groups.starts[row + 1]):
                after = values[_slot(MOVED, h, groups.move[g], nodes.pairs)[0]]
                if after < 0:
                    continue
                node = values[_slot(SEEN, after, groups.sight[g], nodes.pairs)[0]]
                group[n], target[n] = g, node
                n += 1
                if leads[node] < 0:
                    leads[node] = groups.chance[g]  # with which others to this node are compared
                elif not split[node]:
                    split[node] = _differ(
                        nodes.vectors.known[h], leads[node], groups.chance[g], groups.chances,
                        dense, shares,
                    )  # fmt: skip
            for k in range(starts[i * A + a], n):
                leads[target[k]] = -1
    starts[N * A] = n
    return Entries(starts, group[:n].copy(), target[:n].copy(), split)


@njit(cache=True)
def _valued(kind, h, f, functions, known, parts, mixed, dense, vectors, pairs):
    """The number of the vector (G,) of what groups of contexts have of a function, in vector h.

    A group has what its first member has that can be there; with shares `mixed` >= 0, what its
    members have, mixed by them. A group that cannot be there has what the first has that can.
    """
    slot, key = _slot(kind, h if mixed < 0 else len(known) + mixed, f, pairs)
    if pairs.keys[slot] == 0:
        _scatter(f, functions, dense, np.nan)
        G, example = parts.starts.size - 1, np.nan
        vector = np.full(G, np.nan)
        for g in range(G):
            total, value = 0.0, 0.0
            for k in range(parts.starts[g], parts.starts[g + 1]):
                m = parts.members[k]
                if known[h, m] >= 0.0:
                    x = dense[np.int64(known[h, m])]
                    vector[g] = x if np.isnan(vector[g]) else vector[g]
                    if mixed >= 0:
                        total += parts.share[mixed, m]
                        value += parts.share[mixed, m] * x
            vector[g] = value / total if total > 0.0 else vector[g]
            example = vector[g] if np.isnan(example) else example
        for g in range(G):
            vector[g] = example if np.isnan(vector[g]) else vector[g]
        _scatter(f, functions, dense, 0.0)
        _set(slot, key, _number(vector, vectors), pairs)
    return pairs.values[slot]


@njit(cache=True)
def fill(A, Q, groups, nodes, entries, live, outcome, n_outcomes, parts):
    """Number the probabilities (n_outcomes,) and the pay (N A,) of nodes, by group of contexts.

    And the vectors that numbers stand for. `outcome` says which outcome each entry is; chances of
    entries that are the same one are added.
    """
    G, known = parts.starts.size - 1, nodes.vectors.known
    chances, earned, pairs = no_vectors(G), no_vectors(G), no_pairs()
    pattern, pay = np.full(n_outcomes, -1, np.int32), np.zeros(nodes.visible.size * A, np.int64)
    dense = np.zeros(Q)
    _number(np.zeros(G), earned)  # where nothing follows nothing is paid
    for i in np.flatnonzero(live):
        h, mixed = nodes.vector[i], parts.mixed_as[i]
        for a in range(A):
            earned, pairs = _with_room(earned, 1), _larger(pairs, 1)
            pay[i * A + a] = _valued(
                PAID, h, groups.pays[nodes.visible[i] * A + a], groups.payoffs, known, parts,
                mixed, dense, earned, pairs,
            )  # fmt: skip
            for k in range(entries.starts[i * A + a], entries.starts[i * A + a + 1]):
                chances, pairs = _with_room(chances, 2), _larger(pairs, 2)
                p = _valued(
                    CHANCE, h, groups.chance[entries.group[k]], groups.chances, known, parts,
                    mixed, dense, chances, pairs,
                )  # fmt: skip
                before = pattern[outcome[k]]
                if before >= 0:
                    slot, key = _slot(SUM, before, p, pairs)
                    if pairs.keys[slot] == 0:
                        total = chances.known[before] + chances.known[p]
                        _set(slot, key, _number(total, chances), pairs)
                    p = pairs.values[slot]
                pattern[outcome[k]] = p
    return pattern, pay, chances, earned


@njit(cache=True)
def join_contexts(columns, group):
    """Number groups of contexts that are nowhere in different states; returns how many there are.

    `columns` (M, n) are the places of each context; those of a group's first member are filled in
    from the others.
    """
    leaders = np.empty(columns.shape[0], np.int64)
    count = 0
    for m in range(columns.shape[0]):
        group[m] = -1
        for g in range(count):
            if _shared(columns[leaders[g]], columns[m]) >= 0:
                group[m] = g
                for i in range(columns.shape[1]):
                    columns[leaders[g], i] = max(columns[leaders[g], i], columns[m, i])
                break
        if group[m] < 0:
            group[m], leaders[count] = count, m
            count += 1
    return count
