"""The upper bound at a belief from known points [hauskrecht2000], and its backup.

With a point b known to have V(b) <= U(b), mass u = k b + rest - excess, rest and excess >= 0:

    V(u) <= k U(b) + V(rest) - sum_m excess_m W_m,

where W_m is the least value any policy can have in context m: the optimal plan for u earns at
least that on the excess. V(rest) is bounded by its best split among faces of the simplex. The usual
sawtooth has no excess and rests on the vertices alone; a little excess lets a point serve beliefs
that differ from it in contexts of negligible mass.
"""

from typing import NamedTuple, Self

import numpy as np
from numba import njit

from latentmdp.planning.point_based.kernels.alpha import posterior_mass
from latentmdp.planning.point_based.kernels.faces import split_value
from latentmdp.planning.point_based.kernels.loops import next_action
from latentmdp.planning.point_based.kernels.plans import scores_room, search

_SAME = 1.0 - 1e-9
"""A ratio k / sum(u) from which on a point is at the belief itself, up to rounding."""

_FAINT = 0.1
"""Contexts below this share of the largest mass may be exceeded. A larger share lets points serve
more beliefs, a smaller one wastes less on the worst policy's value."""


class Found(NamedTuple):
    """Successors of belief points."""

    states: np.ndarray  # (n,)
    beliefs: np.ndarray  # (n, M)
    weights: np.ndarray  # (n,): chances of being there
    gaps: np.ndarray  # (n,): upper minus lower bound

    @classmethod
    def room(cls, n: int, M: int) -> Self:
        """Arrays to be filled with n successors."""
        return cls(np.empty(n, np.int64), np.empty((n, M)), np.empty(n), np.empty(n))

    def possible(self) -> Self:
        """Those that have a weight."""
        kept = self.weights > 0.0
        return self if kept.all() else type(self)(*(array[kept] for array in self))


@njit(cache=True, nogil=True)
def _bounds(step, faces, close, s, mass, total, cells, room):
    """Lower and upper bound at the unnormalised belief `mass` in state s.

    A relative gap of at most `close` is good enough without a search for points.
    """
    starts, groups, leaders, columns = step.starts, step.groups, step.leaders, step.columns
    order, rest, ratios, scores = room
    _, lower, count = search(
        starts, groups, leaders, columns, step.standing, step.standing_labels.shape[1],
        step.ruler, s, mass, scores, cells,
    )  # fmt: skip
    vertices = faces.vertices
    upper = split_value(faces, np.int64(s), mass, order)
    if upper - lower <= close * abs(upper):
        return lower, upper
    beliefs, inverses, uppers = step.beliefs, step.inverses, step.uppers
    gains, tops, least = step.gains, step.tops, step.least
    for q in range(count):
        begin, end = starts[cells[q]], tops[cells[q]]
        _improvements(
            beliefs, inverses, gains, least, vertices, s, mass, total, begin, end, ratios, scores
        )
        i = _most_promising(ratios, scores, end - begin, total)
        if i >= 0:
            other = ratios[0, i] * uppers[begin + i]
            for m in range(mass.shape[0]):
                rest[m] = mass[m] - ratios[0, i] * beliefs[m, begin + i]
                if rest[m] < 0.0:
                    other += rest[m] * least[s, m]
                    rest[m] = 0.0
            upper = min(upper, other + split_value(faces, np.int64(s), rest, order))
    return lower, upper


@njit(cache=True, nogil=True)
def _most_promising(ratios, scores, n, total):
    """The point with the best estimate, or one at this very belief; -1 if none promises a gain."""
    best, where = 0.0, -1
    for i in range(n):
        if scores[i] > 0.0 and ratios[1, i] >= _SAME * total:
            return i
        if scores[i] > best:
            best, where = scores[i], i
    return where


@njit(cache=True, nogil=True)
def _improvements(
    beliefs, inverses, gains, least, vertices, s, mass, total, begin, end, ratios, scores
):
    """Estimate what each point gains: k times its own gain, less what its excess costs.

    k is what the contexts of large mass allow; where it costs too much, what all contexts allow.
    """
    n, gain = end - begin, gains[begin:end]
    wide, narrow, scores = ratios[0, :n], ratios[1, :n], scores[:n]
    wide[:] = total
    faint = _FAINT * mass.max()
    for m in range(mass.shape[0]):
        if mass[m] >= faint:
            _limit(mass[m], inverses[m, begin:end], wide)
    for i in range(n):
        narrow[i] = wide[i]
        scores[i] = wide[i] * gain[i]
    for m in range(mass.shape[0]):
        if mass[m] < faint:
            _limit(mass[m], inverses[m, begin:end], narrow)
            u, belief, cost = mass[m], beliefs[m, begin:end], vertices[s, m] - least[s, m]
            for i in range(n):
                excess = wide[i] * belief[i] - u
                scores[i] -= cost * excess if excess > 0.0 else 0.0
    for i in range(n):
        strict = narrow[i] * gain[i]
        if strict > scores[i]:
            scores[i], wide[i] = strict, narrow[i]


