"""Heuristic search for points at which backups move the bounds at the start [smith2005].

Rounds are of four kinds. *Trials* are those of HSVI and SARSOP [kurniawati2008]: one path deep
under the action of the best upper bound, to the outcome with the largest (chance) x (gap), and both
bounds are backed up on the way back. They move both bounds where few actions lead along few paths.
A *sweep* is a trial with many points at once:

    sample    walk forward from the start; at each step keep successors with probabilities
              proportional to (chance of being there) x (gap of the bounds there);
    back up   on the way back, the upper bound at the points visited, and the lower one at all
              points that were ever made: where every outcome is possible, new plans improve all
              plans before them;
    prune     put plans and points where they are found quickly, and drop those of no use.

The third makes the bounds from *sets* of contexts (`sets`) anew, with several times as much work,
and backs both bounds up at all points there are. The fourth places plans of a *lattice* of beliefs
near these sets in every cell that may be reached: where there are thousands of them, few points of
a sweep come to each, and plans at beliefs that are spread evenly serve all. Which kind is next is
measured: that which lowered the logarithm of the gap more for its work, and now and then another.
Sets may come closer where points know better for now, so their own gap at the start counts too, if
it is not much wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.hsvi.bounds import DEEPEST, EXPLORED, Bounds
from latentmdp.planning.hsvi.kernels import Expansion
from latentmdp.planning.hsvi.sets import GROWTH
from latentmdp.planning.limits import LimitReached, PlanningClock

_WIDTH = 16.0
"""Points a step that the first sweep visits: fewer waste the threads, more are placed before
anything is known of where they matter."""

_ALLOTMENT = 0.7
"""In a sweep, a step gets points in proportion to this power of its total excess: 1 would starve
the late steps, from which the bounds of the early ones are backed up, 0 would ignore the gap."""


class NothingLeft(LimitReached):
    """No belief is left that would move the bounds."""


class _Kind:
    """What the rounds of one kind have brought for their work; each counts half of the next."""

    def __init__(self) -> None:
        self.cost = self.waited = 0.0  # work of its next round, about, and of others since the last
        self.patience = 1.0
        self._brought = self._spent = 0.0

    @property
    def rate(self) -> float:
        """How much the logarithm of the gap would fall for each unit of work of the next round."""
        return self._brought / max(self._spent, 1.0)

    @property
    def is_due(self) -> bool:
        """Whether so much was spent on others that this kind may be tried again."""
        return self.patience * self.cost <= EXPLORED * self.waited

    def note(self, brought: float, following: float, best_rate: float) -> None:
        """Note a round of this kind, and the work of the following one.

        After one that brought less than half of what others have, the next waits twice as long.
        """
        self.cost, self.waited = following, 0.0
        self._brought = 0.5 * self._brought + brought
        self._spent = 0.5 * self._spent + following
        pays = brought > 0.5 * best_rate * following
        self.patience = max(1.0, 0.5 * self.patience) if pays else 2.0 * self.patience


class HeuristicSearch:
    """The state of a run: the bounds, and what the next round does."""

    def __init__(self, model: LatentMDP, clock: PlanningClock, threads: int | None) -> None:
        self.clock = clock
        self.bounds = Bounds(model, clock, threads)
        self.n_iter = 0
        self._rng = np.random.default_rng(0)
        self._kinds = {"sets": _Kind()}  # sets are for all weights: what they took counts for ever
        self._begin()
        clock.record(self.bounds.best_lower, self.bounds.best_upper)

    def _begin(self) -> None:
        self._count, self._spare = _WIDTH, GROWTH
        self._last_sweep = self._pace = 0.0  # seconds of the last sweep, and of a backup in it
        self._kinds |= {"trials": _Kind(), "sweep": _Kind(), "lattice": _Kind()}
        self._kinds["lattice"].cost = self.bounds.lattice_size[1] * EXPLORED / GROWTH

    def start(self, weights: Floats) -> None:
        """Go on with other weights of the contexts; what was found so far is kept."""
        self.bounds.start(weights)
        self._begin()

    def round(self) -> None:
        """One round: sample, back up, prune."""
        bounds = self.bounds
        kind = self._next_kind()
        lower, upper, informed = bounds.best_lower, bounds.best_upper, 0.0
        before = bounds.n_points, bounds.n_plans, bounds.work
        if kind == "trials":
            self._run_trials()
        elif kind == "sets":
            above = bounds.informed_upper
            bounds.inform()
            self.back_up([bounds.start_points], everywhere=True)
            informed = self._informed(above)
        elif kind == "lattice":
            bounds.place_lattice()
            bounds.arrange()
            self.back_up([bounds.start_points], lattice=True)
        else:
            began = self.clock.seconds
            self.back_up(self.sample())
            self._last_sweep = self.clock.seconds - began
        self.prune()
        self.n_iter += 1
        bounds.keep_better()
        self.clock.check()
        self.clock.record(bounds.best_lower, bounds.best_upper)
        rise, fall = bounds.best_lower - lower, upper - bounds.best_upper
        self._measure(kind, upper - lower, rise, fall, bounds.work - before[2], informed)
        same = rise + fall <= 0.0 and (bounds.n_points, bounds.n_plans) == before[:2]
        if same and kind != "sets" and not bounds.refine(GROWTH**3):
            raise NothingLeft("stopped: no belief is left that would move the bounds")

    def _run_trials(self) -> None:
        """Trials that take a share of all work so far."""
        bounds = self.bounds
        most = (1.0 + EXPLORED) * bounds.work
        while True:
            before = bounds.n_plans, bounds.n_points
            bounds.run_trials()
            if bounds.work >= most or before == (bounds.n_plans, bounds.n_points):
                break
            self.prune()
            self.clock.check()

    def _next_kind(self) -> str:
        """The kind of round that has brought more, or one that was not tried for long."""
        kinds = self._kinds.copy()
        left = self.clock.remaining
        if self._last_sweep > left:
            del kinds["sweep"]
        if not self.bounds.may_inform or self.bounds.informing_seconds > 0.5 * left:
            del kinds["sets"]  # as much time must be left to make use of them
        bounds = self.bounds
        points, work = bounds.lattice_size
        seconds = work * self.clock.seconds / max(bounds.work, 1.0)
        needed = bounds.bytes_with(int(points) + bounds.lattice.size) - bounds.nbytes
        if seconds > 0.5 * left or needed > 0.5 * self.clock.memory:
            del kinds["lattice"]  # half of the memory is for beliefs that are visited
        due = (name for name, kind in kinds.items() if kind.is_due)
        return next(due, max(kinds, key=lambda name: kinds[name].rate))

    def _informed(self, before: float) -> float:
        """How much a round of sets has brought where points do not know better already.

        That is what the logarithm of the sets' own gap at the start has fallen by, and the less of
        it the wider that gap is than the best one.
        """
        lower, after = self.bounds.best_lower, self.bounds.informed_upper
        own, best = after - lower, self.bounds.best_upper - lower
        if not 0.0 < best <= own < before - lower:
            return 0.0
        return math.log((before - lower) / own) * best / own

    def _measure(
        self, kind: str, gap: float, rise: float, fall: float, work: float, informed: float
    ) -> None:
        """Note what a round has brought, for the choice of the next."""
        left = max(gap - rise - fall, 1e-300)
        best_rate = max(each.rate for each in self._kinds.values())
        for each in self._kinds.values():
            each.waited += work
        following = {
            "trials": work, "sweep": GROWTH * work, "sets": work + self.bounds.informing_work,
            "lattice": work + self.bounds.lattice_size[1],
        }[kind]  # fmt: skip
        brought = max(math.log(max(gap, left) / left), informed)
        self._kinds[kind].note(brought, max(following, 1.0), best_rate)
        if kind == "sweep":
            self._count *= GROWTH
            # More of the points are for the lower bound alone while it moves more.
            self._spare *= GROWTH if rise > fall else 1.0 / GROWTH
            self._spare = min(max(self._spare, 1.0), GROWTH**2)

    def sample(self) -> list[Integers]:
        """Walk forward to points whose chance times gap is large; those of each step."""
        bounds, first = self.bounds, 0.0

        def optimistic(points: Integers) -> Integers:
            return np.asarray(bounds.store.points.limit[points].argmax(axis=1))

        def chances(found: Expansion) -> Floats:
            nonlocal first
            excess = found.weights * np.maximum(found.uppers - found.lowers, 0.0)
            total = float(excess.sum())
            first = first or total
            goes_on = total * DEEPEST > first  # what comes later hardly moves the start
            count = max(1.0, self._count * (total / first) ** _ALLOTMENT) if goes_on else 0.0
            more = systematic(inclusion(excess, self._spare * count), self._rng)
            bounds.locate(found, more)  # for the lower bound alone
            return inclusion(excess, count)

        return walk(bounds, optimistic, chances, self._rng)

    def back_up(
        self, visited: list[Integers], everywhere: bool = False, lattice: bool = False
    ) -> None:
        """Back up all plans, the last first, and the upper bounds at the visited points, or at all.

        Plans of the lattice, which are many, are backed up only if asked, their upper bounds never.
        A sweep moves the start only if it ends in time: where it would not, the oldest
        points of the steps that are left, which have plans already, are left out.
        """
        bounds, clock = self.bounds, self.clock
        below, above = np.ones(bounds.n_points, np.bool_), np.full(bounds.n_points, everywhere)
        below[bounds.lattice], above[bounds.lattice] = lattice, False
        for points in visited:
            below[points] = True
            above[points] |= bounds.problem.ends
        layers = [points[below[points]] for points in bounds.points_of_layers()]
        left = float(below.sum() + above.sum())
        for points in reversed(layers):
            began, share = clock.seconds, 1.0
            if self._pace > 0.0:
                share = min(1.0, max(clock.remaining, 0.0) / (self._pace * left))
            some = points[points.size - math.ceil(share * points.size) :]
            bounds.back_up(some, above[some])
            backups = float(some.size + above[some].sum())
            left -= points.size + above[points].sum()
            pace = (clock.seconds - began) / max(backups, 1.0)
            # What earlier layers will take: as those before them, the more of them there were.
            self._pace += (pace - self._pace) * backups / max(backups + left, 1.0)
        if not bounds.problem.ends:  # all of them are one layer: now along the walk, the last first
            for points in reversed(visited):
                bounds.back_up(points, np.ones(points.size, np.bool_))

    def prune(self) -> None:
        """Arrange what has grown much, and drop plans that nothing leads to any more."""
        bounds = self.bounds
        bounds.arrange()
        if bounds.n_plans > 4 * max(bounds.n_points, 1000):
            bounds.collect()


def walk(
    bounds: Bounds, act: Callable[[Integers], Integers], chances: Callable[[Expansion], Floats],
    rng: np.random.Generator,
) -> list[Integers]:  # fmt: skip
    """Walk forward from the start; the points of each step.

    `act` takes the actions at points, `chances` says with which probability what follows is kept.
    """
    points, weights = bounds.start_points, bounds.start_weights
    visited = [points]
    for _ in range(bounds.depth):
        bounds.check()
        found = bounds.expand(points, weights, act(points))
        probabilities = chances(found)
        kept = systematic(probabilities, rng)
        if kept.size == 0:
            break
        weights = found.weights[kept] / probabilities[kept]
        points, where = np.unique(bounds.locate(found, kept), return_inverse=True)
        weights = np.bincount(where, weights, points.size).astype(np.float64)
        visited.append(points)
    return visited


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
