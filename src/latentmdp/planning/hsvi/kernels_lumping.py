"""Loops that find which (state, context) pairs have the same future, see `lumping`."""

from typing import Any

import numpy as np
from numba import njit

KERNEL: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
INNER: dict[str, Any] = {**KERNEL, "forceinline": True}
"""Of kernels, and of small loops that they call, which become part of them. They count no
references: a tuple of arrays that is taken apart, or a slice, would be counted each time, which
takes three to ten times as long as the loops. So nothing may be allocated in them."""


@njit(**INNER)
def mix(x):
    """Scramble 64 bits (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def hash_pairs(start, stop, table, chances, allowed, pay, earned, salt, before, out):
    """A key of every pair of the states start..stop-1 from the classes of those that follow it.

    `chances` (P, M) and earned (Q, M) are keys of probabilities, 0 for none, and of rewards: row
    s A + a earns earned[pay[s A + a]]. `salt` (S, M) keeps pairs apart, `before` (S, M) are classes
    so far. The keys of the outcomes of an action are added, so their order does not matter.
    """
    n_actions = allowed.shape[1]
    M = before.shape[1]
    total, key = np.empty(M, np.uint64), np.empty(M, np.uint64)
    for s in range(start, stop):
        for m in range(M):
            key[m] = salt[s, m]
        for a in range(n_actions):
            row = s * n_actions + a
            for m in range(M):
                total[m] = np.uint64(2 * a + allowed[s, a])
            for k in range(table.starts[row], table.starts[row + 1]):
                n, p = table.next_state[k], table.pattern[k]
                for m in range(M):
                    if chances[p, m] > np.uint64(0):
                        total[m] += mix(chances[p, m] + mix(np.uint64(before[n, m])))
            for m in range(M):
                key[m] = mix(key[m] + mix(total[m] + earned[pay[row], m]))
        for m in range(M):
            out[s, m] = key[m]


@njit(cache=True, nogil=True)
def split_classes(start, stop, table, n_actions, pairs, count, salt, failed):
    """Keep contexts of one of `count` classes apart whose outcomes in a state do not match.

    What follows an action may be the same for both, but after other outcomes: then the outcome
    tells them apart. Such a context of the states start..stop-1 gets a salt of its own among those
    of its class, and failed[s] is set.
    """
    M = pairs.shape[1]
    first = np.full(count, M, np.int64)  # context of each class, beyond all where there is none
    for s in range(start, stop):
        for m in range(M):
            rank = 0
            for other in range(first[pairs[s, m]], m):
                if pairs[s, other] == pairs[s, m]:
                    if _match(table, n_actions, pairs, s, m, other):
                        rank = int(salt[s, other])
                        break
                    rank = max(rank, int(salt[s, other]) + 1)
            first[pairs[s, m]] = min(m, first[pairs[s, m]])
            if rank != salt[s, m]:
                salt[s, m], failed[s] = rank, True
        for m in range(M):
            first[pairs[s, m]] = M


@njit(cache=True, nogil=True)
def _match(table, n_actions, pairs, s, m, other):
    """Whether each outcome of a state is as likely in both contexts and leads to the same class."""
    for k in range(table.starts[s * n_actions], table.starts[(s + 1) * n_actions]):
        p, n = table.distinct[table.pattern[k], m], table.next_state[k]
        if abs(p - table.distinct[table.pattern[k], other]) > 1e-11:
            return False
        if p > 0.0 and pairs[n, m] != pairs[n, other]:
            return False
    return True


@njit(cache=True, nogil=True)
def number_classes(pairs, number, own, counts, contexts):
    """Number the classes of each state in the order of their first contexts.

    `pairs` (S, M) are class numbers; fills own (S, M), counts (S,) and contexts (S, M), where
    contexts[s, :counts[s]] are the first contexts of the classes. `number` is room for all classes,
    filled with -1.
    """
    S, M = pairs.shape
    for s in range(S):
        count = 0
        for m in range(M):
            if number[pairs[s, m]] < 0:
                number[pairs[s, m]] = count
                contexts[s, count] = m
                count += 1
            own[s, m] = number[pairs[s, m]]
        counts[s] = count
        for c in range(count):
            number[pairs[s, contexts[s, c]]] = -1


@njit(cache=True, nogil=True)
def choose_leaders(order, pairs, own, counts, contexts, holder, place, leader, classes):
    """Put each state, those with most classes first, to a leader that has all of its classes.

    Fills leader (S,) and classes (S, M): the class of each context among those of the leader.
    `holder`, filled with -1, and `place` are room for all classes.
    """
    S, M = pairs.shape
    for i in range(S):
        s = order[i]
        r = holder[pairs[s, 0]]
        for c in range(counts[s]):
            if holder[pairs[s, contexts[s, c]]] != r:
                r = -1
        leader[s] = s if r < 0 else r
        for m in range(M):
            classes[s, m] = own[s, m] if r < 0 else place[pairs[s, m]]
        if r < 0:
            for c in range(counts[s]):
                pair = pairs[s, contexts[s, c]]
                if holder[pair] < 0:
                    holder[pair], place[pair] = s, c


@njit(cache=True, nogil=True)
def check_leaders(table, n_actions, own, contexts, leader, classes, position):
    """Match the outcomes of each state with those of its leader; a state that fails leads itself.

    Fills position (n,): which outcome of the leader's row each outcome is, counted from the row's
    first. Returns how many states failed: then those that rely on them must be checked again.
    """
    S = own.shape[0]
    failed = 0
    used = np.zeros(table.next_state.size, np.bool_)
    for s in range(S):
        r, good = leader[s], True
        for a in range(n_actions):
            begin, end = table.starts[s * n_actions + a], table.starts[s * n_actions + a + 1]
            first, last = table.starts[r * n_actions + a], table.starts[r * n_actions + a + 1]
            if r == s:
                for k in range(begin, end):
                    position[k] = k - begin
                continue
            for j in range(first, last):
                used[j] = False
            good = good and (begin < end) == (first < last)
            for k in range(begin, end):
                match = -1
                for j in range(first, last):
                    if (
                        match < 0
                        and not used[j]
                        and _same(table, k, j, s, r, contexts, leader, classes)
                    ):
                        match = j
                if match < 0:
                    good = False
                else:
                    used[match], position[k] = True, match - first
        if not good:
            failed += 1
            leader[s] = s
            classes[s] = own[s]
    return failed


@njit(cache=True, nogil=True)
def _same(table, k, j, s, r, contexts, leader, classes):
    """Whether outcome k of state s is outcome j of its leader r, class by class."""
    n, other = table.next_state[k], table.next_state[j]
    if leader[n] != leader[other]:
        return False
    for m in range(classes.shape[1]):
        p, like = table.distinct[table.pattern[k], m], contexts[r, classes[s, m]]
        if abs(p - table.distinct[table.pattern[j], like]) > 1e-11:
            return False
        if p > 0.0 and classes[n, m] != classes[other, like]:
            return False
    return True


@njit(cache=True, nogil=True)
def fill_problem(
    table, n_actions, paid, rewards, leaders, number, contexts, classes, width, starts, next_state,
    pattern, shift, probs, target, pay, earned,
):  # fmt: skip
    """Write the rows of the leaders, see `LumpedProblem`; returns how many entries arrays have.

    Called first with arrays of no entries to count them. `table` has the rows of the leaders only;
    row s A + a of the model earns rewards[paid[s A + a]], (M,).
    """
    room, entries, row_entries, k_out = 0, 0, 0, 0
    counting = starts.size == 0
    for x in range(leaders.size):
        s, C = leaders[x], width[x]
        for a in range(n_actions):
            row = x * n_actions + a
            if not counting:
                pay[row] = row_entries
                for c in range(C):
                    earned[row_entries + c] = rewards[paid[s * n_actions + a], contexts[s, c]]
            row_entries += C
            for k in range(table.starts[row], table.starts[row + 1]):
                n = table.next_state[k]
                y = number[n]
                straight = width[y] == C
                for c in range(C):
                    m = contexts[s, c]
                    if table.distinct[table.pattern[k], m] > 0.0 and classes[n, m] != c:
                        straight = False
                if not counting:
                    next_state[k_out], pattern[k_out] = y, entries
                    shift[k_out] = -1 if straight else room
                    for c in range(C):
                        m = contexts[s, c]
                        probs[entries + c] = table.distinct[table.pattern[k], m]
                        if not straight:
                            target[room + c] = (
                                classes[n, m] if table.distinct[table.pattern[k], m] > 0.0 else 0
                            )
                entries += C
                k_out += 1
                if not straight:
                    room += C
            if not counting:
                starts[row + 1] = k_out
    return k_out, entries, room, row_entries


@njit(cache=True, nogil=True)
def flatten(problem, n_actions, first, starts, next_state, probs):
    """Steps of the MDP whose states are the classes of all states, see `Lumping.flat`.

    Called first with arrays of no entries to count them.
    """
    counting, i = next_state.size == 0, 0
    for x in range(problem.width.size):
        for c in range(problem.width[x]):
            for a in range(n_actions):
                row = x * n_actions + a
                for k in range(problem.starts[row], problem.starts[row + 1]):
                    p = problem.probs[problem.pattern[k] + c]
                    if p > 0.0:
                        if not counting:
                            shift = problem.shift[k]
                            d = c if shift < 0 else problem.target[shift + c]
                            next_state[i] = first[problem.next_state[k]] + d
                            probs[i, 0] = p
                        i += 1
                if not counting:
                    starts[(first[x] + c) * n_actions + a + 1] = i
    return i


@njit(cache=True, nogil=True)
def number_keys(keys, out):
    """Number the distinct keys (n,) in the order they come, into out (n,); returns how many."""
    count, slots = 0, np.full(1 << 10, -1, np.int32)  # a table of hashes: the first place of each
    for i in range(keys.shape[0]):
        if 2 * count >= slots.shape[0]:
            known, slots = slots, np.full(4 * slots.shape[0], -1, np.int32)
            last = np.uint64(slots.shape[0] - 1)
            for j in known:
                if j >= 0:
                    h = keys[j] & last
                    while slots[h] >= 0:
                        h = (h + np.uint64(1)) & last
                    slots[h] = j
        last = np.uint64(slots.shape[0] - 1)
        h = keys[i] & last
        while slots[h] >= 0 and keys[slots[h]] != keys[i]:
            h = (h + np.uint64(1)) & last
        if slots[h] < 0:
            slots[h], out[i] = i, count
            count += 1
        else:
            out[i] = out[slots[h]]
    return count
