"""Depth-first search over stationary policies, state by state.

With the actions of some states fixed, each context is solved alone by backward induction under a
reward r_t(s, a, m) of its own, the other states free at every time and in every context:

    bound^k = sum_{s fixed} c^k(s, pi(s)) + sum_{s free} max_a c^k(s, a)
              + sum_{s,m} y_0(s, m) V^k_{0,m}(s),    k = 1..K.

The state to fix next is the one where the contexts and times disagree most, by the loss of the
best common action under the occupancies of the solutions of the contexts.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.loops import copy, sort_down
from latentmdp._kernels.memoryless import Moves

__all__ = ["Branches", "Priced", "begin", "new_branches", "search"]


class Priced(NamedTuple):
    """The problem under its own rewards, and under rewards less prices if there are any."""

    moves: Moves
    rewards: NDArray[np.float64]  # (S, A, M)
    discount: float
    horizon: int
    prices: NDArray[np.float64]  # (H, S, A, M), or (0, S, A, M) without any
    charges: NDArray[np.float64]  # (S, A): what prices return
    start: NDArray[np.float64]  # (S, M)


class Branches(NamedTuple):
    """The path from the root to where the search is, the incumbent, and what was dropped."""

    states: NDArray[np.int64]  # (S,) fixed at each depth
    labels: NDArray[np.int64]  # (S, A) actions from the most to the least promising
    choice: NDArray[np.int64]  # (S,) the next one to try
    fixed: NDArray[np.int64]  # (S,) action of each state, -1 where free
    depth: NDArray[np.int64]  # (1,), -1 when the tree is exhausted
    best: NDArray[np.float64]  # (1,)
    policy: NDArray[np.int32]  # (1, S)
    dropped: NDArray[np.float64]  # (1,) largest bound of what was dropped


def new_branches(n_states: int, n_actions: int, best: float, policy: NDArray[np.int32]) -> Branches:
    """An empty path with an incumbent."""
    return Branches(
        states=np.zeros(n_states, np.int64),
        labels=np.zeros((n_states, n_actions), np.int64),
        choice=np.zeros(n_states, np.int64),
        fixed=np.full(n_states, -1, np.int64),
        depth=np.zeros(1, np.int64),
        best=np.array([best]),
        policy=policy.astype(np.int32),
        dropped=np.array([-np.inf]),
    )


@njit(cache=True, nogil=True)
def begin(priced, branches):
    """Put the search back to the root and return the root's bound."""
    for s in range(branches.fixed.shape[0]):
        branches.fixed[s] = -1
    branches.depth[0] = 0
    branches.dropped[0] = -np.inf
    bound, gains = _relax(priced, branches.fixed)
    _branch(priced.moves.open, branches, 0, gains)
    return bound


@njit(cache=True, nogil=True)
def search(priced, branches, target, tolerance, budget):
    """Go on for at most `budget` nodes; return how many were made and whether it is finished."""
    S, A = branches.labels.shape
    d = branches.depth[0]
    for node in range(budget):
        s = branches.states[d]
        while (
            branches.choice[d] < A
            and not priced.moves.open[s, branches.labels[d, branches.choice[d]]]
        ):
            branches.choice[d] += 1
        if branches.choice[d] == A:
            branches.fixed[s] = -1
            d -= 1
            if d < 0:
                branches.depth[0] = -1
                return node + 1, True
            continue
        branches.fixed[s] = branches.labels[d, branches.choice[d]]
        branches.choice[d] += 1
        bound, gains = _relax(priced, branches.fixed)
        if bound <= max(target, branches.best[0] + tolerance):
            branches.dropped[0] = max(branches.dropped[0], bound)
        elif d == S - 1:
            branches.best[0] = bound
            for i in range(S):
                branches.policy[0, i] = branches.fixed[i]
        else:
            d += 1
            _branch(priced.moves.open, branches, d, gains)
    branches.depth[0] = d
    return budget, False


