"""Lower and upper bounds on V* at every time, state and belief, from finite sets of points.

A lower bound is a set of plans (alpha vectors), an upper bound a set of points with bounds, joined
by the splits of the simplex into its small faces. First plans: the optimal policy of each context,
evaluated in all contexts. First points: the vertices, where Q-MDP's value is exact. Both bounds
hold at every moment, whatever was backed up: a sweep replaces the plans only once it is complete,
and an upper bound only ever goes down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentmdp._kernels import alpha, sawtooth
from latentmdp._kernels.faces import split_values
from latentmdp._kernels.plans import Plans, arrange
from latentmdp._kernels.simd import LANES
from latentmdp._util.arrays import Floats, Integers
from latentmdp.planning.point_based.faces import small_faces, straight_faces
from latentmdp.planning.point_based.problem import Problem

__all__ = ["Bounds", "Stage"]


BLOCK = 1024
"""Points backed up between two looks at the clock."""


class Arranged(NamedTuple):
    """The plans and points of a time step in search order."""

    plans: Plans
    points: sawtooth.Points
    order: Integers  # which plan of the stage each one is; the first S M are the vertices'
    labels: Integers
    breadth: int  # cells searched for the successors of these plans


class Stage:
    """The belief points of one time step, in the order they were added."""

    def __init__(self, n_contexts: int, n_actions: int) -> None:
        self.states = np.empty(0, np.int64)
        self.beliefs = np.empty((0, n_contexts))
        self.limits = np.empty((0, n_actions))  # upper bounds of the action values
        self.splits = np.empty(0)  # upper bounds without any point
        self.labels = np.empty(0, np.int64)  # actions of the lower bound's plans

    def __len__(self) -> int:
        return self.states.size

    def append(self, states: Integers, beliefs: Floats, limits: Floats, splits: Floats) -> None:
        """Add points."""
        self.states = np.concatenate([self.states, states])
        self.beliefs = np.concatenate([self.beliefs, beliefs])
        self.limits = np.concatenate([self.limits, limits])
        self.splits = np.concatenate([self.splits, splits])
        self.labels = np.concatenate([self.labels, limits.argmax(axis=1)])

    @property
    def uppers(self) -> Floats:
        """The upper bound of each point."""
        return np.minimum(self.splits, self.limits.max(axis=1))


class Bounds:
    """Lower and upper bounds of one problem.

    Parameters
    ----------
    problem
        From `prepare`.
    exact
        Whether a backup searches all plans of the next step.
    check
        Called now and then in long work; it may raise to stop, and the bounds stay valid.
    """

    def __init__(self, problem: Problem, exact: bool, check: Callable[[], None]) -> None:
        self.problem, self.check = problem, check
        self.exact, self.breadth = exact, 1 if exact else 2
        self.close = 0.0
        H, _, A, M = problem.q.shape
        self.faces = straight_faces(problem)
        self.stages = [Stage(M, A) for _ in range(H)]
        self.arranged = [
            self._arrange(t, np.empty((0, M)), np.empty(0, np.int64)) for t in range(H)
        ]
        self.add(0, problem.roots.states, problem.roots.beliefs)

    @property
    def size(self) -> int:
        """Number of points."""
        return sum(len(stage) for stage in self.stages)

    def tighten(self, work: float, memory: float) -> None:
        """Bring in the edges and triangles of the simplex, see `small_faces`."""
        self.faces = small_faces(self.problem, work, memory, self.check)
        for stage, faces in zip(self.stages, self.faces):
            split_values(faces, stage.states, stage.beliefs, stage.splits)

    def memory(self, points: float, successors: float) -> float:
        """Bytes with so many more points, and successors of one time step at once."""
        _, _, A, M = self.problem.q.shape
        faces = sum(array.nbytes for now in self.faces for array in now)
        return faces + 8.0 * ((self.size + points) * (11 * M + A + 9) + successors * (2 * M + 8))

    def add(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Add points at time t; returns their positions in the stage."""
        stage, splits = self.stages[t], np.empty(states.size)
        split_values(self.faces[t], states, beliefs, splits)
        limits = np.einsum("im,iam->ia", beliefs, self.problem.q[t, states])
        stage.append(states, beliefs, limits, splits)
        return np.arange(len(stage) - states.size, len(stage))

    def sweep(self, visited: list[Integers]) -> None:
        """Back up all plans, and the upper bounds of the visited points, from the last step on."""
        arranged: list[Arranged] = []
        for t in range(len(self.stages) - 1, -1, -1):
            following = arranged[-1] if arranged else None
            vectors, labels = self._alpha_backup(t, following)
            self._upper_backup(t, visited[t], following)
            arranged.append(self._arrange(t, vectors, labels))
            self.stages[t].labels = labels
        self.arranged = arranged[::-1]

    def expand(
        self, t: int, chosen: Integers, weights: Floats, actions: Integers, faintest: float
    ) -> tuple[Integers, Floats, Floats, Floats]:
        """Successors (states, beliefs, weights, gaps) of chosen points of time t."""
        stage, ahead = self.stages[t], self._ahead(t, self.arranged[t + 1])
        return sawtooth.expand(
            self.problem.table, ahead, stage.states, stage.beliefs, chosen, weights, actions,
            faintest,
        )  # fmt: skip

    def lower(self) -> float:
        """The lower bound at the start of an episode, attained by `policy`."""
        roots, plans = self.problem.roots, self.arranged[0].plans
        value = self.problem.constant
        for s, belief, weight in zip(*roots):
            begin, end = plans.starts[plans.groups[s]], plans.starts[plans.groups[s + 1]]
            value += float(weight * (plans.rows[begin:end] @ belief).max())
        return value

    def upper(self) -> float:
        """The upper bound at the start of an episode; the first points of time 0 are the roots."""
        weights = self.problem.roots.weights
        return self.problem.constant + float(weights @ self.stages[0].uppers[: weights.size])

    def _alpha_backup(self, t: int, following: Arranged | None) -> tuple[Floats, Integers]:
        stage, problem = self.stages[t], self.problem
        plans = (following or self.arranged[t]).plans
        breadth = self.breadth if following else 0
        vectors, labels = np.empty_like(stage.beliefs), np.empty(len(stage), np.int64)
        for first in range(0, len(stage), BLOCK):
            self.check()
            alpha.alpha_backup(
                problem.table, problem.rewards, problem.discount, plans, breadth, stage.states,
                stage.beliefs, stage.limits, first, min(first + BLOCK, len(stage)), vectors, labels,
            )  # fmt: skip
        return vectors, labels

    def _upper_backup(self, t: int, visited: Integers, following: Arranged | None) -> None:
        stage, problem, ahead = self.stages[t], self.problem, self._ahead(t, following)
        for first in range(0, visited.size, BLOCK):
            self.check()
            sawtooth.upper_backup(
                problem.table, problem.rewards, problem.discount, ahead, stage.states,
                stage.beliefs, visited[first : first + BLOCK], stage.limits,
            )  # fmt: skip

    def _ahead(self, t: int, following: Arranged | None) -> sawtooth.Ahead:
        """The step after time t as kernels read it; nothing follows the last one."""
        plans, points, *_ = following or self.arranged[t]
        faces = self.faces[min(t + 1, len(self.faces) - 1)]
        return sawtooth.Ahead(plans, points, faces, self.close, self.breadth if following else 0)

    def _arrange(self, t: int, vectors: Floats, labels: Integers) -> Arranged:
        """Put the vertices' plans and the stage's into search order."""
        _, S, _, M = self.problem.q.shape
        stage, vertices = self.stages[t], self.faces[t].vertices
        states = np.concatenate([np.repeat(np.arange(S), M), stage.states])
        beliefs = np.concatenate([np.tile(np.eye(M), (S, 1)), stage.beliefs])
        vectors = np.concatenate([self.problem.plans[t].reshape(-1, M), vectors])
        labels = np.concatenate([self.problem.labels[t].ravel(), labels])
        order, starts, groups, leaders = arrange(states, beliefs, vectors, S, self.exact)
        rows = vectors[order]
        columns = np.zeros((M, len(rows) + LANES))
        columns[:, : len(rows)] = rows.T
        plans = Plans(starts, groups, leaders, columns, rows)
        uppers = np.concatenate([vertices.ravel(), stage.uppers])
        gains = np.concatenate([np.zeros(S * M), stage.splits]) - uppers
        gains[: S * M] = 0.0
        masses = np.ascontiguousarray(beliefs[order].T)
        with np.errstate(divide="ignore", over="ignore"):
            inverses = 1.0 / masses
        points = sawtooth.Points(
            masses, inverses, uppers[order], gains[order], self.problem.least[t]
        )
        return Arranged(plans, points, order, labels[order], self.breadth)
