"""Backups of a few beliefs from a few plans, all of them searched, and the links they make."""

import numpy as np
from numba import njit

from latentmdp._kernels.alpha import condition

__all__ = ["back_up_points", "choose_plans", "link_points"]


@njit(cache=True, nogil=True)
def _best(vectors, begin, end, mass):
    """The plan in begin..end-1 with the largest product with `mass`; -1 if there is none."""
    best, winner = -np.inf, -1
    for j in range(begin, end):
        value = 0.0
        for m in range(mass.shape[0]):
            value += mass[m] * vectors[j, m]
        if value > best:
            best, winner = value, j
    return winner


@njit(cache=True, nogil=True)
def back_up_points(
    table, rewards, discount, allowed, states, beliefs, later, offsets, first, last, out, labels
):
    """The best plan at each point first..last-1, into out (n, M) and labels (n,).

    The plans of state s' that may follow are later[offsets[s'] : offsets[s' + 1]]; a state without
    any earns nothing more.
    """
    _, A, M = rewards.shape
    starts, next_state, probs = table.starts, table.next_state, table.probs
    mass, vector = np.empty(M), np.empty(M)
    for i in range(first, last):
        s, best = states[i], -np.inf
        for a in range(A):
            if not allowed[s, a]:
                continue
            vector[:] = 0.0
            for k in range(starts[s * A + a], starts[s * A + a + 1]):
                condition(beliefs[i], probs, k, mass)
                n = next_state[k]
                j = _best(later, offsets[n], offsets[n + 1], mass)
                if j >= 0:
                    for m in range(M):
                        vector[m] += probs[k, m] * later[j, m]
            value = 0.0
            for m in range(M):
                vector[m] = rewards[s, a, m] + discount * vector[m]
                value += beliefs[i, m] * vector[m]
            if value > best:
                best, labels[i] = value, a
                for m in range(M):
                    out[i, m] = vector[m]


@njit(cache=True, nogil=True)
def link_points(table, n_actions, states, beliefs, labels, later, offsets, out):
    """The plan that each point goes on with after each outcome of its action, one after another."""
    place, mass = 0, np.empty(beliefs.shape[1])
    for i in range(states.shape[0]):
        row = states[i] * n_actions + labels[i]
        for k in range(table.starts[row], table.starts[row + 1]):
            condition(beliefs[i], table.probs, k, mass)
            n = table.next_state[k]
            out[place] = _best(later, offsets[n], offsets[n + 1], mass)
            place += 1


@njit(cache=True, nogil=True)
def choose_plans(beliefs, weights, plans, most, chosen):
    """Choose up to `most` of the plans greedily by what they are worth at the weighted beliefs.

    Writes their positions to `chosen` and returns how many: fewer where no other plan gains.
    """
    n, M = beliefs.shape
    reached = np.full(n, -np.inf)
    total = 0
    for _ in range(min(most, plans.shape[0])):
        best, winner = 0.0, -1
        for j in range(plans.shape[0]):
            gain = 0.0
            for i in range(n):
                value = 0.0
                for m in range(M):
                    value += beliefs[i, m] * plans[j, m]
                if total == 0:
                    gain += weights[i] * value
                elif value > reached[i]:
                    gain += weights[i] * (value - reached[i])
            if winner < 0 and total == 0 or gain > best:
                best, winner = gain, j
        if winner < 0:
            break
        chosen[total] = winner
        total += 1
        for i in range(n):
            value = 0.0
            for m in range(M):
                value += beliefs[i, m] * plans[winner, m]
            reached[i] = max(reached[i], value)
    return total
