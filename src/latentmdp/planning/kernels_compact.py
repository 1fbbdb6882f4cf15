"""Backups of a few beliefs from a few plans, all of them searched, and the links they make."""

import numpy as np

from latentmdp._kernels import njit


@njit(cache=True, nogil=True)
def condition(belief, probs, k, mass):
    """Fill mass (M,) with the unnormalised posterior after outcome k.

    A plan must go on somehow also where its own belief excludes the outcome: then every context
    counts equally.
    """
    total = 0.0
    for m in range(belief.shape[0]):
        mass[m] = belief[m] * probs[k, m]
        total += mass[m]
    if total <= 0.0:
        mass[:] = probs[k]


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
def back_up_points(table, rewards, discount, allowed, states, beliefs, later, offsets):
    """The best plan at each point, (n, M), and its action, (n,).

    The plans of state s' that may follow are later[offsets[s'] : offsets[s' + 1]]; a state without
    any earns nothing more.
    """
    _, A, M = rewards.shape
    starts, next_state, probs = table.starts, table.next_state, table.distinct
    out, labels = np.zeros(beliefs.shape), np.zeros(states.shape[0], np.int64)
    mass, vector = np.empty(M), np.empty(M)
    for i in range(states.shape[0]):
        s, best = states[i], -np.inf
        for a in range(A):
            if not allowed[s, a]:
                continue
            vector[:] = 0.0
            for k in range(starts[s * A + a], starts[s * A + a + 1]):
                p = table.pattern[k]
                condition(beliefs[i], probs, p, mass)
                n = next_state[k]
                j = _best(later, offsets[n], offsets[n + 1], mass)
                if j >= 0:
                    for m in range(M):
                        vector[m] += probs[p, m] * later[j, m]
            value = 0.0
            for m in range(M):
                vector[m] = rewards[s, a, m] + discount * vector[m]
                value += beliefs[i, m] * vector[m]
            if value > best:
                best, labels[i] = value, a
                out[i] = vector
    return out, labels


@njit(cache=True, nogil=True)
def best_plans_at(vectors, offsets, states, masses):
    """The best plan of its state at each mass, and its value."""
    best, values = np.empty(states.shape[0], np.int64), np.zeros(states.shape[0])
    for i in range(states.shape[0]):
        s = states[i]
        best[i] = _best(vectors, offsets[s], offsets[s + 1], masses[i])
        for m in range(masses.shape[1]):
            values[i] += masses[i, m] * vectors[best[i], m]
    return best, values


@njit(cache=True, nogil=True)
def link_points(table, n_actions, states, beliefs, labels, later, offsets):
    """The plan that each point goes on with after each outcome of its action, one after another."""
    rows = states * n_actions + labels
    links = np.empty((table.starts[rows + 1] - table.starts[rows]).sum(), np.int64)
    place, mass = 0, np.empty(beliefs.shape[1])
    for i in range(states.shape[0]):
        for k in range(table.starts[rows[i]], table.starts[rows[i] + 1]):
            condition(beliefs[i], table.distinct, table.pattern[k], mass)
            n = table.next_state[k]
            links[place] = _best(later, offsets[n], offsets[n + 1], mass)
            place += 1
    return links
