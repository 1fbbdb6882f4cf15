"""Heuristic search value iteration for latent MDPs: bounds that close on V* [smith2005].

The context never changes and the state is seen, so a belief point is (t, s, b) with b over M
contexts, and one backward sweep over the time steps brings all points of a set up to date. So in
place of HSVI's single trials:

    repeat until the gap at the start is small enough:
        explore   walk forward from the start under the action of the best upper bound; at each
                  step keep successors with probability proportional to
                  (chance of being there) x (upper - lower), and make points of them and,
                  for the lower bound alone, of some more, as many as make both bounds move;
        sweep     for t = H..1: back up the lower bound at all points of t, the upper bound at the
                  points just visited;
        visit more points next time.

Bounds are those of `latentmdp.planning.point_based.bounds`, valid at every moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latentmdp._util import Floats, Integers
from latentmdp.engines import thread_count
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.limits import POLICY_SHARE, LimitReached, PlanningClock, check_limit

if TYPE_CHECKING:
    from latentmdp.planning.point_based.bounds import Bounds
    from latentmdp.planning.point_based.standing import Ruler, Shares

# What the search trades. The values are the best or within 12% of the best of those tried on the
# instances of benchmarks/planning_gap.py with 3 and 5 contexts; none is critical there: changed by
# a factor of two to four, one at a time, each leaves the gap reached in a given time between 0.88
# and 1.25 times what it is.

_FIRST_WORK = 1e6
"""Successors looked at in the first round, which sets its number of points: more make it longer
before the first bounds, fewer spend rounds on warming up."""

_FEWEST_POINTS, _MOST_FIRST_POINTS = 16.0, 256.0
"""Points a time step that the first round has at least and at most, whatever they cost: with fewer
a sweep learns too little, more would be placed before anything is known of where they matter."""

_FIRST_POINTS_PER_STATE = 0.5
"""The same for each state, where there are many: points in a tenth of the states say little."""

_GROWTH = 1.5
"""Factor from round to round for the number of points (and for the spare ones, up or down): a small
one repeats sweeps over nearly the same points, a large one places many by old bounds."""

_LEAST_SPARE, _MOST_SPARE = 1.0, 4.0
"""Points for the lower bound alone, for each one visited: more raise that bound, fewer leave time
for the upper. The search starts with the most and moves towards the bound that moves faster."""

_FIRST_RESOLUTION = 100.0
"""Beliefs that round to the same multiples of 1 / 100 are one point at first; it grows with the
square root of their number. Coarse saves points, fine follows the values closer."""

_REFINEMENT, _FINEST_RESOLUTION = 10.0, 1e15
"""When a round finds and moves nothing, beliefs are told apart ten times as finely, and twice as
many cells of plans are searched, up to a float's precision."""

_ALLOTMENT = 0.7
"""A time step gets points in proportion to this power of its total excess: 1 would starve the late
steps, from which the bounds of the early ones are backed up, 0 would ignore where the gap is."""

_FACE_WORK, _FACE_WORK_PER_CELL, _FACE_WORK_PER_SECOND, _FACE_MEMORY_SHARE = 1e8, 2e3, 2e7, 0.25
"""Interpolations for the edges of the simplex, and as many for its triangles: in all, or for each
(t, s) if that is more, and for each second left, a fifth of the time; and a share of the memory
limit. Finer faces tighten every upper bound, but only once; the rest is for points, which go where
they matter."""

_FEW_CELLS = 400
"""With so few (t, s) points soon are everywhere, and standing plans only add to every search."""

_STANDING_TIME_SHARE, _STANDING_MEMORY_SHARE = 0.35, 0.35
"""Of the time left and of the memory limit, for standing plans: they bring most of the lower bound
where there are many (t, s), but only once."""

_CHART_WORK, _CHART_WORK_PER_CELL, _CHART_GROWTH = 2e8, 2e4, 8.0
"""Successors looked at for the finest grid of three contexts, in all or for each (t, s) if that is
more; a grid so many times as cheap goes first, which may suffice."""

_CHART_PLANS, _CHART_PLANS_PER_CELL = 1e6, 100.0
"""Plans of the grids in all, or for each (t, s) if that is more: a policy may keep most of them."""

