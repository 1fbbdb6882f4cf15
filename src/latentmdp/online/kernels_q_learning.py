"""Tabular Q-learning: an epsilon-greedy choice, a backward sweep over an episode, and the loop.

Values and visits have shape (M, S, A), one table for each context that is told.
"""

import numpy as np
from numba import njit

from latentmdp._kernels import begin_episode, draw_of_row, draw_uniforms


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
def q_sweep(values, visits, allowed, m, states, actions, earned, length, ended, rate, discount):
    """Move Q(s, a) towards r + discount max Q(s', .) with step N(s, a)^-rate, last step first.

    The value of a state without any allowed action is 0, as that of the last one if it `ended`.
    values and visits (M, S, A) are changed in place for context m; states (length + 1,) or longer,
    actions and earned (length,) or longer. Going backwards, a step already reads what the step
    after it has learned.
    """
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


@njit(cache=True, nogil=True)
def play_q_learning(
    chances,
    key,
    first_episode,
    informed,
    values,
    visits,
    allowed,
    reward_values,
    settings,
    contexts,
    played,
):
    """Play and learn from one episode for every entry of contexts (N,), which are filled.

    `settings` are explore, rate and discount; values and visits (M, S, A) are updated after each
    episode, with M = 1 unless the learner is `informed` of the context. Fills `played`, a `Played`
    with room for N episodes of H steps. Of the two uniform numbers of a step, the first chooses the
    action and the second the outcome, as in `simulate`.
    """
    explore, rate, discount = settings
    states, actions, rewards = played.states, played.actions, played.rewards
    H, A, terminal = actions.shape[1], values.shape[2], chances.terminal
    first, second, earned = np.empty(H), np.empty(H), np.empty(H)
    starts, next_state, paid = chances.starts, chances.next_state, chances.reward
    thresholds, aliases = chances.outcome_threshold, chances.outcome_alias
    for i in range(contexts.shape[0]):
        episode = np.uint64(first_episode + i)
        context, s = begin_episode(chances, key, episode)
        m = context if informed else np.int64(0)
        draw_uniforms(key, episode, 1, H, first, second)
        states[i, 0], length = s, 0
        while length < H and not terminal[s]:
            a = q_action(values, visits, allowed, m, s, explore, first[length])
            row = s * A + a
            k = draw_of_row(
                second[length], thresholds, aliases, context, row, starts, chances.tables
            )
            s = np.int64(next_state[k])
            actions[i, length], rewards[i, length], states[i, length + 1] = a, paid[k], s
            earned[length] = reward_values[paid[k]]
            length += 1
        path, ended = (states[i], actions[i], earned, length), terminal[s]
        q_sweep(values, visits, allowed, m, *path, ended, rate, discount)
        contexts[i], played.lengths[i] = context, length
