"""Stationary lower and upper bounds on V* of a model without an end.

V*(s, b) does not depend on time, so one set of plans and one set of points serve at every step. A
plan is a node of a policy graph: an action, and for every outcome the node to go on with. With
these choices fixed, the values of all nodes solve

    alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m),

and acting by the label of the node that is best at the belief earns at least max_i <b, alpha_i>:
what the node goes on with is among what the next step may choose from. A sweep

    improves    backs up the points just visited, those reached last first, from the newest values,
                and then all points once: each plan gets the best action at its own belief, and goes
                on with the best plans there;
    evaluates   solves the equations above by iteration, and adds what iterating for ever would
                change at least: with d the least of T alpha - alpha over nodes and contexts, the
                solution is at least T alpha + d discount / (1 - discount).

The upper bound goes down at the visited points, in the same order. It starts from the values of the
problems with two and three contexts, which are iterated from above.

Plans are few: those whose loss would cost least are dropped as the search goes on. The cost of
dropping a plan is about (its discounted visits from the start) x (its gain, at its own belief, over
the best other plan there).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latentmdp._kernels import Links
from latentmdp._util import Flags, Floats, Integers
from latentmdp.engines import blocks, run_blocks
from latentmdp.model import LatentMDP
from latentmdp.outcomes import row_sums
from latentmdp.planning.base import enclosing
from latentmdp.planning.endless import TOLERANCE
from latentmdp.planning.graphs import settle
from latentmdp.planning.point_based.bounds import BeliefPoints, Bounds
from latentmdp.planning.point_based.faces import endless_faces
from latentmdp.planning.point_based.kernels import alpha
from latentmdp.planning.point_based.kernels.endless import (
    evaluate_plans,
    follow,
    gains_over_next,
    invert,
    visit,
)
from latentmdp.planning.point_based.kernels.faces import split_values
from latentmdp.planning.point_based.kernels.plans import best_plans
from latentmdp.planning.point_based.kernels.sawtooth import Found
from latentmdp.planning.point_based.standing import NO_RULER, Standing
from latentmdp.planning.qmdp import policy_values
from latentmdp.policies import AlphaVectorPolicy

_DEPTH_SHARE, _DEEPEST = 1e-3, 300
"""Walks go so deep that discount^depth is this small, as deeper beliefs hardly move the start, and
no deeper than this: by then a belief has met all it will, since the context does not change."""

_SETTLED = 0.02
"""Of the gap: values of a policy graph are iterated until no more than this is left to gain, which
is little beside what the next round of search brings."""

_FINEST = 1e-10
"""Of the largest value: what is left to gain need not be smaller, rounding is not far below."""

_MOST_ITERATIONS = 5_000
"""Of an evaluation: its result holds after any number, it is only less tight."""

_MANY_NODES = 8192
"""Nodes that one thread evaluates at a time: some milliseconds of work."""

_VISIT_STEPS = 50
"""Iterations for the visits of plans, which rank them only: the order is settled long before."""

_MOST_PLANS, _PLANS_A_STATE, _KEPT_SHARE = 20_000, 20, 0.7
"""Plans kept at most, more where there are many states; beyond that the least useful go, until this
share is left, so that the next rounds have room."""


class PlanGraph(NamedTuple):
    """A policy graph: nodes in the order of their states, each with its value in every context."""

    states: Integers  # (n,)
    labels: Integers  # (n,)
    values: Floats  # (n, M)
    offsets: Integers  # (n + 1,)
    followers: Integers  # of node i after each outcome of its action: from offsets[i] on
    vertex: Integers  # (n,): k where the node began as the optimal policy of context k, else -1


class EndlessBounds(Bounds):
    """Lower and upper bounds of a model without an end.

    The attributes are those of `Bounds` with one time step. There are no standing plans: the
    optimal policies of the contexts are points like others, the first after those of the start.
    `best_steps` is the `PlanGraph` that attains the lower bound.
    """

    best_steps: Any
    tolerance = TOLERANCE
    has_layers = False

    def __init__(
        self,
        model: LatentMDP,
        exact: bool,
        check: Callable[[], None],
        threads: int | None = 1,
    ) -> None:
        self.vectors = np.empty((0, model.n_contexts))  # plans of the points, from `prepare` on
        super().__init__(model, exact, check, threads)
        least = (_PLANS_A_STATE + model.n_contexts) * model.n_states
        self.most_plans = max(_MOST_PLANS, least)

    @property
    def depth(self) -> int:
        """How many steps a walk goes."""
        steps = math.ceil(math.log(_DEPTH_SHARE) / math.log(self.model.discount))
        return min(max(1, steps), _DEEPEST)

    def layer(self, t: int) -> BeliefPoints:
        """The points, whatever the time."""
        return self.points[0]

    def prepare(self, lattice: Floats) -> None:
        """Make points and plans of the contexts' optimal policies, and the first lower bound."""
        if self.steps:
            return
        model = self.model
        S, M = model.n_states, model.n_contexts
        plans = policy_values(model, self.context_actions, self.check)[0]
        self.standing = Standing(
            [np.empty((0, M))],
            [np.zeros((S, M, 0))],
            [np.empty((S, 0), np.int32)],
            [NO_RULER],
        )
        # Whether values can be raised: what is lost on the way, to an end, cannot.
        stays = row_sums(self.table, self.table.probs)[model.allowed.ravel()] > 1.0 - 1e-9
        self._goes_on = bool(stays.all()) and not model.terminal.any()
        points, starts = self.points[0], self.start_points.size
        self._first_own = starts  # where the contexts' own plans begin
        super().add(0, np.repeat(np.arange(S), M), np.tile(np.eye(M), (S, 1)))
        values = np.einsum("im,ikm->ik", points.beliefs[:starts], plans[points.states[:starts]])
        best = values.argmax(axis=1)
        self.vectors = np.concatenate([plans[points.states[:starts], best], plans.reshape(-1, M)])
        labels = self.context_actions[0]
        points.labels[:starts] = labels[points.states[:starts], best]
        points.labels[starts:] = labels.ravel()
        self._renew()
        self.graph = self._evaluated()
        self.keep_better()

    def tighten(self, work: float, memory: float) -> None:
        """Bring in the small faces of the simplex, see `endless_faces`."""
        points = self.points[0]
        self.faces = [
            endless_faces(self.model, self.table, self.q[0], work, memory, self.check, self.threads)
        ]
        split_values(self.faces[0], points.states, points.beliefs, points.splits)
        self._renew()

    def add(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Add points, each with the best plan known there; returns their positions."""
        positions = super().add(0, states, beliefs)
        if self.steps:
            step, items = self.steps[0], np.empty(states.size, np.int64)
            best_plans(step, states, beliefs, np.empty(states.size), items)
            self.vectors = np.concatenate([self.vectors, step.rows[items]])
            self.points[0].labels[positions] = step.labels[items]
        return positions

    def expand(
        self, t: int, chosen: Integers, weights: Floats, actions: Integers, faintest: float
    ) -> Found:
        """Successors of chosen points; weights are discounted."""
        return self._expanded(0, 0, chosen, self.model.discount * weights, actions, faintest)

    def sweep(self, visited: list[Integers]) -> None:
        """Improve and evaluate all plans, and lower the upper bounds of the visited points."""
        self._renew()
        for chosen in visited[::-1]:
            if chosen.size:
                self._upper_backup(0, chosen, self.steps[0])
                self._put_uppers(chosen)
                self._improve(chosen)
        self.gained = self._improve(np.arange(self.n_points))
        self.graph = self._evaluated()
        if not self.exact and self.n_points > self.most_plans:
            self._prune(int(_KEPT_SHARE * self.most_plans))

    def keep_better(self) -> None:
        """Keep the better of the bounds at the start before and now."""
        lower = self.lower()
        if lower > self.best_lower or self.best_steps is None:
            self.best_steps, self.best_lower = self.graph, max(lower, self.best_lower)
        upper = min(self.upper(), self.best_upper)
        self.best_upper = enclosing(self.best_lower, upper, self.magnitude)

    def policy(self, steps: Any) -> AlphaVectorPolicy:
        """The policy of a graph: the nodes that the best at the start lead to.

        A state that these never reach acts by the optimal policy of the likeliest context.
        """
        if steps is None:
            return self._informed_policy()
        graph, S = steps, self.model.n_states
        wanted = np.zeros(graph.states.size, np.bool_)
        mark_reached(graph, self._start_nodes(graph), wanted)
        missing = np.bincount(graph.states[wanted], minlength=S) == 0
        likeliest = graph.vertex == int(np.argmax(self.model.weights))
        mark_reached(graph, np.flatnonzero(likeliest & missing[graph.states]), wanted)
        wanted &= ~self.model.terminal[graph.states]
        counts = np.bincount(graph.states[wanted], minlength=S)
        return AlphaVectorPolicy(
            graph.values[wanted],
            graph.labels[wanted],
            np.concatenate([[0], np.cumsum(counts)]),
            self.model,
        )

    def _start_nodes(self, graph: PlanGraph) -> Integers:
        """The best node at each belief of the start."""
        first = np.searchsorted(graph.states, np.arange(self.model.n_states + 1))
        points, nodes = self.points[0], []
        for s, belief in zip(points.states[self.start_points], points.beliefs[self.start_points]):
            values = (graph.values[first[s] : first[s + 1]] * belief).sum(axis=1)
            nodes.append(int(first[s] + np.argmax(values)))
        return np.array(nodes)

    def _renew(self) -> None:
        """Arrange the plans and points as they are now."""
        step = self._arrange(0, self.vectors, self.points[0].labels)
        self.steps = [step._replace(tops=step.starts[1:].copy())]  # gains come as a sweep goes on
        self._place = np.empty_like(step.order)
        self._place[step.order] = np.arange(step.order.size)

    def _improve(self, chosen: Integers) -> float:
        """Back up plans, in place, where the new one is no worse; the largest gain."""
        points, step = self.points[0], self.steps[0]
        states, beliefs = points.states[chosen], points.beliefs[chosen]
        vectors, labels = np.zeros(beliefs.shape), np.zeros(chosen.size, np.int64)
        limits = points.limits[chosen]
        run_blocks(
            alpha.alpha_backup, self.spans(chosen.size), self.threads, self.check,
            self.table, self.rewards, self.model.discount, step, self.breadth, states, beliefs,
            limits, vectors, labels,
        )  # fmt: skip
        gained = np.einsum("im,im->i", beliefs, vectors - self.vectors[chosen])
        better = gained >= 0.0
        chosen, vectors, labels = chosen[better], vectors[better], labels[better]
        items = self._place[chosen]
        self.vectors[chosen], points.labels[chosen] = vectors, labels
        step.rows[items], step.columns[:, items], step.labels[items] = vectors, vectors.T, labels
        return float(gained.max(initial=0.0))

    def _put_uppers(self, chosen: Integers) -> None:
        """Write the upper bounds of points where a search reads them."""
        points, step = self.points[0], self.steps[0]
        items, uppers = self._place[chosen], points.limits[chosen].max(axis=1)
        uppers = np.minimum(points.splits[chosen], uppers)
        step.uppers[items], step.gains[items] = uppers, points.splits[chosen] - uppers

    def _evaluated(self) -> PlanGraph:
        """Fix what every plan goes on with, and give it the value of doing so."""
        step, table, S, A = self.steps[0], self.table, self.model.n_states, self.model.n_actions
        states = np.repeat(np.arange(S), np.diff(step.starts[step.groups]))
        outcomes = np.diff(table.starts)[states * A + step.labels]
        offsets = np.concatenate([[0], np.cumsum(outcomes)])
        followers = np.empty(offsets[-1], np.int32)
        beliefs = np.ascontiguousarray(step.beliefs.T)
        run_blocks(
            follow, self.spans(states.size), self.threads, self.check, table, A, step,
            self.breadth, states, beliefs, step.labels, offsets, followers,
        )  # fmt: skip
        discount = self.model.discount
        share = discount / (1.0 - discount)
        gap = 0.0 if self.exact else self.best_upper - self.best_lower
        wanted = max(_FINEST * self.magnitude, _SETTLED * gap)

        links = Links(offsets, followers, np.zeros(states.size, np.bool_))

        def evaluate(start: int, stop: int, now: Floats, after: Floats) -> None:
            evaluate_plans(
                start, stop, table, self.rewards, discount, states, step.labels, links, offsets,
                offsets, now, after,
            )  # fmt: skip

        def run(kernel: Callable[..., None], total: int, *arguments: Any) -> None:
            spans = blocks(total, _MANY_NODES)
            run_blocks(kernel, spans, self.threads, self.check, *arguments)

        values, least, _ = settle(
            evaluate, states.size, step.rows.copy(), self._goes_on, lambda _: wanted / share,
            _MOST_ITERATIONS, run,
        )  # fmt: skip
        values[~self.model.terminal[states]] += share * least
        step.rows[:], step.columns[:, : len(values)] = values, values.T
        self.vectors = values[self._place]
        own = step.order - self._first_own  # position among the contexts' own plans
        is_own = (own >= 0) & (own < S * self.model.n_contexts)
        vertex = np.where(is_own, own % self.model.n_contexts, -1)
        return PlanGraph(states, step.labels.copy(), values, offsets, followers, vertex)

    def _prune(self, most: int) -> None:
        """Drop points but for the `most` whose plans would be missed most."""
        graph, points = self.graph, self.points[0]
        first = self._first_own + self.model.n_states * self.model.n_contexts
        start = np.zeros_like(graph.values)
        for node, weight, belief in zip(
            self._start_nodes(graph), self.start_weights, points.beliefs[self.start_points]
        ):
            start[node] += weight * belief
        visits, other = start.copy(), np.empty_like(start)
        inverse = invert(
            self.table, self.model.n_actions, graph.states, graph.labels, graph.offsets,
            graph.followers,
        )  # fmt: skip

        for _ in range(_VISIT_STEPS):
            run_blocks(
                visit, blocks(len(start), _MANY_NODES), self.threads, self.check, self.table.probs,
                self.model.discount, inverse, start, visits, other,
            )  # fmt: skip
            visits, other = other, visits
        step, gains = self.steps[0], np.empty(self.n_points)
        run_blocks(
            gains_over_next, self.spans(self.n_points), self.threads, self.check, step,
            graph.states, self._place, gains,
        )  # fmt: skip
        loss = visits[self._place].sum(axis=1) * gains
        loss[:first] = np.inf
        loss[np.concatenate(self.starts)] = np.inf
        kept = np.sort(np.argsort(-loss, kind="stable")[: max(most, int(np.isinf(loss).sum()))])
        points.keep(kept)
        self.starts = [np.searchsorted(kept, points) for points in self.starts]
        self.vectors = self.vectors[kept]
        self._renew()
        self.graph = self._evaluated()


def mark_reached(graph: PlanGraph, nodes: Integers, marked: Flags) -> None:
    """Mark the nodes given, and all that they lead to."""
    new = nodes[~marked[nodes]]
    while new.size:
        marked[new] = True
        sizes = graph.offsets[new + 1] - graph.offsets[new]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        reached = np.unique(graph.followers[np.repeat(graph.offsets[new], sizes) + within])
        new = reached[~marked[reached]]


def bounds_of(
    model: LatentMDP, exact: bool, check: Callable[[], None], threads: int | None = 1
) -> Bounds:
    """The bounds of a model, with or without an end."""
    kind = Bounds if model.horizon is not None else EndlessBounds
    return kind(model, exact, check, threads)
