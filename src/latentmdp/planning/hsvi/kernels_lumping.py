"""Loops that find which (state, context) pairs have the same future, see `lumping`."""

from typing import Any

import numpy as np

from latentmdp._kernels import njit

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


@njit(**INNER)
def label_row(keys, slots, out, i):
    """Number the distinct keys (M,) in the order they come, into out[i] (M,).

    `slots` is a table of hashes with more than M places, filled with -1, also afterwards.
    """
    size, count = np.uint64(slots.shape[0]), 0
    for m in range(keys.shape[0]):
        h = mix(keys[m]) % size
        while slots[h] >= 0 and keys[slots[h]] != keys[m]:
            h = (h + np.uint64(1)) % size
        if slots[h] < 0:
            slots[h], out[i, m] = m, count
            count += 1
        else:
            out[i, m] = out[i, slots[h]]
    slots[:] = -1


@njit(**INNER)
def rounded(value, scale):
    """The multiple of 2^-40 times the scale that a number rounds to: those with the same are the
    same.
    """
    return np.uint64(np.int64(np.rint(value / scale * 2.0**40)))


@njit(cache=True, nogil=True)
def label(start, stop, vectors, scale, out):
    """Number the distinct numbers of each vector in the order they come, zero with -1."""
    M = vectors.shape[1]
    slots, row = np.full(4 * M, -1, np.int32), np.empty(M, np.uint64)
    for i in range(start, stop):
        for m in range(M):
            row[m] = rounded(vectors[i, m], scale)
        label_row(row, slots, out, i)
        for m in range(M):
            if row[m] == np.uint64(0):
                out[i, m] = -1


@njit(cache=True, nogil=True)
def sign_states(starts, n_actions, units, n_units, paid, n_kinds, out):
    """Keys out (S,) of states: the same where all kinds of outcomes and rewards are.

    `units` (n,) are the kinds of outcomes, paid (S A,) those of rewards. How often a kind occurs
    plays no part.
    """
    seen, earned = np.full(n_units, -1), np.full(n_kinds, -1)
    for s in range(out.shape[0]):
        key = np.uint64(0)
        for row in range(s * n_actions, (s + 1) * n_actions):
            if earned[paid[row]] != s:
                earned[paid[row]] = s
                key += mix(np.uint64(n_units + paid[row] + 1))
            for k in range(starts[row], starts[row + 1]):
                if seen[units[k]] != s:
                    seen[units[k]] = s
                    key += mix(np.uint64(units[k] + 1))
        out[s] = key


@njit(cache=True, nogil=True)
def split_contexts(
    start, stop, states, table, n_actions, units, n_units, kind, paid, kinds, part, rows, out
):
    """Number the contexts of states by what they say of outcomes, rewards and classes that follow.

    Outcome k has the kind kind[k], row s A + a earns by the kind paid[s A + a]: a row of `kinds`,
    which numbers alike contexts alike and those where it is impossible -1. State n has the classes
    rows[part[n]]. Outcomes with the same number units[k] have the same kind, and the same classes
    follow. Fills out[start:stop] (., M) for states[start:stop].
    """
    M = kinds.shape[1]
    slots, keys = np.full(4 * M, -1, np.int32), np.empty(M, np.uint64)
    seen = np.full(n_units + kinds.shape[0], -1)
    for i in range(start, stop):
        keys[:] = np.uint64(0)
        for row in range(states[i] * n_actions, (states[i] + 1) * n_actions):
            for k in range(table.starts[row] - 1, table.starts[row + 1]):
                first = k < table.starts[row]  # the row's reward comes before its outcomes
                which = paid[row] if first else kind[k]
                unit = n_units + which if first else units[k]
                if seen[unit] == i:
                    continue
                seen[unit] = i
                salt, d = mix(np.uint64(unit + 1)), -1 if first else part[table.next_state[k]]
                for m in range(M):
                    # A class and a number have 32 bits each; what is impossible leads nowhere.
                    c = 0 if d < 0 or kinds[which, m] < 0 else rows[d, m]
                    value = np.uint64(kinds[which, m] + 1) << np.uint64(32) | np.uint64(c)
                    keys[m] += mix(salt ^ value)
        label_row(keys, slots, out, i)


