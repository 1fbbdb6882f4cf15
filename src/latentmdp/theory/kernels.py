"""The search for policies that reach a goal with probability one, over sets of contexts.

A node is a pair (s, J) of a state and the set of contexts that are still possible. Sets are rows of
W words of 64 bits. An edge is an outcome of an action of a node, and leads to the node with the
contexts of J in which that outcome is possible. `status` is `WON` where some policy reaches the
goal with probability one in every context of J, `LOST` where none does.
"""

import numpy as np
from numba import njit

UNKNOWN, WON, LOST = range(3)


@njit(cache=True)
def _find_node(s, words, node_state, node_set, slots):
    """The slot of a node in an open-addressed table: where it is, or where it would be."""
    code = np.uint64(s + 1) * np.uint64(0x9E3779B97F4A7C15)
    for w in words:
        code = (code ^ w) * np.uint64(0xBF58476D1CE4E5B9)
        code ^= code >> np.uint64(29)
    mask = np.uint64(slots.size - 1)
    slot = (code >> np.uint64(5)) & mask
    while slots[slot] >= 0:
        node = slots[slot]
        if node_state[node] == s:
            same = True
            for k in range(words.size):
                if node_set[node, k] != words[k]:
                    same = False
                    break
            if same:
                break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def _larger(array, size, fill):
    """A copy of an array with room for `size` rows."""
    larger = np.full((size, *array.shape[1:]), fill, array.dtype)
    larger[: array.shape[0]] = array
    return larger


@njit(cache=True)
def _settle(local, n_local, place, hopeful, A, first_edge, edges, status, node_set, alive, reach):
    """Which nodes of a component can reach the goal from everywhere in every context.

    The greatest set from which, by actions that never leave it except to won nodes, the goal can be
    reached in each context: alive[k] of node local[k], whose place k is place[node]. Nodes that are
    neither won nor lost and lie outside count as won if `hopeful`, else as lost. `reach` (k, W) are
    the contexts in which the goal can be reached.
    """
    W = node_set.shape[1]
    for k in range(n_local):
        alive[k] = True
    removed = True
    while removed:
        removed = False
        for k in range(n_local):
            for w in range(W):
                reach[k, w] = 0
        changed = True
        while changed:
            changed = False
            for k in range(n_local - 1, -1, -1):  # nodes found late are often nearer to the goal
                if not alive[k]:
                    continue
                node = local[k]
                for a in range(A):
                    begin, end = first_edge[node, a], first_edge[node, a + 1]
                    safe = begin < end
                    for e in range(begin, end):
                        n = edges[e]
                        inside = place[n] >= 0 and alive[place[n]]
                        won = status[n] == WON or (
                            hopeful and status[n] == UNKNOWN and place[n] < 0
                        )
                        if not (inside or won):
                            safe = False
                            break
                    if not safe:
                        continue
                    for e in range(begin, end):
                        n = edges[e]
                        for w in range(W):
                            more = reach[place[n], w] if place[n] >= 0 else node_set[n, w]
                            if more & ~reach[k, w]:
                                reach[k, w] |= more
                                changed = True
        for k in range(n_local):
            if alive[k]:
                for w in range(W):
                    if reach[k, w] != node_set[local[k], w]:
                        alive[k] = False
                        removed = True
                        break


@njit(cache=True)
def _same(one, two):
    """Whether two sets are equal."""
    for w in range(one.size):  # noqa: SIM110 - numba compiles loops, not generators
        if one[w] != two[w]:
            return False
    return True


@njit(cache=True)
def _open_exit(node, a, top_set, first_edge, edges, status, node_set):
    """A node to decide before an action of a component can be judged; -1: none, -2: it is lost."""
    found = -1
    for e in range(first_edge[node, a], first_edge[node, a + 1]):
        n = edges[e]
        if status[n] == LOST:
            return -2
        if status[n] == UNKNOWN and not _same(node_set[n], top_set):
            found = n
    return found


