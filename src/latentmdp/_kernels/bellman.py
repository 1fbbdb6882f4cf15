"""The Bellman backup, R(s, a) + sum_s' T(s' | s, a) V(s'), in its dense and in its outcome form.

A maximum over actions makes it the step of an optimal policy, a choice that of a given one; V is
discounted already. Whoever plans over a horizon, without an end or optimistically does so with the
functions here.

Dense form, one context at a time. The states are padded to W, a multiple of `GROUP`, and the
actions of a state are laid apart: entry a W + s of a row of n = A W stands for (s, a). Transitions
are (M, W / GROUP, GROUP, n): for each next state s' = g GROUP + i the row of all (s, a). So the
innermost loop runs over long contiguous rows, which the compiler turns into vectors by itself, and
takes the `GROUP` next states of a group at once, so that sums are loaded and stored once a group.
All that is padding is zero. Rows of no multiple of eight would leave remainders that are computed
entry by entry.

Outcome form, all contexts side by side. The rows are the allowed (s, a), each with the outcomes
that may follow (`Successors`); probabilities, rewards and values are context-last.

Sums are over rising s', starting from the reward, in both forms: they round alike but for the
zeros that the dense form adds and for products that are fused with the sum that they go into.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import njit

GROUP = 8  # next states summed at once, and the doubles of the widest vectors there are


class Successors(NamedTuple):
    """Transitions of the allowed (s, a): R rows, n possible steps."""

    first: NDArray[np.int64]  # (S + 1,): first row of each state
    starts: NDArray[np.int64]  # (R + 1,): first step of each row
    next_state: NDArray[np.int32]  # (n,)
    probs: NDArray[np.float64]  # (n, M): T_m(s' | s, a)


def padded_states(S: int) -> int:
    """W: S rounded up to full groups."""
    return -(-S // GROUP) * GROUP


def dense_rewards(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy an array (..., S, A) into rows of the dense form (..., A W)."""
    S, A = rewards.shape[-2:]
    padded = np.zeros((*rewards.shape[:-2], A, padded_states(S)))
    padded[..., :S] = np.swapaxes(rewards, -1, -2)
    return padded.reshape(*rewards.shape[:-2], -1)


