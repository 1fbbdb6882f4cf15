"""Plans without an end: nodes of a policy graph, improved and evaluated in place.

The plans of all states are the items of one `StepBounds`. `followers` lists, for every item, the
item it goes on with after each outcome of its action.
"""

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.alpha import condition
from latentmdp.planning.point_based.kernels.plans import scores_room, search

SUMMED = 512
"""Items whose changes are summed at a time, so that sums do not depend on who does it."""


@njit(cache=True, nogil=True)
def follow(start, stop, table, n_actions, step, breadth, states, beliefs, labels, offsets, out):
    """Write the plans of `step` that items start..stop-1 go on with, from out[offsets[i]] on.

    Plans are numbered as by `search`.
    """
    starts, groups, leaders, columns = step.starts, step.groups, step.leaders, step.columns
    next_state, probs, standing = table.next_state, table.probs, step.standing
    n_standing = step.standing_labels.shape[1]
    mass = np.empty(probs.shape[1])
    cells, scores = np.empty(breadth, np.int64), scores_room(step)
    for i in range(start, stop):
        row = states[i] * n_actions + labels[i]
        for k in range(table.starts[row], table.starts[row + 1]):
            condition(beliefs[i], probs, k, mass)
            n = next_state[k]
            j, _, _ = search(
                starts,
                groups,
                leaders,
                columns,
                standing,
                n_standing,
                step.ruler,
                n,
                mass,
                scores,
                cells,
            )
            out[offsets[i] + k - table.starts[row]] = j


@njit(cache=True, nogil=True)
def evaluate_plans(
    start, stop, table, rewards, discount, states, labels, links, own, later, rows, out
):
    """One iteration for the items start..stop-1 from rows (n, M) into out.

    Nodes of state s that are where these items are begin at own[s], those of the next step at
    later[s]: an item that stays goes on at its place there.
    """
    _, A, M = rewards.shape
    probs = table.probs
    vector = np.empty(M)
    for i in range(start, stop):
        s, a = states[i], labels[i]
        begin = table.starts[s * A + a]
        for m in range(M):
            vector[m] = 0.0
        if links.stays[i]:
            place = i - own[s]
            for k in range(begin, table.starts[s * A + a + 1]):
                n = table.next_state[k]
                if later[n] + place < later[n + 1]:
                    for m in range(M):
                        vector[m] += probs[k, m] * rows[later[n] + place, m]
        else:
            links_begin = links.node_starts[i]
            for j in range(links_begin, links.node_starts[i + 1]):
                k, f = begin + j - links_begin, links.followers[j]
                for m in range(M):
                    vector[m] += probs[k, m] * rows[f, m]
        for m in range(M):
            out[i, m] = rewards[s, a, m] + discount * vector[m]


@njit(cache=True, nogil=True)
def compare_changes(start, stop, older, older_after, now, after, sums, extremes):
    """The change f = after - now, and d, by how much it differs from that of the step before.

    Block b, of start..stop-1, is the b-th `SUMMED` of the plans: sums[b] (4, M) become the sums of
    f, d, d f and d^2, and extremes[b] (2, M) the least and the largest f. The rest is (n, M).
    """
    n, M = now.shape
    for b in range(start, stop):
        sums[b] = 0.0
        extremes[b, 0], extremes[b, 1] = np.inf, -np.inf
        for i in range(b * SUMMED, min((b + 1) * SUMMED, n)):
            for m in range(M):
                f = after[i, m] - now[i, m]
                d = f - (older_after[i, m] - older[i, m])
                sums[b, 0, m] += f
                sums[b, 1, m] += d
                sums[b, 2, m] += d * f
                sums[b, 3, m] += d * d
                extremes[b, 0, m] = min(extremes[b, 0, m], f)
                extremes[b, 1, m] = max(extremes[b, 1, m], f)


@njit(cache=True, nogil=True)
def extrapolate(start, stop, older_after, after, shares, out):
    """Out = after - shares (after - older_after) for items start..stop-1, shares (M,)."""
    for i in range(start, stop):
        for m in range(after.shape[1]):
            out[i, m] = after[i, m] - shares[m] * (after[i, m] - older_after[i, m])


@njit(cache=True, nogil=True)
def invert(table, n_actions, states, labels, offsets, followers):
    """Whom each item follows: (places, leaders, outcomes).

    Item f follows leaders[j] after the outcome outcomes[j], for j in places[f]..places[f + 1] - 1,
    in the order of the leaders.
    """
    n = states.shape[0]
    places = np.zeros(n + 2, np.int64)
    for f in followers:
        places[f + 2] += 1
    for i in range(n):
        places[i + 2] += places[i + 1]
    leaders, outcomes = np.empty_like(followers), np.empty_like(followers)
    for i in range(n):
        begin = table.starts[states[i] * n_actions + labels[i]]
        for j in range(offsets[i], offsets[i + 1]):
            place = places[followers[j] + 1]
            leaders[place], outcomes[place] = i, begin + j - offsets[i]
            places[followers[j] + 1] += 1
    return places[:-1], leaders, outcomes


@njit(cache=True, nogil=True)
def visit(start, stop, probs, discount, inverse, first, visits, out):
    """Out = first + discount times the visits (n, M) moved on a step, for items start..stop-1."""
    places, leaders, outcomes = inverse
    for f in range(start, stop):
        for m in range(first.shape[1]):
            out[f, m] = first[f, m]
        for j in range(places[f], places[f + 1]):
            i, k = leaders[j], outcomes[j]
            for m in range(first.shape[1]):
                out[f, m] += discount * visits[i, m] * probs[k, m]


@njit(cache=True, nogil=True)
def gains_over_next(start, stop, step, states, places, out):
    """What items, those at `places`, gain at their own beliefs over the best other of a state."""
    starts, groups, columns, beliefs = step.starts, step.groups, step.columns, step.beliefs
    M = columns.shape[0]
    for c in range(start, stop):
        i = places[c]
        s = states[i]
        own, best = 0.0, -np.inf
        for m in range(M):
            own += beliefs[m, i] * columns[m, i]
        for j in range(starts[groups[s]], starts[groups[s + 1]]):
            if j != i:
                value = 0.0
                for m in range(M):
                    value += beliefs[m, i] * columns[m, j]
                best = max(best, value)
        out[c] = own - best
