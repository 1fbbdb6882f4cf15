"""One run in progress: the world, the learner's state, and the record so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from latentmdp.online.counts import Counts
from latentmdp.online.empirical_model import LearnerState
from latentmdp.online.worlds import World

__all__ = ["Session", "milestones"]


def milestones(episodes: int) -> NDArray[np.int64]:
    """1, 2, ..., 9, 10, 20, ..., 90, 100, 200, ... up to and with the last episode."""
    powers = 10 ** np.arange(len(str(episodes)), dtype=np.int64)
    grid = np.outer(powers, np.arange(1, 10)).ravel()
    return np.unique(np.append(grid[grid < episodes], episodes))


@dataclass
class Session:
    """The mutable part of a run.

    Attributes
    ----------
    done
        Number of episodes played.
    planned
        The counts at the last plan, for planners whose policy must be found again on resuming.
    memory
        What a learner keeps between episodes: the current plan and the agent that executes it.
    earlier
        Seconds that the run took before it was interrupted.
    """

    world: World
    state: LearnerState
    key: int
    episodes: int
    done: int = 0
    planned: Counts | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    earlier: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.returns = np.full(self.episodes, np.nan)
        self.beliefs = np.full(self.episodes, np.nan)
        self.contexts = np.full(self.episodes, -1, np.int32)
        self.points = milestones(self.episodes)
        self.errors = np.full(self.points.size, np.nan)

    def seconds(self) -> float:
        """Wall-clock time of the run so far, interruptions left out."""
        return self.earlier + time.perf_counter() - self.began

    def next_point(self) -> int:
        """The first milestone not reached yet."""
        return int(self.points[np.searchsorted(self.points, self.done, side="right")])

    def record_error(self) -> None:
        """Note the model error if a milestone has just been reached."""
        from latentmdp._kernels.empirical import distances

        place = int(np.searchsorted(self.points, self.done))
        truth, M = self.world.model, self.state.space.n_contexts
        if self.points[place] != self.done or truth is None or truth.n_contexts != M:
            return
        cost = np.empty((M, M))
        distances(self.state.estimate, truth.packed().reshape(-1, M), cost)
        self.errors[place] = cost[linear_sum_assignment(cost)].sum()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a run needs to go on."""
        e, p, k = self.state.estimate, self.state.plans, self.done
        planned = self.planned or self.state.counts()
        return {
            "done": np.array(k),
            "returns": self.returns[:k],
            "beliefs": self.beliefs[:k],
            "contexts": self.contexts[:k],
            "errors": self.errors,
            "transition_counts": e.transition_counts,
            "reward_counts": e.reward_counts,
            "initial_counts": e.initial_counts,
            "values": p.values,
            "bonus": p.bonus,
            "spread": p.spread,
            "planned_visits": p.planned_visits,
            "stale": p.stale,
            "due": p.due,
            "planned_transitions": planned.transitions,
            "planned_rewards": planned.rewards,
            "planned_initial": planned.initial,
        }

    def fixed_arrays(self) -> dict[str, NDArray[Any]]:
        """Those of `arrays` whose shape never changes."""
        records = ("returns", "beliefs", "contexts")
        return {name: a for name, a in self.arrays().items() if name not in records}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go back to where `arrays` was taken."""
        from latentmdp._kernels.empirical import refresh

        e, p, k = self.state.estimate, self.state.plans, int(arrays["done"])
        if not 0 <= k <= self.episodes:
            raise ValueError(f"{k} of {self.episodes} episodes are done")
        self.done = k
        for record in (self.returns, self.beliefs, self.contexts):
            record[k:] = -1 if record.dtype.kind == "i" else np.nan
        self.returns[:k], self.beliefs[:k] = arrays["returns"], arrays["beliefs"]
        self.contexts[:k], self.errors[:] = arrays["contexts"], arrays["errors"]
        for target in ("transition_counts", "reward_counts", "initial_counts"):
            getattr(e, target)[...] = arrays[target]
        for target in ("values", "bonus", "spread", "planned_visits", "stale", "due"):
            getattr(p, target)[...] = arrays[target]
        refresh(e)
        self.planned = Counts(
            arrays["planned_transitions"], arrays["planned_rewards"], arrays["planned_initial"]
        )