@njit(cache=True, nogil=True)
def hash_pairs(start, stop, table, allowed, rewards, scale, pairs, salt, before, out):
    """A key of every pair of the states start..stop-1 from the numbers of those that follow it.

    `rewards` are those of rows, `scale` the largest. salt (N,) keeps pairs apart, before (N,) are
    numbers so far. The keys of the outcomes of an action are added, so their order does not matter.
    """
    n_actions, totals = allowed.shape[1], np.empty(pairs.rows.shape[1], np.uint64)
    for s in range(start, stop):
        first, end, part = pairs.first[s], pairs.first[s + 1], pairs.part[s]
        out[first:end] = salt[first:end]
        contexts = pairs.context[pairs.begin[part] : pairs.begin[part + 1]]
        for a in range(n_actions):
            row = s * n_actions + a
            for c in range(end - first):
                paid = rewards.distinct[rewards.pattern[row], contexts[c]]
                totals[c] = np.uint64(2 * a + allowed[s, a]) + rounded(paid, scale)
            for k in range(table.starts[row], table.starts[row + 1]):
                n, p = table.next_state[k], table.pattern[k]
                begin, after = pairs.first[n], pairs.part[n]
                for c in range(end - first):
                    m = contexts[c]
                    chance = rounded(table.distinct[p, m], 1.0)
                    if chance > np.uint64(0):
                        then = np.uint64(before[begin + pairs.rows[after, m]])
                        totals[c] += mix(chance + then * np.uint64(0x9E3779B97F4A7C15))
            for c in range(end - first):
                out[first + c] = mix(out[first + c] + mix(totals[c]))


@njit(cache=True, nogil=True)
def keep_apart(first, like, last, salt):
    """Keep pairs of one state with the same number apart: an outcome there tells which it is.

    All but the first get a salt by their order. `last`, filled with -1, is room for all numbers.
    Returns whether there were any.
    """
    rank, found = np.zeros(last.shape[0], np.int64), False
    for s in range(first.shape[0] - 1):
        for j in range(first[s], first[s + 1]):
            i = like[j]
            rank[i] = rank[i] + 1 if last[i] == s else 0
            last[i] = s
            if rank[i] > 0:
                salt[j], found = mix(salt[j] + np.uint64(rank[i])), True
    return found


@njit(cache=True, nogil=True)
def choose_leaders(order, first, like, holder, leader, lead):
    """Put each state, those with most classes first, to a leader that has all of its pairs.

    Fills leader (S,) and lead (N,): the class of each pair among those of the leader; a state that
    leads itself keeps what is there. `holder` is room for all numbers of pairs, filled with -1.
    """
    place = np.empty(holder.shape[0], np.int64)
    for s in order:
        r = holder[like[first[s]]]
        for j in range(first[s], first[s + 1]):
            if holder[like[j]] != r:
                r = -1
        leader[s] = s if r < 0 else r
        for j in range(first[s], first[s + 1]):
            if r >= 0:
                lead[j] = place[like[j]]
            elif holder[like[j]] < 0:
                holder[like[j]], place[like[j]] = s, j - first[s]


@njit(cache=True, nogil=True)
def check_leaders(start, stop, table, n_actions, longest, pairs, leader, lead, position, failed):
    """Match the outcomes of the states start..stop-1 with those of their leaders.

    Fills position (n,): which outcome of the leader's row each outcome is, counted from the row's
    first; and failed (S,): whether some of them do not match. No row has more than `longest`.
    """
    used = np.empty(longest, np.bool_)
    for s in range(start, stop):
        r, failed[s] = leader[s], False
        for a in range(n_actions):
            begin, end = table.starts[s * n_actions + a], table.starts[s * n_actions + a + 1]
            first, last = table.starts[r * n_actions + a], table.starts[r * n_actions + a + 1]
            used[: last - first] = False
            failed[s] = failed[s] or (begin < end) != (first < last)
            for k in range(begin, begin if failed[s] else end):
                j = first if r != s else first + k - begin
                while j < last and r != s:
                    if not used[j - first] and _same(table, k, j, s, r, pairs, leader, lead):
                        break
                    j += 1
                if j == last:
                    failed[s] = True
                    break
                used[j - first], position[k] = True, j - first


