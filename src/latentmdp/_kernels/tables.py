"""Outcome tables made from dense arrays, and what in them is the same."""

import numpy as np

from latentmdp._kernels import njit


@njit(cache=True, nogil=True)
def list_outcomes(start, stop, transitions, rewards, counts, starts, next_state, reward, probs):
    """Fill counts (R,) with the outcomes of rows start..stop-1 that are possible in some context.

    Write them too, those of a row by (s', z) from starts[row] on, unless the table has no entries:
    whoever calls counts first, and then knows how long it is. `transitions` is (M, R, S), `rewards`
    (M, R, S or 1, Z).
    """
    M, _, S = transitions.shape
    _, _, U, Z = rewards.shape
    for row in range(start, stop):
        counts[row] = 0
        for n in range(S):
            u = n if n < U else U - 1
            for z in range(Z):
                m = 0
                while m < M and not transitions[m, row, n] * rewards[m, row, u, z] > 0.0:
                    m += 1
                if m == M:
                    continue
                if next_state.shape[0] > 0:
                    k = starts[row] + counts[row]
                    next_state[k], reward[k] = n, z
                    for m in range(M):
                        probs[k, m] = transitions[m, row, n] * rewards[m, row, u, z]
                counts[row] += 1


@njit(cache=True, nogil=True)
def leaders(start, stop, starts, next_state, pattern, probs, tolerance, out):
    """For the rows start..stop-1, fill out (n,) with the first outcome to the same s' and belief.

    Beliefs are the same whose entries differ by no more than `tolerance`, whatever the prior is.
    Outcome k has the probabilities probs[pattern[k]].
    """
    M = probs.shape[1]
    for row in range(start, stop):
        for k in range(starts[row], starts[row + 1]):
            out[k] = k
            j, total = k - 1, 0.0
            while j >= starts[row] and next_state[j] == next_state[k]:
                p, q = pattern[k], pattern[j]
                if total == 0.0:
                    total = _sum(probs, p)
                if out[j] == j:
                    other = _sum(probs, q)
                    same, slack = True, tolerance * other * total
                    for m in range(M):
                        if abs(probs[p, m] * other - probs[q, m] * total) > slack:
                            same = False
                            break
                    if same:
                        out[k] = j
                        break
                j -= 1


@njit(cache=True, nogil=True)
def _sum(probs, k):
    total = 0.0
    for m in range(probs.shape[1]):
        total += probs[k, m]
    return total


@njit(cache=True, nogil=True)
def number_runs(starts, values, slots, number, first):
    """Number the runs values[starts[i] : starts[i + 1]] in the order in which new ones come.

    Fills number (runs,) and first (runs,), the first run with each number; returns how many there
    are. `slots`, filled with -1, is a table of hashes of a power of two, twice as long as there are
    runs at least.
    """
    count, mask = 0, np.uint64(slots.shape[0] - 1)
    for i in range(starts.shape[0] - 1):
        begin, length = starts[i], starts[i + 1] - starts[i]
        key = np.uint64(length)
        for k in range(begin, begin + length):
            key = (key ^ np.uint64(values[k])) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        slot = key & mask
        while slots[slot] >= 0:
            j = first[slots[slot]]
            same = starts[j + 1] - starts[j] == length
            k = 0
            while same and k < length:
                same = values[starts[j] + k] == values[begin + k]
                k += 1
            if same:
                break
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], first[count] = count, i
            count += 1
        number[i] = slots[slot]
    return count


@njit(cache=True, nogil=True)
def row_rewards(start, stop, table, rows, values, out):
    """Add to out[i] (M,) the mean reward of row rows[i] in every context, for i = start..stop-1."""
    for i in range(start, stop):
        for k in range(table.starts[rows[i]], table.starts[rows[i] + 1]):
            value = values[table.reward[k]]
            for m in range(out.shape[1]):
                out[i, m] += value * table.distinct[table.pattern[k], m]