_CHART_TIME_SHARE, _CHART_MEMORY_SHARE = 0.55, 0.35
"""Of the time left and of the memory limit, for the finest grid. It closes most of the gap where
rows are dense; points close the rest where they are few."""

_CENTRE_SLOWNESS = 1.6
"""Times the estimate that the plans of the centre of the simplex take, where no action is ruled out
early, when others take what was estimated."""

_CLOSE, _CLOSE_SHARE = 2e-4, 0.02
"""A successor whose relative gap is at most this, and this share of the gap at the start, is not
searched further: larger ones save time and leave the gap open at last."""

_TIMED_FROM, _SAFETY, _LEAST_GROWTH = 3, 0.85, 0.5
"""From this round on the last one's time says how many points the next can have: so many that it
takes this share of the time left, as rounds vary, and none if it would be less than half as large
as the last, which would move nothing."""


@dataclass(frozen=True)
class HSVI:
    """A planner that closes the gap between a lower and an upper bound of V*.

    Parameters
    ----------
    gap
        Stop when (upper - lower) / |lower| is at most this.
    absolute_gap
        Stop when upper - lower is at most this; whichever comes first.
    time_limit
        Seconds of wall-clock time, or None.
    memory_limit
        MiB (2^20 bytes) for everything that grows with the search, or None. The search stops
        before a step that might need more, and says so.
    on_progress
        Called with (seconds, lower, upper) whenever the bounds have moved.
    threads
        How many share the work; None for all cores. Results do not depend on it, except for how far
        a time limit lets the search go.

    Notes
    -----
    An interrupt (Ctrl-C) ends the search as a limit does: the plan has the bounds reached so far.
    """

    gap: float = 0.01
    absolute_gap: float | None = None
    time_limit: float | None = 60.0
    memory_limit: float | None = 2048.0
    on_progress: Callable[[float, float, float], None] | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_limit("gap", self.gap, zero=True)
        check_limit("absolute_gap", self.absolute_gap, zero=True)
        check_limit("time_limit", self.time_limit)
        check_limit("memory_limit", self.memory_limit)
        thread_count(self.threads)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan until a gap or a limit is reached; `guarantee` is (1, upper - lower)."""
        require_model(model)
        clock = PlanningClock(self.time_limit, self.memory_limit, self.on_progress)
        search = HeuristicSearch(model, clock, self.threads)
        bounds = search.bounds
        with clock.searching(), clock.interruptible():
            search.begin()
            while not self._reached(bounds):
                search.refine()
                bounds.sweep(search.explore())
                search.note()
        policy = bounds.policy(bounds.best_steps)
        return Plan(
            policy=policy,
            lower=bounds.best_lower,
            upper=bounds.best_upper,
            converged=self._reached(bounds),
            n_iter=search.n_iter,
            seconds=clock.seconds,
            history=tuple(clock.history),
            guarantee=(1.0, max(bounds.best_upper - bounds.best_lower, 0.0)),
            message=clock.stopped or "the gap is as small as asked",
        )

    def _reached(self, bounds: Bounds) -> bool:
        difference = bounds.best_upper - bounds.best_lower
        absolute = 0.0 if self.absolute_gap is None else self.absolute_gap
        return difference <= max(absolute, self.gap * abs(bounds.best_lower))


class NothingLeft(LimitReached):
    """No belief is left that would move the bounds."""


class HeuristicSearch:
    """The state of a run: the bounds, and how many points to visit next."""

    def __init__(
        self,
        model: LatentMDP,
        clock: PlanningClock,
        threads: int | None,
        policy_share: float = POLICY_SHARE,
    ) -> None:
        from latentmdp.planning.point_based.endless import bounds_of

        self.bounds = bounds_of(model, exact=False, check=clock.check, threads=threads)
        self.clock, self._policy_share = clock, policy_share
        self.visited: list[Integers] = []
        self.n_iter, self._round_seconds, self._standing_seconds = 0, 0.0, 0.0
        self._resolution, self._spare = _FIRST_RESOLUTION, _MOST_SPARE
        self._chart_work, self._chart_pace = 0.0, 0.0
        self._rng = np.random.default_rng(0)
        clock.record(self.bounds.best_lower, self.bounds.best_upper)

    def begin(self) -> None:
        """Make the first plans, and bound the values of all pairs and triples of contexts."""
        from latentmdp.planning.point_based.standing import standing_cost

        bounds, clock = self.bounds, self.clock
        clock.require_memory(bounds.table_memory())
        bounds.tabulate()
        backup = (bounds.depth + 1) * bounds.table.size / bounds.model.n_states
        first = _FIRST_WORK / max(backup, 1.0)
        most = max(_MOST_FIRST_POINTS, _FIRST_POINTS_PER_STATE * bounds.model.n_states)
        self._count = self._first_count = min(max(first, _FEWEST_POINTS, most), most)
        clock.require_memory(standing_cost(bounds, ())[1])
        self._prepare(())
        if self._chart():
            return
        self._stand()
        cells = bounds.model.n_layers * bounds.model.n_states
        work = min(
            max(_FACE_WORK, _FACE_WORK_PER_CELL * cells),
            _FACE_WORK_PER_SECOND * clock.remaining * thread_count(bounds.threads),
        )
        bounds.tighten(work, _FACE_MEMORY_SHARE * clock.memory)
        self._keep_better()

    def start(self, weights: Floats) -> None:
        """Go on with other weights of the contexts; what was found so far is kept."""
        self.bounds.start(weights)
        self._count, self._resolution, self.visited = self._first_count, _FIRST_RESOLUTION, []

    def _stand(self) -> None:
        """Make standing plans: few at first, and then as many as time and memory allow."""
        from latentmdp.planning.point_based.standing import LATTICES, standing_cost

        bounds, clock = self.bounds, self.clock
        if bounds.model.n_layers * bounds.model.n_states < _FEW_CELLS:
            return
        if not bounds.has_layers:
            return  # its plans are made once: made again, they would take no time, and none
            # would be kept back for the policy
        slowness = self._prepare(LATTICES[-1]) / _CENTRE_SLOWNESS
        for shares in LATTICES[:-1]:
            nanoseconds, size = standing_cost(bounds, shares)
            enough = _STANDING_TIME_SHARE * clock.remaining >= 1e-9 * nanoseconds * slowness
            if enough and size <= _STANDING_MEMORY_SHARE * clock.memory:
                self._prepare(shares)
                break

    def _prepare(self, shares: Shares) -> float:
        """Make the standing plans of a lattice; returns real over estimated nanoseconds."""
        from latentmdp.planning.point_based.standing import lattice, standing_cost

        bounds, began = self.bounds, self.clock.seconds
        bounds.prepare(lattice(bounds.model.n_contexts, shares))
        self.clock.record(bounds.best_lower, bounds.best_upper)
        seconds = self.clock.seconds - began
        self._standing_seconds = seconds
        self.clock.reserve = self._policy_share * seconds
        return 1e9 * seconds / max(standing_cost(bounds, shares)[0], 1.0)

    def _chart(self) -> bool:
        """Bound all values of three contexts on a grid; False if even a coarse one is too much.

        Where a much finer grid is affordable, it is left to `refine`.
        """
        from latentmdp.planning.point_based.charts import RULERS, chart_cost, chart_seconds

        bounds, clock = self.bounds, self.clock
        H, memory = bounds.model.n_layers, _CHART_MEMORY_SHARE * clock.memory
        least, size = chart_cost(bounds, [RULERS[-1]] * H)
        if bounds.model.n_contexts != 3 or not bounds.has_layers or size > memory:
            return False
        cells = float(H * bounds.model.n_states)
        plans = max(_CHART_PLANS, _CHART_PLANS_PER_CELL * cells)
        most = max(_CHART_WORK, _CHART_WORK_PER_CELL * cells)
        most = min(most, plans * bounds.table.size / bounds.model.n_states)
        if clock.time_limit is not None:
            most = min(most, _CHART_TIME_SHARE * clock.remaining / chart_seconds(bounds))
        if least > most:
            return False
        self._chart_work = most if least * _CHART_GROWTH <= most else 0.0
        for ruler in RULERS:
            work, size = chart_cost(bounds, [ruler] * H)
            growth = _CHART_GROWTH if self._chart_work else 1.0
            if work * growth <= most and size <= memory:
                break
        self._chart_with([ruler] * H)
        return True

    def _chart_with(self, rulers: list[Ruler]) -> None:
        """Make the grids, and note how long it took."""
        from latentmdp.planning.point_based.charts import chart_cost

        began = self.clock.seconds
        self.bounds.chart(rulers)
        self._standing_seconds = self.clock.seconds - began
        work = max(1.0, chart_cost(self.bounds, rulers)[0])
        self._chart_pace = self._standing_seconds / work
        self.clock.reserve = self._policy_share * self._standing_seconds
        self._keep_better()

    def refine(self) -> None:
        """After the first round, make the grids of three contexts finer where the gap is."""
        from latentmdp.planning.point_based.charts import allotted, chart_cost

        bounds, clock = self.bounds, self.clock
        if not self._chart_work or self.n_iter != 1:
            return
        if clock.time_limit is not None:
            time = _CHART_TIME_SHARE * clock.remaining / self._chart_pace
            self._chart_work = min(self._chart_work, time)
        now, memory = bounds.standing.rulers, _CHART_MEMORY_SHARE * clock.memory
        rulers = allotted(bounds, bounds.doubt, now[0], self._chart_work, memory)
        if chart_cost(bounds, rulers)[0] > chart_cost(bounds, now)[0]:
            self._chart_with(rulers)

    def explore(self) -> list[Integers]:
        """Walk forward to points whose chance times gap is large; those of each time step."""
        from latentmdp.planning.point_based.expansion import walk

        self._limit_count()
        self._began, self._n_points = self.clock.seconds, self.bounds.n_points
        self.visited = walk(
            self.bounds,
            count=int(self._count),
            spare=self._spare,
            resolution=self._resolution,
            act=lambda points, chosen: points.limits[chosen].argmax(axis=1),  # optimistic
            excess=np.multiply,
            allotment=_ALLOTMENT,
            rng=self._rng,
        )
        return self.visited

    def note(self) -> None:
        """Note, after a sweep, how far the bounds have come and how long it took."""
        self.n_iter += 1
        lower, upper = self.bounds.best_lower, self.bounds.best_upper
        self._keep_better()
        rise, fall = self.bounds.best_lower - lower, upper - self.bounds.best_upper
        self._spare *= _GROWTH if rise > fall else 1.0 / _GROWTH
        self._spare = min(max(self._spare, _LEAST_SPARE), _MOST_SPARE)
        if self.bounds.n_points == self._n_points and rise + fall <= 0.0:
            self._resolution *= _REFINEMENT
            self.bounds.breadth *= 2
        if self._resolution > _FINEST_RESOLUTION:
            raise NothingLeft("stopped: no belief is left that would move the bounds")
        self._round_seconds = self.clock.seconds - self._began
        spent = self._standing_seconds + self._round_seconds
        self.clock.reserve = self._policy_share * spent

    def _keep_better(self) -> None:
        """Keep the better of the bounds before and now, and derive which gaps are close."""
        self.bounds.keep_better()
        lower, upper = self.bounds.best_lower, self.bounds.best_upper
        gap = (upper - lower) / max(abs(upper), abs(lower), 1e-300)
        self.bounds.close = min(_CLOSE, _CLOSE_SHARE * gap)
        self.clock.record(lower, upper)

    def _limit_count(self) -> None:
        """Choose the next count so that time and memory suffice; `LimitReached` if they do not."""
        growth = _GROWTH if self.n_iter else 1.0
        if self.n_iter >= _TIMED_FROM:
            growth = min(growth, _SAFETY * self.clock.remaining / self._round_seconds)
            if growth < _LEAST_GROWTH:
                self.clock.stop_for_time()
        self._count *= growth
        self._resolution *= math.sqrt(growth)
        points = (1.0 + self._spare) * growth * sum(now.size for now in self.visited)
        successors = self._count * float(np.diff(self.bounds.table.starts).max())
        self.clock.require_memory(self.bounds.memory(points, successors))
