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
from numpy.typing import NDArray

from latentmdp._util.progress import Progress, Stop, limit
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan

if TYPE_CHECKING:
    from latentmdp.planning.point_based.bounds import Stage

__all__ = ["HSVI"]

_FIRST_COUNT, _FEWEST, _FIRST_WORK = 256.0, 16.0, 1e6  # points a step at first, fewer if costly
_GROWTH = 1.5  # more points in each round
_LEAST_SPARE, _MOST_SPARE = 1.0, 4.0  # points for the lower bound alone, for each one visited
_RESOLUTION, _REFINEMENT, _FINEST = 100.0, 10.0, 1e15  # which beliefs count as one, see `walk`
_ALLOTMENT = 0.7  # power of a time step's total excess that its share of the points follows
_FACE_WORK, _FACE_WORK_PER_SECOND = 1e8, 2e7  # interpolations, about 1e8 a second
_CLOSE, _CLOSE_SHARE = 2e-4, 0.02  # relative gaps that are not worth work, at most and of the gap
_TIMED_FROM, _SAFETY, _LEAST_GROWTH = 3, 0.85, 0.5  # from when on, and how, the clock limits rounds


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

    Notes
    -----
    An interrupt (Ctrl-C) ends the search like a limit does: the plan has the bounds reached so
    far, `converged` is False and `message` says why.
    """

    gap: float = 0.01
    absolute_gap: float | None = None
    time_limit: float | None = 60.0
    memory_limit: float | None = 2048.0
    on_progress: Callable[[float, float, float], None] | None = None

    def __post_init__(self) -> None:
        limit("gap", self.gap, zero=True)
        limit("absolute_gap", self.absolute_gap, zero=True)
        limit("time_limit", self.time_limit)
        limit("memory_limit", self.memory_limit)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan until a gap or a limit is reached; `guarantee` is (1, upper - lower)."""
        from latentmdp.planning.point_based.alpha_policy import alpha_policy

        require_model(model)
        progress = Progress(self.time_limit, self.memory_limit, self.on_progress)
        search = _Search(model, progress)
        try:
            with progress.interruptible():
                search.begin()
                while not self._reached(search):
                    search.explore()
                    search.sweep()
            message = "the gap is as small as asked"
        except Stop as stop:
            message = str(stop)
        except KeyboardInterrupt:
            message = "interrupted"
        bounds = search.bounds
        return Plan(
            policy=alpha_policy(model, bounds.problem, search.plans),
            lower=search.lower,
            upper=search.upper,
            converged=self._reached(search),
            n_iter=search.n_iter,
            seconds=progress.seconds,
            history=tuple(progress.history),
            guarantee=(1.0, max(search.upper - search.lower, 0.0)),
            message=message,
        )

    def _reached(self, search: _Search) -> bool:
        difference = search.upper - search.lower
        if self.absolute_gap is not None and difference <= self.absolute_gap:
            return True
        return difference <= self.gap * abs(search.lower)


class _Search:
    """The state of a run: the bounds, and how many points to visit next."""

    def __init__(self, model: LatentMDP, progress: Progress) -> None:
        from latentmdp.planning.point_based.bounds import Bounds
        from latentmdp.planning.point_based.problem import prepare

        self.bounds = Bounds(prepare(model), exact=False, check=progress.check)
        self.progress = progress
        self.plans = self.bounds.arranged
        self.lower, self.upper = self.bounds.lower(), self.bounds.upper()
        self.visited: list[NDArray[np.int64]] = []
        self.n_iter, self._seconds = 0, 0.0
        backup = model.horizon * model.n_states * model.n_rewards * model.n_actions
        self._count = min(max(_FIRST_WORK / backup, _FEWEST), _FIRST_COUNT)
        self._resolution, self._spare = _RESOLUTION, _MOST_SPARE
        self._rng = np.random.default_rng(0)
        progress.record(self.lower, self.upper)

    def begin(self) -> None:
        """Bound the values of all pairs and triples of contexts."""
        work = min(_FACE_WORK, _FACE_WORK_PER_SECOND * self.progress.remaining)
        self.bounds.tighten(work, self.progress.memory / 4.0)
        self._note()

    def explore(self) -> None:
        """Walk forward to points whose chance times gap is large."""
        from latentmdp.planning.point_based.expansion import walk

        self._limit_count()
        self._begun, self._size = self.progress.seconds, self.bounds.size
        self.visited = walk(
            self.bounds,
            count=int(self._count),
            spare=self._spare,
            resolution=self._resolution,
            act=_optimistic,
            excess=np.multiply,
            allot=lambda total, first: (total / first) ** _ALLOTMENT,
            rng=self._rng,
        )

    def sweep(self) -> None:
        """Back up, and note how far the bounds have come and how long it took."""
        self.bounds.sweep(self.visited)
        self.n_iter += 1
        lower, upper = self.lower, self.upper
        self._note()
        rise, fall = self.lower - lower, upper - self.upper
        self._spare *= _GROWTH if rise > fall else 1.0 / _GROWTH
        self._spare = min(max(self._spare, _LEAST_SPARE), _MOST_SPARE)
        if self.bounds.size == self._size and rise + fall <= 0.0:
            self._resolution *= _REFINEMENT
            self.bounds.breadth *= 2
        if self._resolution > _FINEST:
            raise Stop("stopped: no belief is left that would move the bounds")
        self._seconds = self.progress.seconds - self._begun

    def _note(self) -> None:
        """Keep the better bounds and the plans that attain the lower one."""
        lower, upper = self.bounds.lower(), self.bounds.upper()
        if lower > self.lower:
            self.plans = self.bounds.arranged  # first, so that an interrupt leaves a valid pair
            self.lower = lower
        self.upper = max(min(upper, self.upper), self.lower)
        gap = (self.upper - self.lower) / max(abs(self.upper), abs(self.lower), 1e-300)
        self.bounds.close = min(_CLOSE, _CLOSE_SHARE * gap)
        self.progress.record(self.lower, self.upper)

    def _limit_count(self) -> None:
        """Choose the next count so that time and memory suffice; `Stop` if it is not worth it."""
        growth = _GROWTH if self.n_iter else 1.0
        if self.n_iter >= _TIMED_FROM:
            growth = min(growth, _SAFETY * self.progress.remaining / self._seconds)
            if growth < _LEAST_GROWTH:
                self.progress.stop_for_time()
        self._count *= growth
        self._resolution *= math.sqrt(growth)
        S, _, _, Z, _ = self.bounds.problem.table.shape
        points = (1.0 + self._spare) * growth * sum(now.size for now in self.visited)
        self.progress.require_memory(self.bounds.memory(points, self._count * S * Z))


def _optimistic(stage: Stage, points: NDArray[np.int64]) -> NDArray[np.int64]:
    """The action with the best upper bound."""
    return stage.limits[points].argmax(axis=1)
