"""Lower and upper bounds on V* at every time, state and belief, from finite sets of points.

A lower bound is a set of plans (alpha vectors), an upper bound a set of points with bounds, joined
by the splits of the simplex into its small faces. First plans: the optimal policy of each context,
evaluated in all contexts. First points: the vertices, where Q-MDP's value is exact. Both bounds
hold at every moment, whatever was backed up: a sweep replaces the plans only once it is complete,
and an upper bound only ever goes down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from latentmdp._kernels import alpha, sawtooth
from latentmdp._kernels.faces import split_values
from latentmdp._kernels.plans import StepBounds, arrange
from latentmdp._kernels.simd import LANES
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.point_based.faces import small_faces, straight_faces
from latentmdp.planning.qmdp import best_actions, least_values, policy_values, q_values
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["BeliefPoints", "Bounds"]


_BLOCK = 1024
"""Points backed up between two looks at the clock: some milliseconds of work, so that a limit is
kept closely and looking costs nothing."""


class BeliefPoints:
    """The belief points of one time step, in the order they were added."""

    def __init__(self, n_contexts: int, n_actions: int) -> None:
        self.states = np.empty(0, np.int64)
        self.beliefs = np.empty((0, n_contexts))
        self.limits = np.empty((0, n_actions))  # upper bounds of the action values
        self.splits = np.empty(0)  # upper bounds from the faces of the simplex alone
        self.labels = np.empty(0, np.int64)  # first actions of the plans of the last sweep

    def __len__(self) -> int:
        return self.states.size

    def append(self, states: Integers, beliefs: Floats, limits: Floats, splits: Floats) -> None:
        """Add points."""
        self.states = np.concatenate([self.states, states])
        self.beliefs = np.concatenate([self.beliefs, beliefs])
        self.limits = np.concatenate([self.limits, limits])
        self.splits = np.concatenate([self.splits, splits])
        self.labels = np.concatenate([self.labels, limits.argmax(axis=1)])

    def keep(self, chosen: Integers) -> None:
        """Drop all but the chosen points."""
        for name, array in vars(self).items():
            setattr(self, name, array[chosen])

    @property
    def uppers(self) -> Floats:
        """The upper bound of each point, shape (n,)."""
        return np.minimum(self.splits, self.limits.max(axis=1))


class Bounds:
    """Lower and upper bounds of one model.

    Parameters
    ----------
    exact
        Whether a backup searches all plans of the next step.
    check
        Called now and then in long work; it may raise to stop, and the bounds stay valid.

    Attributes
    ----------
    q, least
        Q_{t,m}(s, a) of each context alone, (H, S, A, M), and its worst policy's value, (H, S, M).
    context_actions, context_plans
        The optimal policy of context k, (H, S, M), and its value in context m, (H, S, M, M).
    points
        `BeliefPoints` of each time step; the first of time 0 are the beliefs at the start of an
        episode, one for each possible first state, whose probabilities are `start_weights`.
    steps, faces
        The bounds of the last sweep, and those from the faces of the simplex, by time step.
    breadth, close
        Cells of plans searched for each successor in the next sweep, and a relative gap at a
        successor that needs no search for points.
    magnitude
        The largest absolute value that enters the bounds.
    best_lower, best_upper, best_steps
        The best bounds at the start so far, and the `StepBounds` whose policy attains the lower.
    """

    gained = 0.0
    """What a further sweep over the same points could still gain: nothing, steps being in order."""

    def __init__(self, model: LatentMDP, exact: bool, check: Callable[[], None]) -> None:
        self.model, self.exact, self.check = model, exact, check
        self.table = model.outcomes.informative()
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        self.q, self.least = q_values(model), least_values(model)
        self.allowed = model.allowed
        self.context_actions = best_actions(model, self.q)
        self.context_plans = policy_values(model, self.context_actions)
        self.constant = model.initial_value()
        self.magnitude = max(float(self.q.max()), -float(self.least.min())) + abs(self.constant)
        self.breadth, self.close = 1 if exact else 2, 0.0
        self.faces = straight_faces(model, self.q)
        M, H = model.n_contexts, model.n_layers
        self.points = [BeliefPoints(M, model.n_actions) for _ in range(H)]
        self.steps = [self._arrange(t, np.empty((0, M)), np.empty(0, np.int64)) for t in range(H)]
        joint = model.weights[:, None] * model.initial
        weights = joint.sum(axis=0)
        states = np.flatnonzero(weights > 0.0)
        self.start_weights = weights[states]
        self.add(0, states, (joint[:, states] / weights[states]).T.copy())
        self.best_steps, self.best_lower, self.best_upper = self.steps, self.lower(), self.upper()

    @property
    def n_points(self) -> int:
        """Points of all time steps."""
        return sum(len(points) for points in self.points)

    def tighten(self, work: float, memory: float) -> None:
        """Bring in the edges and triangles of the simplex, see `small_faces`."""
        self.faces = small_faces(self.model, self.table, self.q, work, memory, self.check)
        for points, faces in zip(self.points, self.faces):
            split_values(faces, points.states, points.beliefs, points.splits)

    def memory(self, points: float, successors: float) -> float:
        """Bytes with so many more points, and successors of one time step at once."""
        A, M = self.model.n_actions, self.model.n_contexts
        faces = sum(array.nbytes for now in self.faces for array in now)
        total = self.n_points + points
        return faces + 8.0 * (total * (11 * M + A + 9) + successors * (2 * M + 8))

    def add(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Add points at time t; returns their positions."""
        points, splits = self.points[t], np.empty(states.size)
        split_values(self.faces[t], states, beliefs, splits)
        limits = np.einsum("im,iam->ia", beliefs, self.q[t, states])
        limits[~self.allowed[states]] = -np.inf
        limits[self.model.terminal[states], 0] = 0.0  # nothing is left to earn
        points.append(states, beliefs, limits, splits)
        return np.arange(len(points) - states.size, len(points))

    def sweep(self, visited: list[Integers]) -> None:
        """Back up all plans, and the upper bounds of the visited points, from the last step on."""
        steps: list[StepBounds] = []
        for t in range(len(self.points) - 1, -1, -1):
            later = steps[-1] if steps else None
            vectors, labels = self._alpha_backup(t, later)
            self._upper_backup(t, visited[t], later)
            steps.append(self._arrange(t, vectors, labels))
            self.points[t].labels = labels
        self.steps = steps[::-1]

    def expand(
        self, t: int, chosen: Integers, weights: Floats, actions: Integers, faintest: float
    ) -> tuple[Integers, Floats, Floats, Floats]:
        """Successors (states, beliefs, weights, gaps) of chosen points of time t."""
        points = self.points[t]
        return sawtooth.expand(
            self.table, self.model.n_actions, self.steps[t + 1], self.faces[t + 1],
            self.close, self.breadth, points.states, points.beliefs,
            chosen, weights, actions, faintest,
        )  # fmt: skip

    def lower(self) -> float:
        """The lower bound at the start of an episode, attained by `policy(steps)`."""
        value = self.constant
        for weight, (_, worth) in zip(self.start_weights, self._start_plans(self.steps[0])):
            value += float(weight * worth.max())
        return value

    def upper(self) -> float:
        """The upper bound at the start of an episode."""
        first = self.points[0].uppers[: self.start_weights.size]
        return self.constant + float(self.start_weights @ first)

    def keep_better(self) -> None:
        """Keep the better of the bounds at the start before and now."""
        lower = self.lower()
        if lower > self.best_lower:
            self.best_steps = self.steps  # first, so that an interrupt leaves a valid pair
            self.best_lower = lower
        upper = min(self.upper(), self.best_upper)
        self.best_upper = enclosing(self.best_lower, upper, self.magnitude)

    def policy(self, steps: Sequence[StepBounds]) -> AlphaVectorPolicy:
        """The policy that attains the lower bound of `steps`: its plans, less those never followed.

        Acting by the label of the best plan earns at least that plan's value, as long as every plan
        is the backup of plans that are still in the set: at the next step the belief finds one at
        least as good as the one that the backup counted on. So from the plans that are best at the
        start, those that they go on with are kept, step by step, and the contexts' own (each goes
        on with its own kind).
        """
        wanted = np.zeros(len(steps[0].rows), np.bool_)
        for begin, worth in self._start_plans(steps[0]):
            wanted[begin + np.argmax(worth)] = True
        vectors, labels, counts = [], [], []
        for t, now in enumerate(steps):
            sizes = np.diff(now.starts[now.groups])
            states = np.repeat(np.arange(sizes.size), sizes)
            kept = (wanted | now.is_vertex) & ~self.model.terminal[states]
            vectors.append(now.rows[kept])
            labels.append(now.labels[kept])
            counts.append(np.bincount(states[kept], minlength=sizes.size))
            if t + 1 < len(steps):
                wanted = np.zeros(len(steps[t + 1].rows), np.bool_)
                alpha.mark_followers(
                    self.table, self.model.n_actions, steps[t + 1], now.breadth, states,
                    np.ascontiguousarray(now.beliefs.T), now.labels, kept, wanted,
                )  # fmt: skip
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        return AlphaVectorPolicy(
            np.concatenate(vectors), np.concatenate(labels), offsets, self.model
        )

    def _start_plans(self, first: StepBounds) -> Iterator[tuple[int, Floats]]:
        """For each belief at the start, the first plan of its state, and what they are worth."""
        points = self.points[0]
        for _, s, belief in zip(self.start_weights, points.states, points.beliefs):
            begin, end = first.starts[first.groups[s]], first.starts[first.groups[s + 1]]
            yield int(begin), first.rows[begin:end] @ belief

    def _alpha_backup(self, t: int, later: StepBounds | None) -> tuple[Floats, Integers]:
        """Plans (n, M) of the points of time t and their actions; nothing follows the last time."""
        points, breadth = self.points[t], self.breadth if later else 0
        vectors, labels = np.empty_like(points.beliefs), np.empty(len(points), np.int64)
        for first in range(0, len(points), _BLOCK):
            self.check()
            alpha.alpha_backup(
                self.table, self.rewards, self.model.discount, later or self.steps[t], breadth,
                points.states, points.beliefs, points.limits,
                first, min(first + _BLOCK, len(points)), vectors, labels,
            )  # fmt: skip
        return vectors, labels

    def _upper_backup(self, t: int, visited: Integers, later: StepBounds | None) -> None:
        """Lower the limits of the visited points of time t; nothing follows the last time."""
        points, breadth = self.points[t], self.breadth if later else 0
        faces = self.faces[t + 1] if later else self.faces[t]
        for first in range(0, visited.size, _BLOCK):
            self.check()
            sawtooth.upper_backup(
                self.table, self.rewards, self.model.discount, later or self.steps[t], faces,
                self.close, breadth, points.states, points.beliefs,
                visited[first : first + _BLOCK], points.limits,
            )  # fmt: skip

    def _arrange(self, t: int, vectors: Floats, labels: Integers) -> StepBounds:
        """Put the contexts' own plans and those of the points of time t into search order."""
        S, M = self.model.n_states, self.model.n_contexts
        points = self.points[t]
        states = np.concatenate([np.repeat(np.arange(S), M), points.states])
        beliefs = np.concatenate([np.tile(np.eye(M), (S, 1)), points.beliefs])
        vectors = np.concatenate([self.context_plans[t].reshape(-1, M), vectors])
        labels = np.concatenate([self.context_actions[t].ravel(), labels])
        order, starts, groups, leaders = arrange(states, beliefs, vectors, S, self.exact)
        rows = vectors[order]
        columns = np.zeros((M, len(rows) + LANES))
        columns[:, : len(rows)] = rows.T
        uppers = np.concatenate([self.faces[t].vertices.ravel(), points.uppers])
        gains = np.concatenate([np.zeros(S * M), points.splits - points.uppers])
        masses = np.ascontiguousarray(beliefs[order].T)
        with np.errstate(divide="ignore", over="ignore"):
            inverses = 1.0 / masses
        return StepBounds(
            starts=starts,
            groups=groups,
            leaders=leaders,
            columns=columns,
            rows=rows,
            labels=labels[order],
            order=order,
            beliefs=masses,
            inverses=inverses,
            uppers=uppers[order],
            gains=gains[order],
            least=self.least[t],
            is_vertex=order < S * M,
            breadth=self.breadth,
        )
