"""Loops over sets of contexts that may still be the one, see `sets`."""

from typing import NamedTuple

import numpy as np

from latentmdp._kernels import njit
from latentmdp.planning.hsvi.kernels_lumping import INNER, KERNEL, mix

NOTHING = 1e-12
"""A share of a mass that rounding may leave of it."""


class Sets(NamedTuple):
    """Sets of classes by state, with an upper bound at the reference belief of each.

    A set's mass is the reference restricted to it. `best` holds the values of the classes alone.
    """

    state: np.ndarray  # (n,)
    words: np.ndarray  # (n, words): the classes, 64 bits each
    slots: np.ndarray  # (2^k,): sets by the hash of (state, words), -1 where there is none
    reference: np.ndarray  # (all classes,)
    value: np.ndarray  # (layers, n + points of grids): upper bounds of the masses, then of grids
    best: np.ndarray  # (layers, all classes)
    cells: np.ndarray  # (n,): cells along a side of the set's grid, 0 where it has none
    grid: np.ndarray  # (n,): where its points begin in `value`
    binomial: np.ndarray  # (i, j): i choose j


class Room(NamedTuple):
    """Working memory of one thread."""

    belief: np.ndarray  # (widest,)
    mass: np.ndarray  # (widest,)
    rest: np.ndarray  # (widest,)
    ratio: np.ndarray  # (widest,): of each class, its mass for a unit of the reference
    heap: np.ndarray  # (widest,): classes, that with the smallest ratio first
    classes: np.ndarray  # (widest,): those of a set
    key: np.ndarray  # (words,)
    before: np.ndarray  # (words,)
    part: np.ndarray  # (most classes of a grid,): coordinates, then their fractions
    corner: np.ndarray  # (most classes of a grid,): a point of the grid
    sums: np.ndarray  # (most classes of a grid + 1,): sums of its last coordinates


def make_room(widest: int, n_words: int, sides: int) -> Room:
    """Working memory, for grids of fewer than `sides` classes."""
    floats = (np.empty(widest) for _ in range(4))
    integers = (np.empty(widest, np.int64) for _ in range(2))
    words = (np.empty(n_words, np.uint64) for _ in range(2))
    sums = np.empty(sides + 1, np.int64)
    return Room(*floats, *integers, *words, np.empty(sides), np.empty(sides, np.int64), sums)


@njit(**INNER)
def find(state, words, slots, x, key):
    """The slot of a set of state x, which is empty (-1) if the set is not listed."""
    h = np.uint64(x)
    for w in range(key.shape[0]):
        h = mix(h + key[w])
    last = np.uint64(slots.shape[0] - 1)
    h &= last
    while slots[h] >= 0:
        i = slots[h]
        same = state[i] == x
        for w in range(key.shape[0]):
            same = same and words[i, w] == key[w]
        if same:
            return h
        h = (h + np.uint64(1)) & last
    return h


@njit(**INNER)
def support(mass, width, key):
    """Write the classes that have mass into key, and return how many they are."""
    count = 0
    for w in range(key.shape[0]):
        key[w] = np.uint64(0)
    for c in range(width):
        if mass[c] > 0.0:
            key[c >> 6] |= np.uint64(1) << np.uint64(c & 63)
            count += 1
    return count


@njit(**INNER)
def peel(reference, first, mass, width):
    """Take the largest multiple of the reference from what has mass; returns the factor.

    The reference of the state's classes begins at `first`. (No slices here and in what follows: a
    view of an array is counted, which takes as long as the loop.)
    """
    ratio = np.inf
    for c in range(width):
        if mass[c] > 0.0:
            ratio = min(ratio, mass[c] / reference[first + c])
    for c in range(width):
        if mass[c] > 0.0:
            rest = mass[c] - ratio * reference[first + c]
            mass[c] = rest if rest > NOTHING * mass[c] else 0.0
    return ratio


@njit(**INNER)
def sink(heap, ratio, i, n):
    """Move entry i of a heap of n classes down to its place."""
    c = heap[i]
    while True:
        j = 2 * i + 1
        if j >= n:
            break
        if j + 1 < n and ratio[heap[j + 1]] < ratio[heap[j]]:
            j += 1
        if ratio[heap[j]] >= ratio[c]:
            break
        heap[i] = heap[j]
        i = j
    heap[i] = c


