"""The loop over the nodes of policy graphs: what they earn, step by step."""

import numpy as np

from latentmdp._kernels import njit


@njit(cache=True, nogil=True)
def evaluate_plans(
    start, stop, table, earned, discount, states, choices, links, own, later, rows, out
):
    """One iteration for the items start..stop-1 from rows (n, M) into out.

    Item i is in state states[i], chooses row choices[i] of the table and earns earned[i]. Nodes of
    state s that are where these items are begin at own[s], those of the next step at later[s]: an
    item that stays goes on at its place there.
    """
    M, probs = earned.shape[1], table.distinct
    vector = np.empty(M)
    for i in range(start, stop):
        s, row = states[i], choices[i]
        begin = table.starts[row]
        for m in range(M):
            vector[m] = 0.0
        if links.stays[i]:
            place = i - own[s]
            for k in range(begin, table.starts[row + 1]):
                n, p = table.next_state[k], table.pattern[k]
                if later[n] + place < later[n + 1]:
                    for m in range(M):
                        vector[m] += probs[p, m] * rows[later[n] + place, m]
        else:
            links_begin = links.node_starts[i]
            for j in range(links_begin, links.node_starts[i + 1]):
                p, f = table.pattern[begin + j - links_begin], links.followers[j]
                for m in range(M):
                    vector[m] += probs[p, m] * rows[f, m]
        for m in range(M):
            out[i, m] = earned[i, m] + discount * vector[m]
