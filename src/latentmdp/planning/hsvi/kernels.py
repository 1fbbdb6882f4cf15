"""Loops of the search: both bounds of V* at a belief, their backups, and successors.

Points, plans and their blocks belong to a step: a time, or all times where there is no end. A cell
is a state of the lumped problem at a step. Beliefs and plans of a cell have as many entries as its
state has classes; rows of arrays (n, widest) have room for more.

Where a loop is `HOT`, so is what it calls: see `kernels_lumping`.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from latentmdp.planning.hsvi.kernels_lumping import HOT, mix
from latentmdp.planning.hsvi.kernels_sets import Sets, make_room, push, set_bound
from latentmdp.planning.hsvi.lumping import LumpedProblem

LANES = 8
"""Vectors of a block, multiplied side by side: enough sums in flight to keep the processor busy."""

NOTHING = 1e-12
"""A share of a mass that rounding may leave of it."""


class Blocks(NamedTuple):
    """Vectors by cell, or by leader: a linked list of blocks of `LANES`, entries side by side."""

    head: np.ndarray  # the newest block of each cell or leader, -1 for none
    link: np.ndarray  # (blocks,): the block before it, -1 at the end
    fill: np.ndarray  # (blocks,): lanes in use
    place: np.ndarray  # (blocks,): the row of `entry` where it begins, one row for each class
    item: np.ndarray  # (blocks, LANES): which leader or point a lane holds
    gain: np.ndarray  # (blocks, LANES): of a point, what it gains over a known context; else 0
    entry: np.ndarray  # (rows, LANES)


class ArrangedStep(NamedTuple):
    """The points of a step, arranged for search. Each point has the plan that was found there."""

    leaders: Blocks  # by cell: plans that lead others, which are at their best where these are
    plans: Blocks  # by leader
    points: Blocks  # by leader; entries are 1 / belief
    states: np.ndarray  # (n,)
    beliefs: np.ndarray  # (n, widest)
    uppers: np.ndarray  # (n,)
    vectors: np.ndarray  # (n, widest): the plans
    layer: int


class Tables(NamedTuple):
    """What does not change: the problem, and its first bounds."""

    problem: LumpedProblem
    sets: Sets
    first_plans: np.ndarray  # (layers, all classes, K): values of policies that ask no questions


@njit(**HOT, fastmath={"contract"})
def best_of_block(blocks, block, width, mass):
    """The largest product of a block's vectors with `mass`, and its lane."""
    row = np.uint64(blocks.place[block])
    a = b = c = d = e = f = g = h = 0.0
    for i in range(width):
        m = mass[i]
        a += m * blocks.entry[row, 0]
        b += m * blocks.entry[row, 1]
        c += m * blocks.entry[row, 2]
        d += m * blocks.entry[row, 3]
        e += m * blocks.entry[row, 4]
        f += m * blocks.entry[row, 5]
        g += m * blocks.entry[row, 6]
        h += m * blocks.entry[row, 7]
        row += np.uint64(1)
    top = max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))
    lane = 0 if a == top else 1 if b == top else 2 if c == top else 3 if d == top else (
        4 if e == top else 5 if f == top else 6 if g == top else 7
    )  # fmt: skip
    return top, lane


@njit(**HOT)
def best_leaders(leaders, x, width, mass):
    """The two leaders of a cell that are best at `mass`, or -1; each the best of its block."""
    best, second, one, two = -np.inf, -np.inf, -1, -1
    block = leaders.head[x]
    while block >= 0:
        top, lane = best_of_block(leaders, block, width, mass)
        item = leaders.item[block, lane]
        if top > best:
            best, second, one, two = top, best, item, one
        elif top > second:
            second, two = top, item
        block = leaders.link[block]
    return one, two


@njit(**HOT)
def best_plan(tables, step, x, mass, one, two):
    """The plan that is best at an unnormalised belief of a cell, and its value there.

    A plan is that of a point, or -1 - k for policy k of those that ask no questions. Beside these,
    the plans of two leaders are looked at: another may be better, and any is a lower bound.
    """
    first, width = tables.problem.first[x], tables.problem.width[x]
    best, item = -np.inf, -1
    for k in range(tables.first_plans.shape[2]):
        value = 0.0
        for c in range(width):
            value += mass[c] * tables.first_plans[step.layer, first + c, k]
        if value > best:
            best, item = value, -1 - k
    for which in range(2):
        leader = one if which == 0 else two
        block = step.plans.head[leader] if leader >= 0 else -1
        while block >= 0:
            top, lane = best_of_block(step.plans, block, width, mass)
            if top > best:
                best, item = top, step.plans.item[block, lane]
            block = step.plans.link[block]
    return item, best


