"""Heuristic search for points at which backups move the bounds at the start [smith2005].

A round is what SARSOP [kurniawati2008] calls a trial, for many points at once:

    sample    walk forward from the start under the action of the best upper bound; at each step
              keep successors with probabilities proportional to (chance of being there) x (gap of
              the bounds there), and make points of them;
    back up   on the way back, both bounds at the points visited;
    prune     put plans and points where they are found quickly, and drop those of no use.

Rounds are of two kinds. A *local* one follows few paths deep, which moves both bounds where few
actions lead along few paths. A *sweep* visits many points, and more in every round, and backs up
the lower bound at all points that were ever made, step by step from the last: where every outcome
is possible, new plans improve all plans before them. Which kind is next is measured: that whose
last round lowered the logarithm of the gap more for each backup.
"""

from __future__ import annotations

import math

import numpy as np

from latentmdp._util import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.limits import LimitReached, PlanningClock

_WIDTH = 16.0
"""Points a step that a local round visits, and the first sweep: fewer waste the threads, more are
placed before anything is known of where they matter."""

_GROWTH = 1.5
"""Factor from sweep to sweep for the number of points: a small one repeats sweeps over nearly the
same points, a large one places many by old bounds."""

_RETRY, _MEMORY = 6.0, 0.7
"""A kind of round is tried again after so many times its backups were spent on the other; and what
the rounds of a kind have brought fades by this factor, since one alone may bring nothing."""

_TARGET = 0.5
"""A local round ends where the gap is below this share of that at the start, seen from there."""

_ALLOTMENT = 0.7
"""In a sweep, a step gets points in proportion to this power of its total excess: 1 would starve
the late steps, from which the bounds of the early ones are backed up, 0 would ignore the gap."""

_FIRST_RESOLUTION, _REFINEMENT, _FINEST_RESOLUTION = 100.0, 10.0, 1e15
"""Beliefs whose entries, relative to the largest, round to the same multiples of 1 / 100 are one
point; when a round finds and moves nothing they are told apart ten times as finely, up to a
float's precision."""


class NothingLeft(LimitReached):
    """No belief is left that would move the bounds."""


class _Kind:
    """What the rounds of one kind have brought for their backups."""

    def __init__(self) -> None:
        self.cost = self.waited = 0.0  # backups of its last round, and of others since
        self._brought = self._spent = 0.0

    @property
    def rate(self) -> float:
        """How much the logarithm of the gap fell for each backup."""
        return self._brought / max(self._spent, 1.0)

    def note(self, brought: float, backups: int, is_own: bool) -> None:
        """Note a round, of this kind or of another."""
        if is_own:
            self.cost, self.waited = float(backups), 0.0
            self._brought = _MEMORY * self._brought + brought
            self._spent = _MEMORY * self._spent + backups
        else:
            self.waited += backups


