"""L-UCRL with Q-MDP as one compiled loop [kwon2021, Alg. 1-3].

Its steps are inlined, as those of `_kernels.empirical`.
"""

import numpy as np
from numba import njit

from latentmdp._kernels.belief import AWAKE, reset_belief
from latentmdp._kernels.empirical import (
    count,
    distinct_rows,
    observe,
    refresh_row,
    refresh_start,
)
from latentmdp._kernels.optimism import greedy_action, replan
from latentmdp._kernels.rollout import _draw_uniforms, _observe, begin_episode

__all__ = ["absorb_episode", "discounted_return", "play_lucrl"]


@njit(cache=True, nogil=True)
def play_lucrl(
    world, key, first_episode, revealed, estimate, plans, returns, true_belief, contexts
):
    """Play as many episodes of Algorithm 1 as `returns` has entries.

    Fills the returns, the final belief in the true context and the true contexts.
    """
    M, H = plans.values.shape[:2]
    belief, weight = np.empty((3, M)), np.zeros(M)
    first, second = np.empty(H), np.empty(H)
    states = np.empty(H + 1, np.int64)
    actions, rewards = np.empty(H, np.int64), np.empty(H, np.int64)
    for i in range(returns.shape[0]):
        replan(estimate, plans)
        episode = np.uint64(first_episode + i)
        context = _play_episode(
            world, key, episode, estimate, plans, belief, first, second, states, actions, rewards
        )
        for m in range(M):
            weight[m] = belief[AWAKE, m]
            if revealed:
                weight[m] = 1.0 if m == context else 0.0
        absorb_episode(estimate, plans, weight, states, actions, rewards, H)
        returns[i] = discounted_return(rewards, H, estimate.reward_values, plans.discount)
        contexts[i] = context
        true_belief[i] = belief[AWAKE, context] if context < M else np.nan


@njit(cache=True, nogil=True, inline="always")
def _play_episode(
    world, key, episode, estimate, plans, belief, first, second, states, actions, rewards
):
    context, s = begin_episode(world, key, episode)
    reset_belief(belief, estimate.prior, estimate.initial, s)
    _draw_uniforms(key, episode, 1, first.shape[0], first, second)
    states[0] = s
    for t in range(first.shape[0]):
        a = greedy_action(plans.values, estimate.sizes[1], t, s, belief)
        following, z = _observe(world, second[t], context, s, a)
        observe(estimate, belief, s, a, following, z)
        actions[t], rewards[t], states[t + 1] = a, z, following
        s = following
    return context


@njit(cache=True, nogil=True, inline="always")
def absorb_episode(estimate, plans, belief, states, actions, rewards, length):
    """Add an episode to the counts with weight belief[m] [kwon2021, Alg. 1, lines 6-16]."""
    visited = distinct_rows(estimate, states, actions, length)
    for m in range(belief.shape[0]):
        weight = belief[m]
        if weight == 0.0:
            continue
        estimate.initial_counts[states[0], m] += weight
        refresh_start(estimate, m)
        if not count(estimate, m, weight, states, actions, rewards, length):
            continue
        plans.stale[m] = True
        for i in range(visited):
            row = estimate.rows[i]
            refresh_row(estimate, row, m)
            planned = max(1.0, plans.planned_visits[row, m])
            plans.due[0] |= estimate.visits[row, m] > plans.growth * planned


@njit(cache=True, nogil=True)
def discounted_return(rewards, length, reward_values, discount):
    """Sum of discount^t r_t over the first `length` rewards, given as indices."""
    total, scale = 0.0, 1.0
    for t in range(length):
        total += scale * reward_values[rewards[t]]
        scale *= discount
    return total
