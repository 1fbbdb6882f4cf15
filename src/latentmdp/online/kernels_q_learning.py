"""Tabular Q-learning: an epsilon-greedy choice, and a backward sweep over an episode.

Values and visits have shape (M, S, A), one table for each context that is told.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def q_action(values, visits, allowed, m, s, explore, uniform):
    """Any allowed action with probability explore / (explore + N_m(s)), else a best one.

    Equally good actions are equally likely. One uniform number decides all of it: whether the
    choice is random, and, stretched to [0, 1) again, which action it is. values and visits
    (M, S, A) and allowed (S, A) are read.
    """
    A = values.shape[2]
    best, ties, n, seen = -np.inf, 0, 0, 0.0
    for a in range(A):
        if allowed[s, a]:
            n += 1
            seen += visits[m, s, a]
            if values[m, s, a] > best:
                best, ties = values[m, s, a], 1
            elif values[m, s, a] == best:
                ties += 1
    share = explore / (explore + seen) if explore > 0.0 else 0.0
    greedy = uniform >= share
    if greedy:
        place = int((uniform - share) / (1.0 - share) * ties)
        place = min(place, ties - 1)
    else:
        place = min(int(uniform / share * n), n - 1)
    for a in range(A):
        if allowed[s, a] and (not greedy or values[m, s, a] == best):
            if place == 0:
                return a
            place -= 1
    return A - 1


@njit(cache=True, nogil=True)
def q_sweep(values, visits, allowed, m, states, actions, earned, ended, rate, discount):
    """Move Q(s, a) towards r + discount max Q(s', .) with step N(s, a)^-rate, last step first.

    The value of a state without any allowed action is 0, as that of the last one if it `ended`.
    values and visits (M, S, A) are changed in place for context m; states (L + 1,), actions and
    earned (L,). Going backwards, a step already reads what the step after it has learned.
    """
    length = actions.shape[0]
    for t in range(length - 1, -1, -1):
        s, a, n = states[t], actions[t], states[t + 1]
        rest, goes_on = -np.inf, False
        for b in range(values.shape[2]):
            if allowed[n, b]:
                goes_on = True
                rest = max(rest, values[m, n, b])
        final = not goes_on or (ended and t == length - 1)
        target = earned[t] + (0.0 if final else discount * rest)
        visits[m, s, a] += 1.0
        values[m, s, a] += visits[m, s, a] ** (-rate) * (target - values[m, s, a])
