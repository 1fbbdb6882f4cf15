"""L-UCRL with Q-MDP as one compiled loop [kwon2021, Alg. 1-3].

Its steps are inlined, as those of `_kernels.empirical`.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.alias import draw_entry
from latentmdp._kernels.belief import AWAKE, reset_belief, update_belief
from latentmdp._kernels.borrowed import borrowed
from latentmdp._kernels.empirical import (
    count,
    distinct_rows,
    has_room,
    likelihoods,
    locate,
    refresh_rows,
    refresh_start,
)
from latentmdp._kernels.optimism import LEAST_CHANGE, greedy_action, is_due, replan, weigh_rows
from latentmdp._kernels.rollout import add_scaled, begin_episode, draw_uniforms

__all__ = [
    "Played",
    "absorb_episode",
    "act",
    "count_episode",
    "discounted_return",
    "play_lucrl",
    "refresh_visited",
    "weigh_contexts",
]


class Played(NamedTuple):
    """Episodes as they were played, one row each; there may be none, which nobody wants to see."""

    lengths: NDArray[np.int64]  # (n,)
    states: NDArray[np.int32]  # (n, H + 1)
    actions: NDArray[np.int32]  # (n, H)
    rewards: NDArray[np.int32]  # (n, H)

    @classmethod
    def of(cls, n: int, H: int) -> "Played":
        """Room for n episodes of at most H steps."""
        steps = (np.zeros((n, length), np.int32) for length in (H + 1, H, H))
        return cls(np.zeros(n, np.int64), *steps)


@njit(cache=True, nogil=True)
def play_lucrl(
    chances, key, first_episode, revealed, estimate, optimistic, returns, true_belief, contexts,
    played,
):  # fmt: skip
    """Play as many episodes of Algorithm 1 as `returns` has entries; how many were played.

    They are fewer where a table of counts has no room for another episode. Fills the returns, the
    final belief in the true context and the true contexts, and, unless `played` has no rows, what
    was played.
    """
    return _play(
        borrowed(chances), key, first_episode, revealed, borrowed(estimate), borrowed(optimistic),
        returns, true_belief, contexts, borrowed(played),
    )  # fmt: skip


@njit(cache=True, nogil=True, forceinline=True)
def _play(
    chances, key, first_episode, revealed, estimate, optimistic, returns, true_belief, contexts,
    played,
):  # fmt: skip
    M, H = optimistic.values.shape[:2]
    belief, weight = np.empty((3, M)), np.zeros(M)
    first, second = np.empty(H), np.empty(H)
    states = np.empty(H + 1, np.int64)
    actions, rewards = np.empty(H, np.int64), np.empty(H, np.int64)
    for i in range(returns.shape[0]):
        if not has_room(estimate, H):
            return i
        replan(estimate, optimistic)
        episode = np.uint64(first_episode + i)
        context, s = begin_episode(chances, key, episode)
        draw_uniforms(key, episode, 1, H, first, second)
        length = act(
            chances, estimate, optimistic, context, s, second, belief, states, actions, rewards
        )
        weigh_contexts(belief, context, revealed, weight)
        absorb_episode(estimate, optimistic, weight, states, actions, rewards, length)
        returns[i] = discounted_return(rewards, length, estimate.reward_values, optimistic.discount)
        contexts[i] = context
        if played.lengths.shape[0] > 0:
            played.lengths[i], played.states[i, length] = length, states[length]
            for t in range(length):
                played.states[i, t], played.actions[i, t] = states[t], actions[t]
                played.rewards[i, t] = rewards[t]
        true_belief[i] = belief[AWAKE, context] if context < M else np.nan
    return returns.shape[0]


@njit(cache=True, nogil=True, forceinline=True)
def act(chances, estimate, optimistic, context, s, uniforms, belief, states, actions, rewards):
    """Play one episode from state s by the optimistic values and the filter; its length."""
    # Out of the tuple once: taking an array from it counts references in every step.
    starts, next_state, paid = chances.starts, chances.next_state, chances.reward
    thresholds, aliases = chances.outcome_threshold, chances.outcome_alias
    A, terminal, values = estimate.sizes[1], optimistic.terminal, optimistic.values
    scratch, H = estimate.scratch, actions.shape[0]
    reset_belief(belief, estimate.prior, estimate.initial, s)
    states[0], length = s, 0
    while length < H and not terminal[s]:
        t = length
        a = greedy_action(values, A, t, s, belief)
        row = s * A + a
        k = draw_entry(uniforms[t], thresholds, aliases, context, starts[row], starts[row + 1])
        n, z = np.int64(next_state[k]), np.int64(paid[k])
        likelihoods(estimate, belief.shape[1], s, a, n, z)
        update_belief(belief, scratch, 0)
        actions[t], rewards[t], states[t + 1] = a, z, n
        s, length = n, length + 1
    return length


@njit(cache=True, nogil=True, forceinline=True)
def weigh_contexts(belief, context, revealed, weight):
    """b-hat: one at the true context where it is revealed, what the filter believes otherwise."""
    for m in range(weight.shape[0]):
        weight[m] = belief[AWAKE, m]
        if revealed:
            weight[m] = 1.0 if m == context else 0.0


@njit(cache=True, nogil=True, forceinline=True)
def absorb_episode(estimate, optimistic, belief, states, actions, rewards, length):
    """Add an episode to the counts with weight belief[m] [kwon2021, Alg. 1, lines 6-16]."""
    visited = distinct_rows(estimate, states, actions, length)
    locate(estimate, states, actions, rewards, length)
    for m in range(belief.shape[0]):
        if belief[m] == 0.0:
            continue
        steps = (states, actions, rewards, length)
        if count_episode(estimate, optimistic, m, belief[m], *steps):
            optimistic.due[0] |= refresh_visited(estimate, optimistic, visited, m, 0, 1)


@njit(cache=True, nogil=True, forceinline=True)
def count_episode(estimate, optimistic, m, weight, states, actions, rewards, length):
    """Add an episode to the counts of one context; False if all was below their rounding."""
    estimate.initial_counts[states[0], m] += weight
    refresh_start(estimate, m)
    changed = count(estimate, m, weight, states, actions, rewards, length)
    if changed:
        optimistic.changes[m] += weight
        optimistic.stale[m] |= optimistic.changes[m] > LEAST_CHANGE
    return changed


@njit(cache=True, nogil=True, forceinline=True)
def refresh_visited(estimate, optimistic, visited, m, first, step):
    """Derive what the counts of the rows in `estimate.rows` imply; whether a plan is due."""
    refresh_rows(estimate, visited, m, first, step)
    weigh_rows(estimate, optimistic, visited, m, first, step)
    return is_due(estimate, optimistic, visited, m, first, step)


@njit(cache=True, nogil=True)
def discounted_return(rewards, length, reward_values, discount):
    """Sum of discount^t r_t over the first `length` rewards, given as indices."""
    total, scale = 0.0, 1.0
    for t in range(length):
        total = add_scaled(total, scale, reward_values[rewards[t]])
        scale *= discount
    return total
