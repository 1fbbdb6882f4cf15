"""Outcome tables made from dense arrays, and outcomes that say the same about the context."""

from numba import njit


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
def leaders(start, stop, starts, next_state, probs, tolerance, out):
    """For the rows start..stop-1, fill out (n,) with the first outcome to the same s' and belief.

    Beliefs are the same whose entries differ by no more than `tolerance`, whatever the prior is.
    """
    M = probs.shape[1]
    for row in range(start, stop):
        for k in range(starts[row], starts[row + 1]):
            out[k] = k
            j, total = k - 1, 0.0
            while j >= starts[row] and next_state[j] == next_state[k]:
                if total == 0.0:
                    total = _sum(probs, k)
                if out[j] == j:
                    other = _sum(probs, j)
                    same, slack = True, tolerance * other * total
                    for m in range(M):
                        if abs(probs[k, m] * other - probs[j, m] * total) > slack:
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
def merge(probs, leader, place, out):
    """Add the probabilities of outcomes (n, M) to those of their leaders: out[place[leader]]."""
    for k in range(probs.shape[0]):
        for m in range(probs.shape[1]):
            out[place[leader[k]], m] += probs[k, m]
