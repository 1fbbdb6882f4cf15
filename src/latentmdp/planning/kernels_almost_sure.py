"""Pairs of a state and the contexts still possible, and by which of them a goal is reached surely.

A node is a pair (s, J) of a state and the set of contexts that are still possible. Sets are rows of
W words of 64 bits. An edge is an outcome of an action of a node, and leads to the node with the
contexts of J in which that outcome is possible. `status` is `WON` where some policy reaches the
goal with probability one in every context of J, `LOST` where none does.
"""

from typing import Any, NamedTuple

import numpy as np

from latentmdp._kernels import njit

UNKNOWN, WON, LOST = range(3)


class SupportGraph(NamedTuple):
    """The nodes found so far, with room for more."""

    state: Any  # (nodes,)
    contexts: Any  # (nodes, W)
    status: Any  # (nodes,)
    place: Any  # (nodes,): in the component that is looked at, -1 outside
    first_edge: Any  # (nodes, A + 1): edges by action, -1 if not looked at yet
    edges: Any  # the nodes that follow
    outcomes: Any  # which of the model's outcomes each edge is
    slots: Any  # open-addressed table of nodes, -1 where a slot is empty
    sizes: Any  # (2,): nodes and edges


@njit(cache=True)
def _same(one, two):
    """Whether two sets are equal."""
    for w in range(one.size):  # noqa: SIM110 - numba compiles loops, not generators
        if one[w] != two[w]:
            return False
    return True


@njit(cache=True)
def _slot(s, contexts, graph):
    """The slot of a node in the table: where it is, or where it would be."""
    code = np.uint64(s + 1) * np.uint64(0x9E3779B97F4A7C15)
    for w in contexts:
        code = (code ^ w) * np.uint64(0xBF58476D1CE4E5B9)
        code ^= code >> np.uint64(29)
    mask = np.uint64(graph.slots.size - 1)
    slot = (code >> np.uint64(5)) & mask
    while graph.slots[slot] >= 0:
        node = graph.slots[slot]
        if graph.state[node] == s and _same(graph.contexts[node], contexts):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def fill_slots(graph):
    """Enter the nodes into a table that is empty."""
    for i in range(graph.sizes[0]):
        graph.slots[_slot(graph.state[i], graph.contexts[i], graph)] = i


@njit(cache=True)
def _node(s, contexts, kind, graph):
    """The node of a state and a set, a new one if it is met for the first time."""
    slot = _slot(s, contexts, graph)
    if graph.slots[slot] < 0:
        n = graph.sizes[0]
        graph.slots[slot], graph.state[n], graph.status[n] = n, s, kind[s]
        for w in range(contexts.size):
            graph.contexts[n, w] = contexts[w]
        graph.sizes[0] += 1
    return graph.slots[slot]


@njit(cache=True)
def _expand(node, A, starts, next_state, support, kind, most, contexts, graph):
    """List what follows each action of a node, if there is room; returns whether there was.

    `contexts` is room for a set. If `most` is not negative, all contexts stand for any set where a
    state ends it all, and everywhere after so many edges.
    """
    s = graph.state[node]
    widest = starts[(s + 1) * A] - starts[s * A]
    if graph.sizes[0] + widest > graph.state.size or graph.sizes[1] + widest > graph.edges.size:
        return False
    for a in range(A):
        graph.first_edge[node, a] = graph.sizes[1]
        for o in range(starts[s * A + a], starts[s * A + a + 1]):
            possible = False
            for w in range(contexts.size):
                contexts[w] = support[o, w] & graph.contexts[node, w]
                possible = possible or contexts[w] != 0
            if possible:
                n, e = next_state[o], graph.sizes[1]
                if most >= 0 and (kind[n] != UNKNOWN or e > most):
                    contexts[:] = ~np.uint64(0)
                graph.edges[e], graph.outcomes[e] = _node(n, contexts, kind, graph), o
                graph.sizes[1] += 1
    graph.first_edge[node, A] = graph.sizes[1]
    return True


@njit(cache=True)
def list_all(A, starts, next_state, support, kind, begins, sets, most, node, graph):
    """List what follows all nodes from `node` on, and returns the first for which no room was left.

    Nodes 0, 1, ... are the first states `begins` with their `sets` (k, W); `most` as in `_expand`.
    """
    for k in range(begins.size):
        _node(begins[k], sets[k], kind, graph)
    room = np.empty(sets.shape[1], np.uint64)
    while node < graph.sizes[0]:
        if not _expand(node, A, starts, next_state, support, kind, most, room, graph):
            break
        node += 1
    return node


@njit(cache=True)
def _is_safe(node, a, hopeful, alive, graph):
    """Whether an action of a node leads to won nodes only, or to those alive in its component."""
    begin, end = graph.first_edge[node, a], graph.first_edge[node, a + 1]
    for e in range(begin, end):
        n = graph.edges[e]
        if graph.place[n] >= 0:
            if not alive[graph.place[n]]:
                return False
        elif graph.status[n] == LOST or (graph.status[n] == UNKNOWN and not hopeful):
            return False
    return begin < end


