"""Playing and filtering episodes on a GPU, one thread an episode.

The threads call what the loops of the CPU call (`rollout`, `belief`), so that both give the same
bits. Logs are written time-major: the threads of a warp play neighbouring episodes and write to
neighbouring places. Tables over contexts have an even width, see `rows`; contexts that fill it up
have probability zero, which changes no sum.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from latentmdp._kernels.alias import alias_draw
from latentmdp._kernels.belief import follow_episode, reset_belief, update_belief
from latentmdp._kernels.philox import uniform_pair
from latentmdp._kernels.rollout import (
    NOT_LISTED,
    WORLD_STREAM,
    add_scaled,
    begin_episode,
    best_action,
    draw_outcome,
)

__all__ = ["Logged", "Noted", "filter_kernel", "rollout_kernel"]


class Noted(NamedTuple):
    """What is kept of N episodes; arrays that are not asked for have no entries."""

    contexts: NDArray[np.int32]  # (N,)
    lengths: NDArray[np.int32]  # (N,)
    states: NDArray[np.integer]  # (H + 1, N)
    actions: NDArray[np.integer]  # (H, N)
    rewards: NDArray[np.integer]  # (H, N)
    returns: NDArray[np.float64]  # (N,)


class Logged(NamedTuple):
    """Some episodes of a log, and where their posteriors go."""

    states: NDArray[np.int32]
    actions: NDArray[np.int32]
    rewards: NDArray[np.int32]
    offsets: NDArray[np.int64]  # (N + 1,)
    out: NDArray[np.float64]  # (N, M), or (number of states, M)
    step: NDArray[np.int32]  # (N,): -1, or the first impossible step


@cache
def rollout_kernel(width, stochastic, filters, layered, given, stores, earns):
    """The compiled rollout of one kind of policy, with beliefs over `width` contexts."""

    @cuda.jit
    def rollout(chances, acting, earning, key, first_episode, horizon, noted):
        i = cuda.grid(1)
        if i >= noted.contexts.shape[0]:
            return
        likelihood = acting.filter.likelihood
        belief = cuda.local.array((3, width), np.float64)
        episode = np.uint64(first_episode + i)
        S, A = chances.sizes[0], chances.sizes[1]
        m, s = begin_episode(chances, key, episode, noted.contexts[i] if given else -1)
        if filters:
            reset_belief(belief, acting.filter.prior, acting.filter.initial, s, 0)
        if stores:
            noted.contexts[i] = m
            noted.states[0, i] = s
        total, scale = 0.0, 1.0
        if earns:
            total = earning.initial_bonus[m]
        length = 0
        while length < horizon and not chances.terminal[s]:
            t = length
            first, second = uniform_pair(key, WORLD_STREAM, episode, np.uint64(t + 1))
            group = t * S + s if layered else s
            if stochastic:
                a = alias_draw(first, acting.action_threshold, acting.action_alias, group)
            else:
                begin, end = acting.offsets[group], acting.offsets[group + 1]
                a = best_action(acting.vectors, acting.labels, begin, end, belief, 0)
            k = draw_outcome(chances, second, m, s, a)
            if filters and likelihood[k, 0] != NOT_LISTED:
                update_belief(belief, likelihood, k, 0)
            z = chances.reward[k]
            if earns:
                earned = earning.values[z]
                if earning.hidden:
                    earned += earning.bonus[m, s * A + a]
                total = add_scaled(total, scale, earned)
                scale *= earning.discount
            s = np.int64(chances.next_state[k])
            if stores:
                noted.actions[t, i] = a
                noted.rewards[t, i] = z
                noted.states[t + 1, i] = s
            length += 1
        noted.lengths[i] = length
        if earns:
            noted.returns[i] = total

    return rollout


@cache
def filter_kernel(width, along):
    """The compiled filter with beliefs over `width` contexts."""

    @cuda.jit
    def follow(table, logged):
        i = cuda.grid(1)
        if i >= logged.step.shape[0]:
            return
        belief = cuda.local.array((3, width), np.float64)
        logged.step[i] = follow_episode(
            belief,
            table,
            logged.states,
            logged.actions,
            logged.rewards,
            logged.offsets,
            i,
            along,
            logged.out,
        )

    return follow