def dense_transitions(transitions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy transitions (M, S, A, S) into the dense form (M, W / GROUP, GROUP, A W)."""
    M, S, A, _ = transitions.shape
    W = padded_states(S)
    padded = np.zeros((M, W, A, W))
    padded[:, :S, :, :S] = transitions.transpose(0, 3, 2, 1)
    return padded.reshape(M, W // GROUP, GROUP, A * W)


# Inlined by numba, as `maxima`: to pass the arrays to a function takes as long as a layer of a
# small model. Whoever calls it fuses products and sums (`contract`); nothing else is fused there.
@njit(cache=True, nogil=True, inline="always")
def expect(transitions, m, value, start, out, t):
    """Set out[m, t] (n,) to start[m] + sum_s' transitions[m, s'] value[s'].

    `transitions` is (M, W / GROUP, GROUP, n), `value` (W / GROUP, GROUP), `start` (M, n). `out`
    must not overlap with what is read.
    """
    groups, n = value.shape[0], transitions.shape[3]
    for g in range(groups):
        a, b, c, d = value[g, 0], value[g, 1], value[g, 2], value[g, 3]
        e, f, h, o = value[g, 4], value[g, 5], value[g, 6], value[g, 7]
        # Two loops of one sum each: the first reads the start in place of what is there already.
        if g == 0:
            for x in range(n):
                out[m, t, x] = (
                    start[m, x]
                    + a * transitions[m, g, 0, x] + b * transitions[m, g, 1, x]
                    + c * transitions[m, g, 2, x] + d * transitions[m, g, 3, x]
                    + e * transitions[m, g, 4, x] + f * transitions[m, g, 5, x]
                    + h * transitions[m, g, 6, x] + o * transitions[m, g, 7, x]
                )  # fmt: skip
        else:
            for x in range(n):
                out[m, t, x] = (
                    out[m, t, x]
                    + a * transitions[m, g, 0, x] + b * transitions[m, g, 1, x]
                    + c * transitions[m, g, 2, x] + d * transitions[m, g, 3, x]
                    + e * transitions[m, g, 4, x] + f * transitions[m, g, 5, x]
                    + h * transitions[m, g, 6, x] + o * transitions[m, g, 7, x]
                )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def expect_moments(transitions, m, value, out):
    """Set out[0] and out[1] (n,) to sum_s' transitions[m, s'] times value[s'], and its square.

    As `expect`, without a reward: each entry of the transitions is loaded once for both sums. They
    may have more groups than `value`, which are left out.
    """
    groups, n = value.shape[0], transitions.shape[3]
    for g in range(groups):
        a, b, c, d = value[g, 0], value[g, 1], value[g, 2], value[g, 3]
        e, f, h, o = value[g, 4], value[g, 5], value[g, 6], value[g, 7]
        if g == 0:
            for x in range(n):
                out[0, x], out[1, x] = 0.0, 0.0
        for x in range(n):
            p, q = transitions[m, g, 0, x], transitions[m, g, 1, x]
            r, s = transitions[m, g, 2, x], transitions[m, g, 3, x]
            t, u = transitions[m, g, 4, x], transitions[m, g, 5, x]
            v, w = transitions[m, g, 6, x], transitions[m, g, 7, x]
            out[0, x] = out[0, x] + a * p + b * q + c * r + d * s + e * t + f * u + h * v + o * w
            out[1, x] = (
                out[1, x] + (a * a) * p + (b * b) * q + (c * c) * r + (d * d) * s
                + (e * e) * t + (f * f) * u + (h * h) * v + (o * o) * w
            )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def maxima(values, m, t, discount, out):
    """Set out (W,) to discount max_a values[m, t, a]; values are (M, H, A, W)."""
    A, W = values.shape[2:]
    for s in range(W):
        out[s] = discount * values[m, t, 0, s]
    for a in range(1, A):
        for s in range(W):
            other = discount * values[m, t, a, s]
            out[s] = other if other > out[s] else out[s]


@njit(cache=True, nogil=True, fastmath={"contract"})
def dense_values(transitions, rewards, discount, first, last, values):
    """Fill layers first..last-1 of values (M, H, A, W) from the one at `last`, or from the end."""
    M, H, A, W = values.shape
    flat, later = values.reshape((M, H, A * W)), np.empty(W)
    by_group = later.reshape((W // GROUP, GROUP))
    for m in range(M):
        for s in range(W):
            later[s] = 0.0
        for t in range(last, first, -1):
            if t < H:
                maxima(values, m, t, discount, later)
            expect(transitions, m, by_group, rewards, flat, t - 1)


@njit(cache=True, nogil=True)
def informed_value(values, weights, initial):
    """sum_m w_m sum_s nu_m(s) max_a Q_m(s, a) at the start, from values (M, H, A, W)."""
    M, S = initial.shape
    total = 0.0
    for m in range(M):
        for s in range(S):
            best = values[m, 0, 0, s]
            for a in range(1, values.shape[2]):
                best = max(best, values[m, 0, a, s])
            total += weights[m] * initial[m, s] * best
    return total


@njit(cache=True, nogil=True, fastmath={"contract"})
def follow(begin, end, steps, rewards, chosen, later, out):
    """One step of K policies at the states begin..end-1, in every context.

    Set out[s K + j] to rewards[row] + sum_k probs[k] later[next_state[k] K + j] with row =
    chosen[s, j]; where that is -1, as in a terminal state, `out` is left alone. `steps` are
    `Successors`, `chosen` is (S, K), rewards (R, M), later, discounted already, and out (S K, M).
    Contexts are the innermost loop, so that all arrays are read as they lie.
    Indices are unsigned where the compiler cannot know that they are not negative: otherwise every
    access would check whether to count from the end, which is a third of the time.
    """
    _, starts, next_state, probs = steps
    K, M = np.uint64(chosen.shape[1]), rewards.shape[1]
    for s in range(begin, end):
        for j in range(K):
            row, i = chosen[s, j], np.uint64(s) * K + j
            if row < 0:
                continue
            for m in range(M):
                out[i, m] = rewards[row, m]
            for k in range(np.uint64(starts[row]), np.uint64(starts[row + 1])):
                n = np.uint64(next_state[k]) * K + j
                for m in range(M):
                    out[i, m] += probs[k, m] * later[n, m]


@njit(cache=True, nogil=True)
def _outcome_maxima(begin, end, first, q, out):
    """Set out[s] to the largest q of a state's rows, for the states begin..end-1.

    q is (R, M), out (S, M). A terminal state, which has no rows, is worth 0.
    """
    M = out.shape[1]
    for s in range(begin, end):
        if first[s] == first[s + 1]:
            out[s] = 0.0
        for row in range(np.uint64(first[s]), np.uint64(first[s + 1])):
            if row == first[s]:
                for m in range(M):
                    out[s, m] = q[row, m]
            else:
                for m in range(M):
                    out[s, m] = q[row, m] if q[row, m] > out[s, m] else out[s, m]


@njit(cache=True, nogil=True)
def outcome_values(begin, end, steps, rewards, discount, first, last, ahead, q):
    """Back up the states begin..end-1 in layers last-1 down to first.

    `ahead` (2, S, M) holds the discounted values of layer t + 1 at (t + 1) % 2, zero after the end,
    and those of layer t are written beside them; where a layer is cut into blocks of states, all of
    it must be there before the next begins. `q` is (H, R, M).
    """
    by_state = steps.first
    rows = np.arange(q.shape[1]).reshape((-1, 1))
    for t in range(last - 1, first - 1, -1):
        later, now = ahead[(t + 1) % 2], ahead[t % 2]
        follow(by_state[begin], by_state[end], steps, rewards, rows, later, q[t])
        _outcome_maxima(begin, end, by_state, q[t], now)
        now[begin:end] *= discount


@njit(cache=True, nogil=True)
def greedy_rows(first, q, chosen):
    """Fill chosen (S, M) with each state's best row of q (R, M), -1 in terminal states."""
    S, M = chosen.shape
    for s in range(S):
        for m in range(M):
            chosen[s, m] = -1
            for row in range(first[s], first[s + 1]):
                if chosen[s, m] < 0 or q[row, m] > q[chosen[s, m], m]:
                    chosen[s, m] = row


@njit(cache=True, nogil=True)
def policy_values(steps, rewards, chosen, discount, first, last, values):
    """Fill layers first..last-1 of values (H, S, K, M) from the one at `last`, or from the end.

    They are what following policy k from (t, s) on earns in every context. `chosen` is
    (last - first, S, K), or (1, S, K) for the same rules at all times; see `follow`.
    """
    H, S, K, M = values.shape
    begin = np.int64(0)  # a function is compiled anew for a number that is written out
    by_policy, later = values.reshape((H, S * K, M)), np.zeros((S * K, M))
    values[first:last] = 0.0
    if last < H:
        later[:] = discount * by_policy[last]
    for t in range(last - 1, first - 1, -1):
        rows = chosen[(t - first) % chosen.shape[0]]
        follow(begin, S, steps, rewards, rows, later, by_policy[t])
        later[:] = discount * by_policy[t]
