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
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp.outcomes import RunInBlocks
from latentmdp.planning.hsvi import kernels_sets as kernels
from latentmdp.planning.hsvi.kernels_sets import Room, Sets, make_room
from latentmdp.planning.hsvi.lumping import LumpedProblem

GROWTH = 2.0
"""Factor from sweep to sweep for the number of points, and for whatever else doubles: a small one
repeats what was nearly the same, a large one places many points by old bounds."""

_ENTRIES, _ENTRIES_OF_A_SET = 10.0, 4
"""How many successors of sets take as long as one interpolation on a grid; and for how many of them
there is room for a set: more would leave room unused, fewer would list fewer sets."""


class _Listed(NamedTuple):
    """Sets, and what follows each of them."""

    state: Integers  # (n,)
    words: Any  # (n, words): see `Sets`
    slots: Any
    sizes: Integers  # (n,): classes of each
    is_whole: bool  # whether all that may follow are listed
    graph: tuple[Any, ...]  # see `kernels.back_up_sets`
    looks: float  # the work it took


class _Grids(NamedTuple):
    """Grids over the beliefs of sets."""

    cells: Integers  # (n,): along a side of each set's grid, 0 for none
    first: Integers  # (n,): where its points begin
    points: int
    is_finest: bool  # whether more work would make none of them finer


