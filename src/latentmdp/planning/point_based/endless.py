"""Stationary lower and upper bounds on V* of a model without an end.

V*(s, b) does not depend on time, so one set of plans and one set of points serve at every step. A
plan is a node of a policy graph: an action, and for every outcome the node to go on with. With
these choices fixed, the values of all nodes solve

    alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m),

and acting by the label of the node that is best at the belief earns at least max_i <b, alpha_i>:
what the node goes on with is among what the next step may choose from. A round of search

    improves    backs up the points just visited, those reached last first, from the newest values,
                and then all points once: each plan gets the best action at its own belief, and goes
                on with the best plans there;
    evaluates   solves the equations above by iteration, and adds what iterating for ever would
                change at least: with d the least of T alpha - alpha over nodes and contexts, the
                solution is at least T alpha + d discount / (1 - discount).

The upper bound goes down at the visited points, in the same order. It starts from the values of the
problems with two and three contexts, which are iterated from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentmdp._kernels.alpha import alpha_backup
from latentmdp._kernels.endless import best_items, evaluate_plans, follow, second_values, visit_plans
from latentmdp._kernels.faces import Faces, split_values
from latentmdp._kernels.plans import StepBounds, arrange
from latentmdp._kernels.sawtooth import expand, upper_backup
from latentmdp._kernels.simd import LANES
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.outcomes import row_sums
from latentmdp.planning.base import enclosing
from latentmdp.planning.point_based.bounds import BeliefPoints
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["EndlessBounds"]

_BLOCK = 256
"""Points backed up from the same values: enough for several threads, few enough that later blocks
profit from earlier ones."""


class _Graph(NamedTuple):
    """A policy graph that attains its values: the nodes of all states, in search order."""

    states: Integers
    labels: Integers
    rows: Floats  # (n, M): values
    offsets: Integers  # (n + 1,)
    followers: Integers  # node after each outcome of node i: followers[offsets[i]] and beyond


class EndlessBounds:
    """Lower and upper bounds of one model without an end."""

    def __init__(self, model: LatentMDP, exact: bool, check: Callable[[], None]) -> None:
        self.model, self.exact, self.check = model, exact, check
        self.table = model.outcomes.informative()
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        self.allowed = model.allowed
        self.q, self.least = _q(model), _least(model)
        S, A, M = self.q.shape
        possible = self.allowed[:, :, None]
        masked = np.where(possible, self.q, -np.inf)
        self.context_actions = masked.argmax(axis=1)
        self.context_plans = _cross(model, self.context_actions)
        self.constant = model.initial_value()
        self.magnitude = max(float(self.q.max()), -float(self.least.min())) + abs(self.constant)
        self.breadth, self.close = 1 if exact else 2, 0.0
        vertices = np.where(model.terminal[:, None], 0.0, masked.max(axis=1))
        i, j = np.triu_indices(M, 1)
        edges = np.stack([vertices[:, j], vertices[:, i]], axis=-1)
        self.faces = Faces(vertices, edges, np.zeros((1, 1, 1, 1)))
        points = BeliefPoints(M, A)
        self.vectors = np.empty((0, M))
        self.depth = max(2, math.ceil(math.log(_DEPTH_SHARE) / math.log(model.discount)))
        self.points = [points] * (self.depth + 1)
        self.step = self._arrange()
        joint = model.weights[:, None] * model.initial
        weights = joint.sum(axis=0)
        states = np.flatnonzero(weights > 0.0)
        self.start_weights = weights[states]
        self.add(0, states, (joint[:, states] / weights[states]).T.copy())
        self.step = self._arrange()
        self.graph = self._evaluated()
        self.best_graph, self.best_lower, self.best_upper = self.graph, self.lower(), self.upper()

    @property
    def n_points(self) -> int:
        """Points of all states."""
        return len(self.points[0])

    def tighten(self, work: float, memory: float) -> None:
        """Bring in the edges and triangles of the simplex."""
        from latentmdp.planning.point_based.faces import endless_faces

        self.faces = endless_faces(self.model, self.table, self.q, work, memory, self.check)
        points = self.points[0]
        split_values(self.faces, points.states, points.beliefs, points.splits)
        self.step = self._arrange()

    def add(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Add points; returns their positions. Each starts with the best plan known there."""
        points, splits = self.points[0], np.empty(states.size)
        split_values(self.faces, states, beliefs, splits)
        limits = np.einsum("im,iam->ia", beliefs, self.q[states])
        limits[~self.allowed[states]] = -np.inf
        points.append(states, beliefs, limits, splits)
        vectors, labels = np.empty((states.size, self.vectors.shape[1])), np.empty(states.size, int)
        self._best_plans(states, beliefs, vectors, labels)
        points.labels[len(points) - states.size :] = labels
        self.vectors = np.concatenate([self.vectors, vectors])
        return np.arange(len(points) - states.size, len(points))

    def _best_plans(self, states, beliefs, vectors, labels):
        items = np.empty(states.size, np.int64)
        best_items(self.step, self.breadth, states, beliefs, items)
        vectors[:], labels[:] = self.step.rows[items], self.step.labels[items]

    def expand(self, t, chosen, weights, actions, faintest):
        """Successors (states, beliefs, weights, gaps) of chosen points; weights are discounted."""
        points = self.points[0]
        states, beliefs, chances, gaps = expand(
            self.table, self.model.n_actions, self.step, self.faces, self.close, self.breadth,
            points.states, points.beliefs, chosen, weights * self.model.discount, actions, faintest,
        )  # fmt: skip
        return states, beliefs, chances, gaps

    def sweep(self, visited: list[Integers]) -> None:
        """Improve and evaluate."""
        self.step = self._arrange()
        position = self._position()
        points = self.points[0]
        for at_depth in visited[::-1]:
            for first in range(0, at_depth.size, _BLOCK):
                self.check()
                chosen = at_depth[first : first + _BLOCK]
                self._upper_backup(chosen)
                items = position[chosen]
                self.step.uppers[items] = points.uppers[chosen]
                self.step.gains[items] = points.splits[chosen] - points.uppers[chosen]
                vectors, labels = self._alpha_backup(chosen)
                self._put(chosen, items, vectors, labels)
        everyone = np.arange(len(points))
        self._put(everyone, position, *self._alpha_backup(everyone))
        self.graph = self._evaluated()

    def _put(self, chosen, items, vectors, labels):
        points = self.points[0]
        old = np.einsum("im,im->i", points.beliefs[chosen], self.vectors[chosen])
        new = np.einsum("im,im->i", points.beliefs[chosen], vectors)
        better = new >= old
        chosen, items = chosen[better], items[better]
        self.vectors[chosen] = vectors[better]
        points.labels[chosen] = labels[better]
        self.step.rows[items] = vectors[better]
        self.step.columns[:, items] = vectors[better].T
        self.step.labels[items] = labels[better]

    def _alpha_backup(self, chosen):
        points = self.points[0]
        vectors, labels = np.empty((chosen.size, self.vectors.shape[1])), np.empty(chosen.size, int)
        alpha_backup(
            self.table, self.rewards, self.model.discount, self.step, self.breadth,
            points.states[chosen], points.beliefs[chosen], points.limits[chosen],
            0, chosen.size, vectors, labels,
        )  # fmt: skip
        return vectors, labels

    def _upper_backup(self, chosen):
        points = self.points[0]
        upper_backup(
            self.table, self.rewards, self.model.discount, self.step, self.faces, self.close,
            self.breadth, points.states, points.beliefs, chosen, points.limits,
        )  # fmt: skip

    def _evaluated(self) -> _Graph:
        """Fix what every plan goes on with, and give it the value of doing so."""
        step, table, A = self.step, self.table, self.model.n_actions
        S, M = self.model.n_states, self.model.n_contexts
        sizes = np.diff(step.starts[step.groups])
        states = np.repeat(np.arange(S), sizes)
        rows = states * A + step.labels
        offsets = np.concatenate([[0], np.cumsum(np.diff(table.starts)[rows])])
        followers = np.empty(offsets[-1], np.int64)
        beliefs = np.ascontiguousarray(step.beliefs.T)
        follow(table, A, step, self.breadth, states, beliefs, step.labels, offsets, 0, rows.size, followers)
        # the optimal policy of a context goes on with itself
        values, discount = step.rows.copy(), self.model.discount
        out = np.empty_like(values)
        tolerance = _EVALUATION * self.magnitude
        if hasattr(self, "best_lower"):
            tolerance = max(tolerance, .02 * (self.best_upper - self.best_lower))
        for it in range(_MOST_ITERATIONS):
            least, largest = evaluate_plans(
                table, self.rewards, discount, states, step.labels, offsets, followers, values, out
            )
            values, out = out, values
            if (largest - least) * discount / (1.0 - discount) <= tolerance:
                break
        self.iterations = it
        values += least * discount / (1.0 - discount)
        step.rows[:] = values
        step.columns[:, : len(values)] = values.T
        position = self._position()
        self.vectors = values[position].copy()
        return _Graph(states, step.labels.copy(), values, offsets, followers)

    def _position(self) -> Integers:
        S, M = self.model.n_states, self.model.n_contexts
        inverse = np.empty(self._order.size, np.int64)
        inverse[self._order] = np.arange(self._order.size)
        return inverse[S * M :]

    def prune(self, most: int) -> None:
        """Drop points whose plans are missed least: visits times the gain over the next plan."""
        g, M = self.graph, self.model.n_contexts
        points = self.points[0]
        n_start = self.start_weights.size
        start = np.zeros_like(g.rows)
        for i in range(n_start):
            idx = np.flatnonzero(g.states == points.states[i])
            start[idx[np.argmax(g.rows[idx] @ points.beliefs[i])]] += self.start_weights[i] * points.beliefs[i]
        visits = start.copy()
        for _ in range(200):
            change = visit_plans(self.table, self.model.n_actions, self.model.discount, g.states, g.labels, g.offsets, g.followers, start, visits)
            if change < 1e-4 / most:
                break
        position = self._position()
        gains = np.empty(position.size)
        second_values(self.step, position, gains)
        loss = visits[position].sum(axis=1) * gains
        self.loss = loss
        loss[:n_start] = np.inf
        kept = np.sort(np.argsort(-loss, kind="stable")[:most])
        for name in ("states", "beliefs", "limits", "splits", "labels"):
            setattr(points, name, getattr(points, name)[kept])
        self.vectors = self.vectors[kept]
        self.step = self._arrange()
        self.graph = self._evaluated()

    def lower(self) -> float:
        value = self.constant
        points = self.points[0]
        for i, weight in enumerate(self.start_weights):
            s = points.states[i]
            own = self.graph.rows[self.graph.states == s]
            value += float(weight * (own @ points.beliefs[i]).max())
        return value

    def upper(self) -> float:
        first = self.points[0].uppers[: self.start_weights.size]
        return self.constant + float(self.start_weights @ first)

    def keep_better(self) -> None:
        lower = self.lower()
        if lower > self.best_lower:
            self.best_graph = self.graph
            self.best_lower = lower
        upper = min(self.upper(), self.best_upper)
        self.best_upper = enclosing(self.best_lower, upper, self.magnitude)

    def closure(self):
        """Nodes that the best ones at the start can lead to."""
        g = self.best_graph
        points = self.points[0]
        wanted = np.zeros(g.states.size, bool)
        for i in range(self.start_weights.size):
            idx = np.flatnonzero(g.states == points.states[i])
            wanted[idx[np.argmax(g.rows[idx] @ points.beliefs[i])]] = True
        stack = list(np.flatnonzero(wanted))
        while stack:
            i = stack.pop()
            for f in g.followers[g.offsets[i] : g.offsets[i + 1]]:
                if not wanted[f]:
                    wanted[f] = True
                    stack.append(f)
        return wanted

    def _arrange(self) -> StepBounds:
        S, M = self.model.n_states, self.model.n_contexts
        points = self.points[0]
        states = np.concatenate([np.repeat(np.arange(S), M), points.states])
        beliefs = np.concatenate([np.tile(np.eye(M), (S, 1)), points.beliefs])
        vectors = np.concatenate([self.context_plans.reshape(-1, M), self.vectors])
        labels = np.concatenate([self.context_actions.ravel(), points.labels])
        order, starts, groups, leaders = arrange(states, beliefs, vectors, S, self.exact)
        self._order = order
        rows = vectors[order]
        columns = np.zeros((M, len(rows) + LANES))
        columns[:, : len(rows)] = rows.T
        uppers = np.concatenate([self.faces.vertices.ravel(), points.uppers])
        gains = np.concatenate([np.zeros(S * M), points.splits - points.uppers])
        masses = np.ascontiguousarray(beliefs[order].T)
        with np.errstate(divide="ignore", over="ignore"):
            inverses = 1.0 / masses
        return StepBounds(
            starts=starts, groups=groups, leaders=leaders, columns=columns, rows=rows,
            labels=labels[order], beliefs=masses, inverses=inverses, uppers=uppers[order],
            gains=gains[order], least=self.least, is_vertex=order < S * M, breadth=self.breadth,
        )  # fmt: skip


