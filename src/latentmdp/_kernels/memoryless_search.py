"""Depth-first search over Markov policies, forward in time, in the space of occupancies.

With the rules before t, the occupancy y_t(s, m) is known, and what any memoryless continuation
earns is at most, for each row k of the relaxed values Q^k,

    tail^k_{t+1} + sum_s max_a [
        sum_m y_t(s, m) R_m(s, a)
        + discount sum_s' max_a' sum_m y_t(s, m) T_m(s' | s, a) Q^k_{t+1,m}(s', a') ].

The sum over states lets the rules of one time be enumerated state by state by the loss of each
action against the best one, so a node costs a few additions.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.loops import copy, sort_down
from latentmdp._kernels.memoryless import Moves, push

__all__ = ["MarkovPath", "Relaxed", "begin", "new_path", "search"]


_FEW = 200  # states that an insertion sort puts in order faster than a general one


class Relaxed(NamedTuple):
    """The problem and K relaxations of it: Q^k (K, H, S, A, M) and their constants (K, H + 1)."""

    moves: Moves
    rewards: NDArray[np.float64]
    discount: float
    values: NDArray[np.float64]
    tails: NDArray[np.float64]


class MarkovPath(NamedTuple):
    """The path from the root to where the search is, the incumbent, and what was dropped."""

    y: NDArray[np.float64]  # (H, S, M) occupancy on entering each time
    earned: NDArray[np.float64]  # (H,) before each time
    bound: NDArray[np.float64]  # (H,) at each time before any of its rules is fixed
    states: NDArray[np.int64]  # (H, S) in the order in which they are fixed
    labels: NDArray[np.int64]  # (H, S, A) actions from the best to the worst
    losses: NDArray[np.float64]  # (H, S, A) theirs
    width: NDArray[np.int64]  # (H, S) how many of them are tried
    choice: NDArray[np.int64]  # (H, S) the next one to try
    spent: NDArray[np.float64]  # (H, S + 1) losses of the states fixed so far
    rules: NDArray[np.int32]  # (H, S)
    scores: NDArray[np.float64]  # (2, S, A) of the relaxation in hand, and of the tightest
    margins: NDArray[np.float64]  # (S,) how decisive each state is
    cursor: NDArray[np.int64]  # time and position; time -1 when the tree is exhausted
    best: NDArray[np.float64]  # (1,) value of the incumbent
    policy: NDArray[np.int32]  # (H, S) the incumbent
    dropped: NDArray[np.float64]  # (1,) largest bound of what was dropped


def new_path(
    start: NDArray[np.float64], horizon: int, n_actions: int, best: float, policy: NDArray[np.int32]
) -> MarkovPath:
    """An empty path for a search from occupancy `start` (S, M) with an incumbent."""
    H, A, (S, M) = horizon, n_actions, start.shape
    y = np.zeros((H, S, M))
    y[0] = start
    return MarkovPath(
        y=y,
        earned=np.zeros(H),
        bound=np.zeros(H),
        states=np.zeros((H, S), np.int64),
        labels=np.zeros((H, S, A), np.int64),
        losses=np.zeros((H, S, A)),
        width=np.zeros((H, S), np.int64),
        choice=np.zeros((H, S), np.int64),
        spent=np.zeros((H, S + 1)),
        rules=np.zeros((H, S), np.int32),
        scores=np.zeros((2, S, A)),
        margins=np.zeros(S),
        cursor=np.zeros(2, np.int64),
        best=np.array([best]),
        policy=policy.astype(np.int32),
        dropped=np.array([-np.inf]),
    )


@njit(cache=True, nogil=True)
def begin(relaxed, path):
    """Put the search back to the root and return the root's bound."""
    path.dropped[0] = -np.inf
    path.cursor[0], path.cursor[1] = 0, 0
    _enter(relaxed, path, 0, -np.inf)
    return path.bound[0]


