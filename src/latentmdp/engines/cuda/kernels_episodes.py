"""Playing and filtering episodes on a GPU, one thread an episode.

The threads call what the loops of the CPU call (`rollout`, `belief`), so that both give the same
bits. Logs are written time-major: the threads of a warp play neighbouring episodes and write to
neighbouring places.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from latentmdp._kernels.alias import alias_draw, draw_entry
from latentmdp._kernels.belief import observe_step, reset_belief, update_belief, write_belief
from latentmdp._kernels.philox import uniform_pair
from latentmdp._kernels.rollout import SUMMED, WORLD_STREAM, add_scaled, begin_episode, best_vector
from latentmdp._kernels.rows import product
from latentmdp.engines.cuda.device import limited_jit
from latentmdp.engines.cuda.kernels_mixture import add_halves


class Noted(NamedTuple):
    """What is noted of N episodes, time-major."""

    contexts: NDArray[np.int32]  # (N,)
    lengths: NDArray[np.int32]  # (N,)
    states: NDArray[np.integer]  # (H + 1, N)
    actions: NDArray[np.integer]  # (H, N)
    rewards: NDArray[np.integer]  # (H, N)


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


_REGISTERS = 128
"""Of a thread that filters. With fewer, more threads wait for memory side by side; far fewer and
beliefs go to memory themselves."""


@cache
def _step(kind):
    """One step of an episode: the action, and the outcome that follows; the belief is updated.

    The compiled step takes a state s of context m at time t and a belief (3, width), which it
    changes in place. It returns the action and the number of the outcome in the world's table.
    What `kind` says is known when it is compiled, so that no thread asks for it: groups and rows of
    one length are found by a product instead of two reads.
    """
    _, stochastic, filters, layered, partial, n_vectors, n_outcomes, _ = kind

    @cuda.jit(device=True)
    def step(chances, acting, key, episode, t, m, s, belief):
        likelihood, rows = acting.filter.likelihood, acting.filter.pattern
        S, A = chances.sizes[0], chances.sizes[1]
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
        base, tables = chances.tables[row], (chances.outcome_threshold, chances.outcome_alias)
        k = draw_entry(second, tables[0], tables[1], m, base, base + end - begin)
        k += begin - base
        if filters and (not partial or rows[k] >= 0):
            update_belief(belief, likelihood, np.int64(rows[k]))
        return a, k

    return step


@cache
def rollout_kernel(kind):
    """The compiled rollout of one `RolloutKind`, a thread an episode.

    Thread i plays episode first_episode + i and fills column i of `noted`, which must not alias the
    tables; entries behind an episode's end stay as they were. Beliefs lie in a thread's registers.
    """
    step, width, filters, ragged = _step(kind), kind.width, kind.filters, kind.ragged

    @limited_jit(_REGISTERS if filters else None)
    def rollout(chances, acting, key, first_episode, horizon, noted):
        i = cuda.grid(1)
        if i >= noted.contexts.shape[0]:
            return
        belief = cuda.local.array((3, width), np.float64)
        episode = np.uint64(first_episode + i)
        m, s = begin_episode(chances, key, episode, -1)
        if filters:
            row = acting.filter.begins[s]
            reset_belief(belief, acting.filter.prior, acting.filter.initial, row)
        noted.contexts[i], noted.states[0, i], t = m, s, 0
        while t < horizon and not (ragged and chances.terminal[s]):
            a, k = step(chances, acting, key, episode, t, m, s, belief)
            s = np.int64(chances.next_state[k])
            noted.actions[t, i], noted.rewards[t, i] = a, chances.reward[k]
            t += 1
            noted.states[t, i] = s
        noted.lengths[i] = t

    return rollout


@cuda.jit(device=True)
def _block_of(runs, block):
    """The context of a block of `ContextRuns`, its first episode, and how many it has."""
    m = 0
    while block >= runs.blocks[m + 1]:
        m += 1
    first = runs.episodes[m] + (block - runs.blocks[m]) * SUMMED
    return m, first, min(SUMMED, runs.episodes[m + 1] - first)


@cache
def returns_kernel(kind, threads):
    """The compiled sums of returns, see `sum_returns`: a block of `threads` a block of episodes.

    Block b fills row b of `sums` (blocks, 2). Returns of its `SUMMED` episodes lie in shared
    memory, zero for those that the block lacks, and are added by halves. That is the order of the
    CPU, whatever the number of threads, so sums have its bits. Every `syncthreads` lies between a
    write and another thread's read of the same entry.
    """
    step, width, filters, ragged = _step(kind), kind.width, kind.filters, kind.ragged
    each = SUMMED // threads

    @limited_jit(_REGISTERS if filters else None)
    def returns(first_block, chances, acting, key, first_episode, horizon, earning, runs, sums):
        room = cuda.shared.array(SUMMED, np.float64)
        belief = cuda.local.array((3, width), np.float64)
        thread, b = cuda.threadIdx.x, cuda.blockIdx.x
        m, first, n = _block_of(runs, first_block + b)
        A = chances.sizes[1]
        for i in range(thread, SUMMED, threads):
            room[i] = 0.0
            if i < n:
                episode = np.uint64(first_episode + first + i)
                _, s = begin_episode(chances, key, episode, m)
                if filters:
                    row = acting.filter.begins[s]
                    reset_belief(belief, acting.filter.prior, acting.filter.initial, row)
                total, scale, t = earning.initial_bonus[m], 1.0, 0
                while t < horizon and not (ragged and chances.terminal[s]):
                    a, k = step(chances, acting, key, episode, t, m, s, belief)
                    earned = earning.values[chances.reward[k]]
                    if earning.hidden:
                        earned += earning.bonus[earning.rows[s * A + a], m]
                    total = add_scaled(total, scale, earned)
                    scale *= earning.discount
                    s = np.int64(chances.next_state[k])
                    t += 1
                room[i] = total
        # What a thread earned it reads again itself: the sum spoils the room.
        returns_here = cuda.local.array(each, np.float64)
        for j in range(each):
            returns_here[j] = room[thread + j * threads]
        add_halves(room, SUMMED, thread, threads, 1, 0)
        cuda.syncthreads()
        total = room[0]
        mean = total / n
        cuda.syncthreads()
        for j in range(each):
            i = thread + j * threads
            distance = returns_here[j] - mean if i < n else 0.0
            room[i] = product(distance, distance)
        add_halves(room, SUMMED, thread, threads, 1, 0)
        if thread == 0:
            sums[b, 0], sums[b, 1] = total, room[0]

    return returns


@cache
def filter_kernel(width, along):
    """The compiled filter with beliefs over `width` contexts, a thread an episode.

    Fills logged.out, (N, width), or with `along` one row for every state, and logged.step (N,).
    Rows from an impossible step on stay as they were. `out` must not alias the episodes.
    """

    @cuda.jit
    def follow(table, logged):
        i = cuda.grid(1)
        if i >= logged.step.shape[0]:
            return
        states, actions, rewards = logged.states, logged.actions, logged.rewards
        start = logged.offsets[i]
        begin, length = start + i, logged.offsets[i + 1] - start
        belief = cuda.local.array((3, width), np.float64)
        row = table.begins[states[begin]]
        possible = reset_belief(belief, table.prior, table.initial, row)
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
