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

__all__ = ["Branches", "Priced", "begin", "new_branches", "search"]


class Priced(NamedTuple):
    """The problem with K reward tables (K, H, S, A, M) and their constants (K, S, A)."""

    transitions: NDArray[np.float64]
    rewards: NDArray[np.float64]
    discount: float
    constants: NDArray[np.float64]
    start: NDArray[np.float64]


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
    _branch(branches, 0, gains)
    return bound


@njit(cache=True, nogil=True)
def search(priced, branches, target, tolerance, budget):
    """Go on for at most `budget` nodes; return how many were made and whether it is finished."""
    S, A = branches.labels.shape
    d = branches.depth[0]
    for node in range(budget):
        s = branches.states[d]
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
            _branch(branches, d, gains)
    branches.depth[0] = d
    return budget, False


@njit(cache=True, nogil=True)
def _branch(branches, d, gains):
    """Choose the free state whose best common action costs most, its actions by their cost."""
    S, A = gains.shape
    chosen, most = -1, -np.inf
    for s in range(S):
        if branches.fixed[s] < 0:
            cost = np.inf
            for a in range(A):
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
    """The smallest of the K bounds, and the gains (S, A), at most 0, of the common actions."""
    K, _, S, A, _ = priced.rewards.shape
    bound = np.inf
    gains = np.zeros((S, A))
    for k in range(K):
        values, found = _solve_contexts(priced, k, fixed)
        for s in range(S):
            first, last = _open_actions(fixed, s, A)
            most = -np.inf
            for a in range(first, last):
                most = max(most, priced.constants[k, s, a])
            found += most
        if found < bound:
            bound = found
            _fill_gains(priced, k, values, fixed, gains)
    return bound, gains


@njit(cache=True, nogil=True)
def _open_actions(fixed, s, A):
    """The range of actions that a state may still take."""
    return (0, A) if fixed[s] < 0 else (fixed[s], fixed[s] + 1)


@njit(cache=True, nogil=True)
def _solve_contexts(priced, k, fixed):
    """Backward induction in every context: V (H + 1, S, M) and the value at the start."""
    _, H, S, A, M = priced.rewards.shape
    V = np.zeros((H + 1, S, M))
    for t in range(H - 1, -1, -1):
        for s in range(S):
            first, last = _open_actions(fixed, s, A)
            for m in range(M):
                best = -np.inf
                for a in range(first, last):
                    best = max(best, _q(priced, k, V, t, s, a, m))
                V[t, s, m] = best
    total = 0.0
    for s in range(S):
        for m in range(M):
            total += priced.start[s, m] * V[0, s, m]
    return V, total


@njit(cache=True, nogil=True)
def _q(priced, k, V, t, s, a, m):
    x = 0.0
    for n in range(V.shape[1]):
        x += priced.transitions[s, a, n, m] * V[t + 1, n, m]
    return priced.rewards[k, t, s, a, m] + priced.discount * x


@njit(cache=True, nogil=True)
def _fill_gains(priced, k, V, fixed, gains):
    """What an action gains at all times, under the occupancies of each context's own solution."""
    _, H, S, A, M = priced.rewards.shape
    for s in range(S):
        for a in range(A):
            gains[s, a] = 0.0
    y = np.zeros((H + 1, S, M))
    copy(priced.start, y[0])
    for t in range(H):
        for s in range(S):
            first, last = _open_actions(fixed, s, A)
            for m in range(M):
                mass = y[t, s, m]
                if mass > 0.0:
                    chosen, most = first, -np.inf
                    for a in range(first, last):
                        gain = _q(priced, k, V, t, s, a, m) - V[t, s, m]
                        gains[s, a] += mass * gain
                        if gain > most:
                            chosen, most = a, gain
                    gone = priced.discount * mass
                    for n in range(S):
                        y[t + 1, n, m] += gone * priced.transitions[s, chosen, n, m]
