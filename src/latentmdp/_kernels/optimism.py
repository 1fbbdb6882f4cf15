"""Q-MDP in the optimistic model of L-UCRL [kwon2021, Prop. 3.2].

Only contexts whose counts changed are planned again: the numbers are those of starting afresh.
An action that is not allowed has a reward below any value, so that no maximum takes it; a terminal
state has no reward, no bonus and no successor, so its value is 0.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from latentmdp._kernels.belief import AWAKE
from latentmdp._kernels.empirical import NEXT, ROW, in_table
from latentmdp._kernels.induction import context_q_values

__all__ = ["FORBIDDEN", "OptimisticValues", "greedy_action", "replan"]

FORBIDDEN = -1e100
"""The reward of an action that is not allowed: finite, since zero times it must be zero."""


class OptimisticValues(NamedTuple):
    """Q-values of each context in the optimistic model, and when they are due.

    With n visits, N = max(1, n), the bonus is
    min(reach, reach (1 - n)^+ + spread min(1, sqrt(width / N))).
    """

    reach: float
    width: float
    lowest: float  # the least an episode can earn, at most 0
    adaptive: bool  # whether `spread` follows the values of the last plan

    growth: float  # replan when a count exceeds growth times what it was; 0: always
    discount: float
    values: NDArray[np.float64]  # (M, H, A W), in lanes
    bonus: NDArray[np.float64]  # (M, A W) of the last plan
    rewards: NDArray[np.float64]  # (M, A W): means plus bonus
    missing: NDArray[np.int64]  # rows s A + a whose action is not allowed
    penalty: NDArray[np.float64]  # their rewards: `FORBIDDEN`, or 0 in a terminal state
    terminal: NDArray[np.bool_]  # (S,)
    spread: NDArray[np.float64]  # (M,)
    planned_visits: NDArray[np.float64]  # (S A, M) at the last plan
    stale: NDArray[np.bool_]  # (M,): whether counts changed since the last plan
    due: NDArray[np.bool_]  # (1,)


@njit(cache=True, nogil=True, inline="always")
def _add_bonus(estimate, optimistic, m):
    """Hidden rewards of one context [kwon2021, Prop. 3.2]."""
    S, A, _ = estimate.sizes
    width = optimistic.bonus.shape[1] // A
    for row in range(S * A):
        visits = estimate.visits[row, m]
        column = row % A * width + row // A
        missing = max(0.0, 1.0 - visits)
        share = min(1.0, math.sqrt(optimistic.width / max(1.0, visits)))
        bonus = min(optimistic.reach, optimistic.reach * missing + optimistic.spread[m] * share)
        optimistic.bonus[m, column] = bonus
        optimistic.rewards[m, column] = estimate.means[m, column] + bonus
    for i in range(optimistic.missing.shape[0]):
        row = optimistic.missing[i]
        column = row % A * width + row // A
        optimistic.bonus[m, column] = 0.0
        optimistic.rewards[m, column] = optimistic.penalty[i]


def plan_context(estimate, optimistic, m):
    """Q-values of one context in the optimistic model."""
    raise NotImplementedError


@overload(plan_context, inline="always")
def _plan_context(estimate, optimistic, m):
    return _plan_by_table if in_table(estimate) else _plan_by_arrays


def _plan_by_arrays(estimate, optimistic, m):
    T, rewards, values = estimate.transitions, optimistic.rewards, optimistic.values
    context_q_values(T, rewards, m, estimate.sizes[1], optimistic.discount, values)


def _plan_by_table(estimate, optimistic, m):
    rewards, values = optimistic.rewards[m], optimistic.values[m]
    _table_q_values(
        estimate.sizes, estimate.table, estimate.scale, rewards, m, optimistic.discount, values
    )


@njit(cache=True, nogil=True)
def _table_q_values(sizes, table, scale, rewards, m, discount, values):
    """Fill values (H, A W) of one context by the cells that it has counts of."""
    S, A, _ = sizes
    width, used = rewards.shape[0] // A, table.used[0]
    columns, successors = np.empty(used, np.int64), np.empty(used, np.int64)
    shares = np.empty(used)
    n = 0
    for k in range(used):
        if table.counts[k, m] > 0.0:
            row = table.cells[k, ROW]
            columns[n] = row % A * width + row // A
            successors[n] = table.cells[k, NEXT]
            shares[n] = table.counts[k, m] * scale[row, m]
            n += 1
    value = np.zeros(S)
    for t in range(values.shape[0] - 1, -1, -1):
        q = values[t]
        q[:] = rewards
        for i in range(n):
            q[columns[i]] += shares[i] * value[successors[i]]
        value[:] = q[:S]
        for a in range(1, A):
            for s in range(S):
                value[s] = max(value[s], q[a * width + s])
        for s in range(S):
            value[s] *= discount


@njit(cache=True, nogil=True, inline="always")
def _largest_value(estimate, optimistic, m):
    """The largest first-step value of a state that context m has been seen in, from 0 to reach."""
    S, A, _ = estimate.sizes
    width = optimistic.bonus.shape[1] // A
    largest, seen = 0.0, False
    for s in range(S):
        visited = False
        for a in range(A):
            visited |= estimate.visits[s * A + a, m] >= 1.0
        if visited:
            seen = True
            for a in range(A):
                largest = max(largest, optimistic.values[m, 0, a * width + s])
    highest = optimistic.reach + optimistic.lowest
    return min(largest, highest) if seen else highest


@njit(cache=True, nogil=True, inline="always")
def replan(estimate, optimistic):
    """Q-values of the contexts whose counts changed, once a plan is due; whether it was."""
    if not optimistic.due[0]:
        return False
    for m in range(optimistic.stale.shape[0]):
        if optimistic.stale[m]:
            _add_bonus(estimate, optimistic, m)
            plan_context(estimate, optimistic, m)
            if optimistic.adaptive:
                optimistic.spread[m] = _largest_value(estimate, optimistic, m) - optimistic.lowest
            optimistic.stale[m] = False
            optimistic.planned_visits[:, m] = estimate.visits[:, m]
    optimistic.due[0] = optimistic.growth == 0.0
    return True


@njit(cache=True, nogil=True, inline="always")
def greedy_action(values, n_actions, t, s, belief):
    """argmax_a sum_m b(m) Q_{t,m}(s, a), the first of equally good ones."""
    best, winner = -np.inf, 0
    width = values.shape[2] // n_actions
    for a in range(n_actions):
        value = 0.0
        for m in range(values.shape[0]):
            value += values[m, t, a * width + s] * belief[AWAKE, m]
        if value > best:
            best, winner = value, a
    return winner
