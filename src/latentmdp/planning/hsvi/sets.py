"""An upper bound from sets of contexts: news that says more is better, so let it rule some out.

With a reference belief w over the contexts and G a set of them, write w_G for w restricted to G.
After outcome k, w_G becomes w_G P(k | .), a stack of layers: with p_1 < p_2 < ... the values of
P(k | .) on G,

    w_G P(k | .) = sum_l (p_l - p_{l-1}) w_{G_l},    G_l = {m in G: P(k | m) >= p_l}.

V* is convex and homogeneous, so V*(w_G P(k | .)) <= sum_l (p_l - p_{l-1}) V*(w_{G_l}): an agent
that is told the layer knows more than one that is not. So the values of an MDP whose states are
pairs (s, G),

    U(s, G) = max_a [ R(w_G) + discount sum_k sum_l (p_l - p_{l-1}) U(s', G_l) ],

bound V*(s, w_G) from above. Q-MDP tells the context after one step; this tells no more than an
outcome might have told. A noisy reading of one bit, right with probability q, becomes one that is
right for sure with probability 2q - 1 and says nothing otherwise. At any belief the same layers,
of b / w, give a bound (`kernels_sets.set_bound`).

Sets are listed breadth first from those at the start; where they are too many, a set that was not
expanded has Q-MDP's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from latentmdp._util import Floats, Integers
from latentmdp.outcomes import RunInBlocks
from latentmdp.planning.hsvi import kernels_sets as kernels
from latentmdp.planning.hsvi.kernels_sets import Sets
from latentmdp.planning.hsvi.lumping import LumpedProblem
from latentmdp.planning.limits import LimitReached

_MOST_SWEEPS, _LEFT = 100, 1e-6
"""Without an end: sweeps at most, and the share of the largest value whose change ends them. Every
sweep is a bound, and points gain more than the last of them."""


def informed_sets(
    problem: LumpedProblem, reference: Floats, best: Floats, states: Integers, entries: int,
    work: float, check: Callable[[], None], run: RunInBlocks,
) -> Sets:  # fmt: skip
    """Bounds of the sets that follow from all contexts in the given states.

    Parameters
    ----------
    reference : (all classes,)
        w, positive.
    best : (layers, all classes)
        Values of the classes alone, upper bounds.
    entries
        How many successors of sets may be listed.
    """
    A, widest = problem.allowed.shape[1], int(problem.width.max())
    n_words, most = -(-widest // 64), entries + states.size
    state, words = np.empty(most, np.int64), np.zeros((most, n_words), np.uint64)
    slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
    first_words = np.zeros((states.size, n_words), np.uint64)
    for i, x in enumerate(states):
        for c in range(problem.width[x]):
            first_words[i, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
    rows, earned = np.empty(most * A + 1, np.int64), np.empty(most * A)
    child, weight = np.empty(entries, np.int32), np.empty(entries)
    n_outcomes = problem.next_state.size
    layers = (
        np.empty(n_outcomes + 1, np.int64), np.empty(n_outcomes * kernels.MOST_LAYERS),
        np.empty((n_outcomes * kernels.MOST_LAYERS, n_words), np.uint64),
    )  # fmt: skip
    kernels.list_layers(problem, reference, *layers)
    n, expanded = kernels.list_sets(
        problem, reference, layers, states, first_words, state, words, slots, rows, child, weight,
        earned,
    )  # fmt: skip
    state, words = state[:n].copy(), words[:n].copy()
    sizes = np.bitwise_count(words).sum(axis=1)
    cells, grid, points = _grids(problem, state, sizes, work)
    value = np.empty((problem.layers, n + points))
    sides = int(sizes[cells > 0].max(initial=1)) + 1
    binomial = np.array(
        [[math.comb(i, j) for j in range(sides)] for i in range(int(cells.max(initial=0)) + sides)]
    )
    sets = Sets(state, words, slots, reference, value, best, cells, n + grid, binomial)
    chosen = [np.flatnonzero((cells > 0) & (sizes == d)) for d in range(2, sides)]
    for t in range(problem.layers):
        kernels.known_values(problem, reference, state, words, best[t], value[t])
        kernels.known_grids(problem, sets, t, value[t])
    graph = (problem, state, rows, child, weight, earned)

    def sweep(t: int, later: int, is_last: bool) -> float:
        """Back up all sets, then grids, small ones first."""
        after = np.zeros(n + points) if is_last else value[later]
        change = kernels.back_up_sets(0, expanded, *graph, after, value[t])
        for of_size in chosen:
            before = value[t] if problem.ends else value[t].copy()
            out = value[t] if problem.ends else before
            run(kernels.back_up_grids, of_size.size, problem, sets, t, later, is_last, of_size, out)
            if not problem.ends:
                change = max(change, float((value[t] - out).max(initial=0.0)))
                value[t] = out
        return change

    enough = _LEFT * float(np.abs(best).max())
    with suppress(LimitReached):  # the values so far are bounds
        for t in range(problem.layers - 1, -1, -1):
            for _ in range(1 if problem.ends else _MOST_SWEEPS):
                check()
                later = t + 1 if problem.ends else t
                if sweep(t, later, later == problem.layers) <= enough:
                    break
    return sets


def _grids(
    problem: LumpedProblem, state: Integers, sizes: Integers, work: float
) -> tuple[Integers, Integers, int]:
    """Cells along a side of the grid of each set, where its points begin, and their number."""
    A = problem.allowed.shape[1]
    outcomes = np.diff(problem.starts[::A])[state]
    sweeps = problem.layers if problem.ends else _MOST_SWEEPS
    cells, most = np.zeros(state.size, np.int64), int(sizes.max(initial=1))
    share = work / sweeps / max(1, most - 1)
    for d in range(2, most + 1):
        of_size = sizes == d
        total, n = float(outcomes[of_size].sum()), 1
        while n < 256 and total * math.comb(n + d, d - 1) <= share:
            n += 1
        if n < d:
            break
        cells[of_size] = n
    counts = np.where(
        cells > 0, [math.comb(int(n) + int(d) - 1, int(d) - 1) for n, d in zip(cells, sizes)], 0
    )
    return cells, np.cumsum(counts) - counts, int(counts.sum())