@njit(**INNER)
def set_bound(sets, problem, layer, x, mass, room):
    """An upper bound at the unnormalised belief `mass` in state x.

    As long as the contexts that have mass are a listed set, its reference is taken from them, or
    all of it is interpolated where the set has a grid. The rest has the values of its classes.
    """
    first, width = problem.first[x], problem.width[x]
    key, heap, ratio, reference = room.key, room.heap, room.ratio, sets.reference
    n = support(mass, width, key)
    total, level, j = 0.0, 0.0, 0
    for c in range(width):
        if mass[c] > 0.0:
            heap[j], ratio[c] = c, mass[c] / reference[first + c]
            j += 1
    is_heap = False
    while n > 1:
        i = sets.slots[find(sets.state, sets.words, sets.slots, x, key)]
        if i < 0:
            break
        if sets.cells[i] > 0:
            for c in range(width):
                room.rest[c] = 0.0
            for j in range(n):
                c = heap[j]
                room.rest[c] = mass[c] - level * reference[first + c]
            return total + interpolate(sets, layer, i, room.rest, width, n, room)
        if not is_heap:
            is_heap = True
            for j in range(n // 2 - 1, -1, -1):
                sink(heap, ratio, j, n)
        total += (ratio[heap[0]] - level) * sets.value[layer, i]
        level = ratio[heap[0]]
        while n > 0 and ratio[heap[0]] * (1.0 - NOTHING) <= level:
            c = heap[0]
            key[c >> 6] &= ~(np.uint64(1) << np.uint64(c & 63))
            n -= 1
            heap[0] = heap[n]
            sink(heap, ratio, 0, n)
    for j in range(n):
        c = heap[j]
        total += (mass[c] - level * reference[first + c]) * sets.best[layer, first + c]
    return total


@njit(**INNER)
def interpolate(sets, layer, i, rest, width, count, room):
    """The value at `rest`, all of whose `count` classes are set i, from the grid of the set.

    The grid's points have coordinates that are multiples of 1 / n; sums of their last coordinates,
    n >= x_1 >= .. >= x_{count-1} >= 0, number them. A belief lies in the simplex of the points
    that are met when its sums are rounded up one by one, that with the largest fraction first.
    """
    n, part, corner = sets.cells[i], room.part, room.corner
    total, j = 0.0, count
    for c in range(width - 1, -1, -1):
        if rest[c] > 0.0:
            total += rest[c]
            j -= 1
            part[j] = total
    sides = count - 1
    for j in range(1, count):
        y = min(part[j] / total * n, float(n))
        corner[j] = min(int(y), n - 1)
        part[j] = y - corner[j]
    place = sets.grid[i]
    for j in range(1, count):
        place += sets.binomial[corner[j] + sides - j, count - j]
    bound, before = 0.0, 1.0
    for _ in range(sides):
        top = 1
        for j in range(2, count):
            if part[j] > part[top]:
                top = j
        bound += (before - part[top]) * sets.value[layer, place]
        before, part[top] = part[top], -1.0
        place += sets.binomial[corner[top] + sides - top, count - 1 - top]
        corner[top] += 1
    return total * (bound + before * sets.value[layer, place])


@njit(**KERNEL)
def back_up_grids(start, stop, problem, sets, layer, later, ends, known, chosen, out, room):
    """Write the backups of the grid points of the sets chosen[start:stop] to out, as `value[0]`.

    Points at which a class of the set has no mass are points of smaller sets: they must be there.
    With `known`, what they earn if the context were known, in place of backups.
    """
    A = problem.allowed.shape[1]
    belief, mass, classes, x = room.belief, room.mass, room.classes, room.sums
    for j in range(start, stop):
        i = chosen[j]
        s, n, count = sets.state[i], sets.cells[i], 0
        width = problem.width[s]
        for c in range(width):
            belief[c] = 0.0
            if sets.words[i, c >> 6] >> np.uint64(c & 63) & np.uint64(1):
                classes[count] = c
                count += 1
        for d in range(count + 1):
            x[d] = 0
        x[0] = n
        place = sets.grid[i]
        while True:
            inner, alone = True, 0.0
            for d in range(count):
                belief[classes[d]] = (x[d] - (x[d + 1] if d + 1 < count else 0)) / n
                inner = inner and belief[classes[d]] > 0.0
                alone += belief[classes[d]] * sets.best[layer, problem.first[s] + classes[d]]
            if known:
                out[place] = alone
            elif not inner:
                out[place] = set_bound(sets, problem, layer, s, belief, room)
            else:
                best, over = -np.inf, True
                for a in range(A):
                    if not problem.allowed[s, a]:
                        continue
                    row, value, over = s * A + a, 0.0, False
                    for c in range(width):
                        value += belief[c] * problem.earned[problem.pay[row] + c]
                    begin = problem.starts[row]
                    for k in range(begin, begin if ends else problem.starts[row + 1]):
                        push(problem, k, width, belief, mass)
                        value += problem.discount * set_bound(
                            sets, problem, later, problem.next_state[k], mass, room
                        )
                    best = max(best, value)
                if not over:
                    out[place] = min(out[place], best)
            place += 1
            # The next point in the order of their numbers: the last sum that may rise does.
            d = count - 1
            while d > 0 and x[d] == x[d - 1]:
                x[d] = 0
                d -= 1
            if d == 0:
                break
            x[d] += 1


@njit(cache=True, nogil=True)
def list_layers(problem, reference, starts, value, words):
    """The layers of each outcome's pattern: their rising values, and the classes at or above each.

    Fills starts (n + 1,), value (n most,) and words (n most, words). An outcome has none listed if
    its classes move, or if there would be more than `most`: then there is little to share.
    """
    A, total = problem.allowed.shape[1], 0
    most = value.shape[0] // max(problem.next_state.shape[0], 1)
    levels = np.empty(most + 1)
    starts[0] = 0
    for row in range(problem.starts.shape[0] - 1):
        x = row // A
        width, first = problem.width[x], problem.first[x]
        for k in range(problem.starts[row], problem.starts[row + 1]):
            y, count = problem.next_state[k], 0
            straight = problem.shift[k] < 0
            for c in range(width):
                p = problem.probs[problem.pattern[k] + c]
                straight = straight and reference[first + c] == reference[problem.first[y] + c]
                is_new = p > 0.0
                for j in range(count):
                    is_new = is_new and abs(levels[j] - p) > NOTHING * p
                if is_new and count <= most:
                    j = count
                    while j > 0 and levels[j - 1] > p:
                        levels[j] = levels[j - 1]
                        j -= 1
                    levels[j] = p
                    count += 1
            if straight and count <= most:
                for j in range(count):
                    value[total], words[total, :] = levels[j], np.uint64(0)
                    for c in range(width):
                        if problem.probs[problem.pattern[k] + c] >= levels[j] * (1.0 - NOTHING):
                            words[total, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
                    total += 1
            starts[k + 1] = total


@njit(**INNER)
def number_of(state, words, slots, x, key, n):
    """The number of a set of state x, listed as number n if it was not, and how many there are."""
    slot = find(state, words, slots, x, key)
    if slots[slot] < 0:
        state[n], slots[slot] = x, n
        for w in range(key.shape[0]):
            words[n, w] = key[w]
        return n, n + 1
    return slots[slot], n


@njit(**KERNEL)
def list_sets(
    problem, reference, layers, states, first_words, state, words, slots, rows, child, weight,
    earned, scratch,
):  # fmt: skip
    """List the sets that follow from the given ones, breadth first; returns (sets, expanded).

    Fills state (n,), words (n, words), and for each expanded set i and action a the entries
    rows[i A + a] .. rows[i A + a + 1] - 1 of child and weight, and earned[i A + a]. The arrays'
    room limits how many: sets that are not expanded have no entries. A set of one class is not
    expanded either: its value is known. `layers` are those of `list_layers`.
    """
    A, (layer_starts, layer_value, layer_words) = problem.allowed.shape[1], layers
    n, entries, most = 0, 0, child.shape[0]
    belief, mass, key, before = scratch.belief, scratch.mass, scratch.key, scratch.before
    for i in range(states.shape[0]):
        for w in range(key.shape[0]):
            key[w] = first_words[i, w]
        _, n = number_of(state, words, slots, states[i], key, n)
    i = 0
    rows[0] = 0
    while i < n:
        x, count = state[i], 0
        first, width = problem.first[x], problem.width[x]
        for c in range(width):
            belief[c] = 0.0
            if words[i, c >> 6] >> np.uint64(c & 63) & np.uint64(1):
                belief[c] = reference[first + c]
                count += 1
        more = 0  # entries that this set may take, and sets that it may add
        for k in range(problem.starts[x * A], problem.starts[x * A + A]):
            listed = layer_starts[k + 1] - layer_starts[k]
            more += listed if listed > 0 else min(count, problem.width[problem.next_state[k]])
        if entries + more > most or n + more > state.shape[0]:
            break
        for a in range(A):
            row = x * A + a
            earned[i * A + a] = 0.0
            for c in range(width):
                earned[i * A + a] += belief[c] * problem.earned[problem.pay[row] + c]
            for k in range(problem.starts[row], problem.starts[row + 1] if count > 1 else 0):
                y = problem.next_state[k]
                if layer_starts[k + 1] > layer_starts[k]:
                    # What remains of the set in each layer; a layer that takes nothing away from
                    # it is one with the layer below.
                    begin, below = entries, 0.0
                    for j in range(layer_starts[k], layer_starts[k + 1]):
                        empty, same = True, entries > begin
                        for w in range(key.shape[0]):
                            key[w] = words[i, w] & layer_words[j, w]
                            empty = empty and key[w] == np.uint64(0)
                            same = same and key[w] == before[w]
                        if empty:
                            break
                        if not same:
                            child[entries], n = number_of(state, words, slots, y, key, n)
                            weight[entries] = 0.0
                            entries += 1
                            for w in range(key.shape[0]):
                                before[w] = key[w]
                        weight[entries - 1] += layer_value[j] - below
                        below = layer_value[j]
                else:
                    push(problem, k, width, belief, mass)
                    while support(mass, problem.width[y], key) > 0:
                        child[entries], n = number_of(state, words, slots, y, key, n)
                        weight[entries] = peel(reference, problem.first[y], mass, problem.width[y])
                        entries += 1
            rows[i * A + a + 1] = entries
        i += 1
    return n, i


@njit(**INNER)
def push(problem, k, width, belief, mass):
    """Fill `mass` with the unnormalised belief after outcome k, in its next state; its sum."""
    start, shift = problem.pattern[k], problem.shift[k]
    probs, total = problem.probs, 0.0
    if shift < 0:
        for c in range(width):
            mass[c] = belief[c] * probs[start + c]
            total += mass[c]
        return total
    for c in range(problem.width[problem.next_state[k]]):
        mass[c] = 0.0
    for c in range(width):
        u = belief[c] * probs[start + c]
        mass[problem.target[shift + c]] += u
        total += u
    return total


@njit(**KERNEL)
def known_values(start, stop, problem, sets, layer):
    """Fill value[layer] of the sets start..stop-1: what they earn if the context were known."""
    value = sets.value
    for i in range(start, stop):
        first = problem.first[sets.state[i]]
        value[layer, i] = 0.0
        for c in range(problem.width[sets.state[i]]):
            if sets.words[i, c >> 6] >> np.uint64(c & 63) & np.uint64(1):
                value[layer, i] += sets.reference[first + c] * sets.best[layer, first + c]


@njit(**KERNEL)
def back_up_sets(start, stop, problem, state, rows, child, weight, earned, later, out):
    """Lower out[i] for the expanded sets start..stop-1 to their backup from `later` (n,).

    `later` and `out` may be the same: then sets that come earlier gain from those that come later.
    What follows a set may be the set itself: then the backup is solved for its value. Returns the
    largest change.
    """
    A, change = problem.allowed.shape[1], 0.0
    for i in range(stop - 1, start - 1, -1):
        best, any_action = -np.inf, False
        for a in range(A):
            if not problem.allowed[state[i], a]:
                continue
            value, stays = 0.0, 0.0
            for e in range(rows[i * A + a], rows[i * A + a + 1]):
                if child[e] == i and not problem.ends:
                    stays += weight[e]
                else:
                    value += weight[e] * later[child[e]]
            value = earned[i * A + a] + problem.discount * value
            leaves = 1.0 - problem.discount * stays
            # Without a discount a set may be left too rarely for its value to follow from that.
            best = max(best, value / leaves if leaves > 1e-9 else value + stays * out[i])
            any_action = True
        if any_action and rows[i * A + A] > rows[i * A] and best < out[i]:
            change = max(change, out[i] - best)
            out[i] = best
    return change