@njit(cache=True)
def decide(A, starts, next_state, support, kind, roots, root_sets, most):
    """Decide the roots, one after the other, up to the first that is lost.

    `starts`, `next_state` and `support` (n, W) are the outcomes of rows s A + a and the contexts in
    which each is possible; `kind` (S,) is `WON` for goals, `LOST` for other terminal states.

    Depth first over sets, which only shrink: the nodes that can be reached from a node without
    ruling out a context are its component. What lies outside is first hoped to be won; if the node
    is lost even so, that is known without looking there. Else, if it is won with what is known to
    be won, that is known too. Else the exits of an action that a hopeful policy would take are
    decided, one by one, until one of them is lost.

    Returns the number of nodes, -1 if there are more than `most`, the root that is lost or -1,
    states, sets, status and edges by action of the nodes, and the contexts in which a root that is
    lost cannot reach the goal.
    """
    W, S = support.shape[1], kind.size
    room, n_edges, count = 1 << 12, 0, 0
    node_state, node_set = np.zeros(room, np.int32), np.zeros((room, W), np.uint64)
    status, place = np.zeros(room, np.int8), np.full(room, -1, np.int32)
    first_edge = np.full((room, A + 1), -1, np.int64)  # -1 where a node was not looked at yet
    edges, slots = np.zeros(1 << 14, np.int32), np.full(4 * room, -1, np.int32)
    stack, action = np.zeros(64, np.int32), np.full((64, 2), -1, np.int64)
    local, alive = np.zeros(S, np.int32), np.zeros(S, np.bool_)
    reach, words, blamed = (
        np.zeros((S, W), np.uint64),
        np.zeros(W, np.uint64),
        np.zeros(W, np.uint64),
    )
    widest = 0
    for s in range(S):
        widest = max(widest, starts[(s + 1) * A] - starts[s * A])
    for r in range(roots.size):
        words[:] = root_sets[r]
        slot = _find_node(roots[r], words, node_state, node_set, slots)
        if slots[slot] < 0:
            slots[slot], node_state[count], node_set[count] = count, roots[r], words
            status[count] = kind[roots[r]]
            count += 1
        root = slots[slot]
        stack[0], action[0, 0], depth = root, -1, 1
        while depth > 0:
            top = stack[depth - 1]
            if status[top] != UNKNOWN:
                depth -= 1
                continue
            if action[depth - 1, 0] >= 0:
                node, a = action[depth - 1]
                exit_ = _open_exit(node, a, node_set[top], first_edge, edges, status, node_set)
                if exit_ >= 0:
                    if depth == stack.size:
                        stack, action = _larger(stack, 2 * depth, 0), _larger(action, 2 * depth, -1)
                    stack[depth], action[depth, 0] = exit_, -1
                    depth += 1
                    continue
                action[depth - 1, 0] = -1
            local[0], place[top], n_local, k = top, 0, 1, 0
            while k < n_local:
                node, s = local[k], node_state[local[k]]
                if first_edge[node, 0] < 0:
                    if count + widest >= node_state.size:
                        if count + widest >= most:
                            return -1, -1, node_state, node_set, status, first_edge, edges, blamed
                        size = 2 * node_state.size + widest
                        node_state, status = _larger(node_state, size, 0), _larger(status, size, 0)
                        node_set, place = _larger(node_set, size, 0), _larger(place, size, -1)
                        first_edge = _larger(first_edge, size, -1)
                        while slots.size < 2 * size:
                            slots = np.full(2 * slots.size, -1, np.int32)
                        for i in range(count):
                            words[:] = node_set[i]
                            slots[_find_node(node_state[i], words, node_state, node_set, slots)] = i
                    if n_edges + widest > edges.size:
                        edges = _larger(edges, 2 * edges.size + widest, 0)
                    for a in range(A):
                        first_edge[node, a] = n_edges
                        for o in range(starts[s * A + a], starts[s * A + a + 1]):
                            possible = False
                            for w in range(W):
                                words[w] = support[o, w] & node_set[node, w]
                                possible = possible or words[w] != 0
                            if not possible:
                                continue
                            n = next_state[o]
                            slot = _find_node(n, words, node_state, node_set, slots)
                            if slots[slot] < 0:
                                slots[slot], node_state[count], node_set[count] = count, n, words
                                status[count] = kind[n]
                                count += 1
                            edges[n_edges] = slots[slot]
                            n_edges += 1
                    first_edge[node, A] = n_edges
                for e in range(first_edge[node, 0], first_edge[node, A]):
                    n = edges[e]
                    if status[n] == UNKNOWN and place[n] < 0 and _same(node_set[n], node_set[top]):
                        local[n_local], place[n] = n, n_local
                        n_local += 1
                k += 1
            component = (local, n_local, place)
            graph = (A, first_edge, edges, status, node_set, alive, reach)
            _settle(*component, True, *graph)
            lost = not alive[0]
            if lost and depth == 1:
                blamed[:] = node_set[top] & ~reach[0]
            for k in range(n_local):
                if not alive[k]:
                    status[local[k]] = LOST
            if not lost:
                # An action of a hopeful policy with an exit that is not decided, near to the node.
                for k in range(n_local):
                    for a in range(A):
                        if action[depth - 1, 0] < 0 and alive[k]:
                            node = local[k]
                            exit_ = _open_exit(
                                node, a, node_set[top], first_edge, edges, status, node_set
                            )
                            if exit_ >= 0:
                                action[depth - 1, 0], action[depth - 1, 1] = node, a
                _settle(*component, False, *graph)
                for k in range(n_local):
                    if alive[k]:
                        status[local[k]] = WON
            for k in range(n_local):
                place[local[k]] = -1
        if status[root] == LOST:
            return count, r, node_state, node_set, status, first_edge, edges, blamed
    return count, -1, node_state, node_set, status, first_edge, edges, blamed
