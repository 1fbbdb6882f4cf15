"""The best memoryless policy [kwon2021, Ex. 2]: deterministic, (t, s) -> a or s -> a.

It sees no history, so it suits where none may be used, or as a simple rule for people. The optimal
one is at least 1/M as good as the best policy with memory, if no reward is negative: V* is at most
sum_m w_m V*_m <= M max_m w_m V*_m, and the optimal policy of one context is memoryless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from latentmdp._util import Floats, RNGLike, as_generator, require_choice
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.limits import PlanningClock, check_limit
from latentmdp.planning.qmdp import best_of, least_values, q_values
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
            coordinate_ascent,
        )

        require_model(model)
        clock = PlanningClock(self.time_limit, self.memory_limit, self.on_progress)
        values, incumbent = q_values(model, clock.check), None
        rng = as_generator(self.rng)
        with clock.searching():
            problem = MemorylessProblem.of(model, self.stationary, values, clock.check)
            # To find and value the first policy takes 3 ns a multiplication, on a slow machine.
            if 3e-9 * problem.step_cost > clock.remaining:
                clock.stop_for_time()
            incumbent = Incumbent.first(problem)
            clock.record(incumbent.lower + problem.constant, incumbent.upper + problem.constant)
            coordinate_ascent(problem, incumbent, self.starts, rng, clock.check)
            if self.method == "branch-and-bound":
                branch_and_bound(problem, incumbent, clock)
        if incumbent is None:
            return _hurried_plan(model, self.stationary, values, clock)
        message = clock.stopped or "no start of the coordinate ascent leads further"
        if incumbent.upper - incumbent.lower <= problem.tolerance:
            incumbent.upper, message = incumbent.lower, "proven optimal"
        clock.record(incumbent.lower + problem.constant, incumbent.upper + problem.constant)
        return Plan(
            policy=MarkovPolicy(incumbent.policy),
            lower=incumbent.lower + problem.constant,
            upper=incumbent.upper + problem.constant,
            converged=incumbent.upper == incumbent.lower,
            n_iter=incumbent.n_iter,
            seconds=clock.seconds,
            history=tuple(clock.history),
            guarantee=None if problem.stationary else _guarantee(model),
            message=message,
        )


def _hurried_plan(model: LatentMDP, stationary: bool, values: Floats, clock: PlanningClock) -> Plan:
    """What can be said without time to value a single policy: act as Q-MDP does on the prior."""
    scores = np.where(model.allowed, values @ model.weights, -np.inf)
    policy = np.where(model.terminal, 0, scores.argmax(axis=-1))
    start = model.weights[:, None] * model.initial
    bounds = best_of(model, values)[0], least_values(model, clock.check)[0]
    upper, lower = (float((start.T * value).sum()) + model.initial_value() for value in bounds)
    return Plan(
        policy=MarkovPolicy(policy[0] if stationary else policy),
        lower=lower,
        upper=upper,
        converged=False,
        n_iter=0,
        seconds=clock.seconds,
        history=((clock.seconds, lower, upper),),
        message=clock.stopped or "",
    )


def _guarantee(model: LatentMDP) -> tuple[float, float] | None:
    """(1/M, 0), which the starts from each context's optimal policy ensure."""
    bonus = model.initial_bonus
    negative = model.planning_rewards().min() < 0.0 or (bonus is not None and bonus.min() < 0.0)
    return None if negative else (1.0 / model.n_contexts, 0.0)
