"""Heuristic search for points at which backups move the bounds at the start [smith2005].

Rounds are of two kinds. *Trials* are those of HSVI and SARSOP [kurniawati2008]: one path deep
under the action of the best upper bound, to the outcome with the largest (chance) x (gap), and both
bounds are backed up on the way back. They move both bounds where few actions lead along few paths.
A *sweep* is a trial with many points at once:

    sample    walk forward from the start; at each step keep successors with probabilities
              proportional to (chance of being there) x (gap of the bounds there);
    back up   on the way back, the upper bound at the points visited, and the lower one at all
              points that were ever made: where every outcome is possible, new plans improve all
              plans before them;
    prune     put plans and points where they are found quickly, and drop those of no use.

Which kind is next is measured: that which lowered the logarithm of the gap more for its work, and
now and then the other. Before a round, the bounds from sets of contexts (`sets`) may be made anew,
with several times as much work.
"""

from __future__ import annotations

import math

import numpy as np

from latentmdp._util import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.limits import LimitReached, PlanningClock

_WIDTH = 16.0
"""Points a step that the first sweep visits: fewer waste the threads, more are placed before
anything is known of where they matter."""

_GROWTH = 2.0
"""Factor from sweep to sweep for the number of points: a small one repeats sweeps over nearly the
same points, a large one places many by old bounds."""

_RETRY, _MEMORY = 6.0, 0.75
"""A kind of round is tried again after so many times its work was spent on others, or after longer
where it did not pay; and what the rounds of a kind have brought fades by this factor."""

_TARGET = 0.5
"""A trial ends where the gap is below this share of that at the start, seen from there."""

_LAST_SHARE = 0.9
"""Share of the time left that a sweep may take by what is expected of it."""

_TRIALS_SHARE, _SETS_SHARE = 0.1, 0.5
"""Shares of all work so far that a round of trials takes, and that better bounds from sets may."""

_ALLOTMENT = 0.7
"""In a sweep, a step gets points in proportion to this power of its total excess: 1 would starve
the late steps, from which the bounds of the early ones are backed up, 0 would ignore the gap."""

_REFINEMENT, _FINEST_RESOLUTION = 10.0, 1e15
"""When a round finds and moves nothing, beliefs are told apart ten times as finely, up to a float's
precision."""


class NothingLeft(LimitReached):
    """No belief is left that would move the bounds."""


class _Kind:
    """What the rounds of one kind have brought for their work."""

    def __init__(self) -> None:
        self.cost = self.waited = 0.0  # work of its next round, about, and of others since the last
        self.patience = _RETRY
        self._brought = self._spent = 0.0

    @property
    def rate(self) -> float:
        """How much the logarithm of the gap would fall for each unit of work of the next round."""
        return self._brought / max(self._spent, 1.0)

    def note(self, brought: float, work: float, growth: float, best_rate: float) -> None:
        """Note a round of this kind; the next is so many times as large.

        After one that brought much less than others have, the next is waited for twice as long.
        """
        self.cost, self.waited = growth * work, 0.0
        self._brought = _MEMORY * self._brought + brought
        self._spent = _MEMORY * self._spent + self.cost
        pays = brought > 0.3 * best_rate * work
        self.patience = max(_RETRY, 0.5 * self.patience) if pays else 2.0 * self.patience


