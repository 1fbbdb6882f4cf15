"""Q-MDP in the optimistic model of L-UCRL [kwon2021, Prop. 3.2; zhou2023, Alg. 2].

Only contexts whose counts changed are planned again: the numbers are those of starting afresh. A
context that an episode most likely did not have changes by next to nothing: it is planned again
once its changes amount to `LEAST_CHANGE`.
An action that is not allowed has a reward below any value, so that no maximum takes it; a terminal
state has no reward, no bonus and no successor, so its value is 0.

There are two kinds of bonus. Hidden rewards are the same at all times, and are set for all rows of
a context when it is planned. A bonus that follows the variance of the next step's value is part of
the induction; what it needs of a row depends on the row's own counts alone and is brought up to
date with them (`weigh_rows`).
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from latentmdp._kernels.belief import AWAKE
from latentmdp._kernels.empirical import NEXT, ROW, in_table, support
from latentmdp._kernels.induction import context_q_values
from latentmdp._kernels.rows import fused, product
from latentmdp._kernels.simd import discounted_maxima, extent, raised_values

__all__ = [
    "AS_PRINTED",
    "BY_VARIANCE",
    "DOUBLING",
    "FORBIDDEN",
    "HIDDEN_REWARDS",
    "LEAST_CHANGE",
    "OptimisticValues",
    "add_bonus",
    "back_up_optimistically",
    "forbid",
    "greedy_action",
    "is_due",
    "largest_bonus",
    "note_plan",
    "replan",
    "replan_values",
    "value_span",
    "weigh",
    "weigh_rows",
]

FORBIDDEN = -1e100
"""The reward of an action that is not allowed: finite, since zero times it must be zero."""

HIDDEN_REWARDS, BY_VARIANCE, AS_PRINTED = 0, 1, 2
"""Kinds of bonus: constant in time; by the variance; by the variance as [zhou2023] has it."""

DOUBLING = -1.0
"""A growth that stands for: a plan is due when a count reaches a power of two."""


_FAINT = 1e-100
"""Visits whose inverse would not be safe; what they add to a variance is below rounding."""


LEAST_CHANGE = 1e-6
"""The episodes, counted by their weight, that a context must have had since its last plan."""


class OptimisticValues(NamedTuple):
    """Q-values of each context in the optimistic model, and when they are due.

    With n visits and N = max(1, n), hidden rewards are
    min(reach, reach (1 - n)^+ + spread min(1, sqrt(width / N))). By variance, Q is

        min(caps[t], rewards + E V + bonus + unseen caps[t]),    unseen = (1 - n)^+
        bonus = slopes sd(V) + shares (max V - min V), or max(slopes sd(V), shares) as printed,

    where rows sum to min(1, n), `rewards` hold the bonus of rewards too, sd(V)^2 is
    E V^2 - (E V)^2 / min(1, n), and the extent of V is over states that were met.
    """

    kind: int
    reach: float
    width: float
    lowest: float  # the least an episode can earn, at most 0
    adaptive: bool  # whether `spread` follows the values of the last plan
    deviation: float  # slopes = deviation / sqrt(N)
    remainder: float  # shares = remainder / N
    reward_deviation: float
    reward_remainder: float

    growth: float  # replan when a count exceeds growth times what it was; 0: always; `DOUBLING`
    discount: float
    values: NDArray[np.float64]  # (M, H, A W), in lanes
    caps: NDArray[np.float64]  # (H,): the most that can be earned from each step on
    bonus: NDArray[np.float64]  # (M, A W) of the last plan
    rewards: NDArray[np.float64]  # (M, A W): means plus bonus
    slopes: NDArray[np.float64]  # (M, A W)
    shares: NDArray[np.float64]  # (M, A W)
    unseen: NDArray[np.float64]  # (M, A W)
    inverse: NDArray[np.float64]  # (M, A W): 1 / min(1, n), 1 where there are no visits
    outside: NDArray[np.float64]  # (M, W): 0 in states that were met, infinite in others
    missing: NDArray[np.int64]  # rows s A + a whose action is not allowed
    penalty: NDArray[np.float64]  # their rewards: `FORBIDDEN`, or 0 in a terminal state
    terminal: NDArray[np.bool_]  # (S,)
    ends: NDArray[np.int64]  # the terminal states
    spread: NDArray[np.float64]  # (M,)
    planned_visits: NDArray[np.float64]  # (S A, M) at the last plan, where growth needs it
    changes: NDArray[np.float64]  # (M,): weight of the episodes since the last plan
    stale: NDArray[np.bool_]  # (M,): whether counts changed since the last plan
    due: NDArray[np.bool_]  # (1,)


@njit(cache=True, nogil=True, forceinline=True)
def add_bonus(estimate, optimistic, m, first, step):
    """Hidden rewards of one context [kwon2021, Prop. 3.2], of every `step`-th row."""
    S, A, _ = estimate.sizes
    width = optimistic.bonus.shape[1] // A
    for row in range(first, S * A, step):
        visits = estimate.visits[row, m]
        column = row % A * width + row // A
        missing = max(0.0, 1.0 - visits)
        share = min(1.0, math.sqrt(optimistic.width / max(1.0, visits)))
        bonus = product(optimistic.reach, missing) + product(optimistic.spread[m], share)
        bonus = min(optimistic.reach, bonus)
        optimistic.bonus[m, column] = bonus
        optimistic.rewards[m, column] = estimate.means[m, column] + bonus


@njit(cache=True, nogil=True, forceinline=True)
def forbid(estimate, optimistic, m):
    """No bonus, and a reward that no maximum takes, for actions that are not allowed."""
    A = estimate.sizes[1]
    width = optimistic.bonus.shape[1] // A
    for i in range(optimistic.missing.shape[0]):
        row = optimistic.missing[i]
        column = row % A * width + row // A
        optimistic.bonus[m, column] = 0.0
        optimistic.rewards[m, column] = optimistic.penalty[i]


@njit(cache=True, nogil=True)
def weigh(estimate, optimistic):
    """Bring what a bonus by variance needs of every row up to date."""
    A, width = estimate.sizes[1], optimistic.outside.shape[1]
    for row in range(estimate.rows.shape[0]):
        estimate.rows[row] = row
    for m in range(optimistic.stale.shape[0]):
        optimistic.outside[m] = np.inf
        weigh_rows(estimate, optimistic, estimate.rows.shape[0], m, 0, 1)
        for i in range(optimistic.missing.shape[0]):
            row = optimistic.missing[i]
            column = row % A * width + row // A
            optimistic.rewards[m, column] = optimistic.penalty[i]
            optimistic.slopes[m, column] = 0.0
            optimistic.shares[m, column] = 0.0
            optimistic.unseen[m, column] = 0.0
        for i in range(optimistic.ends.shape[0]):
            optimistic.outside[m, optimistic.ends[i]] = 0.0


@njit(cache=True, nogil=True, forceinline=True)
def weigh_rows(estimate, optimistic, n_rows, m, first, step):
    """What a bonus by variance needs of the first `n_rows` of `estimate.rows`."""
    A, printed = estimate.sizes[1], optimistic.kind == AS_PRINTED
    if optimistic.kind == HIDDEN_REWARDS:
        n_rows = 0
    deviation, remainder = optimistic.deviation, optimistic.remainder
    reward_deviation, reward_remainder = optimistic.reward_deviation, optimistic.reward_remainder
    rows, visits, scale = estimate.rows, estimate.visits, estimate.scale
    means, variances, rewards = estimate.means, estimate.variances, optimistic.rewards
    slopes, shares, outside = optimistic.slopes, optimistic.shares, optimistic.outside
    unseen, inverse = optimistic.unseen, optimistic.inverse
    for i in range(first, n_rows, step):
        row = rows[i]
        s = row // A
        column = (row - s * A) * outside.shape[1] + s
        n, share = visits[row, m], scale[row, m]
        bonus: float = product(reward_deviation, math.sqrt(variances[m, column] * share))
        rewards[m, column] = means[m, column] + bonus + product(reward_remainder, share)
        successors = support(estimate, row, m) if printed else 1
        slopes[m, column] = deviation * math.sqrt(successors * share)
        shares[m, column] = remainder * share
        unseen[m, column], inverse[m, column] = 0.0, 1.0
        if n >= 1.0:
            outside[m, s] = 0.0
        else:
            unseen[m, column], inverse[m, column] = 1.0 - n, 1.0 / n if n > _FAINT else 1.0


def plan_context(estimate, optimistic, m):
    """Q-values of one context in the optimistic model."""
    raise NotImplementedError


@overload(plan_context, jit_options={"forceinline": True})
def _plan_context(estimate, optimistic, m):
    return _plan_by_table if in_table(estimate) else _plan_by_arrays


def _plan_by_arrays(estimate, optimistic, m):
    T, rewards, values = estimate.transitions, optimistic.rewards, optimistic.values
    discount, reach = optimistic.discount, optimistic.reach
    if optimistic.kind == HIDDEN_REWARDS:
        context_q_values(T, rewards, m, estimate.sizes[1], discount, values)
    elif optimistic.kind == BY_VARIANCE:
        _raised_q_values(
            T, rewards, optimistic.slopes, optimistic.shares, optimistic.unseen,
            optimistic.inverse, optimistic.outside, optimistic.caps, optimistic.ends,
            m, estimate.sizes[1], discount, reach, values,
        )  # fmt: skip
    else:
        _plain_raised_q_values(T, optimistic, m, estimate.sizes[1])


def _plan_by_table(estimate, optimistic, m):
    _table_q_values(estimate.sizes, estimate.table, estimate.scale, optimistic, m)


@njit(cache=True, nogil=True)
def _raised_q_values(
    T, rewards, slopes, shares, unseen, inverse, outside, caps, ends, m, n_actions, discount, reach,
    values,
):  # fmt: skip
    """Fill values[m] with a bonus by variance."""
    value = np.zeros(outside.shape[1])
    origin, span = 0.0, 0.0
    for t in range(values.shape[1] - 1, -1, -1):
        raised_values(
            T, value, values, rewards, slopes, shares, unseen, inverse, m, t, origin, span, caps[t]
        )
        for i in range(ends.shape[0]):
            for column in range(ends[i], values.shape[2], value.shape[0]):
                values[m, t, column] = 0.0
        origin = value[0]
        discounted_maxima(values, m, t, n_actions, discount, value)
        low, high = extent(value, outside, m)
        span = high - low if low <= high else reach


@njit(cache=True, nogil=True)
def _plain_raised_q_values(T, optimistic, m, n_actions):
    """The same for any kind of bonus, without vector instructions."""
    H, n = optimistic.values.shape[1:]
    value, second = np.zeros(n // n_actions), np.empty(n)
    origin, span = 0.0, 0.0
    for t in range(H - 1, -1, -1):
        q = optimistic.values[m, t]
        q[:], second[:] = 0.0, 0.0
        for s in range(T.shape[1]):
            v = value[s] - origin
            for i in range(n):
                q[i] += T[m, s, i] * v
                second[i] += T[m, s, i] * v * v
        _raise_values(optimistic, m, t, second, origin, span)
        origin = value[0]
        _maxima(q, optimistic.discount, n_actions, value)
        span = value_span(optimistic, m, value)


@njit(cache=True, nogil=True)
def _raise_values(optimistic, m, t, second, origin, span):
    """Turn expected values in values[m, t] into optimistic ones; `second` are second moments.

    Both are of values less the `origin`, which may be any number: near the values, it keeps
    variances from being differences of large numbers.
    """
    q, cap = optimistic.values[m, t], optimistic.caps[t]
    slopes, shares, unseen = optimistic.slopes[m], optimistic.shares[m], optimistic.unseen[m]
    rewards, inverse = optimistic.rewards[m], optimistic.inverse[m]
    added = optimistic.kind == BY_VARIANCE
    for i in range(q.shape[0]):
        deviation = slopes[i] * math.sqrt(max(0.0, second[i] - q[i] * q[i] * inverse[i]))
        bonus = deviation + shares[i] * span if added else max(deviation, shares[i])
        q[i] = min(cap, q[i] + origin + rewards[i] + bonus + unseen[i] * (cap - origin))
    width = optimistic.outside.shape[1]
    for i in range(optimistic.ends.shape[0]):
        for column in range(optimistic.ends[i], q.shape[0], width):
            q[column] = 0.0


@njit(cache=True, nogil=True, forceinline=True)
def optimistic_value(T, optimistic, value, m, t, i, origin, span):
    """Entry i of values[m, t] by itself, rounded as `plan_context` rounds it.

    `value` (S,) are discounted values of the next step, `origin` and `span` as in the induction
    there.
    """
    total, second = 0.0, 0.0
    if optimistic.kind == HIDDEN_REWARDS:
        total = optimistic.rewards[m, i]
        for s in range(value.shape[0]):
            total = fused(value[s], T[m, s, i], total)
        return total
    for s in range(value.shape[0]):
        share, v = T[m, s, i], value[s] - origin
        if optimistic.kind == BY_VARIANCE:
            total = fused(v, share, total)
            second = fused(product(v, v), share, second)
        else:
            moved: float = product(share, v)
            total += moved
            second += product(moved, v)
    squared: float = product(product(total, total), optimistic.inverse[m, i])
    deviation = math.sqrt(max(0.0, second - squared))
    cap, slope, share = optimistic.caps[t], optimistic.slopes[m, i], optimistic.shares[m, i]
    total = total + origin + optimistic.rewards[m, i]
    if optimistic.kind == BY_VARIANCE:
        total = fused(optimistic.unseen[m, i], cap - origin, total)
        total = fused(slope, deviation, fused(share, span, total))
    else:
        bonus: float = product(slope, deviation)
        total += max(bonus, share)
        total += product(optimistic.unseen[m, i], cap - origin)
    return min(cap, total)


@njit(cache=True, nogil=True, forceinline=True)
def back_up_optimistically(estimate, optimistic, value, m, t, s, origin, span):
    """Fill values[m, t] of one state; its discounted value. See `optimistic_value`."""
    A, best = estimate.sizes[1], -np.inf
    width, T = optimistic.outside.shape[1], estimate.transitions
    for a in range(A):
        q = optimistic_value(T, optimistic, value, m, t, a * width + s, origin, span)
        if optimistic.kind != HIDDEN_REWARDS and optimistic.terminal[s]:
            q = 0.0
        optimistic.values[m, t, a * width + s] = q
        best = max(best, q)
    return optimistic.discount * best


@njit(cache=True, nogil=True)
def _maxima(q, discount, n_actions, value):
    """Fill value (W,) with discounted maxima over the actions of q (A W,)."""
    width = value.shape[0]
    value[:] = q[:width]
    for a in range(1, n_actions):
        for s in range(width):
            value[s] = max(value[s], q[a * width + s])
    for s in range(width):
        value[s] *= discount


@njit(cache=True, nogil=True)
def value_span(optimistic, m, value):
    """The largest value of the states that were met less the least; `reach` if none was."""
    low, high = np.inf, -np.inf
    for s in range(value.shape[0]):
        if optimistic.outside[m, s] == 0.0:
            low, high = min(low, value[s]), max(high, value[s])
    return high - low if low <= high else optimistic.reach


@njit(cache=True, nogil=True)
def _table_q_values(sizes, table, scale, optimistic, m):
    """Fill values[m] of one context by the cells that it has counts of."""
    columns, successors, shares = _cells_of(sizes, table, scale, optimistic, m)
    value, second = np.zeros(optimistic.outside.shape[1]), np.empty(optimistic.values.shape[2])
    origin, span = 0.0, 0.0
    by_variance = optimistic.kind != HIDDEN_REWARDS
    for t in range(optimistic.values.shape[1] - 1, -1, -1):
        q = optimistic.values[m, t]
        if by_variance:
            q[:], second[:] = 0.0, 0.0
            for i in range(columns.shape[0]):
                v = value[successors[i]] - origin
                q[columns[i]] += shares[i] * v
                second[columns[i]] += shares[i] * v * v
            _raise_values(optimistic, m, t, second, origin, span)
        else:
            q[:] = optimistic.rewards[m]
            for i in range(columns.shape[0]):
                q[columns[i]] += shares[i] * value[successors[i]]
        origin = value[0]
        _maxima(q, optimistic.discount, sizes[1], value)
        span = value_span(optimistic, m, value)


@njit(cache=True, nogil=True)
def _cells_of(sizes, table, scale, optimistic, m):
    """Column of (s, a), s' and share of the cells that context m has counts of."""
    A, width, used = sizes[1], optimistic.outside.shape[1], table.used[0]
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
    return columns[:n], successors[:n], shares[:n]


