"""Backward induction in each context: Q_t(s,a) = R(s,a) + discount sum_s' T(s'|s,a) max_a' Q_{t+1}.

Arrays are in lanes: transitions (M, S', n), rewards (M, n) and values (M, H, n) with n = A W, where
entry a W + s stands for (s, a) and W is S rounded up to full vectors (`padded_states`); what is
beyond S is zero. So the inner loop is q(a, s) += V(s') T(s' | s, a) over long contiguous rows.

Sparse problems are `Successors`: the rows are the allowed (s, a), each with its possible next
states, and contexts lie side by side, so that the inner loop is q(., m) += T_m(s' | s, a) V_m(s')
over the contexts. Values are padded with zeros to full vectors. Probabilities, of which there are
most, are not: a full vector of them reaches into the next row, and what it finds there is
multiplied by zero (`readable_rows` makes room after the last one).
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.atomic import count_up, counted, wait
from latentmdp._kernels.sharing import goes_on, invite, items
from latentmdp._kernels.simd import (
    CONTEXT_LANES,
    LANES,
    back_up_state_4,
    back_up_state_8,
    discounted_maxima,
    expected_row,
    expected_values,
    keep_larger,
)

__all__ = [
    "Successors",
    "back_up",
    "context_q_values",
    "follow",
    "greedy_rows",
    "informed_value",
    "interleave",
    "maxima",
    "pad_contexts",
    "padded_contexts",
    "padded_states",
    "policy_values",
    "q_values",
    "readable_rows",
    "sparse_values",
    "to_lanes",
    "zero_rows",
]


class Successors(NamedTuple):
    """Transitions of the allowed (s, a): R rows, n possible steps."""

    first: NDArray[np.int64]  # (S + 1,): first row of each state
    starts: NDArray[np.int64]  # (R + 1,): first step of each row
    next_state: NDArray[np.int32]  # (n,)
    probs: NDArray[np.float64]  # (n, M): T_m(s' | s, a), see `readable_rows`


def padded_contexts(M: int) -> int:
    """W: M rounded up to full vectors."""
    return -(-M // CONTEXT_LANES) * CONTEXT_LANES


def pad_contexts(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy an array (n, M) into rows of full vectors (n, W), zero beyond M."""
    padded = zero_rows(*array.shape)
    padded[:, : array.shape[1]] = array
    return padded