class HeuristicSearch:
    """The state of a run: the bounds, and what the next round does."""

    def __init__(self, model: LatentMDP, clock: PlanningClock, threads: int | None) -> None:
        self.clock = clock
        self.bounds = Bounds(model, clock, threads)
        self.n_iter = 0
        self._rng = np.random.default_rng(0)
        self._begin()
        clock.record(self.bounds.best_lower, self.bounds.best_upper)

    def _begin(self) -> None:
        self._count, self._spare = _WIDTH, 2.0
        self._pace = np.zeros(self.bounds.problem.layers)  # seconds of a backup in each layer
        # Seconds and backups of the last sweep, and points that the next one will add, about.
        self._last_sweep, self._last_backups, self._added = 0.0, 0, 1.0
        self._kinds = {"trials": _Kind(), "sweep": _Kind()}

    def start(self, weights: Floats) -> None:
        """Go on with other weights of the contexts; what was found so far is kept."""
        self.bounds.start(weights)
        self._begin()

    def round(self) -> None:
        """One round: sample, back up, prune."""
        bounds = self.bounds
        self._inform()
        kind = self._next_kind()
        lower, upper = bounds.best_lower, bounds.best_upper
        before = bounds.n_points, bounds.n_plans, bounds.work
        if kind == "trials":
            self._run_trials()
        else:
            self._sweep()
        self.prune()
        self.n_iter += 1
        bounds.keep_better()
        self.clock.check()
        self.clock.record(bounds.best_lower, bounds.best_upper)
        rise, fall = bounds.best_lower - lower, upper - bounds.best_upper
        self._measure(kind, upper - lower, rise, fall, bounds.work - before[2])
        if rise + fall <= 0.0 and (bounds.n_points, bounds.n_plans) == before[:2]:
            if bounds.resolution > _FINEST_RESOLUTION:
                raise NothingLeft("stopped: no belief is left that would move the bounds")
            bounds.refine(_REFINEMENT)

    def _inform(self) -> None:
        """Better bounds from sets, if they take a share of all work and of the time left at most.

        What they bring shows only after backups, so it is not measured.
        """
        bounds, clock = self.bounds, self.clock
        while bounds.may_inform and bounds.informing_work <= _SETS_SHARE * bounds.work:
            if bounds.informing_seconds > _SETS_SHARE * clock.remaining:
                break
            bounds.inform()
            bounds.keep_better()
            clock.record(bounds.best_lower, bounds.best_upper)

    def _sweep(self) -> None:
        """A sweep; the last one before the time limit has as many points as end in time.

        It backs up the upper bound at all of them: that is worth it once, as at most points of
        before it falls little from sweep to sweep.
        """
        bounds, began, last = self.bounds, self.clock.seconds, self._last_sweep
        points, left = bounds.n_points, self.clock.remaining
        # Looking for plans among those of n points takes sqrt(n) in part: n^1.25 in all.
        is_last = 0.0 < left < (1.0 + _GROWTH) * _GROWTH**1.25 * last
        if is_last:
            # No two more of twice as many: all points that one can have are added now.
            possible = 0.5 * (left / last) ** (1.0 / 1.25) * self._last_backups
            self._count *= max(possible - points, 0.0) / self._added
        visited = self.sample()
        self._last_backups = self.back_up(visited, everywhere=is_last)
        self._added = max(_GROWTH * (bounds.n_points - points), 1.0)
        self._last_sweep = self.clock.seconds - began

    def _run_trials(self) -> None:
        """Trials that take a share of all work so far: a few may bring nothing by chance."""
        bounds = self.bounds
        most = (1.0 + _TRIALS_SHARE) * bounds.work
        while True:
            before = bounds.n_plans, bounds.n_points
            bounds.run_trials(_TARGET)
            if bounds.work >= most or before == (bounds.n_plans, bounds.n_points):
                break
            self.prune()
            self.clock.check()

    def _next_kind(self) -> str:
        """The kind of round that has brought more, or one that was not tried for long."""
        kinds = self._kinds.copy()
        if self._last_sweep > 2.0 * self.clock.remaining:
            del kinds["sweep"]
        for name, kind in kinds.items():
            if kind.waited >= kind.patience * kind.cost:
                return name
        return max(kinds, key=lambda name: kinds[name].rate)

    def _measure(self, kind: str, gap: float, rise: float, fall: float, work: float) -> None:
        """Note what a round has brought, for the choice of the next."""
        left = max(gap - rise - fall, 1e-300)
        for each in self._kinds.values():
            each.waited += work
        best_rate = max(each.rate for each in self._kinds.values())
        brought = math.log(max(gap, left) / left)
        growth = _GROWTH if kind == "sweep" else 1.0
        self._kinds[kind].note(brought, max(work, 1.0), growth, best_rate)
        if kind == "sweep":
            self._count *= _GROWTH
            self._spare *= _GROWTH if rise > fall else 1.0 / _GROWTH
            self._spare = min(max(self._spare, 1.0), 4.0)

    def sample(self) -> list[Integers]:
        """Walk forward to points whose chance times gap is large; those of each step."""
        bounds = self.bounds
        points, weights = bounds.start_points, bounds.start_weights
        visited, first = [points], 0.0
        for _ in range(bounds.depth):
            actions = bounds.store.points.limit[points].argmax(axis=1)  # optimistic
            found = bounds.expand(points, weights, actions)
            excess = found.weights * np.maximum(found.uppers - found.lowers, 0.0)
            total = float(excess.sum())
            if total <= 0.0:
                break
            first = first or total
            count = max(1.0, self._count * (total / first) ** _ALLOTMENT)
            more = systematic(inclusion(excess, self._spare * count), self._rng)
            bounds.locate(found, more)  # for the lower bound alone
            probabilities = inclusion(excess, count)
            kept = systematic(probabilities, self._rng)
            if kept.size == 0:
                break
            weights = found.weights[kept] / probabilities[kept]
            points = bounds.locate(found, kept)
            points, where = np.unique(points, return_inverse=True)
            weights = np.bincount(where, weights, points.size).astype(np.float64)
            visited.append(points)
        return visited

    def back_up(self, visited: list[Integers], everywhere: bool = False) -> int:
        """Back up all plans, the last first, and the upper bounds at the visited points, or at all.

        Returns how many backups it wished to make. A sweep moves the start only if it ends in time:
        where it would not, upper bounds of points that were not visited are left out in the steps
        that are left, and then the oldest points, which have plans already.
        """
        bounds, clock = self.bounds, self.clock
        wishes = np.full(bounds.n_points, int(everywhere))  # for upper bounds: 2 is urgent
        for points in visited:
            wishes[points] = 2 * bounds.problem.ends
        layers = bounds.points_of_layers()
        counts = np.array([points.size + np.count_nonzero(wishes[points]) for points in layers])
        # Seconds, if a backup takes as long as in the last sweep; it takes longer by as much as
        # those that are done did, which count more the more they are.
        expected = self._pace * counts
        total, done, took = float(expected.sum()), 0.0, 0.0
        for t, points in reversed(list(enumerate(layers))):
            began, share = clock.seconds, 1.0
            if expected[: t + 1].any():
                slowness = (0.1 * total + took) / (0.1 * total + done)
                left = slowness * float(expected[: t + 1].sum())
                share = min(1.0, _LAST_SHARE * clock.remaining / left)
            room = math.ceil(share * counts[t])
            some = points[max(points.size - room, 0) :]
            wished = np.argsort(-wishes[some], kind="stable")[: np.count_nonzero(wishes[some])]
            above = np.zeros(some.size, np.bool_)
            above[wished[: room - some.size]] = True
            bounds.back_up(some, above)
            bounds.arrange_grown()
            backups = max(float(some.size + above.sum()), 1.0)
            done += self._pace[t] * backups
            took += clock.seconds - began
            self._pace[t] = (clock.seconds - began) / backups
        if not bounds.problem.ends:  # all of them are one layer: now along the walk, the last first
            for points in reversed(visited):
                bounds.back_up(points, np.ones(points.size, np.bool_))
        return int(counts.sum())

    def prune(self) -> None:
        """Arrange what has grown much, and drop plans that nothing leads to any more."""
        bounds = self.bounds
        bounds.arrange_grown()
        if bounds.n_plans > 4 * max(bounds.n_points, 1000):
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