@njit(**HOT)
def best_point(points, one, two, width, mass):
    """The point of two leaders that promises the largest gain, ratio x gain: (point, ratio, same).

    The ratio is the largest r with r b <= mass. A product 0 inf is no limit, and compares false.
    `same` is a point at this very belief, or -1.
    """
    best, item, ratio, same, total = 0.0, -1, 0.0, -1, 0.0
    for i in range(width):
        total += mass[i]
    for which in range(2):
        leader = one if which == 0 else two
        block = points.head[leader] if leader >= 0 else -1
        while block >= 0:
            row = np.uint64(points.place[block])
            a = b = c = d = e = f = g = h = np.inf
            for i in range(width):
                m = mass[i]
                p, q = m * points.entry[row, 0], m * points.entry[row, 1]
                r, s = m * points.entry[row, 2], m * points.entry[row, 3]
                t, u = m * points.entry[row, 4], m * points.entry[row, 5]
                v, w = m * points.entry[row, 6], m * points.entry[row, 7]
                row += np.uint64(1)
                a = p if p < a else a
                b = q if q < b else b
                c = r if r < c else c
                d = s if s < d else d
                e = t if t < e else e
                f = u if u < f else f
                g = v if v < g else g
                h = w if w < h else h
            for lane, value in enumerate((a, b, c, d, e, f, g, h)):
                if value * points.gain[block, lane] > best:
                    best, item = value * points.gain[block, lane], points.item[block, lane]
                    ratio = value
                if value >= (1.0 - 1e-9) * total and points.gain[block, lane] > 0.0:
                    same = points.item[block, lane]
            block = points.link[block]
    return item, ratio, same


@njit(**HOT)
def upper_bound(tables, step, x, mass, one, two, rest, room):
    """The upper bound at an unnormalised belief of a cell; `rest` and `room` are working memory.

    That of the sets, or r U(b) + that of the sets for mass - r b, with b a point of the cell.
    """
    problem, sets = tables.problem, tables.sets
    width = problem.width[x]
    bound = set_bound(sets, problem, step.layer, x, mass, room)
    i, ratio, same = best_point(step.points, one, two, width, mass)
    if same >= 0:
        total = 0.0
        for c in range(width):
            total += mass[c]
        bound = min(bound, total * step.uppers[same])
    if i >= 0:
        for c in range(width):
            left = mass[c] - ratio * step.beliefs[i, c]
            rest[c] = left if left > NOTHING * mass[c] else 0.0
        other = ratio * step.uppers[i] + set_bound(sets, problem, step.layer, x, rest, room)
        bound = min(bound, other)
    return bound


@njit(**HOT)
def next_action(limits, i, tried):
    """The action of point i with the largest limit that was not tried, marked as tried."""
    best = -1
    for a in range(tried.shape[0]):
        if not tried[a] and (best < 0 or limits[i, a] > limits[i, best]):
            best = a
    tried[best] = True
    return best


@njit(**HOT)
def add_plan(tables, later, k, y, width, item, vector):
    """Add discount P(k | class) alpha to `vector`, where alpha is a plan of the next step."""
    problem = tables.problem
    pattern, shift, discount = problem.pattern[k], problem.shift[k], problem.discount
    first = problem.first[y]
    for c in range(width):
        target = c if shift < 0 else problem.target[shift + c]
        if item >= 0:
            alpha = later.vectors[item, target]
        else:
            alpha = tables.first_plans[later.layer, first + target, -1 - item]
        vector[c] += discount * problem.probs[pattern + c] * alpha