class InformedSets:
    """Bounds of the sets that follow from all contexts in some states, ever more closely.

    Parameters
    ----------
    reference : (all classes,)
        w, positive.
    best : (layers, all classes)
        Values of the classes alone, upper bounds.
    states
        Where episodes begin.
    memory
        Bytes that may be taken.
    check, run
        Called now and then, and may raise to stop; runs a kernel over items by threads.
    sweeps
        At most, without an end: every sweep is a bound.
    work
        That of the first bounds, a few thousandths of a second.

    Attributes
    ----------
    work
        What may be spent on the next bounds, counted in interpolations on a grid.
    is_whole
        Whether more work would change nothing, or may not be done.
    """

    def __init__(
        self, problem: LumpedProblem, reference: Floats, best: Floats, states: Integers,
        memory: float, check: Callable[[], None], run: RunInBlocks, sweeps: int, work: float,
    ) -> None:  # fmt: skip
        self.problem, self.reference, self.best, self._states = problem, reference, best, states
        self._check, self._run = check, run
        self._sweeps = problem.layers if problem.ends else sweeps
        # Without an end, sweeps stop where they change less than this share of the values: points
        # gain more. The error of an interpolation falls with the square of the cells of a side.
        left = float(np.cbrt(np.finfo(np.float64).eps))
        self._enough, self._most_cells = left * float(np.abs(best).max()), int(left**-0.5)
        self._widest = int(problem.width.max())
        self._n_words = -(-self._widest // 64)
        # An outcome's layers are listed once for all sets if it takes no longer to look at all of
        # them than at all classes, and if there is room.
        a_layer = 8.0 * (1 + self._n_words) * max(problem.next_state.size, 1)
        self._most_layers = min(self._widest // self._n_words, int(memory / a_layer))
        a_set = 8.0 * (problem.layers + 2 + self._n_words + 2 * problem.allowed.shape[1])
        self._most_entries = memory / (12.0 + a_set / _ENTRIES_OF_A_SET)
        self._most_points = memory / (8.0 * problem.layers)
        self.work, self.is_whole = work, False
        self._layers: tuple[Any, ...] | None = None
        self._listed: _Listed | None = None
        self._all_listed = False

    def make_room(self, sets: Sets) -> Room:
        """Working memory of one thread for looks at these sets."""
        return make_room(self._widest, self._n_words, sets.binomial.shape[1])

    @property
    def listed(self) -> tuple[Any, ...]:
        """What is kept from one list of sets to the next."""
        return self._layers, self._listed

    def nothing(self) -> Sets:
        """No sets: every belief has the values of its classes."""
        i8 = np.empty(0, np.int64)
        return Sets(
            i8, np.empty((0, self._n_words), np.uint64), np.full(2, -1, np.int32), self.reference,
            np.empty((self.problem.layers, 0)), self.best, i8, i8, np.ones((2, 2), np.int64),
        )  # fmt: skip

    def bounds(self) -> tuple[Sets, float]:
        """Bounds from so much work, and how much it took; the next will have several times more."""
        looks, work = 0.0, self.work
        entries = int(_ENTRIES * work / self._sweeps)
        if self._listed is None or not self._all_listed:
            self._listed = self._list(int(min(entries, self._most_entries)))
            self._all_listed = self._listed.is_whole or entries > self._most_entries
            looks = self._listed.looks
        grids = self._grids(self._listed, work)
        while True:  # so much that something will be new
            self.is_whole = self._all_listed and grids.is_finest
            self.work *= GROWTH**2
            finer = self._grids(self._listed, self.work)
            if self.is_whole or not self._all_listed or (finer.cells != grids.cells).any():
                break
            grids = grids._replace(is_finest=finer.is_finest)
        sets, more = self._valued(self._listed, grids)
        return sets, looks + more

    def _list(self, entries: int) -> _Listed:
        """Sets with so many successors in all, and what follows each of them."""
        problem, states, n_words = self.problem, self._states, self._n_words
        A = problem.allowed.shape[1]
        most = entries // _ENTRIES_OF_A_SET + states.size
        state, words = np.empty(most, np.int64), np.zeros((most, n_words), np.uint64)
        slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
        first_words = np.zeros((states.size, n_words), np.uint64)
        for i, x in enumerate(states):
            for c in range(problem.width[x]):
                first_words[i, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
        rows, earned = np.empty(most * A + 1, np.int64), np.empty(most * A)
        child, weight = np.empty(entries, np.int32), np.empty(entries)
        if self._layers is None:
            n_outcomes = problem.next_state.size
            room = max(n_outcomes, 1) * self._most_layers
            self._layers = (
                np.empty(n_outcomes + 1, np.int64), np.empty(room),
                np.empty((room, n_words), np.uint64),
            )  # fmt: skip
            kernels.list_layers(problem, self.reference, *self._layers)
            for array in self._layers[1:]:
                array.resize((self._layers[0][-1], *array.shape[1:]), refcheck=False)
        n, expanded = kernels.list_sets(
            problem, self.reference, self._layers, states, first_words, state, words, slots, rows,
            child, weight, earned, make_room(self._widest, n_words, 1),
        )  # fmt: skip
        state, words = state[:n].copy(), words[:n].copy()
        sizes = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
        graph = (problem, state, rows[: expanded * A + 1].copy(), child, weight, earned)
        for array in (child, weight):
            array.resize(rows[expanded * A], refcheck=False)
        outcomes = np.diff(problem.starts[::A])[state[:expanded]]
        looks = float(outcomes.sum()) * (1.0 + 0.1 * n_words) + int(rows[expanded * A])
        looks += float(sizes.sum()) * problem.layers / (5.0 * _ENTRIES)
        return _Listed(state, words, slots, sizes, expanded == n, graph, looks)

    def _valued(self, listed: _Listed, grids: _Grids) -> tuple[Sets, float]:
        """The values of listed sets and of their grids, and the work it took."""
        problem, layers, A = self.problem, self.problem.layers, self.problem.allowed.shape[1]
        state, words, slots, sizes, _, graph, _ = listed
        n, rows, cells = state.size, graph[2], grids.cells
        value = np.empty((layers, n + grids.points))
        sides = int(sizes[cells > 0].max(initial=1)) + 1
        sums = range(int(cells.max(initial=0)) + sides)
        binomial = np.array([[math.comb(i, j) for j in range(sides)] for i in sums])
        sets = Sets(
            state, words, slots, self.reference, value, self.best, cells, n + grids.first, binomial
        )
        of_sizes = [np.flatnonzero((cells > 0) & (sizes == d)) for d in range(2, sides)]
        for t in range(layers):
            self._check()
            self._run(kernels.known_values, n, problem, sets, t)
            for each in of_sizes:
                self._run_grids(sets, t, t, False, True, each, value[t])
        swept = 0
        for t in range(layers - 1, -1, -1):
            for _ in range(1 if problem.ends else self._sweeps):
                self._check()
                swept += 1
                if self._sweep(sets, t, graph, of_sizes) <= self._enough:
                    break
        outcomes = np.diff(problem.starts[::A])[state]
        points = np.diff(np.append(grids.first, grids.points))
        return sets, swept * (int(rows[-1]) / _ENTRIES + float(points @ outcomes))

    def _grids(self, listed: _Listed, work: float) -> _Grids:
        """The grids that so much work allows: as fine for every size of sets as its share does."""
        problem, sizes = self.problem, listed.sizes
        outcomes = np.diff(problem.starts[:: problem.allowed.shape[1]])[listed.state]
        cells, counts = np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.int64)
        by_size, is_finest = np.unique(sizes[sizes > 1]).tolist(), True
        for d in by_size:
            of_size = sizes == d
            looks = work / self._sweeps / len(by_size) / float(outcomes[of_size].sum())
            room = self._most_points / len(by_size) / int(of_size.sum())
            n = 1
            while n < self._most_cells and math.comb(n + d, d - 1) <= min(looks, room):
                n += 1
            is_finest = is_finest and (n == self._most_cells or math.comb(n + d, d - 1) > room)
            if n < d:  # nor have larger sets
                is_finest = is_finest and math.comb(2 * d - 1, d - 1) > room
                break
            cells[of_size], counts[of_size] = n, math.comb(n + d - 1, d - 1)
        return _Grids(cells, np.cumsum(counts) - counts, int(counts.sum()), is_finest)

    def _run_grids(self, sets: Sets, *arguments: Any) -> None:
        """Run `kernels.back_up_grids` for sets, the last but one of its arguments, by threads."""

        def run(start: int, stop: int) -> None:
            kernels.back_up_grids(start, stop, self.problem, sets, *arguments, self.make_room(sets))

        self._run(run, arguments[-2].size)

    def _sweep(self, sets: Sets, t: int, graph: tuple[Any, ...], of_sizes: list[Integers]) -> float:
        """Back up all sets, then grids, small ones first; the largest change without an end."""
        problem, value, A = self.problem, sets.value, self.problem.allowed.shape[1]
        later = t + 1 if problem.ends else t
        is_last = later == problem.layers
        after = np.zeros(value.shape[1]) if is_last else value[later]
        change = float(kernels.back_up_sets(0, (graph[2].size - 1) // A, *graph, after, value[t]))
        for of_size in of_sizes:
            out = value[t] if problem.ends else value[t].copy()
            self._run_grids(sets, t, later, is_last, False, of_size, out)
            if not problem.ends:
                change = max(change, float((value[t] - out).max(initial=0.0)))
                value[t] = out
        return change
