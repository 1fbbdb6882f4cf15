"""Acting for many individuals at once: one belief each, one decision each."""

import numpy as np
from numba import njit

from latentmdp._kernels.alias import alias_draw
from latentmdp._kernels.belief import cell, reset_belief, update_belief
from latentmdp._kernels.philox import uniform_pair
from latentmdp._kernels.rollout import best_action

__all__ = ["decide", "decision_uniform", "observe_first", "observe_next"]

_DECISION_STREAM = np.uint64(1)


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
