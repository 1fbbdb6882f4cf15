"""Heuristic search value iteration for latent MDPs: bounds that close on V* [smith2005].

`HSVI` is the planner. What it searches is the lumped problem (`lumping`), between a lower bound
from plans and an upper bound from points (`bounds`) and from sets of contexts (`sets`); `search`
is the loop, `nodes` turns the plans into a policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.limits import PlanningClock, check_limits

if TYPE_CHECKING:
    from latentmdp.planning.hsvi.bounds import Bounds


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
    An interrupt (Ctrl-C) ends the search as a limit does: the plan has the bounds reached so far. A
    plan that converges in the first third of its time limit is the same, bit for bit, in every
    process: later the search plans its rounds by the time that is left.
    """

    gap: float = 0.01
    absolute_gap: float | None = None
    time_limit: float | None = 60.0
    memory_limit: float | None = 2048.0
    on_progress: Callable[[float, float, float], None] | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_limits(self)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan until a gap or a limit is reached; `guarantee` is (1, upper - lower)."""
        from latentmdp.planning.hsvi.nodes import planned_policy
        from latentmdp.planning.hsvi.search import HeuristicSearch

        require_model(model)
        clock = PlanningClock(self.time_limit, self.memory_limit, self.on_progress)
        with clock.interruptible():
            search = HeuristicSearch(model, clock, self.threads)
            bounds = search.bounds
            with clock.searching():
                while not self._reached(bounds):
                    search.round()
        reached = self._reached(bounds)
        bounds.settle()
        return Plan(
            policy=planned_policy(bounds),
            lower=bounds.best_lower,
            upper=bounds.best_upper,
            converged=reached,
            n_iter=search.n_iter,
            seconds=clock.seconds,
            history=tuple(clock.history),
            guarantee=(1.0, max(bounds.best_upper - bounds.best_lower, 0.0)),
            message=clock.stopped
            if clock.stopped and not reached
            else "the gap is as small as asked",
        )

    def _reached(self, bounds: Bounds) -> bool:
        difference = bounds.best_upper - bounds.best_lower
        absolute = 0.0 if self.absolute_gap is None else self.absolute_gap
        return difference <= max(absolute, self.gap * abs(bounds.best_lower))
