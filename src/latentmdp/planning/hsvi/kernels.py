"""Loops of the search: both bounds of V* at a belief, their backups, successors and trials.

A cell is a state of the lumped problem at a time step, layer x X + x, or the state alone where
there is no end. Beliefs and plans of a cell have as many entries as its state has classes; rows of
arrays (n, widest) have room for more.

`INNER` loops become part of the kernels that call them, see `kernels_lumping`.
"""

from typing import NamedTuple

import numpy as np

from latentmdp._kernels import njit
from latentmdp.planning.hsvi.kernels_lumping import INNER, KERNEL, mix
from latentmdp.planning.hsvi.kernels_sets import NOTHING, Room, Sets, push, set_bound
from latentmdp.planning.hsvi.lumping import LumpedProblem

LANES = 8
"""Vectors of a block, multiplied side by side: enough sums in flight to keep the processor busy."""


class Tables(NamedTuple):
    """What does not change: the problem, and its first bounds."""

    problem: LumpedProblem
    sets: Sets
    first_plans: np.ndarray  # (K, layers x all classes): values of policies that ask no questions
    policy_of: np.ndarray  # (all classes,): which of them is best for a class alone, 0 if unknown
    informed: np.ndarray  # (layers, all classes, A): action values of the classes alone, from above


class Blocks(NamedTuple):
    """Vectors by owner: linked lists of blocks of `LANES`, whose entries lie side by side.

    A cell owns its leaders, plans that stand for those around them; a leader owns plans and points.
    The first owners are the cells themselves, as leaders: of everything, where plans are few.
    """

    leaders: np.ndarray  # (cells,): the newest block of leaders of each cell, -1 for none
    plans: np.ndarray  # (owners,): the newest block of plans
    points: np.ndarray  # (owners,): the newest block of points; their entries are 1 / belief
    link: np.ndarray  # (blocks,): the block before it, -1 at the end
    fill: np.ndarray  # (blocks,): lanes in use
    item: np.ndarray  # (blocks, LANES): which leader, plan or point a lane holds
    gain: np.ndarray  # (blocks, LANES): of a point, what it gains over the bound of the sets
    entry: np.ndarray  # (blocks x widest, LANES)


class Points(NamedTuple):
    """Beliefs, each with bounds from above and, once backed up, with a plan."""

    cell: np.ndarray  # (n,)
    belief: np.ndarray  # (n, widest)
    limit: np.ndarray  # (n, A): upper bounds of the action values, -inf where one is not allowed
    known: np.ndarray  # (n,): the bound of the sets
    upper: np.ndarray  # (n,)
    plan: np.ndarray  # (n,): -1 for none
    plan_lane: np.ndarray  # (n,): block x LANES + lane of its plan, -1 for none
    point_lane: np.ndarray  # (n,): of the point itself
    sibling: np.ndarray  # (n,): the point of the same cell before it, -1 at the end


class Plans(NamedTuple):
    """Plans: what they earn, what they do, and with which plans they go on."""

    vector: np.ndarray  # (n, widest)
    cell: np.ndarray  # (n,)
    action: np.ndarray  # (n,)
    start: np.ndarray  # (n,): where its links begin
    link: np.ndarray  # a plan for each outcome; -1 - k for policy k of those that ask no questions


class Store(NamedTuple):
    """All that grows. `size` counts points, plans, links, blocks and owners."""

    blocks: Blocks
    points: Points
    plans: Plans
    newest: np.ndarray  # (cells,): the newest point of each cell, -1 for none
    slots: np.ndarray  # (2^k,): points by the hash of their keys, -1 where there is none
    keys: np.ndarray  # (n,): see `key_of`
    size: np.ndarray  # (5,)


POINTS, PLANS, LINKS, BLOCKS, OWNERS = range(5)


class Scratch(NamedTuple):
    """Working memory of one thread."""

    mass: np.ndarray  # (widest,)
    rest: np.ndarray  # (widest,)
    vector: np.ndarray  # (widest,): a plan that is tried
    link: np.ndarray  # (most outcomes,): its links
    tried: np.ndarray  # (A,)
    room: Room