@njit(cache=True, nogil=True)
def _limit(mass, inverses, ratios):
    """Lower each ratio to mass times inverse; a product 0 inf is no limit, and compares false."""
    for i in range(ratios.shape[0]):
        ratio = mass * inverses[i]
        ratios[i] = ratio if ratio < ratios[i] else ratios[i]


@njit(cache=True, nogil=True)
def first_limits(q, allowed, states, beliefs, out):
    """Fill out (n, A) with Q-MDP's bounds of the action values, from q (S, A, M).

    They are -inf where an action is not allowed, and 0 in a terminal state.
    """
    _, A, M = q.shape
    for i in range(states.shape[0]):
        s, ends = states[i], True
        for a in range(A):
            out[i, a] = -np.inf
            if allowed[s, a]:
                out[i, a], ends = 0.0, False
                for m in range(M):
                    out[i, a] += beliefs[i, m] * q[s, a, m]
        if ends:
            out[i, :] = 0.0


@njit(cache=True, nogil=True)
def upper_backup(
    start,
    stop,
    table,
    rewards,
    discount,
    later,
    faces,
    close,
    breadth,
    states,
    beliefs,
    chosen,
    limits,
):
    """Lower the action bounds `limits` (n, A) of points chosen[start:stop], as far as it matters.

    The bound of a point is the largest of its action bounds, so an action below the largest one
    is left alone. `later` and `faces` are the `StepBounds` and the `Faces` of the next step;
    `breadth` of its cells are searched, and 0 means that there is no next step.
    """
    _, A, M = rewards.shape
    next_state, probs = table.next_state, table.probs
    mass, tried = np.empty(M), np.empty(A, np.bool_)
    cells, room = np.empty(breadth, np.int64), _room(M, later)
    for c in range(start, stop):
        i = chosen[c]
        s, best = states[i], -np.inf
        tried[:] = False
        for _ in range(A):
            a = next_action(limits[i], tried)
            if limits[i, a] <= best:
                break
            value = 0.0
            for m in range(M):
                value += beliefs[i, m] * rewards[s, a, m]
            begin, end = table.starts[s * A + a], table.starts[s * A + a + 1]
            for k in range(begin, end if breadth > 0 else begin):
                total = posterior_mass(beliefs[i], probs, k, mass)
                if total > 0.0:
                    _, upper = _bounds(later, faces, close, next_state[k], mass, total, cells, room)
                    value += discount * upper
            limits[i, a] = min(limits[i, a], value)
            best = max(best, limits[i, a])


@njit(cache=True, nogil=True)
def expand(
    start,
    stop,
    table,
    later,
    faces,
    close,
    breadth,
    beliefs,
    chosen,
    rows,
    begins,
    weights,
    faintest,
    out,
):
    """Successors of the points chosen[start:stop], each after a row of the table.

    Those of point c go to begins[c] and beyond in the arrays of `out`, one for each
    outcome: its weight is the point's times its probability, 0 if that is less than `faintest`,
    where the rest is left alone. The next step is given as in `upper_backup`.
    """
    starts, next_state, probs = table.starts, table.next_state, table.probs
    M = probs.shape[1]
    mass, cells, room = np.empty(M), np.empty(breadth, np.int64), _room(M, later)
    for c in range(start, stop):
        i, place = chosen[c], begins[c]
        for k in range(starts[rows[c]], starts[rows[c] + 1]):
            total = posterior_mass(beliefs[i], probs, k, mass)
            out.weights[place] = 0.0
            if total > 0.0 and total * weights[c] >= faintest:
                n = next_state[k]
                lower, upper = _bounds(later, faces, close, n, mass, total, cells, room)
                out.states[place], out.weights[place] = n, weights[c] * total
                out.gaps[place] = max(upper - lower, 0.0) / total
                for m in range(M):
                    out.beliefs[place, m] = mass[m] / total
            place += 1


@njit(cache=True, nogil=True)
def _room(M, step):
    """Working memory of `_bounds`: an order and a rest (M,), two ratios and a score a plan."""
    scores = scores_room(step)
    return np.empty(M, np.int64), np.empty(M), np.empty((2, scores.shape[0])), scores