@njit(cache=True)
def safe_actions(A, graph):
    """The actions (nodes, A) of won nodes after which all nodes are won."""
    safe, alive = np.zeros((graph.state.size, A), np.bool_), np.empty(0, np.bool_)
    for node in range(graph.state.size):
        if graph.status[node] == WON and graph.first_edge[node, 0] >= 0:
            for a in range(A):
                safe[node, a] = _is_safe(node, a, False, alive, graph)
    return safe


@njit(cache=True)
def _settle(local, n_local, hopeful, A, alive, reach, graph):
    """Which nodes of a component can reach the goal from everywhere in every context.

    The greatest set from which, by actions that never leave it except to won nodes, the goal can be
    reached in each context: alive[k] of node local[k]. Nodes outside that are neither won nor lost
    count as won if `hopeful`, else as lost. `reach` (k, W) are the contexts in which the goal can
    be reached.
    """
    W = reach.shape[1]
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
                node = local[k]
                if not alive[k] or _same(reach[k], graph.contexts[node]):
                    continue
                for a in range(A):
                    if not _is_safe(node, a, hopeful, alive, graph):
                        continue
                    for e in range(graph.first_edge[node, a], graph.first_edge[node, a + 1]):
                        n = graph.edges[e]
                        for w in range(W):
                            more = graph.contexts[n, w]
                            if graph.place[n] >= 0:
                                more = reach[graph.place[n], w]
                            if more & ~reach[k, w]:
                                reach[k, w] |= more
                                changed = True
        for k in range(n_local):
            if alive[k] and not _same(reach[k], graph.contexts[local[k]]):
                alive[k] = False
                removed = True


@njit(cache=True)
def _open_exit(node, a, top, graph):
    """A node to decide before an action of a component can be judged; -1: none, or it is lost."""
    found = -1
    for e in range(graph.first_edge[node, a], graph.first_edge[node, a + 1]):
        n = graph.edges[e]
        if graph.status[n] == LOST:
            return -1
        if graph.status[n] == UNKNOWN and not _same(graph.contexts[n], graph.contexts[top]):
            found = n
    return found


@njit(cache=True)
def decide(A, starts, next_state, support, kind, s, contexts, stack, action, blamed, graph):
    """Decide the node of a state and a set; -1 if there is no more room in the graph, else it.

    `starts`, `next_state` and `support` (n, W) are the outcomes of rows s A + a and the contexts in
    which each is possible; `kind` (S,) is `WON` for goals, `LOST` for other terminal states.

    Depth first over sets, which only shrink: the nodes that can be reached from a node without
    ruling out a context are its component. What lies outside is first hoped to be won; if the node
    is lost even so, that is known without looking there. Else, if it is won with what is known to
    be won, that is known too. Else the exits of an action that a hopeful policy would take are
    decided, one by one, until one of them is lost. After -1 the call is repeated with a larger
    graph: what was decided stays. `stack` and `action` have room for M + 2 nodes; `blamed` (W,)
    are the contexts in which a node that is lost cannot reach the goal.
    """
    W, S = support.shape[1], kind.size
    local, alive = np.empty(S, np.int64), np.empty(S, np.bool_)
    reach, room = np.empty((S, W), np.uint64), np.empty(W, np.uint64)
    if graph.sizes[0] == graph.state.size:
        return -1
    root = _node(s, contexts, kind, graph)
    stack[0], action[0, 0], depth = root, -1, 1
    while depth > 0:
        top = stack[depth - 1]
        if graph.status[top] != UNKNOWN:
            depth -= 1
            continue
        if action[depth - 1, 0] >= 0:
            exit_ = _open_exit(action[depth - 1, 0], action[depth - 1, 1], top, graph)
            if exit_ >= 0:
                stack[depth], action[depth, 0] = exit_, -1
                depth += 1
                continue
        local[0], graph.place[top], n_local, k = top, 0, 1, 0
        while k < n_local:
            node = local[k]
            if graph.first_edge[node, 0] < 0 and not _expand(
                node, A, starts, next_state, support, kind, -1, room, graph
            ):
                return -1
            for e in range(graph.first_edge[node, 0], graph.first_edge[node, A]):
                n = graph.edges[e]
                is_new = graph.status[n] == UNKNOWN and graph.place[n] < 0
                if is_new and _same(graph.contexts[n], graph.contexts[top]):
                    local[n_local], graph.place[n] = n, n_local
                    n_local += 1
            k += 1
        _settle(local, n_local, True, A, alive, reach, graph)
        if not alive[0] and depth == 1:
            for w in range(W):
                blamed[w] = graph.contexts[top, w] & ~reach[0, w]
        action[depth - 1, 0] = -1
        for k in range(n_local):
            if not alive[k]:
                graph.status[local[k]] = LOST
                continue
            # An action of a hopeful policy, near to the node, with an exit that is not decided.
            for a in range(A):
                wanted = action[depth - 1, 0] < 0 and _is_safe(local[k], a, True, alive, graph)
                if wanted and _open_exit(local[k], a, top, graph) >= 0:
                    action[depth - 1, 0], action[depth - 1, 1] = local[k], a
        if alive[0]:
            _settle(local, n_local, False, A, alive, reach, graph)
            for k in range(n_local):
                if alive[k]:
                    graph.status[local[k]] = WON
        for k in range(n_local):
            graph.place[local[k]] = -1
    return root