@njit(**INNER)
def lane_of(top, a, b, c, d, e, f, g, h):
    """The first of eight numbers that is `top`, one of them."""
    return 0 if a == top else 1 if b == top else 2 if c == top else 3 if d == top else (
        4 if e == top else 5 if f == top else 6 if g == top else 7
    )  # fmt: skip


@njit(**INNER)
def best_lane(entry, start, width, mass, least):
    """The largest product with `mass` of the vectors of a block, and its lane if above `least`.

    Which lane it is cannot be foreseen, and asking costs more than all products: few blocks need
    it.
    """
    row = np.uint64(start)
    a = b = c = d = e = f = g = h = 0.0
    for i in range(width):
        m = mass[i]
        a += m * entry[row, 0]
        b += m * entry[row, 1]
        c += m * entry[row, 2]
        d += m * entry[row, 3]
        e += m * entry[row, 4]
        f += m * entry[row, 5]
        g += m * entry[row, 6]
        h += m * entry[row, 7]
        row += np.uint64(1)
    top = max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))
    return top, lane_of(top, a, b, c, d, e, f, g, h) if top > least else -1


@njit(**INNER)
def best_leaders(blocks, cell, width, widest, mass):
    """The two leaders of a cell that are best at `mass`, each the best of its block; -1 for none.

    A cell without leaders leads itself.
    """
    best, second, one, two = -np.inf, -np.inf, -1, -1
    block = blocks.leaders[cell]
    if block < 0:
        return cell, two
    while block >= 0:
        top, lane = best_lane(blocks.entry, block * widest, width, mass, second)
        if top > best:
            best, second, one, two = top, best, blocks.item[block, lane], one
        elif top > second:
            second, two = top, blocks.item[block, lane]
        block = blocks.link[block]
    return one, two


@njit(**INNER)
def best_plan(tables, store, cell, x, mass, one, two):
    """The plan that is best at an unnormalised belief of a cell, and its value there.

    Looked at are, of the policies that ask no questions (-1 - k), that for all contexts and that of
    the likeliest class, and the plans of two leaders: another may be better, and any is a lower
    bound.
    """
    problem, blocks, policies = tables.problem, store.blocks, tables.first_plans
    X, width, widest = problem.width.shape[0], problem.width[x], store.plans.vector.shape[1]
    row, first = cell // X * problem.first[X] + problem.first[x], problem.first[x]
    best, item, largest, policy, value = 0.0, -1, 0.0, 0, 0.0
    for c in range(width):
        best += mass[c] * policies[0, row + c]
        if mass[c] > largest and tables.policy_of[first + c] > 0:
            largest, policy = mass[c], tables.policy_of[first + c]
    if policy > 0:
        for c in range(width):
            value += mass[c] * policies[policy, row + c]
        if value > best:
            best, item = value, -1 - policy
    for which in range(2):
        leader = one if which == 0 else two
        block = blocks.plans[leader] if leader >= 0 else -1
        while block >= 0:
            top, lane = best_lane(blocks.entry, block * widest, width, mass, best)
            if top > best:
                best, item = top, blocks.item[block, lane]
            block = blocks.link[block]
    return item, best


