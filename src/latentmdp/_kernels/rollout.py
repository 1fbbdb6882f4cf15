"""Playing episodes: the world draws, the policy acts on the state and its belief."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.alias import alias_draw
from latentmdp._kernels.belief import AWAKE, cell, reset_belief, update_belief
from latentmdp._kernels.philox import uniform_pair

__all__ = ["Acting", "World", "begin_episode", "best_action", "rollout", "world_step"]

_BUFFER = 64
_WORLD_STREAM = np.uint64(0)


class World(NamedTuple):
    """Alias tables of everything that chance decides, outcomes numbered s' Z + z."""

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
def _observe(world, uniform, m, s, a):
    S, A, Z = world.sizes
    outcome = alias_draw(uniform, world.outcome_threshold, world.outcome_alias, (m * S + s) * A + a)
    following = outcome // Z
    return following, outcome - following * Z


@njit(cache=True, nogil=True)
def begin_episode(world, key, episode):
    """Context and first state of an episode."""
    first, second = uniform_pair(key, _WORLD_STREAM, episode, np.uint64(0))
    m = alias_draw(first, world.context_threshold, world.context_alias, 0)
    return m, alias_draw(second, world.initial_threshold, world.initial_alias, m)


@njit(cache=True, nogil=True)
def world_step(world, key, episode, t, m, s, a):
    """Next state and reward index at step t of an episode."""
    _, uniform = uniform_pair(key, _WORLD_STREAM, episode, np.uint64(t + 1))
    return _observe(world, uniform, m, s, a)


@njit(cache=True, nogil=True)
def _draw_uniforms(key, episode, start, count, first, second):
    for j in range(count):
        first[j], second[j] = uniform_pair(key, _WORLD_STREAM, episode, np.uint64(start + j))


@njit(cache=True, nogil=True)
def rollout(world, acting, key, first_episode, states, actions, rewards, contexts):
    """Fill states (N, H+1), actions (N, H), rewards (N, H) and contexts (N,)."""
    N, H = actions.shape
    S = world.sizes[0]
    belief = np.empty((3, acting.prior.shape[0]))
    first, second = np.empty(_BUFFER), np.empty(_BUFFER)
    for i in range(N):
        episode = np.uint64(first_episode + i)
        m, s = begin_episode(world, key, episode)
        contexts[i], states[i, 0] = m, s
        if acting.filters:
            reset_belief(belief, acting.prior, acting.initial, s)
        for t in range(H):
            j = t % _BUFFER
            if j == 0:  # in one go, since this loop runs in vector registers
                _draw_uniforms(key, episode, t + 1, min(_BUFFER, H - t), first, second)
            group = t * S + s if acting.n_layers > 1 else s
            if acting.stochastic:
                a = alias_draw(first[j], acting.action_threshold, acting.action_alias, group)
            else:
                begin, end = acting.offsets[group], acting.offsets[group + 1]
                a = best_action(acting.vectors, acting.labels, begin, end, belief)
            following, z = _observe(world, second[j], m, s, a)
            if acting.filters:
                row = cell(s, a, following, z, world.sizes)
                update_belief(belief, acting.likelihood, row)
            actions[i, t], rewards[i, t], states[i, t + 1] = a, z, following
            s = following
