"""The optimal policy, by dynamic programming over all reachable beliefs.

Layer t holds every (s, b) that some sequence of actions and observations can lead to. Going back,

    alpha_{s,b}(m) = R_m(s, a) + discount sum_{s',r} P_m(s', r | s, a) alpha_{s',b'}(m),

with b' the belief after (s', r) and a the allowed action that maximises sum_m b(m) alpha_{s,b}(m).
A terminal state has no beliefs and is worth 0. The belief depends on how often each likelihood was
met, not on the order, so many histories share one: beliefs that agree to 12 digits are merged,
which changes the value by less than 1e-11 of its range.

Beliefs and backups are those of the one search (`latentmdp.planning.hsvi.bounds`): here every
belief is a point, none is chosen, and each is backed up once, the last step first. What follows a
point is a point that has been backed up, so its plan is optimal there; and acting by the best plan
at every belief earns at least as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentmdp._util import arrays
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP, require_horizon, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.hsvi.nodes import Nodes
from latentmdp.planning.limits import PlanningClock
from latentmdp.policies import AlphaVectorPolicy

_DIGITS = 1e12
"""Beliefs that agree to so much of their largest entry are one, up to rounding."""


class TooManyBeliefsError(LatentMDPError, ValueError):
    """There are more reachable beliefs than allowed."""


@dataclass(frozen=True)
class Exact:
    """The exact planner, for small problems.

    Parameters
    ----------
    max_beliefs
        Raise `TooManyBeliefsError` when more beliefs than this can be reached over all time steps.
    """

    max_beliefs: int = 500_000

    def __post_init__(self) -> None:
        arrays.positive_integer("max_beliefs", self.max_beliefs)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan; `lower` equals `upper`. Raises `TooManyBeliefsError` if the model is too large."""
        require_model(model)
        require_horizon(model, "Exact (unlike HSVI)")
        clock = PlanningClock(None)
        bounds = Bounds(model, clock, None, few=math.inf, informed=False)
        bounds.resolution = _DIGITS
        n_beliefs = self._add_reachable(bounds)
        for points in reversed(bounds.points_of_layers()):
            bounds.back_up(points, np.zeros(points.size, np.bool_))
        bounds.keep_better()
        value = bounds.best_lower
        clock.record(value, value)
        return Plan(
            policy=_policy(bounds),
            lower=value,
            upper=value,
            n_iter=n_beliefs,
            seconds=clock.seconds,
            history=tuple(clock.history),
            guarantee=(1.0, 0.0),
            message=f"dynamic programming over {n_beliefs} reachable beliefs",
        )

    def _add_reachable(self, bounds: Bounds) -> int:
        """Make every belief that can be reached a point, step by step; how many there are."""
        problem, points, total = bounds.problem, np.unique(bounds.start_points), 0
        goes_on = np.asarray(problem.allowed.any(axis=1))
        for t in range(problem.layers):
            cells = bounds.store.points.cell[points]
            total += points.size
            if total > self.max_beliefs:
                raise TooManyBeliefsError(
                    f"{bounds.model!r} has more than max_beliefs={self.max_beliefs} reachable "
                    "beliefs: raise max_beliefs, or use a planner with bounds such as HSVI"
                )
            if t < problem.layers - 1:
                point, action = np.nonzero(problem.allowed[cells % goes_on.size])
                found = bounds.expand(points[point], np.ones(point.size), action)
                alive = (found.weights > 0.0) & goes_on[found.cells % goes_on.size]
                points = np.unique(bounds.locate(found, np.flatnonzero(alive)))
        return total


def _policy(bounds: Bounds) -> AlphaVectorPolicy:
    """The policy of the best plans at all points, also those that no optimal one comes to.

    Beside them are two policies that ask no questions, which are followed where no belief can be.
    """
    lumping, model = bounds.lumping, bounds.model
    _, _, plans = bounds.bounds_at(np.arange(bounds.n_points))
    layer, x = np.divmod(bounds.store.points.cell[: bounds.n_points], lumping.leaders.size)
    # A lumped state stands for several of the model's.
    order = np.argsort(lumping.state, kind="stable")
    offsets = np.searchsorted(lumping.state[order], np.arange(lumping.leaders.size + 1))
    point, place = arrays.segments(offsets, x)
    # Of equally good ones the policy of a single context comes first: it breaks ties.
    every = np.repeat(np.arange(bounds.problem.layers * model.n_states), 2)
    groups = np.concatenate([every, layer[point] * model.n_states + order[place]])
    plans = np.concatenate([np.tile([-2, -1], every.size // 2), plans[point]])
    nodes = Nodes(bounds, groups, plans)
    nodes = nodes.of_codes(np.unique(nodes.codes[~model.terminal[nodes.states]]))
    return AlphaVectorPolicy(nodes.vectors(), nodes.actions, nodes.offsets, model)