@njit(**INNER)
def best_point(blocks, one, two, width, widest, mass):
    """The point of two leaders that promises the largest gain, ratio x gain: (point, ratio, same).

    The ratio is the largest r with r b <= mass. A product 0 inf is no limit, and compares false.
    `same` is a point at this very belief, or -1.
    """
    best, item, ratio, same, whole = 0.0, -1, 0.0, -1, 0.0
    for i in range(width):
        whole += (1.0 - 1e-9) * mass[i]
    for which in range(2):
        leader = one if which == 0 else two
        block = blocks.points[leader] if leader >= 0 else -1
        while block >= 0:
            row = np.uint64(block * widest)
            a = b = c = d = e = f = g = h = np.inf
            for i in range(width):
                m = mass[i]
                p, q = m * blocks.entry[row, 0], m * blocks.entry[row, 1]
                r, s = m * blocks.entry[row, 2], m * blocks.entry[row, 3]
                t, u = m * blocks.entry[row, 4], m * blocks.entry[row, 5]
                v, w = m * blocks.entry[row, 6], m * blocks.entry[row, 7]
                row += np.uint64(1)
                a = p if p < a else a
                b = q if q < b else b
                c = r if r < c else c
                d = s if s < d else d
                e = t if t < e else e
                f = u if u < f else f
                g = v if v < g else g
                h = w if w < h else h
            if max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h))) >= whole:
                for lane, value in enumerate((a, b, c, d, e, f, g, h)):
                    if value >= whole and blocks.gain[block, lane] > 0.0:
                        same = blocks.item[block, lane]
            p, q = a * blocks.gain[block, 0], b * blocks.gain[block, 1]
            r, s = c * blocks.gain[block, 2], d * blocks.gain[block, 3]
            t, u = e * blocks.gain[block, 4], f * blocks.gain[block, 5]
            v, w = g * blocks.gain[block, 6], h * blocks.gain[block, 7]
            top = max(max(max(p, q), max(r, s)), max(max(t, u), max(v, w)))
            if top > best:
                lane = lane_of(top, p, q, r, s, t, u, v, w)
                best, item = top, blocks.item[block, lane]
                ratio = top / blocks.gain[block, lane]
            block = blocks.link[block]
    return item, ratio, same


@njit(**INNER)
def upper_bound(tables, store, cell, x, mass, one, two, scratch):
    """The upper bound at an unnormalised belief of a cell, and that of the sets alone.

    That of the sets, or r U(b) + that of the sets for mass - r b, with b a point of the cell.
    """
    problem, points, rest = tables.problem, store.points, scratch.rest
    width, layer, total = problem.width[x], cell // problem.width.shape[0], 0.0
    i, ratio, same = best_point(store.blocks, one, two, width, points.belief.shape[1], mass)
    for c in range(width):
        rest[c] = mass[c]
        total += mass[c]
    bound = total * points.upper[same] if same >= 0 else np.inf
    known, base = 0.0, 0.0
    for which in range(2):  # one copy of a long loop is compiled
        other = base + set_bound(tables.sets, problem, layer, x, rest, scratch.room)
        bound = min(bound, other)
        if which == 0:
            known = other
        if i < 0:
            break
        base = ratio * points.upper[i]
        for c in range(width):
            left = mass[c] - ratio * points.belief[i, c]
            rest[c] = left if left > NOTHING * mass[c] else 0.0
    return bound, known


@njit(**INNER)
def next_action(limit, i, tried):
    """The action of point i with the largest limit that was not tried, marked as tried."""
    best = -1
    for a in range(tried.shape[0]):
        if not tried[a] and (best < 0 or limit[i, a] > limit[i, best]):
            best = a
    tried[best] = True
    return best


@njit(**INNER)
def add_plan(tables, store, k, later, width, item, vector):
    """Add discount P(k | class) alpha to `vector`, where alpha is a plan of the cell `later`."""
    problem = tables.problem
    pattern, shift, discount = problem.pattern[k], problem.shift[k], problem.discount
    X = problem.width.shape[0]
    row = later // X * problem.first[X] + problem.first[problem.next_state[k]]
    for c in range(width):
        target = c if shift < 0 else problem.target[shift + c]
        if item >= 0:
            alpha = store.plans.vector[item, target]
        else:
            alpha = tables.first_plans[-1 - item, row + target]
        vector[c] += discount * problem.probs[pattern + c] * alpha


@njit(**INNER)
def first_cell_after(problem, cell):
    """The cell of state 0 a step later; -1 after the last step."""
    X = problem.width.shape[0]
    if not problem.ends:
        return 0
    layer = cell // X + 1
    return layer * X if layer < problem.layers else -1