@njit(cache=True, nogil=True)
def first_bounds(start, stop, tables, step, is_last, limits, knowns):
    """Bounds of the points start..stop-1 if the context were known after one step, and at once.

    Fills limits (n, A), of the actions, -inf where one is not allowed and 0 in a terminal state,
    and knowns (n,).
    """
    problem, best = tables.problem, tables.sets.best
    A = problem.allowed.shape[1]
    mass = np.empty(problem.width.max())
    later = step.layer + 1 if problem.ends else step.layer
    for i in range(start, stop):
        x, over, belief = step.states[i], True, step.beliefs[i]
        width = problem.width[x]
        knowns[i] = 0.0
        for c in range(width):
            knowns[i] += belief[c] * best[step.layer, problem.first[x] + c]
        for a in range(A):
            row = x * A + a
            limits[i, a] = -np.inf
            if not problem.allowed[x, a]:
                continue
            value, over = 0.0, False
            for c in range(width):
                value += belief[c] * problem.earned[problem.pay[row] + c]
            begin, end = problem.starts[row], problem.starts[row + 1]
            for k in range(begin, begin if is_last else end):
                y = problem.next_state[k]
                push(problem, k, width, belief, mass)
                for c in range(problem.width[y]):
                    value += problem.discount * mass[c] * best[later, problem.first[y] + c]
            limits[i, a] = value
        if over:
            limits[i, :] = 0.0


@njit(cache=True, nogil=True)
def back_up(
    start, stop, tables, now, later, is_last, chosen, above, limits, lowers, homes, out, labels,
    links,
):  # fmt: skip
    """Both backups at the points chosen[start:stop] of the step `now`.

    The upper one, of the points with a flag in `above`, lowers limits (points, A), as far as it
    matters: the bound of a point is its largest limit, so an action below the best bound found is
    left alone. The lower one writes the best plan to out (n, widest), labels (n,) and
    links (n, most outcomes), and its value to lowers (n, 2), after that of the best plan so far,
    whose leader goes to homes (n,); an action whose limit is below the best plan is not tried.
    """
    problem = tables.problem
    A = problem.allowed.shape[1]
    widest = problem.width.max()
    mass, rest, vector = np.empty(widest), np.empty(widest), np.empty(widest)
    room, tried = make_room(problem, tables.sets), np.empty(A, np.bool_)
    link = np.empty(links.shape[1], np.int32)
    for j in range(start, stop):
        i = chosen[j]
        x, belief = now.states[i], now.beliefs[i]
        width = problem.width[x]
        one, two = best_leaders(now.leaders, x, width, belief)
        _, lowers[j, 0] = best_plan(tables, now, x, belief, one, two)
        homes[j], lowers[j, 1], top = one, -np.inf, -np.inf
        tried[:] = False
        for _ in range(A):
            a = next_action(limits, i, tried)
            if limits[i, a] <= lowers[j, 1] or limits[i, a] == -np.inf:
                break
            row, value, matters = x * A + a, 0.0, above[j] and limits[i, a] > top
            for c in range(width):
                vector[c] = problem.earned[problem.pay[row] + c]
                value += belief[c] * vector[c]
            begin, end = problem.starts[row], problem.starts[row + 1]
            for k in range(begin, begin if is_last else end):
                y = problem.next_state[k]
                item = -1  # a plan must go on somehow, also after what its belief excludes
                if push(problem, k, width, belief, mass) > 0.0:
                    one, two = best_leaders(later.leaders, y, problem.width[y], mass)
                    item, _ = best_plan(tables, later, y, mass, one, two)
                    if matters:
                        value += problem.discount * upper_bound(
                            tables, later, y, mass, one, two, rest, room
                        )
                link[k - begin] = item
                add_plan(tables, later, k, y, width, item, vector)
            if matters:
                limits[i, a] = min(limits[i, a], value)
                top = max(top, limits[i, a])
            lower = 0.0
            for c in range(width):
                lower += belief[c] * vector[c]
            if lower > lowers[j, 1]:
                lowers[j, 1], labels[j] = lower, a
                out[j, :width] = vector[:width]
                links[j, : end - begin] = link[: end - begin]


class Expansion(NamedTuple):
    """Expansion of points, see `expand`."""

    states: np.ndarray  # (n,)
    beliefs: np.ndarray  # (n, widest)
    weights: np.ndarray  # (n,)
    gaps: np.ndarray  # (n,)


@njit(cache=True, nogil=True)
def expand(start, stop, tables, now, later, chosen, actions, weights, begins, out):
    """Expansion of the points chosen[start:stop] after their actions, from begins[j] on.

    Each outcome gives a state, a belief, a weight, the point's times its discounted probability,
    and the gap of the bounds there.
    """
    problem = tables.problem
    A, widest = problem.allowed.shape[1], problem.width.max()
    mass, rest, room = np.empty(widest), np.empty(widest), make_room(problem, tables.sets)
    for j in range(start, stop):
        i, place = chosen[j], begins[j]
        x, belief = now.states[i], now.beliefs[i]
        row = x * A + actions[j]
        for k in range(problem.starts[row], problem.starts[row + 1]):
            y = problem.next_state[k]
            total = push(problem, k, problem.width[x], belief, mass)
            out.states[place], out.gaps[place] = y, 0.0
            out.weights[place] = weights[j] * total * problem.discount
            if total > 0.0:
                one, two = best_leaders(later.leaders, y, problem.width[y], mass)
                _, lower = best_plan(tables, later, y, mass, one, two)
                upper = upper_bound(tables, later, y, mass, one, two, rest, room)
                out.gaps[place] = max(upper - lower, 0.0) / total
                for c in range(problem.width[y]):
                    out.beliefs[place, c] = mass[c] / total
            place += 1


