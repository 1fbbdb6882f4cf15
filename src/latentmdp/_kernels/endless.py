"""Plans without an end: nodes of a policy graph, improved and evaluated in place.

The plans of all states are the items of one `StepBounds`. `followers` lists, for every item, the
item it goes on with after each outcome of its action.
"""

import numpy as np
from numba import njit

from latentmdp._kernels.alpha import condition
from latentmdp._kernels.plans import best_cells, best_plan

__all__ = ["best_items", "evaluate_plans", "follow", "gains_over_next", "visit"]


@njit(cache=True, nogil=True)
def follow(table, n_actions, step, breadth, states, beliefs, labels, offsets, first, last, out):
    """Write the items that items first..last-1 go on with, at out[offsets[i]] and beyond."""
    starts, groups, leaders, columns = step.starts, step.groups, step.leaders, step.columns
    next_state, probs = table.next_state, table.probs
    mass = np.empty(probs.shape[1])
    cells, scores = np.empty(breadth, np.int64), np.empty(columns.shape[1])
    for i in range(first, last):
        row = states[i] * n_actions + labels[i]
        for k in range(table.starts[row], table.starts[row + 1]):
            condition(beliefs[i], probs, k, mass)
            count = best_cells(starts, groups, leaders, next_state[k], mass, scores, cells)
            j, _ = best_plan(starts, columns, mass, cells, count, scores)
            out[offsets[i] + k - table.starts[row]] = j


@njit(cache=True, nogil=True)
def evaluate_plans(table, rewards, discount, states, labels, offsets, followers, rows, out):
    """One iteration for all items, from rows (n, M) into out (n, M); least and largest change."""
    _, A, M = rewards.shape
    probs = table.probs
    least, largest = np.inf, -np.inf
    vector = np.empty(M)
    for i in range(states.shape[0]):
        s, a = states[i], labels[i]
        begin = table.starts[s * A + a]
        for m in range(M):
            vector[m] = 0.0
        for j in range(offsets[i], offsets[i + 1]):
            k, f = begin + j - offsets[i], followers[j]
            for m in range(M):
                vector[m] += probs[k, m] * rows[f, m]
        for m in range(M):
            value = rewards[s, a, m] + discount * vector[m]
            change = value - rows[i, m]
            least, largest = min(least, change), max(largest, change)
            out[i, m] = value
    return least, largest


@njit(cache=True, nogil=True)
def best_items(step, breadth, states, beliefs, out):
    """The item that is best at each of some beliefs, into out (n,)."""
    starts, groups, leaders, columns = step.starts, step.groups, step.leaders, step.columns
    cells, scores = np.empty(breadth, np.int64), np.empty(columns.shape[1])
    for i in range(states.shape[0]):
        count = best_cells(starts, groups, leaders, states[i], beliefs[i], scores, cells)
        out[i], _ = best_plan(starts, columns, beliefs[i], cells, count, scores)


@njit(cache=True, nogil=True)
def visit(table, n_actions, discount, states, labels, offsets, followers, start, visits, out):
    """Out = start + discount times the visits (n, M) moved on by one step; the total change."""
    n, M = start.shape
    probs = table.probs
    for i in range(n):
        for m in range(M):
            out[i, m] = start[i, m]
    for i in range(n):
        begin = table.starts[states[i] * n_actions + labels[i]]
        for j in range(offsets[i], offsets[i + 1]):
            k, f = begin + j - offsets[i], followers[j]
            for m in range(M):
                out[f, m] += discount * visits[i, m] * probs[k, m]
    change = 0.0
    for i in range(n):
        for m in range(M):
            change += abs(out[i, m] - visits[i, m])
    return change


@njit(cache=True, nogil=True)
def gains_over_next(step, states, items, out):
    """What each of some items gains at its own belief over the best other item of its state."""
    starts, groups, columns, beliefs = step.starts, step.groups, step.columns, step.beliefs
    M = columns.shape[0]
    for c in range(items.shape[0]):
        i = items[c]
        s = states[i]
        own, best = 0.0, -np.inf
        for m in range(M):
            own += beliefs[m, i] * columns[m, i]
        for j in range(starts[groups[s]], starts[groups[s + 1]]):
            if j != i:
                value = 0.0
                for m in range(M):
                    value += beliefs[m, i] * columns[m, j]
                best = max(best, value)
        out[c] = own - best
