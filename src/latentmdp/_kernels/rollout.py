"""Playing episodes: the world draws, the policy acts on the state and its belief.

A policy plays whole episodes (`rollout`), or decides for many individuals at once, each with a
belief of its own (`decide`).
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.alias import alias_draw
from latentmdp._kernels.belief import AWAKE, cell, reset_belief, update_belief
from latentmdp._kernels.philox import uniform_pair

__all__ = [
    "Acting",
    "Chances",
    "begin_episode",
    "best_action",
    "decide",
    "decision_uniform",
    "draw_outcome",
    "draw_uniforms",
    "observe_first",
    "observe_next",
    "rollout",
    "world_step",
]

_BUFFER = 64
_WORLD_STREAM, _DECISION_STREAM = np.uint64(0), np.uint64(1)


class Chances(NamedTuple):
    """Alias tables of everything that chance decides in a world, outcomes numbered s' Z + z."""

    sizes: tuple[int, int, int]  # S, A, Z
    context_threshold: NDArray[np.float64]  # (1, M)
    context_alias: NDArray[np.int32]
    initial_threshold: NDArray[np.float64]  # (M, S)
    initial_alias: NDArray[np.int32]
    outcome_threshold: NDArray[np.float64]  # (M S A, S Z)
    outcome_alias: NDArray[np.int32]


class Acting(NamedTuple):
    """A policy as arrays; time-independent ones have a single layer.

    A stochastic policy is an alias table over actions by (layer, s). Any other is alpha vectors
    with action labels, those of (layer, s) at group offsets[layer S + s]; `filters` says whether a
    belief is needed to choose among them.
    """

    stochastic: bool
    filters: bool
    n_layers: int
    action_threshold: NDArray[np.float64]  # (layers S, A)
    action_alias: NDArray[np.int32]
    vectors: NDArray[np.float64]  # (n, M)
    labels: NDArray[np.int32]  # (n,)
    offsets: NDArray[np.int64]  # (layers S + 1,)
    likelihood: NDArray[np.float64]  # (S A S Z, M)
    prior: NDArray[np.float64]  # (M,)
    initial: NDArray[np.float64]  # (S, M)


@njit(cache=True, nogil=True, inline="always")
def best_action(vectors, labels, begin, end, belief):
    """Label of the vector in begin..end-1 with the largest product with the belief."""
    best, winner = -np.inf, begin
    if end - begin == 1:
        return np.int64(labels[begin])
    for k in range(begin, end):
        value = 0.0
        for m in range(vectors.shape[1]):
            value += vectors[k, m] * belief[AWAKE, m]
        if value > best:
            best, winner = value, k
    return np.int64(labels[winner])


@njit(cache=True, nogil=True, inline="always")
def draw_outcome(chances, uniform, m, s, a):
    """Next state and reward index that a uniform number selects."""
    S, A, Z = chances.sizes
    outcome = alias_draw(
        uniform, chances.outcome_threshold, chances.outcome_alias, (m * S + s) * A + a
    )
    n = outcome // Z
    return n, outcome - n * Z


@njit(cache=True, nogil=True)
def begin_episode(chances, key, episode):
    """Context and first state of an episode."""
    first, second = uniform_pair(key, _WORLD_STREAM, episode, np.uint64(0))
    m = alias_draw(first, chances.context_threshold, chances.context_alias, 0)
    return m, alias_draw(second, chances.initial_threshold, chances.initial_alias, m)


@njit(cache=True, nogil=True)
def world_step(chances, key, episode, t, m, s, a):
    """Next state and reward index at step t of an episode."""
    _, uniform = uniform_pair(key, _WORLD_STREAM, episode, np.uint64(t + 1))
    return draw_outcome(chances, uniform, m, s, a)


@njit(cache=True, nogil=True)
def draw_uniforms(key, episode, start, count, first, second):
    """Fill both arrays with the uniform numbers of steps start, start + 1, ..."""
    for j in range(count):
        first[j], second[j] = uniform_pair(key, _WORLD_STREAM, episode, np.uint64(start + j))


@njit(cache=True, nogil=True)
def rollout(chances, acting, key, first_episode, states, actions, rewards, contexts):
    """Fill states (N, H+1), actions (N, H), rewards (N, H) and contexts (N,)."""
    N, H = actions.shape
    S = chances.sizes[0]
    belief = np.empty((3, acting.prior.shape[0]))
    first, second = np.empty(_BUFFER), np.empty(_BUFFER)
    for i in range(N):
        episode = np.uint64(first_episode + i)
        m, s = begin_episode(chances, key, episode)
        contexts[i], states[i, 0] = m, s
        if acting.filters:
            reset_belief(belief, acting.prior, acting.initial, s)
        for t in range(H):
            j = t % _BUFFER
            if j == 0:  # in one go, since this loop runs in vector registers
                draw_uniforms(key, episode, t + 1, min(_BUFFER, H - t), first, second)
            group = t * S + s if acting.n_layers > 1 else s
            if acting.stochastic:
                a = alias_draw(first[j], acting.action_threshold, acting.action_alias, group)
            else:
                begin, end = acting.offsets[group], acting.offsets[group + 1]
                a = best_action(acting.vectors, acting.labels, begin, end, belief)
            n, z = draw_outcome(chances, second[j], m, s, a)
            if acting.filters:
                row = cell(s, a, n, z, chances.sizes)
                update_belief(belief, acting.likelihood, row)
            actions[i, t], rewards[i, t], states[i, t + 1] = a, z, n
            s = n


@njit(cache=True, nogil=True)
def observe_first(acting, beliefs, states):
    """Begin an episode for every individual: prior conditioned on the first state."""
    if acting.filters:
        for i in range(states.shape[0]):
            reset_belief(beliefs[i], acting.prior, acting.initial, states[i])


@njit(cache=True, nogil=True)
def observe_next(acting, sizes, beliefs, before, actions, states, rewards):
    """Condition each belief on (s', z); an impossible observation leaves it as it was."""
    if acting.filters:
        for i in range(states.shape[0]):
            row = cell(before[i], actions[i], states[i], rewards[i], sizes)
            update_belief(beliefs[i], acting.likelihood, row)


@njit(cache=True, nogil=True)
def decision_uniform(key, individual, t):
    """The uniform number by which a stochastic policy decides for an individual at time t."""
    return uniform_pair(key, _DECISION_STREAM, np.uint64(individual), np.uint64(t))[0]


@njit(cache=True, nogil=True)
def decide(acting, n_states, t, key, beliefs, states, actions):
    """The action of every individual at time t."""
    layer = t if acting.n_layers > 1 else 0
    for i in range(states.shape[0]):
        group = layer * n_states + states[i]
        if acting.stochastic:
            uniform = decision_uniform(key, i, t)
            actions[i] = alias_draw(uniform, acting.action_threshold, acting.action_alias, group)
        else:
            begin, end = acting.offsets[group], acting.offsets[group + 1]
            actions[i] = best_action(acting.vectors, acting.labels, begin, end, beliefs[i])