@njit(cache=True, nogil=True)
def keys_of(width, states, beliefs, resolution, out):
    """Keys (n,) of beliefs: the same where entries, relative to the largest, round to the same
    multiples of 1 / resolution.
    """
    for i in range(states.shape[0]):
        code, largest = mix(np.uint64(states[i])), 0.0
        for c in range(width[states[i]]):
            largest = max(largest, beliefs[i, c])
        for c in range(width[states[i]]):
            code = mix(code + np.uint64(beliefs[i, c] / largest * resolution + 0.5))
        out[i] = code


@njit(cache=True, nogil=True)
def bounds_at(start, stop, tables, step, chosen, lowers, uppers, items):
    """The bounds at the points chosen[start:stop], from all plans and points, and the plans."""
    problem = tables.problem
    rest, room = np.empty(problem.width.max()), make_room(problem, tables.sets)
    for j in range(start, stop):
        i = chosen[j]
        x, belief = step.states[i], step.beliefs[i]
        one, two = best_leaders(step.leaders, x, problem.width[x], belief)
        items[j], lowers[j] = best_plan(tables, step, x, belief, one, two)
        uppers[j] = upper_bound(tables, step, x, belief, one, two, rest, room)


@njit(cache=True, nogil=True)
def insert(blocks, n_blocks, n_rows, blank, owners, widths, items, gains, entries, slots):
    """Put vectors into the blocks of their owners; returns how many blocks and rows there are.

    `entries` is (n, widest). The lane that vector i gets is written to slots[i]: block x LANES +
    lane. The arrays must have room for a block a vector. Lanes not in use are `blank`.
    """
    for i in range(items.shape[0]):
        block = blocks.head[owners[i]]
        if block < 0 or blocks.fill[block] == LANES:
            blocks.link[n_blocks], blocks.fill[n_blocks] = block, 0
            blocks.place[n_blocks], blocks.head[owners[i]] = n_rows, n_blocks
            for c in range(widths[i]):
                for lane in range(LANES):
                    blocks.entry[n_rows + c, lane] = blank
            blocks.gain[n_blocks, :] = 0.0
            block, n_blocks, n_rows = n_blocks, n_blocks + 1, n_rows + widths[i]
        lane = blocks.fill[block]
        blocks.fill[block] += 1
        blocks.item[block, lane], blocks.gain[block, lane] = items[i], gains[i]
        slots[i] = block * LANES + lane
        for c in range(widths[i]):
            blocks.entry[blocks.place[block] + c, lane] = entries[i, c]
    return n_blocks, n_rows


@njit(cache=True, nogil=True)
def replace(blocks, slots, widths, entries):
    """Put vectors into lanes in place of those that are there."""
    for i in range(slots.shape[0]):
        block, lane = slots[i] // LANES, slots[i] % LANES
        for c in range(widths[i]):
            blocks.entry[blocks.place[block] + c, lane] = entries[i, c]


@njit(cache=True, nogil=True)
def homes_of(start, stop, width, leaders, states, beliefs, out):
    """The best leader (n,) at each of the beliefs start..stop-1."""
    for i in range(start, stop):
        out[i], _ = best_leaders(leaders, states[i], width[states[i]], beliefs[i])


@njit(cache=True, nogil=True)
def mark(first, starts, counts, links, wanted):
    """Mark the plans that are linked to, directly or through others, from the first ones."""
    stack = np.empty(wanted.shape[0], np.int64)
    n = 0
    for i in first:
        if not wanted[i]:
            wanted[i], stack[n] = True, i
            n += 1
    while n > 0:
        n -= 1
        i = stack[n]
        for place in range(starts[i], starts[i] + counts[i]):
            j = links[place]
            if j >= 0 and not wanted[j]:
                wanted[j], stack[n] = True, j
                n += 1