def zero_rows(n: int, M: int) -> NDArray[np.float64]:
    """Rows of full vectors (n, W), all zero, that begin with a cache line: a vector is in one."""
    W, line = padded_contexts(M), 64
    kept = np.zeros(n * W + line // 8)
    skipped = -kept.ctypes.data % line // 8
    return kept[skipped : skipped + n * W].reshape(n, W)


def readable_rows(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy an array (n, M) so that full vectors may be read from the beginning of every row."""
    n, M = array.shape
    kept = np.zeros(n * M + padded_contexts(M))
    rows = kept[: n * M].reshape(n, M)
    rows[:] = array
    return rows


def padded_states(S: int) -> int:
    """W: S rounded up to full vectors."""
    return -(-S // LANES) * LANES


def to_lanes(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy an array (..., S, A) into lanes (..., A W)."""
    S, A = array.shape[-2:]
    lanes = np.zeros((*array.shape[:-2], A, padded_states(S)))
    lanes[..., :S] = np.swapaxes(array, -1, -2)
    return lanes.reshape(*array.shape[:-2], -1)


@njit(cache=True, nogil=True)
def context_q_values(transitions, rewards, m, n_actions, discount, values):
    """Fill values[m] (H, n) for one context."""
    value = np.zeros(rewards.shape[1] // n_actions)
    for t in range(values.shape[1] - 1, -1, -1):
        expected_values(transitions, rewards, value, values, m, t)
        discounted_maxima(values, m, t, n_actions, discount, value)


@njit(cache=True, nogil=True)
def q_values(transitions, rewards, n_actions, discount, values):
    """Fill values (M, H, n) for all contexts."""
    for m in range(transitions.shape[0]):
        context_q_values(transitions, rewards, m, n_actions, discount, values)


@njit(cache=True, nogil=True)
def interleave(values, out):
    """Rearrange values in lanes (M, H, n) as alpha vectors (H, S, A, M)."""
    M = values.shape[0]
    H, S, A, _ = out.shape
    W = values.shape[2] // A
    for t in range(H):
        for a in range(A):
            for m in range(M):
                for s in range(S):
                    out[t, s, a, m] = values[m, t, a * W + s]


@njit(cache=True, nogil=True)
def informed_value(values, weights, initial):
    """sum_m w_m sum_s nu_m(s) max_a Q_m(s, a) at the start, from values in lanes (M, H, n)."""
    M, S = initial.shape
    n = values.shape[2]
    W = -(-S // LANES) * LANES
    total = 0.0
    for m in range(M):
        for s in range(S):
            best = values[m, 0, s]
            for column in range(W + s, n, W):
                best = max(best, values[m, 0, column])
            total += weights[m] * initial[m, s] * best
    return total


@njit(cache=True, nogil=True)
def back_up(steps, rewards, later, q, best):
    """Fill q (R, M) with R_m(s, a) + sum_s' T_m(s' | s, a) later_m(s'), best (S, W) with maxima.

    `rewards` (R, W) and `later` (S, W), discounted already, are padded. A terminal state's best
    is left alone.
    """
    back_up_states(steps, rewards, later, q, best, 0, best.shape[0])


@njit(cache=True, nogil=True)
def back_up_states(steps, rewards, later, q, best, first_state, last_state):
    """`back_up` of the states first_state..last_state-1 and their rows alone."""
    M, W = q.shape[1], rewards.shape[1]
    spare = np.empty((1, W))
    first, starts, next_state, probs = steps
    # A padded row of q spills into the next one, which comes later; the last ones need a detour.
    room = first[last_state] * M - W
    direct = room // M if room >= 0 else -1
    for s in range(first_state, last_state):
        begin, end = first[s], first[s + 1]
        if end - 1 <= direct and W <= 8:  # all contexts in one vector
            if begin < end and W == 4:
                back_up_state_4(
                    probs, next_state, starts, begin, end, later, rewards, q, M, best, s
                )
            elif begin < end:
                back_up_state_8(
                    probs, next_state, starts, begin, end, later, rewards, q, M, best, s
                )
            continue
        for row in range(begin, end):
            k, last = starts[row], starts[row + 1]
            is_first = row == begin
            if row <= direct:
                expected_row(probs, next_state, k, last, later, 1, 0, rewards, row, q, row * M)
                keep_larger(best, s, is_first, q, row * M)
            else:
                expected_row(probs, next_state, k, last, later, 1, 0, rewards, row, spare, 0)
                keep_larger(best, s, is_first, spare, 0)
                for m in range(M):
                    q[row, m] = spare[0, m]


@njit(cache=True, nogil=True)
def maxima(first, q, discount, value):
    """Fill value (S, W) with discount times the maximum over each state's rows of q (R, M)."""
    M = q.shape[1]
    for s in range(first.shape[0] - 1):
        begin, end = first[s], first[s + 1]
        if begin < end:  # a terminal state keeps the value 0
            for m in range(M):
                value[s, m] = q[begin, m]
            for row in range(begin + 1, end):
                for m in range(M):
                    value[s, m] = max(value[s, m], q[row, m])
            for m in range(M):
                value[s, m] *= discount


@njit(cache=True, nogil=True)
def greedy_rows(first, q, chosen):
    """Fill chosen (S, M) with each state's best row of q (R, M), -1 in terminal states."""
    S, M = chosen.shape
    for s in range(S):
        for m in range(M):
            chosen[s, m] = -1
            best = -np.inf
            for row in range(first[s], first[s + 1]):
                if q[row, m] > best:
                    best, chosen[s, m] = q[row, m], row


@njit(cache=True, nogil=True)
def sparse_values(job, steps, rewards, discount, cuts, ahead, last, q, best, done):
    """Backward induction from layer last-1 on.

    The states are cut into B parts at `cuts` (B + 1,), and item i of the job is part i % B of layer
    last-1 - i // B. A part of a layer waits until all of the layer after it are done: whoever runs
    them took an earlier item, so some thread always goes on. `done` are the parts done of each
    layer, zero at the beginning.

    `ahead` (2, S, W) holds the discounted values of the layer `last` first, zero after the end; the
    two are used in turn. `q` is (H, R, M), or (1, R, M) where only maxima are wanted, which go to
    `best` (H, S, M) unless that has no layers.
    """
    invite(job)
    parts, M = cuts.shape[0] - 1, q.shape[2]
    for item in items(job):
        layer = item // parts
        t, part = last - 1 - layer, item - layer * parts
        waited = 0
        while layer > 0 and counted(done, layer - 1) < parts and goes_on(job):
            waited = wait(waited)
        later, now = ahead[layer % 2], ahead[(layer + 1) % 2]
        begin, end = cuts[part], cuts[part + 1]
        own = q[t] if q.shape[0] > 1 else q[0]
        back_up_states(steps, rewards, later, own, now, begin, end)
        for s in range(begin, end):
            if best.shape[0] > 0:
                for m in range(M):
                    best[t, s, m] = now[s, m]
            for m in range(now.shape[1]):
                now[s, m] *= discount
        count_up(done, layer)


@njit(cache=True, nogil=True)
def follow(steps, rewards, chosen, later, values):
    """One step of K policies: fill values (S K, W) from later (S K, W), discounted already.

    `chosen` (S, K) are rows of `steps`, -1 in a terminal state, whose values are left alone.
    """
    S, K = chosen.shape
    for s in range(S):
        for k in range(K):
            row = chosen[s, k]
            if row >= 0:
                begin, end = steps.starts[row], steps.starts[row + 1]
                expected_row(
                    steps.probs, steps.next_state, begin, end, later, K, k, rewards, row,
                    values, (s * K + k) * values.shape[1],
                )  # fmt: skip


@njit(cache=True, nogil=True)
def policy_values(steps, rewards, chosen, discount, values):
    """Fill values (H, S, K, M): in every context, that of following policy k from (t, s) on.

    `chosen` is (H, S, K), or (1, S, K) for the same rules at all times; see `follow`.
    """
    H, S, K, M = values.shape
    now, later = np.zeros((S * K, rewards.shape[1])), np.zeros((S * K, rewards.shape[1]))
    for t in range(H - 1, -1, -1):
        follow(steps, rewards, chosen[t if chosen.shape[0] > 1 else 0], later, now)
        for i in range(S * K):
            for m in range(M):
                values[t, i // K, i % K, m] = now[i, m]
                later[i, m] = discount * now[i, m]
