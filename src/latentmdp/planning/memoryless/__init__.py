"""The best memoryless policy [kwon2021, Ex. 2]: deterministic, (t, s) -> a or s -> a.

It sees no history, so it suits where none may be used, or as a simple rule for people. The optimal
one is at least 1/M as good as the best policy with memory, if no reward is negative: V* is at most
sum_m w_m V*_m <= M max_m w_m V*_m, and the optimal policy of one context is memoryless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.validation import require_choice
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.limits import PlanningClock, check_limit
from latentmdp.policies import MarkovPolicy


@dataclass(frozen=True)
class Memoryless:
    """A planner over deterministic memoryless policies.

    Parameters
    ----------
    method
        "branch-and-bound": a search over partial policies, which proves the optimum when it
        finishes. "cadp": coordinate ascent from several starts; quick and monotone, but it may end
        in a local optimum and proves nothing.
    stationary
        Whether the policy must be the same at all times, s -> a, as it always is where there is no
        end.
    time_limit
        Seconds of wall-clock time, or None.
    memory_limit
        MiB for the partial policies of the search, or None.
    starts
        Random starts of the coordinate ascent, beside those from weight-select-update and each
        context's optimal policy. Every method begins with it.
    rng
        For the random starts.
    on_progress
        Called with (seconds, lower, upper) whenever the bounds have moved.

    Notes
    -----
    The plan's `upper` bounds all memoryless policies of the class asked for, not V*: deterministic
    ones, which depend on the time unless `stationary` or without an end. `lower` is the exact value
    of the policy. An interrupt (Ctrl-C) ends the search as a limit does. The guarantee (1/M, 0)
    against V* is stated for Markov policies where no reward or bonus is negative.
    """

    method: str = "branch-and-bound"
    stationary: bool = False
    time_limit: float | None = 60.0
    memory_limit: float | None = 2048.0
    starts: int = 10
    rng: RNGLike = 0
    on_progress: Callable[[float, float, float], None] | None = None

    def __post_init__(self) -> None:
        if self.method == "mip":
            raise ValueError(
                'method "mip" is gone since 0.3: "branch-and-bound" proves the same optimum sooner'
            )
        require_choice("method", self.method, ("branch-and-bound", "cadp"))
        check_limit("time_limit", self.time_limit)
        check_limit("memory_limit", self.memory_limit)
        if isinstance(self.starts, bool) or not isinstance(self.starts, int) or self.starts < 0:
            raise ValueError(f"starts must be a non-negative integer, got {self.starts!r}")

    def plan(self, model: LatentMDP) -> Plan:
        """Find a good policy by coordinate ascent, then prove it or find a better one."""
        from latentmdp.planning.memoryless.bnb import branch_and_bound
        from latentmdp.planning.memoryless.cadp import (
            Incumbent,
            MemorylessProblem,
            all_starts,
            coordinate_ascent,
        )

        require_model(model)
        model.duration.require_discount("Memoryless")
        clock = PlanningClock(self.time_limit, self.memory_limit, self.on_progress)
        rng, is_guaranteed = as_generator(self.rng), False
        problem = MemorylessProblem.of(model, self.stationary, clock.check)
        with clock.interruptible():
            incumbent = Incumbent.first(problem)
            clock.record(incumbent.lower, incumbent.upper)
            with clock.searching():
                clock.require_memory(problem.ascent_bytes)
                starts = all_starts(problem, self.starts, rng)
                coordinate_ascent(problem, incumbent, islice(starts, 1 + model.n_contexts))
                is_guaranteed = not problem.stationary
                coordinate_ascent(problem, incumbent, starts)
                if self.method == "branch-and-bound":
                    branch_and_bound(problem, incumbent, clock)
        message = clock.stopped or "no start of the coordinate ascent leads further"
        if incumbent.upper - incumbent.lower <= problem.tolerance:
            incumbent.upper, message = incumbent.lower, "proven optimal"
        clock.record(incumbent.lower, incumbent.upper)
        return Plan(
            policy=MarkovPolicy(incumbent.policy),
            lower=incumbent.lower,
            upper=incumbent.upper,
            converged=incumbent.upper == incumbent.lower,
            n_iter=incumbent.n_iter,
            seconds=clock.seconds,
            history=tuple(clock.history),
            guarantee=_guarantee(model) if is_guaranteed else None,
            message=message,
        )


def _guarantee(model: LatentMDP) -> tuple[float, float] | None:
    """(1/M, 0), which the starts from each context's optimal policy ensure."""
    bonus = model.initial_bonus
    negative = model.planning_rewards().min() < 0.0 or (bonus is not None and bonus.min() < 0.0)
    return None if negative else (1.0 / model.n_contexts, 0.0)