@njit(cache=True, nogil=True)
def _branch(open_, branches, d, gains):
    """Choose the free state whose best common action costs most, its actions by their cost."""
    S, A = gains.shape
    chosen, most = -1, -np.inf
    for s in range(S):
        if branches.fixed[s] < 0:
            cost = np.inf
            for a in range(A):
                if open_[s, a]:
                    cost = min(cost, -gains[s, a])
            if cost > most:
                chosen, most = s, cost
    branches.states[d] = chosen
    for a in range(A):
        branches.labels[d, a] = a
    sort_down(branches.labels[d], gains[chosen])
    branches.choice[d] = 0


@njit(cache=True, nogil=True)
def _relax(priced, fixed):
    """The smaller of the bounds, and the gains (S, A), at most 0, of the common actions."""
    S, A, _ = priced.rewards.shape
    bound = np.inf
    gains = np.zeros((S, A))
    for k in range(2 if priced.prices.shape[0] else 1):
        values, found = _solve_contexts(priced, k, fixed)
        if k > 0:
            for s in range(S):
                most = -np.inf
                for a in range(A):
                    if _may_take(priced, fixed, s, a):
                        most = max(most, priced.charges[s, a])
                found += most
        if found < bound:
            bound = found
            _fill_gains(priced, k, values, fixed, gains)
    return bound, gains


@njit(cache=True, nogil=True)
def _may_take(priced, fixed, s, a):
    """Whether a state may still take an action."""
    return priced.moves.open[s, a] and (fixed[s] < 0 or fixed[s] == a)


@njit(cache=True, nogil=True)
def _solve_contexts(priced, k, fixed):
    """Backward induction in every context: V (H + 1, S, M) and the value at the start."""
    S, A, M = priced.rewards.shape
    V = np.zeros((priced.horizon + 1, S, M))
    q = np.empty(M)
    for t in range(priced.horizon - 1, -1, -1):
        for s in range(S):
            for m in range(M):
                V[t, s, m] = -np.inf
            for a in range(A):
                if _may_take(priced, fixed, s, a):
                    _q(priced, k, V, t, s, a, q)
                    for m in range(M):
                        V[t, s, m] = max(V[t, s, m], q[m])
    total = 0.0
    for s in range(S):
        for m in range(M):
            total += priced.start[s, m] * V[0, s, m]
    return V, total


@njit(cache=True, nogil=True)
def _q(priced, k, V, t, s, a, q):
    """Fill q (M,) with Q_{t,m}(s, a) under the rewards of relaxation k."""
    A, M = priced.rewards.shape[1:]
    moves = priced.moves
    for m in range(M):
        q[m] = 0.0
    for i in range(moves.starts[s * A + a], moves.starts[s * A + a + 1]):
        n = moves.next_state[i]
        for m in range(M):
            q[m] += moves.probs[i, m] * V[t + 1, n, m]
    for m in range(M):
        price = priced.prices[t, s, a, m] if k > 0 else 0.0
        q[m] = priced.rewards[s, a, m] - price + priced.discount * q[m]


@njit(cache=True, nogil=True)
def _fill_gains(priced, k, V, fixed, gains):
    """What an action gains at all times, under the occupancies of each context's own solution."""
    S, A, M = priced.rewards.shape
    moves = priced.moves
    for s in range(S):
        for a in range(A):
            gains[s, a] = 0.0
    y, later, q = priced.start.copy(), np.empty((S, M)), np.empty((A, M))
    for t in range(priced.horizon):
        for n in range(S):
            for m in range(M):
                later[n, m] = 0.0
        for s in range(S):
            for a in range(A):
                if _may_take(priced, fixed, s, a):
                    _q(priced, k, V, t, s, a, q[a])
            for m in range(M):
                mass = y[s, m]
                if mass > 0.0:
                    chosen, most = -1, -np.inf
                    for a in range(A):
                        if _may_take(priced, fixed, s, a):
                            gain = q[a, m] - V[t, s, m]
                            gains[s, a] += mass * gain
                            if gain > most:
                                chosen, most = a, gain
                    gone = priced.discount * mass
                    for i in range(moves.starts[s * A + chosen], moves.starts[s * A + chosen + 1]):
                        later[moves.next_state[i], m] += gone * moves.probs[i, m]
        copy(later, y)