class HeuristicSearch:
    """The state of a run: the bounds, and what the next round does."""

    def __init__(self, model: LatentMDP, clock: PlanningClock, threads: int | None) -> None:
        self.clock = clock
        self.bounds = Bounds(model, clock, threads)
        self.n_iter, self.n_backups = 0, 0
        self._rng = np.random.default_rng(0)
        self._begin()
        clock.record(self.bounds.best_lower, self.bounds.best_upper)

    def _begin(self) -> None:
        self._count, self._spare = _WIDTH, 2.0
        self._kinds = {"sweep": _Kind(), "local": _Kind()}

    def start(self, weights: Floats) -> None:
        """Go on with other weights of the contexts; what was found so far is kept."""
        self.bounds.start(weights)
        self._begin()

    def round(self) -> None:
        """One round: sample, back up, prune."""
        bounds = self.bounds
        kind = self._next_kind()
        lower, upper = bounds.best_lower, bounds.best_upper
        before = bounds.n_points, len(bounds.plans), self.n_backups
        visited = self.sample(kind == "sweep")
        self.back_up(visited, kind == "sweep")
        self.prune()
        self.n_iter += 1
        bounds.keep_better()
        self.clock.record(bounds.best_lower, bounds.best_upper)
        rise, fall = bounds.best_lower - lower, upper - bounds.best_upper
        self._measure(kind, upper - lower, rise, fall, self.n_backups - before[2])
        if rise + fall <= 0.0 and (bounds.n_points, len(bounds.plans)) == before[:2]:
            if bounds.resolution > _FINEST_RESOLUTION:
                raise NothingLeft("stopped: no belief is left that would move the bounds")
            bounds.refine(_REFINEMENT)

    def _next_kind(self) -> str:
        """The kind of round that has brought more, or one that was not tried for long."""
        for name, kind in self._kinds.items():
            if kind.waited >= _RETRY * kind.cost:
                return name
        return max(self._kinds, key=lambda name: self._kinds[name].rate)

    def _measure(self, kind: str, gap: float, rise: float, fall: float, backups: int) -> None:
        """Note what a round has brought, for the choice of the next."""
        left = max(gap - rise - fall, 1e-300)
        for name, each in self._kinds.items():
            each.note(math.log(max(gap, left) / left), max(backups, 1), name == kind)
        if kind == "sweep":
            self._count *= _GROWTH
            self._spare *= _GROWTH if rise > fall else 1.0 / _GROWTH
            self._spare = min(max(self._spare, 1.0), 4.0)

    def sample(self, is_sweep: bool) -> list[Integers]:
        """Walk forward to points whose chance times gap is large; those of each step."""
        bounds = self.bounds
        points, weights = bounds.start_points, bounds.start_weights
        target = 0.0 if is_sweep else _TARGET * (bounds.best_upper - bounds.best_lower)
        visited, first = [points], 0.0
        for t in range(bounds.depth):
            now = bounds.points[bounds.layer(t)]
            actions = now.limits.array[points].argmax(axis=1)  # optimistic
            states, beliefs, chances, gaps = bounds.expand(
                bounds.layer(t), points, weights, actions
            )
            target /= bounds.problem.discount
            excess = chances * np.maximum(gaps - target, 0.0)
            total = float(excess.sum())
            if total <= 0.0:
                break
            first = first or total
            count = max(1.0, self._count * (total / first) ** _ALLOTMENT if is_sweep else _WIDTH)
            if is_sweep:  # for the lower bound alone
                more = systematic(inclusion(excess, self._spare * count), self._rng)
                bounds.locate(bounds.layer(t + 1), states[more], beliefs[more])
            probabilities = inclusion(excess, count)
            kept = systematic(probabilities, self._rng)
            if kept.size == 0:
                break
            weights = chances[kept] / probabilities[kept]
            points = bounds.locate(bounds.layer(t + 1), states[kept], beliefs[kept])
            points, where = np.unique(points, return_inverse=True)
            weights = np.bincount(where, weights, points.size).astype(np.float64)
            visited.append(points)
        return visited

    def back_up(self, visited: list[Integers], is_sweep: bool) -> None:
        """Back up the visited points, the last first; in a sweep, all plans."""
        bounds, layered = self.bounds, self.bounds.problem.ends
        steps = range(len(bounds.points) if is_sweep and layered else len(visited))
        for t in reversed(steps):
            own = visited[t] if t < len(visited) else np.empty(0, np.int64)
            if is_sweep and layered:
                self._back_up_all(bounds.layer(t), own)
            elif own.size:
                bounds.back_up(bounds.layer(t), own, np.ones(own.size, np.bool_))
                self.n_backups += own.size
        if is_sweep and not layered:
            self._back_up_all(0, np.empty(0, np.int64))

    def _back_up_all(self, t: int, visited: Integers) -> None:
        """Back up the lower bound at all points of a step, the upper at those visited."""
        points = self.bounds.points[t]
        above = np.zeros(len(points), np.bool_)
        above[visited] = True
        self.bounds.back_up(t, np.arange(len(points)), above)
        self.n_backups += len(points)
        self.bounds.arrange(t)

    def prune(self) -> None:
        """Arrange what has changed much, and drop plans that nothing leads to any more."""
        bounds = self.bounds
        for points in bounds.points:
            if 2 * points.changes > len(points):
                bounds.arrange(points.layer)
        if len(bounds.plans) > 4 * max(bounds.n_points, 1000):
            bounds.collect()
        # Twice what there is: arrays double when they grow.
        self.clock.require_memory(2.0 * bounds.nbytes)


def inclusion(excess: Floats, count: float) -> Floats:
    """Probabilities min(1, c excess) that sum to `count`, or all ones of the positive."""
    _, exponent = np.frexp(excess.max(initial=0.0))
    excess = np.ldexp(excess, -exponent)
    excess[excess < 1e-200] = 0.0  # its inverse might overflow
    positive = excess > 0.0
    if positive.sum() <= count:
        return positive.astype(np.float64)
    descending = np.sort(excess)[::-1]
    tail = np.cumsum(descending[::-1])[::-1]  # sum of the k-th largest and all smaller ones
    certain = np.arange(int(count) + 1)  # how many have probability one
    scale = (count - certain) / tail[certain]
    k = int(np.argmax(scale * descending[certain] <= 1.0))
    return np.minimum(1.0, scale[k] * excess)


def systematic(probabilities: Floats, rng: np.random.Generator) -> Integers:
    """Indices drawn with the given inclusion probabilities by systematic sampling."""
    reached = np.floor(np.concatenate([[0.0], np.cumsum(probabilities)]) + rng.random())
    return np.flatnonzero(np.diff(reached) > 0.0)