@njit(cache=True, nogil=True)
def search(relaxed, path, target, tolerance, budget):
    """Go on for at most `budget` nodes; return how many were made and whether it is finished."""
    H, S = path.rules.shape
    moves, rewards, discount = relaxed.moves, relaxed.rewards, relaxed.discount
    t, k = path.cursor
    for node in range(budget):
        floor = max(target, path.best[0] + tolerance)
        j = path.choice[t, k]
        bound = -np.inf
        if j < path.width[t, k]:
            bound = path.bound[t] - path.spent[t, k] - path.losses[t, k, j]
        if bound <= floor:
            path.dropped[0] = max(path.dropped[0], bound)
            t, k = (t, k - 1) if k > 0 else (t - 1, S - 1)
        else:
            path.choice[t, k] = j + 1
            path.spent[t, k + 1] = path.spent[t, k] + path.losses[t, k, j]
            path.rules[t, path.states[t, k]] = path.labels[t, k, j]
            k += 1
            if k < S:
                path.choice[t, k] = 0
            else:
                t, k = t + 1, 0
                if t < H:
                    rule, y = path.rules[t - 1], path.y[t - 1]
                    gain = push(moves, rewards, discount, rule, y, path.y[t])
                    path.earned[t] = path.earned[t - 1] + gain
                    _enter(relaxed, path, t, floor)
                else:  # a complete policy: at the last time its bound is its value
                    path.best[0] = path.bound[H - 1]
                    copy(path.rules, path.policy)
                    t, k = t - 2, S - 1
        if t < 0:
            path.cursor[0] = -1
            return node + 1, True
    path.cursor[0], path.cursor[1] = t, k
    return budget, False


@njit(cache=True, nogil=True)
def _enter(relaxed, path, t, floor):
    """Prepare time t: its bound, and each state's actions by loss, decisive states first."""
    S = path.states.shape[1]
    path.bound[t] = np.inf
    for k in range(relaxed.values.shape[0]):
        if path.bound[t] <= floor:
            break
        total = _scores(relaxed, k, path, t)
        bound = path.earned[t] + relaxed.tails[k, t + 1] + total
        if bound < path.bound[t]:
            path.bound[t] = bound
            copy(path.scores[0], path.scores[1])
    for s in range(S):
        path.states[t, s] = s
        path.margins[s] = _margin(path.scores[1, s])
    _sort_states(path.states[t], path.margins)
    for k in range(S):
        _rank(path, t, k)
    path.choice[t, 0] = 0
    path.spent[t, 0] = 0.0


@njit(cache=True, nogil=True)
def _sort_states(states, margins):
    """The same as `sort_down`, for many."""
    if states.shape[0] <= _FEW:
        sort_down(states, margins)
        return
    order = np.argsort(-margins, kind="mergesort")
    for i in range(order.shape[0]):
        states[i] = order[i]


@njit(cache=True, nogil=True)
def _rank(path, t, k):
    """Put the actions of the k-th state of time t in the order of their losses."""
    H, _, A = path.losses.shape
    s = path.states[t, k]
    for a in range(A):
        path.labels[t, k, a] = a
    sort_down(path.labels[t, k], path.scores[1, s])
    top = path.scores[1, s, path.labels[t, k, 0]]
    for j in range(A):
        path.losses[t, k, j] = top - path.scores[1, s, path.labels[t, k, j]]
    reached = False
    for m in range(path.y.shape[2]):
        reached = reached or path.y[t, s, m] > 0.0
    # The last rule is chosen state by state; where nobody is, one action is as good as another.
    path.width[t, k] = 1
    if reached and t < H - 1:
        while path.width[t, k] < A and path.losses[t, k, path.width[t, k]] < np.inf:
            path.width[t, k] += 1


@njit(cache=True, nogil=True)
def _margin(scores):
    """By how much the best action beats the second best."""
    first, second = -np.inf, -np.inf
    for a in range(scores.shape[0]):
        x = scores[a]
        if x > first:
            first, second = x, first
        elif x > second:
            second = x
    return first - second


@njit(cache=True, nogil=True)
def _scores(relaxed, k, path, t):
    """Fill scores[0] with what each (s, a) earns at most from t on; return the sum of maxima."""
    H, S, A = path.losses.shape
    total = 0.0
    for s in range(S):
        best = -np.inf
        for a in range(A):
            if not relaxed.moves.open[s, a]:
                path.scores[0, s, a] = -np.inf
                continue
            x = 0.0
            for m in range(path.y.shape[2]):
                x += path.y[t, s, m] * relaxed.rewards[s, a, m]
            if t + 1 < H:
                x += relaxed.discount * _ahead(relaxed, k, path.y[t, s], t, s, a)
            path.scores[0, s, a] = x
            best = max(best, x)
        total += best
    return total


@njit(cache=True, nogil=True)
def _ahead(relaxed, k, y, t, s, a):
    """sum_s' max_a' sum_m y(m) T_m(s' | s, a) Q^k_{t+1,m}(s', a')."""
    _, A, M = relaxed.rewards.shape
    moves = relaxed.moves
    total = 0.0
    for i in range(moves.starts[s * A + a], moves.starts[s * A + a + 1]):
        n = moves.next_state[i]
        best = -np.inf
        for b in range(A):
            if moves.open[n, b]:
                x = 0.0
                for m in range(M):
                    x += y[m] * moves.probs[i, m] * relaxed.values[k, t + 1, n, b, m]
                best = max(best, x)
        total += best
    return total
