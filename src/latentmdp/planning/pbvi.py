"""Point-based value iteration [pineau2006; kwon2021, Example 1].

For t = H..1, at every belief point of every state, the alpha backup gives one plan; the lower bound
at a belief is the best of the plans. Points come from

* a regular grid of the simplex: with a point within eps_d (in L1) of every belief, one step loses
  at most eps_d times the range of the values left, (H - t + 1) max(1, range of the rewards), so in
  all V >= V* - eps_d H^2 max(1, range of the rewards): the guarantee of [kwon2021, Example 1];
  without an end, 1 / (1 - discount) takes the place of H [pineau2006];
* or the beliefs that the policy found so far is likely to meet, in rounds of twice as many points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.limits import MIB, PlanningClock, check_limits

if TYPE_CHECKING:
    from latentmdp.planning.hsvi.bounds import Bounds

_SETTLING = 0.9
"""Without an end plans are backed up again as long as what they gain falls below this share of what
it was. It need not reach 0: plans of neighbouring points may replace each other for ever."""


@dataclass(frozen=True)
class PBVI:
    """Point-based value iteration.

    Parameters
    ----------
    beliefs
        Belief points for each time step, over all states; 200 if neither is given. More are closer
        to V* and cost their square: every backup searches the plans of all points of the next step.
    spacing
        eps_d: use a regular grid that has a point within this L1 distance of every belief, in
        place of `beliefs`.
    time_limit
        Seconds of wall-clock time, or None. The best of the rounds that were finished counts.
    memory_limit
        MiB; a grid that needs more is refused before any work.
    threads
        How many share the work; None for all cores. Results do not depend on it.
    """

    beliefs: int | None = None
    spacing: float | None = None
    time_limit: float | None = None
    memory_limit: float = 2048.0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.beliefs is not None and self.spacing is not None:
            raise ValueError("give beliefs or spacing, not both")
        if self.beliefs is not None:
            arrays.positive_integer("beliefs", self.beliefs)
        check_limits(self)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan; `upper` is Q-MDP's bound, or the guarantee's where that is smaller."""
        from latentmdp.planning.hsvi.bounds import Bounds
        from latentmdp.planning.hsvi.nodes import planned_policy

        require_model(model)
        clock = PlanningClock(self.time_limit, self.memory_limit)
        if self.spacing is not None:
            model.duration.require_discount("PBVI with spacing")
        grid = None if self.spacing is None else self._grid(model, self.spacing)
        n_iter, gained = 0, 0.0
        with clock.interruptible():
            bounds = Bounds(model, clock, self.threads, few=math.inf, informed=False)
            with clock.searching():
                for _ in self._rounds(bounds) if grid is None else _fill(bounds, grid):
                    before = math.inf
                    while True:
                        gained = _sweep(bounds)
                        n_iter += 1
                        bounds.keep_better()
                        clock.record(bounds.best_lower, bounds.best_upper)
                        # On a grid without an end, go on until plans hardly gain.
                        if grid is None or not 0.0 < gained < _SETTLING * before:
                            break
                        before = gained
        bounds.settle()
        upper, guarantee = bounds.best_upper, None
        if self.spacing is not None and clock.stopped is None:
            guarantee = _guarantee(model, self.spacing, gained)
            upper = min(upper, bounds.best_lower + guarantee[1])
        return Plan(
            policy=planned_policy(bounds),
            lower=bounds.best_lower,
            upper=upper,
            converged=clock.stopped is None,
            n_iter=n_iter,
            seconds=clock.seconds,
            history=tuple(clock.history),
            guarantee=guarantee,
            message=clock.stopped or "every belief point was backed up",
        )

    def _rounds(self, bounds: Bounds, first: int = 25, resolution: float = 200.0) -> Iterator[None]:
        """Add beliefs that the current policy meets, as many again in each round.

        Those that agree to 1 / resolution in every context are one point: finer ones would hardly
        differ in their plans and would use up the count.
        """
        rng = np.random.default_rng(0)
        bounds.resolution = resolution
        total, done = 200 if self.beliefs is None else self.beliefs, 0
        while done < total:
            count = min(max(done, first), total - done)
            _walk(bounds, count, rng)
            done += count
            yield

    def _grid(self, model: LatentMDP, spacing: float) -> Floats:
        """The grid, unless it is too large."""
        M, cells = model.n_contexts, model.n_layers * model.n_states
        n = max(1, math.ceil(2 * (M // 2) * (M - M // 2) / (M * spacing) - 1e-9))
        points = cells * math.comb(n + M - 1, M - 1)
        needed = 8.0 * points * (11 * M + model.n_actions + 9)
        if needed > self.memory_limit * MIB:
            raise ValueError(
                f"spacing={spacing:g} needs {points:,} belief points ({needed / MIB:,.0f} MiB) for "
                f"{M} contexts, more than memory_limit={self.memory_limit:g} MiB: use a larger "
                "spacing, or beliefs= or HSVI, whose points go where they matter"
            )
        return simplex_grid(M, n)


def simplex_grid(n_contexts: int, n: int) -> Floats:
    """All beliefs over the contexts that are multiples of 1 / n, shape (points, M)."""
    bars = np.array(list(combinations(range(n + n_contexts - 1), n_contexts - 1)), np.int64)
    bars = bars.reshape(math.comb(n + n_contexts - 1, n_contexts - 1), n_contexts - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, n + n_contexts - 1)))
    return (np.diff(edges, axis=1) - 1) / n


def _walk(bounds: Bounds, count: int, rng: np.random.Generator, exploration: float = 0.2) -> None:
    """Visit about `count` points a step under the current policy.

    A share of the actions is random: enough to leave the policy, few enough to stay near it.
    """
    from latentmdp.planning.hsvi.search import inclusion, walk

    def act(points: Integers) -> Integers:
        limits = bounds.store.points.limit[points]
        random = np.where(np.isfinite(limits), rng.random(limits.shape), -1.0).argmax(axis=1)
        numbers, planned = bounds.store.points.plan[points], limits.argmax(axis=1)
        planned[numbers >= 0] = bounds.plans.action[numbers[numbers >= 0]]
        return np.where(rng.random(points.size) < exploration, random, planned)

    walk(bounds, act, lambda found: inclusion(found.weights, max(1.0, count)), rng)


def _fill(bounds: Bounds, grid: Floats) -> Iterator[None]:
    """Put the grid, by class, at every time and state."""
    lumping, problem = bounds.lumping, bounds.problem
    for t in range(problem.layers):
        bounds.check()
        for x, s in enumerate(lumping.leaders.tolist()):
            pushed = np.zeros((len(grid), int(problem.width.max())))
            for m in range(grid.shape[1]):
                pushed[:, lumping.classes(s)[m]] += grid[:, m]
            beliefs = np.unique(pushed, axis=0)
            cells = np.full(len(beliefs), t * len(lumping.leaders) + x)
            bounds.locate(bounds.beliefs_in(cells, beliefs))
    yield


def _sweep(bounds: Bounds) -> float:
    """Back up the plans of all points, from the last step on; by how much one rose at most."""
    gained = 0.0
    for points in reversed(bounds.points_of_layers()):
        gained = max(gained, bounds.back_up(points, np.zeros(points.size, np.bool_)))
    return 0.0 if bounds.problem.ends else gained


def _guarantee(model: LatentMDP, spacing: float, gained: float) -> tuple[float, float]:
    """(1, what is lost at most): eps_d times the range of the values left, in every step.

    `gained` is what the last backup still brought, and any further one may.
    """
    rewards = model.planning_rewards()
    scale = max(1.0, float(rewards.max() - rewards.min()))
    if model.horizon is not None:
        return 1.0, spacing * model.horizon**2 * scale
    steps = 1.0 / (1.0 - model.discount)
    return 1.0, spacing * steps**2 * scale + gained * steps
