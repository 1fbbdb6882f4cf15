"""The loops that turn a POMDP whose hidden state is determined into nodes of a latent MDP.

What can happen is listed by rows x A + a: entries starts[row] .. starts[row + 1] - 1 say that
`sight` is seen and `successor` is reached. In a row a sight occurs once at most, so that the
state of a context follows from what is seen. A node is a row of `vectors` (N, M): the state in
which each context is there, -1 where the context cannot be there.

Numbers of nodes are kept in an open-addressed table of hashes. It holds, for every pair of a vector
and a sight that was ever met, the node that stands for it. A node only gains contexts, never loses
any, so that it stands for the vector for ever.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NODES, LINKS, USED = range(3)
"""Places in `sizes`: nodes, links of buckets, and used slots of the table."""


@njit(cache=True)
def _hash(vector, sight):
    code = np.uint64(sight + 2) * np.uint64(0x9E3779B97F4A7C15)
    for x in vector:
        code = (code ^ np.uint64(x + 1)) * np.uint64(0xBF58476D1CE4E5B9)
        code ^= code >> np.uint64(29)
    return code | np.uint64(1)  # 0 marks an empty slot


@njit(cache=True)
def _within(vector, node):
    """Whether a node stands for a vector: it has all its contexts, in the same states."""
    for m in range(vector.size):  # noqa: SIM110 - numba compiles loops, not generators
        if vector[m] >= 0 and vector[m] != node[m]:
            return False
    return True


@njit(cache=True)
def _find(code, vector, vectors, keys, nodes):
    """The node listed for a vector, -1 if there is none, and the slot where it is or would be."""
    mask = np.uint64(keys.size - 1)
    slot = (code >> np.uint64(7)) & mask
    while keys[slot] != 0:
        if keys[slot] == code and _within(vector, vectors[nodes[slot]]):
            return nodes[slot], slot
        slot = (slot + np.uint64(1)) & mask
    return np.int32(-1), slot


@njit(cache=True)
def rehash(old_keys, old_nodes, keys, nodes):
    """Put what a table lists into a larger one, which is empty."""
    mask = np.uint64(keys.size - 1)
    for i in range(old_keys.size):
        if old_keys[i] != 0:
            slot = (old_keys[i] >> np.uint64(7)) & mask
            while keys[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            keys[slot], nodes[slot] = old_keys[i], old_nodes[i]


@njit(cache=True)
def _by_sight(vector, row, A, starts, sight, first, entries, contexts, after, seen):
    """List what can be seen after an action, and the entries by which each context sees it.

    Fills `seen`, whose length is returned, and for each of its sights a list that begins at
    first[sight] and is linked by `after`, -1 at its end. `first` is -1 everywhere before; the
    caller resets it.
    """
    count, n = 0, 0
    for m in range(vector.size):
        if vector[m] < 0:
            continue
        place = np.int64(vector[m]) * A + row
        for e in range(starts[place], starts[place + 1]):
            y = sight[e]
            if first[y] < 0:
                seen[count] = y
                count += 1
            entries[n], contexts[n], after[n] = e, m, first[y]
            first[y] = n
            n += 1
    return count


@njit(cache=True)
def _compatible(vector, heads, links, linked, vectors, y):
    """The node of a bucket that shares most contexts with a vector and contradicts none, or -1."""
    best, most, link = -1, -1, heads[y]
    while link >= 0:
        node = vectors[linked[link]]
        shared = 0
        for m in range(vector.size):
            if vector[m] >= 0 and node[m] >= 0:
                if vector[m] != node[m]:
                    shared = -1
                    break
                shared += 1
        if shared > most:
            best, most = linked[link], shared
        link = links[link]
    return best


@njit(cache=True)
def explore(
    A, starts, sight, successor, widest, vectors, open_, heads, links, linked, keys, nodes, sizes
):
    """Find what follows every open node, and open the nodes that are new or gain contexts.

    For a vector that was not met before with this sight: stay, where the node itself stands for it;
    else a node that does; else the node of the sight's bucket (linked lists by `heads`, `links`,
    `linked`) that shares most contexts and contradicts none, which gains the others; else a new
    one. Returns whether all is done; if not, some array is full, and the call is repeated with
    larger ones: what was done is done again with the same result.
    """
    M = vectors.shape[1]
    first = np.full(heads.size, -1, np.int64)
    room = M * widest
    entries, contexts, after = (
        np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    )  # fmt: skip
    seen = np.empty(min(room, heads.size), np.int64)
    vector = np.empty(M, np.int32)
    changed = True
    while changed:
        changed = False
        i = 0
        while i < sizes[NODES]:
            if not open_[i]:
                i += 1
                continue
            open_[i] = False  # opened again if it gains contexts while it is looked at
            changed = True
            for a in range(A):
                count = _by_sight(
                    vectors[i], a, A, starts, sight, first, entries, contexts, after, seen
                )
                full = False
                for k in range(count):
                    y = seen[k]
                    vector[:] = -1
                    link = first[y]
                    while link >= 0:
                        vector[contexts[link]] = successor[entries[link]]
                        link = after[link]
                    first[y] = -1
                    if full:
                        continue
                    code = _hash(vector, y)
                    node, slot = _find(code, vector, vectors, keys, nodes)
                    if node >= 0:
                        continue
                    if (
                        sizes[NODES] == vectors.shape[0]
                        or sizes[LINKS] == links.size
                        or 2 * (sizes[USED] + 2) > keys.size
                    ):
                        full = True
                        continue
                    bare = _hash(vector, -1)
                    listed, bare_slot = _find(bare, vector, vectors, keys, nodes)
                    if _within(vector, vectors[i]):
                        node = np.int32(i)
                    elif listed >= 0:
                        node = listed
                    else:
                        node = np.int32(_compatible(vector, heads, links, linked, vectors, y))
                        if node < 0:
                            node = np.int32(sizes[NODES])
                            vectors[node] = vector
                            open_[node] = True
                            sizes[NODES] += 1
                        for m in range(M):
                            if vector[m] >= 0 and vectors[node, m] < 0:
                                vectors[node, m] = vector[m]
                                open_[node] = True
                    keys[slot], nodes[slot] = code, node
                    sizes[USED] += 1
                    if listed < 0:
                        _, bare_slot = _find(bare, vector, vectors, keys, nodes)
                        keys[bare_slot], nodes[bare_slot] = bare, node
                        sizes[USED] += 1
                    if node != i:
                        links[sizes[LINKS]], linked[sizes[LINKS]] = heads[y], node
                        heads[y] = sizes[LINKS]
                        sizes[LINKS] += 1
                if full:
                    open_[i] = True
                    return False
            i += 1
    return True


@njit(cache=True)
def list_entries(
    A, starts, sight, successor, probability, widest, vectors, keys, nodes, heads,
    row_starts, seen_by_row, target_by_row, split,
):  # fmt: skip
    """List what can be seen in each row i A + a of nodes and where it leads; returns how many.

    With an empty `seen_by_row` they are only counted. Sets `split` of a node to which two sights of
    one row lead that say different things about the context.
    """
    M, N = vectors.shape[1], vectors.shape[0]
    first = np.full(heads.size, -1, np.int64)
    room = M * widest
    entries, contexts, after = (
        np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    )  # fmt: skip
    seen = np.empty(min(room, heads.size), np.int64)
    vector = np.empty(M, np.int32)
    leads, chance, total = np.full(N, -1, np.int64), np.empty((2, M)), np.empty(2)
    n = 0
    for i in range(N):
        for a in range(A):
            row_starts[i * A + a] = n
            count = _by_sight(
                vectors[i], a, A, starts, sight, first, entries, contexts, after, seen
            )
            n += count
            if seen_by_row.size == 0:
                for k in range(count):
                    first[seen[k]] = -1
                continue
            begin = row_starts[i * A + a]
            for k in range(count):
                y = seen[k]
                vector[:] = -1
                link = first[y]
                while link >= 0:
                    vector[contexts[link]] = successor[entries[link]]
                    link = after[link]
                node, _ = _find(_hash(vector, y), vector, vectors, keys, nodes)
                seen_by_row[begin + k], target_by_row[begin + k] = y, node
                if leads[node] < 0:
                    leads[node] = y  # the sight with which others to the same node are compared
                elif not split[node]:
                    chance[:] = 0.0
                    total[:] = 0.0
                    for side in range(2):
                        link = first[leads[node] if side == 0 else y]
                        while link >= 0:
                            chance[side, contexts[link]] += probability[entries[link]]
                            total[side] += probability[entries[link]]
                            link = after[link]
                    # Shares of contexts that differ by more than rounding tell something.
                    for m in range(M):
                        gap = chance[0, m] / total[0] - chance[1, m] / total[1]
                        split[node] = split[node] or abs(gap) > 1e-9
            for k in range(count):
                leads[target_by_row[begin + k]] = -1
                first[seen[k]] = -1
    row_starts[N * A] = n
    return n


@njit(cache=True)
def join_contexts(columns, group):
    """Number groups of contexts that are nowhere in different states; returns how many there are.

    `columns` (M, n) are the states of each context; those of a group's first member are filled in
    from the others.
    """
    leaders = np.empty(columns.shape[0], np.int64)
    count = 0
    for m in range(columns.shape[0]):
        group[m] = -1
        for g in range(count):
            column, differs = columns[leaders[g]], False
            for i in range(column.size):
                if column[i] >= 0 and columns[m, i] >= 0 and column[i] != columns[m, i]:
                    differs = True
                    break
            if not differs:
                group[m] = g
                for i in range(column.size):
                    if column[i] < 0:
                        column[i] = columns[m, i]
                break
        if group[m] < 0:
            group[m], leaders[count] = count, m
            count += 1
    return count


class Vectors(NamedTuple):
    """Distinct vectors, with room for more."""

    known: Any  # (room, G)
    slots: Any  # (4 room,): open-addressed table of their numbers, -1 where a slot is empty
    size: Any  # (1,): how many there are


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
def enter(some, vectors):
    """Enter vectors (n, G)."""
    for i in range(some.shape[0]):
        _number(some[i], vectors)


@njit(cache=True)
def fill_rows(
    A, starts, sight, probability, paid, vectors, row_starts, seen_by_row, place, mixed_as, share,
    members, member_starts, node_of_state, outcome_starts, chances, pattern, earned, pay, where, s,
):  # fmt: skip
    """Number the probabilities of outcomes and the mean rewards of rows, by group of contexts.

    Fills pattern (n,) and pay (S A,) from state s on with numbers among `chances` and `earned`
    (`Vectors`); returns the state at which one of them has no more room, or S.

    `place` says which outcome of its row a sight is. A group does what its first member does that
    is in the node; in a node with a row of `share` (k, M), mixed_as[i] >= 0, what its members do,
    mixed by that row. A group that cannot be there does what the first does that can. `where` has
    room for every sight.
    """
    G, widest = member_starts.size - 1, 1
    for row in range(outcome_starts.size - 1):
        widest = max(widest, outcome_starts[row + 1] - outcome_starts[row])
    total, only = np.empty(G), np.empty(G, np.int64)
    paid_here, probs = np.empty(G), np.empty((widest, G))
    while s < node_of_state.size:
        i = node_of_state[s]
        if s > 0 and node_of_state[s - 1] == i:  # the same node after another sight
            begin, end = outcome_starts[s * A], outcome_starts[(s + 1) * A]
            for k in range(begin, end):
                pattern[k] = pattern[k - (end - begin)]
            for a in range(A):
                pay[s * A + a] = pay[(s - 1) * A + a]
            s += 1
            continue
        if chances.size[0] + A * widest > len(chances.known) or earned.size[0] + A > len(
            earned.known
        ):
            return s
        example = -1
        for g in range(G):
            total[g], only[g] = 0.0, -1
            for k in range(member_starts[g], member_starts[g + 1]):
                m = members[k]
                if vectors[i, m] >= 0:
                    only[g] = m if only[g] < 0 else only[g]
                    total[g] += share[mixed_as[i], m] if mixed_as[i] >= 0 else 0.0
            if only[g] >= 0 and example < 0:
                example = g
        for a in range(A):
            begin, end = outcome_starts[s * A + a], outcome_starts[s * A + a + 1]
            paid_here[:] = 0.0
            probs[: end - begin] = 0.0
            for k in range(row_starts[i * A + a], row_starts[i * A + a + 1]):
                where[seen_by_row[k]] = place[k]
            for g in range(G):
                if begin == end:  # a terminal state
                    break
                for k in range(member_starts[g], member_starts[g + 1]):
                    m = members[k]
                    if vectors[i, m] < 0 or (total[g] == 0.0 and m != only[g]):
                        continue
                    part = share[mixed_as[i], m] / total[g] if total[g] > 0.0 else 1.0
                    row = np.int64(vectors[i, m]) * A + a
                    for e in range(starts[row], starts[row + 1]):
                        paid_here[g] += part * probability[e] * paid[e]
                        probs[where[sight[e]], g] += part * probability[e]
            for g in range(G):
                if only[g] < 0:
                    paid_here[g] = paid_here[example]
                    for k in range(end - begin):
                        probs[k, g] = probs[k, example]
            pay[s * A + a] = _number(paid_here, earned)
            for k in range(end - begin):
                pattern[begin + k] = _number(probs[k], chances)
        s += 1
    return s
