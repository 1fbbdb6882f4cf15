"""Links of policy graphs: which node follows each outcome of a node's action.

A node lists its followers, one for each outcome, or it *stays*: then it goes on with the node at
its own place among those of whatever state comes next. Nodes are in the order of groups t S + s, or
s where the graph does not depend on time.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Links(NamedTuple):
    """The links of n nodes as kernels read them."""

    node_starts: NDArray[np.int64]  # (n + 1,): a node that stays has no followers of its own
    followers: NDArray[np.int32]  # of node i after each outcome of its action: from node_starts[i]
    stays: NDArray[np.bool_]  # (n,)


@njit(cache=True, nogil=True)
def wrong_link(table, terminal, rows, groups, n_layers, ends, links):
    """The first link that is not a node of where its outcome leads, and the group wanted there.

    Nodes of the next step are one layer on if time `ends`. -1 stands for none: as a link where the
    episode is over, as a group there, and as a place if all is right.
    """
    S, n = terminal.shape[0], groups.shape[0]
    for i in range(n):
        if links.stays[i]:
            continue
        layer, k = groups[i] // S + ends, links.node_starts[i]
        for outcome in range(table.starts[rows[i]], table.starts[rows[i] + 1]):
            s, link = table.next_state[outcome], links.followers[k]
            wanted = -1 if layer >= n_layers or terminal[s] else layer * S + s
            if link < -1 or link >= n or (groups[link] if link >= 0 else -1) != wanted:
                return k, wanted
            k += 1
    return -1, -1


@njit(cache=True, nogil=True)
def reach(table, rows, groups, offsets, n_layers, ends, links, S, reached):
    """Mark in reached (n,) all nodes that those marked there lead to."""
    n = groups.shape[0]
    pending = np.empty(n, np.int64)
    count = 0
    for i in range(n):
        if reached[i]:
            pending[count] = i
            count += 1
    while count:
        count -= 1
        i = pending[count]
        layer, place, k = groups[i] // S + ends, i - offsets[groups[i]], links.node_starts[i]
        for outcome in range(table.starts[rows[i]], table.starts[rows[i] + 1]):
            following = np.int64(-1)
            if not links.stays[i]:
                following = np.int64(links.followers[k])
                k += 1
            elif layer < n_layers:
                group = layer * S + table.next_state[outcome]
                if offsets[group] + place < offsets[group + 1]:
                    following = offsets[group] + place
            if following >= 0 and not reached[following]:
                reached[following] = True
                pending[count] = following
                count += 1
