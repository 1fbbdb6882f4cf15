"""End components of Markov decision processes: where one can stay for ever [dealfaro1997].

An end component is a set of states, with actions for each of them, that lead nowhere else and by
which every state of the set can be reached from every other. Maximal ones are found by taking away,
until nothing changes, the actions that may leave their strongly connected component.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentmdp._util.arrays import Flags, Indices, Integers


class EndComponents(NamedTuple):
    """The maximal end components of a process."""

    of_state: Integers  # (S,): the component of each state, -1 for none
    inside: Flags  # (R,): whether a row stays in the component of its state


def end_components(
    first: Integers, starts: Integers, next_state: Indices | Integers, possible: Flags,
    usable: Flags | None = None,
) -> EndComponents:  # fmt: skip
    """The maximal end components of one process.

    Parameters
    ----------
    first : (S + 1,)
        The rows first[s] .. first[s + 1] - 1 are the actions of state s.
    starts : (R + 1,)
        The entries starts[r] .. starts[r + 1] - 1 are what may follow row r.
    next_state, possible : (n,)
        The states of the entries, and which of them are possible.
    usable : (R,)
        Rows that count; all by default. A row after which nothing is possible ends, and does not.
    """
    S, R = first.size - 1, starts.size - 1
    state_of = np.repeat(np.arange(S), np.diff(first))
    row_of = np.repeat(np.arange(R), np.diff(starts))
    rows, successors = row_of[possible], next_state[possible].astype(np.int64)
    inside = np.bincount(rows, minlength=R) > 0
    if usable is not None:
        inside &= usable
    while True:
        kept = inside[rows]
        rows, successors = rows[kept], successors[kept]
        label = components(S, state_of[rows], successors)
        leaves = np.unique(rows[label[state_of[rows]] != label[successors]])
        inside[leaves] = False
        if not leaves.size:
            break
    staying = np.zeros(S, np.bool_)
    staying[state_of[inside]] = True
    return EndComponents(np.where(staying, label, -1), inside)


def components(n: int, source: Integers, target: Integers) -> Integers:
    """The strongly connected component of each of n nodes of a graph with these edges."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    edges = csr_array((np.ones(source.size, np.float32), (source, target)), shape=(n, n))
    return np.asarray(connected_components(edges, connection="strong")[1], np.int64)


def reaching(n: int, source: Integers, target: Integers, goals: Flags) -> Flags:
    """Which of n nodes of a graph with these edges can reach a goal, (n,); goals can."""
    return np.isin(np.arange(n), _backwards(n, source, target, goals)[0])


def distances(n: int, source: Integers, target: Integers, goals: Flags) -> Integers:
    """The fewest edges from each of n nodes to a goal, (n,); -1 where there is no way."""
    order, before = _backwards(n, source, target, goals)
    steps = np.full(n + 1, -1)
    steps[n] = 0
    for node in order[1:].tolist():
        steps[node] = steps[before[node]] + 1
    return np.where(steps[:n] >= 0, steps[:n] - 1, -1)


def _backwards(n: int, source: Integers, target: Integers, goals: Flags) -> tuple[Any, Any]:
    """A search breadth first from one more node, n, from which the goals are an edge away."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    ends = np.flatnonzero(goals)
    edges = np.append(target, np.full(ends.size, n)), np.append(source, ends)
    graph = csr_array((np.ones(edges[0].size, np.float32), edges), shape=(n + 1, n + 1))
    return breadth_first_order(graph, n)
