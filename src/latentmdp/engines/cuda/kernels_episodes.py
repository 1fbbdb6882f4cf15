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

from latentmdp._kernels.alias import alias_draw, draw_entry
from latentmdp._kernels.belief import observe_step, reset_belief, update_belief, write_belief
from latentmdp._kernels.philox import uniform_pair
from latentmdp._kernels.rollout import (
    NOT_LISTED,
    WORLD_STREAM,
    add_scaled,
    begin_episode,
    best_vector,
)
from latentmdp.engines.cuda.device import limited_jit

__all__ = ["Logged", "Noted", "RolloutKind", "filter_kernel", "rollout_kernel"]


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


class RolloutKind(NamedTuple):
    """What a rollout is compiled for; what is known then is not read at every step."""

    width: int  # of beliefs
    stochastic: bool
    filters: bool
    layered: bool  # whether the policy has a layer for every step
    partial: bool  # whether its filter does not list some outcomes of the world
    n_vectors: int  # of every group, 0 where they differ
    n_outcomes: int  # of every row, 0 where they differ
    ragged: bool  # whether there are terminal states
    given: bool  # whether contexts are given
    stores: bool
    earns: bool


_REGISTERS = 128
"""Of a thread that filters. With fewer, more threads wait for memory side by side; far fewer and
beliefs go to memory themselves."""


@cache
def rollout_kernel(kind):
    """The compiled rollout of one `RolloutKind`."""
    width, stochastic, filters, layered, partial, n_vectors, n_outcomes = kind[:7]
    ragged, given, stores, earns = kind[7:]

    @limited_jit(_REGISTERS if filters else None)
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
            reset_belief(belief, acting.filter.prior, acting.filter.initial, s)
        if stores:
            noted.contexts[i] = m
            noted.states[0, i] = s
        total, scale = 0.0, 1.0
        if earns:
            total = earning.initial_bonus[m]
        length = 0
        while length < horizon:
            if ragged and chances.terminal[s]:
                break
            t = length
            first, second = uniform_pair(key, WORLD_STREAM, episode, np.uint64(t + 1))
            group = t * S + s if layered else s
            if stochastic:
                a = alias_draw(first, acting.action_threshold, acting.action_alias, group)
            else:
                begin, end = group * n_vectors, (group + 1) * n_vectors
                if n_vectors == 0:
                    begin, end = acting.offsets[group], acting.offsets[group + 1]
                a = np.int64(acting.labels[best_vector(acting.vectors, begin, end, belief)])
            row = s * A + a
            begin, end = row * n_outcomes, (row + 1) * n_outcomes
            if n_outcomes == 0:
                begin, end = chances.starts[row], chances.starts[row + 1]
            k = draw_entry(second, chances.outcome_threshold, chances.outcome_alias, m, begin, end)
            if filters and (not partial or likelihood[k, 0] != NOT_LISTED):
                update_belief(belief, likelihood, k)
            z = chances.reward[k]
            if earns:
                earned = earning.values[z]
                if earning.hidden:
                    earned += earning.bonus[m, row]
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
        states, actions, rewards = logged.states, logged.actions, logged.rewards
        start = logged.offsets[i]
        begin, length = start + i, logged.offsets[i + 1] - start
        belief = cuda.local.array((3, width), np.float64)
        possible = reset_belief(belief, table.prior, table.initial, states[begin])
        impossible = -1 if possible else 0
        for t in range(length + 1):
            if t > 0:
                s, n = states[begin + t - 1], states[begin + t]
                k = start + t - 1
                if not observe_step(belief, table, s, actions[k], n, rewards[k]):
                    impossible = t
            if impossible >= 0:
                break
            if along:
                write_belief(belief, logged.out, begin + t)
        if not along and impossible < 0:
            write_belief(belief, logged.out, i)
        logged.step[i] = impossible

    return follow