@njit(cache=True, nogil=True)
def _same(table, k, j, s, r, pairs, leader, lead):
    """Whether outcome k of state s is outcome j of its leader r, class by class."""
    n, other = table.next_state[k], table.next_state[j]
    if leader[n] != leader[other]:
        return False
    mine, theirs = pairs.begin[pairs.part[s]], pairs.begin[pairs.part[r]]
    for c in range(pairs.first[s + 1] - pairs.first[s]):
        m, like = pairs.context[mine + c], pairs.context[theirs + lead[pairs.first[s] + c]]
        p = table.distinct[table.pattern[k], m]
        if abs(p - table.distinct[table.pattern[j], like]) > 1e-11:
            return False
        after = pairs.first[n] + pairs.rows[pairs.part[n], m]
        expected = pairs.first[other] + pairs.rows[pairs.part[other], like]
        if p > 0.0 and lead[after] != lead[expected]:
            return False
    return True


@njit(cache=True, nogil=True)
def restrict(vectors, which, part, pairs, out):
    """Write what vectors[which[i]] says of the classes of partition part[i] to out, one by one."""
    n = 0
    for i in range(which.shape[0]):
        for c in range(pairs.begin[part[i]], pairs.begin[part[i] + 1]):
            out[n] = vectors[which[i], pairs.context[c]]
            n += 1


@njit(cache=True, nogil=True)
def follow_classes(
    probs, pattern, lengths, members, member, part, pairs, straight, target, shift
):  # fmt: skip
    """Write the classes that follow those of partition part[i] by members[member[i]] to target.

    From shift[i] on, 0 where P(k | class), from probs[pattern[i]] on, is 0; or, where straight[i]
    and all others stay what they are, nowhere: shift[i] is -1. Returns how many are written.
    """
    n = 0
    for i in range(pattern.shape[0]):
        goes_straight = straight[i]
        for c in range(lengths[i]):
            then, possible = members[member[i], pairs.context[pairs.begin[part[i]] + c]], True
            if probs[pattern[i] + c] <= 0.0:
                then, possible = 0, False
            goes_straight = goes_straight and (then == c or not possible)
            target[n + c] = then
        shift[i] = -1 if goes_straight else n
        n += 0 if goes_straight else lengths[i]
    return n


@njit(cache=True, nogil=True)
def flatten(problem, n_actions, starts, next_state, probs):
    """Steps of the MDP whose states are the classes of all states, see `Lumping.flat`.

    Several outcomes may lead to the same class: a step there has their sum. Returns how many steps
    there are; without room for them, `starts` and this are all.
    """
    steps, row, place = 0, 0, np.full(problem.first[-1], -1)
    for x in range(problem.width.size):
        for c in range(problem.width[x]):
            for a in range(x * n_actions, (x + 1) * n_actions):
                starts[row] = steps
                for k in range(problem.starts[a], problem.starts[a + 1]):
                    p, shift = problem.probs[problem.pattern[k] + c], problem.shift[k]
                    d = c if shift < 0 else problem.target[shift + c]
                    n = problem.first[problem.next_state[k]] + d
                    if p > 0.0 and place[n] < starts[row]:
                        place[n] = steps
                        steps += 1
                        if probs.size > 0:
                            next_state[place[n]], probs[place[n], 0] = n, 0.0
                    if p > 0.0 and probs.size > 0:
                        probs[place[n], 0] += p
                row += 1
    starts[row] = steps
    return steps