@njit(**KERNEL)
def bounds_of(tables, store, cell, mass, above, scratch):
    """Both bounds at an unnormalised belief: (lower, upper, that by sets, best plan, leader).

    The upper ones only if `above`. It is called, not inlined, so that it is compiled once; for that
    `above` must not be a constant, which numba would compile a version for.
    """
    x = cell % tables.problem.width.shape[0]
    width, widest = tables.problem.width[x], store.points.belief.shape[1]
    one, two = best_leaders(store.blocks, cell, width, widest, mass)
    item, lower = best_plan(tables, store, cell, x, mass, one, two)
    upper = known = 0.0
    if above:
        upper, known = upper_bound(tables, store, cell, x, mass, one, two, scratch)
    return lower, upper, known, item, one


@njit(**INNER)
def bound_actions(tables, points, i):
    """Fill the limits of a new point: what an action earns if the context were known after it.

    They are -inf where an action is not allowed and 0 in a terminal state. Returns the largest.
    """
    problem, limit, belief = tables.problem, points.limit, points.belief
    X, A = problem.allowed.shape
    layer, x = points.cell[i] // X, points.cell[i] % X
    first, top = problem.first[x], -np.inf
    for a in range(A):
        limit[i, a] = 0.0 if problem.allowed[x, a] else -np.inf
        for c in range(problem.width[x]):
            limit[i, a] += belief[i, c] * tables.informed[layer, first + c, a]
        top = max(top, limit[i, a])
    if top == -np.inf:
        top = 0.0
        for a in range(A):
            limit[i, a] = 0.0
    return top


@njit(**INNER)
def back_up_point(tables, store, i, above, scratch, backups, j):
    """Both backups at point i; what they find is entry j of `backups`.

    The upper one, if `above`, lowers its limits, as far as it matters: the bound of a point is its
    largest limit, so an action below the best bound found is left alone. The lower one finds a
    plan; an action whose limit is below the best plan is not tried.
    """
    problem, points, mass = tables.problem, store.points, scratch.mass
    limit, belief = points.limit, points.belief
    cell = points.cell[i]
    X, A = problem.allowed.shape
    x, after = cell % X, first_cell_after(problem, cell)
    width = problem.width[x]
    for c in range(width):
        mass[c] = belief[i, c]
    before, _, _, _, home = bounds_of(tables, store, cell, mass, width < 0, scratch)
    best, action, top = -np.inf, 0, -np.inf
    for a in range(A):
        scratch.tried[a] = False
    for _ in range(A):
        a = next_action(limit, i, scratch.tried)
        if limit[i, a] <= best or limit[i, a] == -np.inf:
            break
        row, value, matters = x * A + a, 0.0, above and limit[i, a] > top
        for c in range(width):
            scratch.vector[c] = problem.earned[problem.pay[row] + c]
            value += belief[i, c] * scratch.vector[c]
        begin, end = problem.starts[row], problem.starts[row + 1]
        for k in range(begin, begin if after < 0 else end):
            y = problem.next_state[k]
            later = after + y
            item = -1  # a plan must go on somehow, also after what its belief excludes
            if push(problem, k, width, belief[i], mass) > 0.0:
                _, upper, _, item, _ = bounds_of(tables, store, later, mass, matters, scratch)
                value += problem.discount * upper
            scratch.link[k - begin] = item
            add_plan(tables, store, k, later, width, item, scratch.vector)
        if matters:
            limit[i, a] = min(limit[i, a], value)
            top = max(top, limit[i, a])
        lower = 0.0
        for c in range(width):
            lower += belief[i, c] * scratch.vector[c]
        if lower > best:
            best, action = lower, a
            for c in range(width):
                backups.vector[j, c] = scratch.vector[c]
            for k in range(end - begin):
                backups.link[j, k] = scratch.link[k]
    backups.lower[j, 0], backups.lower[j, 1] = before, best
    backups.action[j], backups.home[j] = action, home