_DEPTH_SHARE = 1e-3
_EVALUATION = 1e-9
_MOST_ITERATIONS = 2000


def _backup(model, steps, rewards, V):
    S, A, M = rewards.shape
    return rewards + model.discount * row_sums(steps, steps.probs * V[steps.next_state]).reshape(S, A, M)


def _q(model):
    steps = model.outcomes.successors()
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    V = np.zeros((model.n_states, model.n_contexts)) + max(rewards.max(), 0) / (1 - model.discount)
    V[model.terminal] = 0.0
    for _ in range(100000):
        q = _backup(model, steps, rewards, V)
        new = np.where(model.allowed[:, :, None], q, -np.inf).max(axis=1)
        new[model.terminal] = 0.0
        done = np.abs(new - V).max() <= 1e-12 * np.abs(new).max()
        V = new
        if done:
            break
    return _backup(model, steps, rewards, V)


def _least(model):
    steps = model.outcomes.successors()
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    V = np.zeros((model.n_states, model.n_contexts)) + min(rewards.min(), 0) / (1 - model.discount)
    V[model.terminal] = 0.0
    for _ in range(100000):
        q = _backup(model, steps, rewards, V)
        new = np.where(model.allowed[:, :, None], q, np.inf).min(axis=1)
        new[model.terminal] = 0.0
        done = np.abs(new - V).max() <= 1e-12 * max(np.abs(new).max(), 1e-300)
        V = new
        if done:
            break
    return V


def _cross(model, actions):
    S, M = actions.shape
    steps = model.outcomes.successors()
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    out = np.empty((S, M, M))
    for k in range(M):
        V = np.zeros((S, M)) + min(rewards.min(), 0) / (1 - model.discount)
        V[model.terminal] = 0.0
        for _ in range(100000):
            q = _backup(model, steps, rewards, V)
            new = q[np.arange(S), actions[:, k]]
            new[model.terminal] = 0.0
            done = np.abs(new - V).max() <= 1e-12 * max(np.abs(new).max(), 1e-300)
            V = new
            if done:
                break
        out[:, k] = V
    return out
