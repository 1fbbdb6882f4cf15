"""Loops over the nodes of policy graphs: what they earn, iterated."""

import numpy as np
from numba import njit

SUMMED = 512
"""Items whose changes are summed at a time, so that sums do not depend on who does it."""


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