def expected_values(estimate, optimistic, m, value, out):
    """Fill out (A W,) with means + sum_s' That value(s') of one context."""
    raise NotImplementedError


@overload(expected_values, jit_options={"forceinline": True})
def _expected_values(estimate, optimistic, m, value, out):
    return _expected_by_table if in_table(estimate) else _expected_by_arrays


def _expected_by_arrays(estimate, optimistic, m, value, out):
    out[:] = estimate.means[m]
    for s in range(estimate.sizes[0]):
        out += value[s] * estimate.transitions[m, s]


def _expected_by_table(estimate, optimistic, m, value, out):
    out[:] = estimate.means[m]
    cells = _cells_of(estimate.sizes, estimate.table, estimate.scale, optimistic, m)
    for i in range(cells[0].shape[0]):
        out[cells[0][i]] += cells[2][i] * value[cells[1][i]]


@njit(cache=True, nogil=True)
def largest_bonus(estimate, optimistic):
    """Set `bonus` to the most, over all t, by which the last plan's values exceed expected ones.

    With it in every step, a plan in the empirical model is no less optimistic than this one.
    """
    A = estimate.sizes[1]
    M, H, n = optimistic.values.shape
    width = n // A
    expected, value = np.empty(n), np.empty(width)
    for m in range(M):
        value[:] = 0.0
        optimistic.bonus[m] = -np.inf
        for t in range(H - 1, -1, -1):
            q = optimistic.values[m, t]
            expected_values(estimate, optimistic, m, value, expected)
            for i in range(n):
                optimistic.bonus[m, i] = max(optimistic.bonus[m, i], q[i] - expected[i])
            _maxima(q, optimistic.discount, A, value)
        for i in range(optimistic.missing.shape[0]):
            row = optimistic.missing[i]
            optimistic.bonus[m, row % A * width + row // A] = 0.0


@njit(cache=True, nogil=True, forceinline=True)
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


@njit(cache=True, nogil=True, forceinline=True)
def note_plan(estimate, optimistic, m):
    """A context was planned: nothing of it is stale, and its bonus adapts to its values."""
    if optimistic.adaptive:
        optimistic.spread[m] = _largest_value(estimate, optimistic, m) - optimistic.lowest
    optimistic.stale[m], optimistic.changes[m] = False, 0.0


@njit(cache=True, nogil=True, forceinline=True)
def replan(estimate, optimistic):
    """Q-values of the contexts whose counts changed, once a plan is due; whether it was."""
    if not optimistic.due[0]:
        return False
    for m in range(optimistic.stale.shape[0]):
        if optimistic.stale[m]:
            if optimistic.kind == HIDDEN_REWARDS:
                add_bonus(estimate, optimistic, m, 0, 1)
                forbid(estimate, optimistic, m)
            plan_context(estimate, optimistic, m)
            note_plan(estimate, optimistic, m)
            if optimistic.growth != 0.0:
                optimistic.planned_visits[:, m] = estimate.visits[:, m]
    optimistic.due[0] = optimistic.growth == 0.0
    return True


@njit(cache=True, nogil=True)
def replan_values(estimate, optimistic):
    """`replan` for callers that are not compiled."""
    return replan(estimate, optimistic)


@njit(cache=True, nogil=True, forceinline=True)
def is_due(estimate, optimistic, n_rows, m, first, step):
    """Whether one of the first `n_rows` of `estimate.rows` has grown so much that a plan is due."""
    if optimistic.growth == 0.0:
        return True
    growth, planned, visits = optimistic.growth, optimistic.planned_visits, estimate.visits
    rows, due = estimate.rows, False
    for i in range(first, n_rows, step):
        before, now = planned[rows[i], m], visits[rows[i], m]
        if growth == DOUBLING:
            power = math.ldexp(1.0, math.frexp(before)[1]) if before >= 1.0 else 1.0
            due |= now >= power
        else:
            due |= now > growth * max(1.0, before)
    return due


@njit(cache=True, nogil=True, forceinline=True)
def greedy_action(values, n_actions, t, s, belief):
    """argmax_a sum_m b(m) Q_{t,m}(s, a), the first of equally good ones."""
    best, winner = -np.inf, 0
    width = values.shape[2] // n_actions
    for a in range(n_actions):
        value = 0.0
        for m in range(belief.shape[1]):
            value += product(values[m, t, a * width + s], belief[AWAKE, m])
        if value > best:
            best, winner = value, a
    return winner