@njit(**INNER)
def insert(store, head, owner, item, gain, vectors, i, inverse, width):
    """Put row i of `vectors`, or its inverse, into a lane of an owner's list; returns the lane."""
    blocks, size, widest = store.blocks, store.size, store.plans.vector.shape[1]
    block = head[owner]
    if block < 0 or blocks.fill[block] == LANES:
        before, block = block, size[BLOCKS]
        size[BLOCKS] += 1
        blocks.link[block], blocks.fill[block], head[owner] = before, 0, block
        for lane in range(LANES):
            blocks.gain[block, lane] = 0.0
        for c in range(width):
            for lane in range(LANES):
                # Of no plan: below all values, and finite, so that a product with 0 is 0.
                blocks.entry[block * widest + c, lane] = 0.0 if inverse else -1e300
    lane = blocks.fill[block]
    blocks.fill[block] += 1
    blocks.item[block, lane], blocks.gain[block, lane] = item, gain
    for c in range(width):
        v = vectors[i, c]
        if inverse:
            v = np.inf if v == 0.0 else 1.0 / v
        blocks.entry[block * widest + c, lane] = v
    return block * LANES + lane


@njit(**INNER)
def record(tables, store, i, above, backups, j, least):
    """Keep what a backup has found at point i, entry j, where a search finds it.

    A plan is kept if it is better by more than `least`.
    """
    problem, blocks, points, plans, size = (
        tables.problem, store.blocks, store.points, store.plans, store.size
    )  # fmt: skip
    cell, widest = points.cell[i], plans.vector.shape[1]
    X, A = problem.allowed.shape
    x, home, vector = cell % X, backups.home[j], backups.vector
    width = problem.width[x]
    if backups.lower[j, 1] > backups.lower[j, 0] + least:
        n, row, later = size[PLANS], x * A + backups.action[j], first_cell_after(problem, cell)
        count = 0 if later < 0 else problem.starts[row + 1] - problem.starts[row]
        size[PLANS] += 1
        plans.cell[n], plans.action[n], plans.start[n] = cell, backups.action[j], size[LINKS]
        for c in range(width):
            plans.vector[n, c] = vector[j, c]
        for k in range(count):
            plans.link[size[LINKS] + k] = backups.link[j, k]
        size[LINKS] += count
        points.plan[i] = n
        lane = points.plan_lane[i]
        if lane < 0:
            points.plan_lane[i] = insert(store, blocks.plans, home, n, 0.0, vector, j, False, width)
        else:
            blocks.item[lane // LANES, lane % LANES] = n
            for c in range(width):
                blocks.entry[lane // LANES * widest + c, lane % LANES] = vector[j, c]
    if above:
        top = -np.inf
        for a in range(A):
            top = max(top, points.limit[i, a])
        points.upper[i] = min(points.upper[i], top)
        gain, lane = points.known[i] - points.upper[i], points.point_lane[i]
        if lane >= 0:
            blocks.gain[lane // LANES, lane % LANES] = gain
        elif gain > least:
            points.point_lane[i] = insert(
                store, blocks.points, home, i, gain, points.belief, i, True, width
            )


@njit(**KERNEL)
def record_all(tables, store, chosen, above, backups, least):
    """Keep what backups at chosen points have found."""
    for j in range(chosen.shape[0]):
        record(tables, store, chosen[j], above[j], backups, j, least)


@njit(**INNER)
def key_of(cell, beliefs, i, width, resolution):
    """A key of row i of `beliefs`: the same where entries, relative to the largest, round to the
    same multiples of 1 / resolution.
    """
    code, largest = mix(np.uint64(cell)), 0.0
    for c in range(width):
        largest = max(largest, beliefs[i, c])
    for c in range(width):
        code = mix(code + np.uint64(beliefs[i, c] / largest * resolution + 0.5))
    return code


@njit(**INNER)
def point_at(tables, store, expansion, j, resolution):
    """The point at entry j of an expansion, added if it is new."""
    points, size, slots, keys = store.points, store.size, store.slots, store.keys
    cell, beliefs = expansion.cells[j], expansion.beliefs
    width = tables.problem.width[cell % tables.problem.width.shape[0]]
    last = np.uint64(slots.shape[0] - 1)
    key = key_of(cell, beliefs, j, width, resolution)
    h = key & last
    while slots[h] >= 0 and keys[slots[h]] != key:
        h = (h + np.uint64(1)) & last
    if slots[h] < 0:
        i = size[POINTS]
        size[POINTS] += 1
        slots[h], keys[i], points.cell[i] = i, key, cell
        for c in range(points.belief.shape[1]):
            points.belief[i, c] = beliefs[j, c] if c < width else 0.0
        points.plan[i] = points.plan_lane[i] = points.point_lane[i] = -1
        points.sibling[i], store.newest[cell] = store.newest[cell], i
        top = bound_actions(tables, points, i)
        points.known[i] = expansion.knowns[j]
        points.upper[i] = min(expansion.uppers[j], top)
    return np.int64(slots[h])


@njit(**KERNEL)
def locate(tables, store, expansion, chosen, resolution, out):
    """The points out (n,) at chosen entries of an expansion; those that are new are added."""
    for j in range(chosen.shape[0]):
        out[j] = point_at(tables, store, expansion, chosen[j], resolution)


@njit(**KERNEL)
def rehash(tables, store, resolution):
    """Enter all points in `slots`, which has room for them and is filled with -1; the first of a
    key is found.
    """
    X, last = tables.problem.width.shape[0], np.uint64(store.slots.shape[0] - 1)
    for i in range(store.size[POINTS]):
        cell = store.points.cell[i]
        width = tables.problem.width[cell % X]
        key = key_of(cell, store.points.belief, i, width, resolution)
        store.keys[i], h = key, key & last
        while store.slots[h] >= 0 and store.keys[store.slots[h]] != key:
            h = (h + np.uint64(1)) & last
        if store.slots[h] < 0:
            store.slots[h] = i


class Expansion(NamedTuple):
    """What may follow points, one entry for each outcome, or points themselves."""

    cells: np.ndarray  # (n,)
    beliefs: np.ndarray  # (n, widest)
    weights: np.ndarray  # (n,): the point's, times the discounted probability of the outcome
    lowers: np.ndarray  # (n,): the bounds there
    uppers: np.ndarray  # (n,)
    knowns: np.ndarray  # (n,): that of the sets
    plans: np.ndarray  # (n,): the best plan there


@njit(**INNER)
def expand_point(tables, store, i, action, weight, place, scratch, out):
    """Expansion of one point, from entry `place` on; the point itself where the action is -1."""
    problem, points, mass = tables.problem, store.points, scratch.mass
    width, belief, cell = problem.width, points.belief, points.cell[i]
    X, A = problem.allowed.shape
    x, after = cell % X, first_cell_after(problem, cell)
    row = x * A + action
    begin, end = (0, 1) if action < 0 else (problem.starts[row], problem.starts[row + 1])
    for k in range(begin, end):
        later, total, chance = cell, 1.0, 1.0
        if action < 0:
            for c in range(width[x]):
                mass[c] = belief[i, c]
        else:
            later = after + problem.next_state[k]
            total = push(problem, k, width[x], belief[i], mass)
            chance = total * problem.discount
        out.cells[place], out.weights[place], out.plans[place] = later, weight * chance, -1
        out.lowers[place] = out.uppers[place] = out.knowns[place] = 0.0
        if total > 0.0:
            lower, upper, known, out.plans[place], _ = bounds_of(
                tables, store, later, mass, total > 0.0, scratch
            )
            out.lowers[place], out.uppers[place] = lower / total, upper / total
            out.knowns[place] = known / total
            for c in range(width[later % X]):
                out.beliefs[place, c] = mass[c] / total
        place += 1


class Backups(NamedTuple):
    """What backups at points have found."""

    lower: np.ndarray  # (n, 2): the value of the best plan before, and of the new one
    home: np.ndarray  # (n,): the leader to whose plans the new one belongs
    action: np.ndarray  # (n,)
    vector: np.ndarray  # (n, widest)
    link: np.ndarray  # (n, most outcomes)


class Trials(NamedTuple):
    """What trials need."""

    path: np.ndarray  # (most steps + 1,): working memory
    gaps: np.ndarray  # (n,): those at the start, times the weights
    most: int  # how many
    share: float  # a trial ends where the gap is below this share of that at the start
    resolution: float
    least: float  # see `record`


EXPAND, BACK_UP, TRIALS = range(3)


@njit(**KERNEL, fastmath={"contract"})
def work(
    start, stop, task, tables, store, chosen, actions, weights, places, above, out, backups,
    trials, scratch,
):  # fmt: skip
    """A task at the points chosen[start:stop]; returns how many backups trials made.

    EXPAND: expand them after their actions, with their weights, from entry places[j] on.
    BACK_UP: back them up, and the upper bound of those with a flag in `above`.
    TRIALS: run trials from them. A trial follows the action with the largest limit and the outcome
    with the largest (chance) x (gap above a share of that at the start, seen from there), and backs
    up both bounds on its way back.

    It is one loop of two steps, so that each is compiled once: they are nearly all that there is to
    compile.
    """
    problem, points, path, gaps = tables.problem, store.points, trials.path, trials.gaps
    A, depth, limit = problem.allowed.shape[1], path.shape[0] - 1, points.limit
    j, length, n_trials, n_backups, walks, target, first = start, 0, 0, 0, False, 0.0, 0
    while True:
        if task == TRIALS:
            if length == 0:  # a new trial begins where the gap is largest
                total, first = 0.0, 0
                for k in range(gaps.shape[0]):
                    total += gaps[k]
                    first = k if gaps[k] > gaps[first] else first
                if n_trials == trials.most or total <= 0.0:
                    break
                path[0], length, target, walks = chosen[first], 1, trials.share * total, depth > 0
                n_trials += 1
            i, action, weight, place, up = path[length - 1], 0, 1.0, 0, length > 0
            for a in range(A):
                action = a if limit[i, a] > limit[i, action] else action
            step = EXPAND if walks else BACK_UP
        else:
            if j >= stop:
                break
            i, action, weight, place, up = chosen[j], actions[j], weights[j], places[j], above[j]
            step = task
            j += 1
        if step == EXPAND:
            expand_point(tables, store, i, action, weight, place, scratch, out)
            if task == TRIALS:
                row = points.cell[i] % problem.width.shape[0] * A + action
                best, chosen_entry = 0.0, -1
                target /= problem.discount
                for k in range(problem.starts[row + 1] - problem.starts[row]):
                    excess = out.weights[k] * (out.uppers[k] - out.lowers[k] - target)
                    if excess > best:
                        best, chosen_entry = excess, k
                if chosen_entry >= 0:
                    path[length] = point_at(tables, store, out, chosen_entry, trials.resolution)
                    length += 1
                walks = chosen_entry >= 0 and length <= depth
        else:
            entry = 0 if task == TRIALS else j - 1
            back_up_point(tables, store, i, up, scratch, backups, entry)
            if task == TRIALS:
                record(tables, store, i, up, backups, entry, trials.least)
                length, n_backups = length - 1, n_backups + 1
                if length == 0:
                    lower = max(backups.lower[0, 0], backups.lower[0, 1])
                    gaps[first] = weights[first] * max(points.upper[i] - lower, 0.0)
    return n_backups


@njit(**INNER)
def arrange_point(tables, store, i, least, mass):
    """Put a point that gains more than `least`, and its plan, to the leader that is best at it."""
    blocks, points, plans = store.blocks, store.points, store.plans
    cell, n, widest = points.cell[i], points.plan[i], plans.vector.shape[1]
    width = tables.problem.width[cell % tables.problem.width.shape[0]]
    gain = points.known[i] - points.upper[i]
    points.plan_lane[i] = points.point_lane[i] = -1
    if n >= 0 or gain > least:
        for c in range(width):
            mass[c] = points.belief[i, c]
        home, _ = best_leaders(blocks, cell, width, widest, mass)
        if n >= 0:
            points.plan_lane[i] = insert(
                store, blocks.plans, home, n, 0.0, plans.vector, n, False, width
            )
        if gain > least:
            points.point_lane[i] = insert(
                store, blocks.points, home, i, gain, points.belief, i, True, width
            )


@njit(**KERNEL)
def arrange(tables, store, few, least, mass):
    """Arrange all plans and points anew, each with the leader of its cell that is best at it.

    Of the n plans of a cell sqrt(n) lead, or the cell itself where they are few: then a
    search looks at all of them. `mass` is working memory; a point must gain more than `least`.
    """
    blocks, points, plans, size = store.blocks, store.points, store.plans, store.size
    X, n_cells = tables.problem.width.shape[0], store.newest.shape[0]
    size[BLOCKS], size[OWNERS] = 0, n_cells
    for cell in range(n_cells):
        blocks.leaders[cell] = blocks.plans[cell] = blocks.points[cell] = -1
        planned, i = 0, store.newest[cell]
        while i >= 0:
            planned += points.plan[i] >= 0
            i = points.sibling[i]
        n_leaders = np.int64(np.ceil(np.sqrt(planned))) if planned > few else np.int64(0)
        # Spread over all plans, as points of one round lie near each other.
        stride, seen, leading = planned // (n_leaders if n_leaders > 0 else 1), 0, 0
        i = store.newest[cell]
        while i >= 0 and leading < n_leaders:
            if points.plan[i] >= 0:
                if seen % stride == 0:
                    owner = size[OWNERS]
                    size[OWNERS] += 1
                    blocks.plans[owner] = blocks.points[owner] = -1
                    insert(
                        store, blocks.leaders, cell, owner, 0.0, plans.vector, points.plan[i],
                        False, tables.problem.width[cell % X],
                    )  # fmt: skip
                    leading += 1
                seen += 1
            i = points.sibling[i]
        i = store.newest[cell]
        while i >= 0:
            arrange_point(tables, store, i, least, mass)
            i = points.sibling[i]


@njit(cache=True, nogil=True)
def write_vectors(start, stop, plans, vectors, policies, first, members, rows, out):
    """Fill out (n, M) with what plans (n,) earn in each context, where row rows[i] of `members` has
    its class: -1 - k is policy k, whose values begin at first[i].
    """
    for i in range(start, stop):
        plan, row = plans[i], rows[i]
        for m in range(out.shape[1]):
            c = members[row, m]
            out[i, m] = vectors[plan, c] if plan >= 0 else policies[-1 - plan, first[i] + c]


@njit(cache=True, nogil=True)
def drop(store, wanted, number):
    """Drop all plans but the `wanted` ones (n,) and those they are linked to; the others move up.

    number (n,) is what they are then, -1 for those that are dropped. Links lead to plans, and
    policies, that were there before.
    """
    plans, n, links = store.plans, 0, 0
    n_plans, start = wanted.shape[0], plans.start
    ends = np.empty(n_plans, np.int64)
    for i in range(n_plans - 1, -1, -1):
        ends[i] = start[i + 1] if i + 1 < n_plans else store.size[LINKS]
        for k in range(start[i], ends[i] if wanted[i] else start[i]):
            if plans.link[k] >= 0:
                wanted[plans.link[k]] = True
    for i in range(n_plans):
        number[i] = n if wanted[i] else -1
        if wanted[i]:
            begin, start[n] = start[i], links
            plans.cell[n], plans.action[n] = plans.cell[i], plans.action[i]
            plans.vector[n] = plans.vector[i]
            for k in range(begin, ends[i]):
                j = plans.link[k]
                plans.link[links] = number[j] if j >= 0 else j
                links += 1
            n += 1
    store.size[PLANS], store.size[LINKS] = n, links
