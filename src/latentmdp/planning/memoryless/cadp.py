"""Coordinate ascent over memoryless policies, from several starts [steimle2021; su2023].

A memoryless policy earns sum_t sum_{s,m} y_t(s, m) R_m(s, pi_t(s)) with the occupancy
y_t(s, m) = w_m discount^t P_m^pi(s_t = s), in which every method of `Memoryless` works.

The first start is weight-select-update: going back in time, each (t, s) takes the action that is
best on average over the contexts, given the rules already chosen for later times. Then

    repeat:  y_t(s, m) = w_m discount^t P_m^pi(s_t = s)                     for all t
             for t = H..1:  pi_t(s) = argmax_a sum_m y_t(s, m) Q^pi_{t,m}(s, a)

until nothing improves. A sweep never lowers the value: the action in force is always a candidate.
Of a stationary policy, as it always is without an end, whole sets of states change their actions
where sum_m y(s, m) (Q^pi_m(s, a) - V^pi_m(s)), summed over time, says that it pays; they are halved
until the value rises. Without an end it is valued by linear solves.

Other starts are each context's own optimal policy and random policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latentmdp._kernels import bellman
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.chains import policy_chain
from latentmdp.planning.endless import best_from_above
from latentmdp.planning.limits import LimitReached
from latentmdp.planning.memoryless import kernels
from latentmdp.planning.qmdp import (
    Check,
    PlanningRows,
    layer_blocks,
    planning_rows,
    policy_values,
    q_values,
)

_TOLERANCE = 1e-10
"""Values closer than this share of the informed bound count as equal: rounding in sums over time
and states stays below it, and differences that small would keep an ascent going for nothing."""

_SMALLEST = float(np.finfo(np.float64).tiny)


class Informed(NamedTuple):
    """What is known from solving each context alone."""

    policy: Indices  # (H or 1, S): best on average if the context is revealed after this step
    alone: Indices  # (H or 1, S, M): the best actions of each context
    upper: float  # Q-MDP's bound
    size: float  # of the values at the start, all taken positive


@dataclass(frozen=True)
class MemorylessProblem:
    """A model in context-last tables; `check` is called now and then, and may raise."""

    model: LatentMDP
    stationary: bool
    check: Check
    rows: PlanningRows = field(repr=False)

    @classmethod
    def of(
        cls, model: LatentMDP, stationary: bool, check: Check = lambda: None
    ) -> MemorylessProblem:
        """The problem of a model; without an end every policy is stationary."""
        return cls(model, stationary or model.horizon is None, check, planning_rows(model))

    @property
    def is_endless(self) -> bool:
        """Whether there is no end, so that rules are valued by linear solves."""
        return self.model.horizon is None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """H (1 where there is no end), S, A, M."""
        M, S, A, _ = self.model.dimensions
        return self.model.n_layers, S, A, M

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a policy: (H, S), or (1, S) if stationary."""
        H, S, _, _ = self.sizes
        return (1 if self.stationary else H), S

    @cached_property
    def open(self) -> Flags:
        """What may be taken, (S, A); action 0 in a terminal state, where it is the end."""
        open_ = self.model.allowed.copy()
        open_[self.model.terminal, 0] = True
        return open_

    @cached_property
    def start(self) -> Floats:
        """y_0, (S, M)."""
        return np.ascontiguousarray((self.model.weights[:, None] * self.model.initial).T)

    @cached_property
    def informed(self) -> Informed:
        """Each context solved alone; if `check` raises on the way, the bound is less tight."""
        return _informed_without_end(self) if self.is_endless else _informed_with_end(self)

    @property
    def tolerance(self) -> float:
        """The absolute difference below which two values count as equal."""
        share = 10.0 * _TOLERANCE if self.is_endless else _TOLERANCE  # ten times what q may be off
        return share * max(self.informed.size, _SMALLEST)

    @property
    def ascent_bytes(self) -> float:
        """The memory of a round of coordinate ascent, and of what is known before."""
        H, S, _, M = self.sizes
        layers = 1 if self.is_endless else H
        known = self.rows.steps.probs.nbytes + 3.0 * self.rows.rewards.nbytes
        return known + 4.0 * np.prod(self.shape) * M + 8.0 * (layers + 2) * S * M

    def over_time(
        self, kernel: Callable[..., None], layers: int, *arguments: Any, back: bool = False
    ) -> None:
        """Run a kernel over the layers, from the last on if `back`, looking at the clock."""
        spans = layer_blocks(layers, self.rows.steps.probs.size)
        for first, last in reversed(spans) if back else spans:
            self.check()
            kernel(first, last, *arguments)

    def best(self, scores: Floats) -> Indices:
        """The best action (..., S) that may be taken, by scores (..., S, A)."""
        if not self.open.all():
            scores = np.where(self.open, scores, -np.inf)
        return scores.argmax(axis=-1).astype(np.int32)

    def value(self, policy: Indices) -> float:
        """What a policy earns."""
        values = policy_values(self.model, policy[:, :, None], self.check)[0, :, 0]
        return self.worth(values)

    def worth(self, values: Floats) -> float:
        """What is earned on average if (s, m) are worth so much, (S, M), at the start."""
        return self.model.initial_value() + float((self.start * values).sum())

    def row_values(self, later: Floats) -> Floats:
        """R_m(s, a) + discount sum_s' T_m(s' | s, a) later_m(s') of every row, (R, M)."""
        steps, rewards = self.rows.problem
        q, rows = np.empty(rewards.shape), np.arange(len(rewards))[:, None]
        discount = self.model.duration.planning_discount
        bellman.follow(0, len(rows), steps, rewards, rows, discount * later, q)
        return q

    def by_action(self, q: Floats) -> Floats:
        """Values (R, ...) of rows as (S, A, ...), 0 where an action is not allowed."""
        spread = np.zeros((*self.open.shape, *q.shape[1:]))
        spread[self.model.allowed] = q
        return spread

    def common_bound(self, q: Floats) -> float:
        """What is earned if the first action, worth q (R, M), is the same in all contexts."""
        state = np.repeat(np.arange(len(self.start)), np.diff(self.rows.steps.first))
        scores = self.by_action((self.start[state] * q).sum(axis=1))
        best = np.where(self.open, scores, -np.inf).max(axis=1)
        return self.model.initial_value() + float(best.sum())

    def relax(self, rules: Indices, excluded: bool = False) -> tuple[float, Floats]:
        """A bound on all policies with these rules, and what each action would gain.

        Each context acts by itself where the rules (H or 1, S) are -1; with all of them fixed, the
        bound is the value of the policy. The gains (H or 1, S, A) are explained at
        `kernels.disagree`: -inf for what may not be taken, and for what the rules exclude unless
        `excluded`.
        """
        if self.is_endless:
            return _relax_without_end(self, rules[0], excluded)
        H, S, A, M = self.sizes
        steps, rewards, discount = *self.rows.problem, self.model.discount
        q, V, y = np.empty((H, *rewards.shape)), np.zeros((H + 1, S, M)), np.empty((2, S, M))
        y[0] = self.start
        gains = np.empty((*self.shape, A))
        common = discount, self.rows.number, rules, excluded, q, V
        self.over_time(kernels.relax, H, steps, rewards, *common, gains, back=True)
        self.over_time(kernels.disagree, H, steps, *common, y, gains)
        return self.worth(V[0]), gains

    def sweep(self, policy: Indices) -> None:
        """One round of coordinate ascent on a policy (H, S), in place."""
        H, S, _, M = self.sizes
        y, discount = np.zeros((H, S, M)), self.model.duration.planning_discount
        y[0] = self.start
        common = self.rows.steps, discount, self.rows.number, policy, y
        self.over_time(kernels.occupy, H - 1, *common)
        self.improve(policy, y)

    def improve(self, policy: Indices, y: Floats) -> None:
        """Take, going back in time, the actions that are best on average under y (H, S, M)."""
        # The discount breaks ties for the sooner; policies are valued by the model's own.
        (steps, rewards), discount = self.rows.problem, self.model.duration.planning_discount
        rest = y, np.zeros(y.shape[1:]), np.empty(rewards.shape), policy
        common = steps, rewards, discount, self.rows.number
        self.over_time(kernels.improve, len(y), *common, *rest, back=True)


def _informed_with_end(problem: MemorylessProblem) -> Informed:
    """`MemorylessProblem.informed` in one pass back in time, which holds one layer of values.

    If the pass ends before layer t, its values are those of H - t steps, and in each of the t
    steps that are put after them at most the largest reward is earned.
    """
    H, S, A, M = problem.sizes
    steps, rewards = problem.rows.problem
    policy = np.tile(problem.best(np.zeros((S, A))), (H, 1))
    alone = np.zeros((*problem.shape, M), np.int32)
    best, chosen, missing = np.zeros((S, M)), np.empty((S, M), np.int64), H
    try:
        for t in range(H - 1, -1, -1):
            problem.check()
            q = problem.row_values(best)
            policy[t] = problem.best(problem.by_action(q @ problem.model.weights))
            bellman.greedy_rows(steps.first, q, chosen)
            best = np.where(chosen >= 0, q[chosen, np.arange(M)], 0.0)
            if t < len(alone):
                alone[t] = np.where(chosen >= 0, problem.rows.action[chosen], 0)
            missing = t
    except LimitReached:
        pass
    further = missing * max(float(rewards.max(initial=0.0)), 0.0)
    upper = problem.worth(best) + further if missing else problem.common_bound(q)
    size = float((problem.start * np.abs(best)).sum()) + further
    return Informed(policy[: problem.shape[0]], alone, upper, size)


def _informed_without_end(problem: MemorylessProblem) -> Informed:
    """`MemorylessProblem.informed` by policy iteration in each context."""
    model = problem.model
    q = q_values(model, problem.check)[0]
    policy, alone = problem.best(q @ model.weights), problem.best(np.moveaxis(q, -1, 0)).T
    upper = problem.common_bound(q[model.allowed])
    return Informed(policy[None], alone[None], upper, float(np.abs(q).max()))


@dataclass
class Incumbent:
    """The best policy so far with its value, and the least upper bound."""

    policy: Indices
    lower: float
    upper: float
    magnitude: float  # the largest absolute value that enters the bounds
    n_iter: int = 0

    @classmethod
    def first(cls, problem: MemorylessProblem) -> Incumbent:
        """The policy of `informed`, under Q-MDP's bound; if `check` raises, valued carefully."""
        informed = problem.informed
        try:
            lower = problem.value(informed.policy)
        except LimitReached:  # of any policy no less is known
            least = min(float(problem.rows.rewards.min(initial=0.0)), 0.0)
            steps = problem.model.duration.discounted_steps()
            lower = problem.model.initial_value() + least * steps
        incumbent = cls(informed.policy, lower, np.inf, max(informed.size, abs(lower)))
        incumbent.prove(informed.upper)
        return incumbent

    def offer(self, policy: Indices, value: float) -> None:
        """Keep a policy if it is better; `CrossedBoundsError` if no policy can be that good."""
        if value > self.lower:
            self.policy, self.lower = policy.copy(), value
            self.prove(self.upper)

    def prove(self, upper: float) -> None:
        """Keep a bound if it is tighter; `CrossedBoundsError` if a policy attains more."""
        self.upper = enclosing(self.lower, min(self.upper, upper), self.magnitude)


def coordinate_ascent(
    problem: MemorylessProblem, incumbent: Incumbent, starts: Iterator[Indices]
) -> None:
    """Ascend from one start after another; what is found on the way counts if `check` raises."""
    for start in starts:
        for policy, value in ascent(problem, start):
            incumbent.offer(policy, value)
            incumbent.n_iter += 1
            problem.check()


def ascent(problem: MemorylessProblem, start: Indices) -> Iterator[tuple[Indices, float]]:
    """The policies on the way up with their values, the last one where it ends.

    A policy may be changed in place to become the next: who keeps one must copy it.
    """
    policy = np.array(start, dtype=np.int32)
    if problem.stationary:
        yield from _ascent_by_sets(problem, policy)
    else:
        value, tolerance = -np.inf, problem.tolerance
        while True:
            problem.sweep(policy)
            improved = problem.value(policy)
            yield policy, improved
            if improved <= value + tolerance:
                return
            value = improved


def _ascent_by_sets(problem: MemorylessProblem, policy: Indices) -> Iterator[tuple[Indices, float]]:
    """Change all states that seem to gain, or half of them, and so on, while the value rises.

    Where no such set gains, one state after the other.
    """
    while True:
        problem.check()
        value, (gains,) = problem.relax(policy, excluded=True)
        yield policy, value
        best, gain = gains.argmax(axis=1), gains.max(axis=1)
        order = np.argsort(-gain, kind="stable")[: int((gain > problem.tolerance).sum())]
        halves = (order[: order.size >> k] for k in range(order.size.bit_length()))
        for states in (*halves, *order[1:, None]):
            changed = policy.copy()
            changed[0, states] = best[states]
            risen = problem.value(changed)
            yield (changed, risen) if risen > value else (policy, value)
            if risen > value + problem.tolerance:
                break
        else:
            return
        policy = changed


def _chain_visits(problem: MemorylessProblem, rules: Integers) -> Floats:
    """Discounted visits (S, M), weighted by the start, where context m follows rules[:, m]."""
    rows, start, discount = problem.rows, problem.start, problem.model.discount
    chosen = rows.of_actions(rules[None])[0]

    def solved(m: int) -> Floats:
        context = np.array([m])
        right = start[:, context]
        return policy_chain(
            rows.steps, discount, chosen[:, m], right, context, transposed=True, check=problem.check
        )

    return np.concatenate([solved(m) for m in range(start.shape[1])], axis=1)


def _relax_without_end(
    problem: MemorylessProblem, rules: Indices, excluded: bool
) -> tuple[float, Floats]:
    """`MemorylessProblem.relax` where there is no end, by policy iteration in each context."""
    rows, M, discount = problem.rows, problem.sizes[3], problem.model.discount
    chosen = rules[:, None]
    permitted = problem.open & ((chosen < 0) | (chosen == np.arange(problem.sizes[2])))
    if (rules >= 0).all():
        values = policy_values(problem.model, rules[None, :, None], problem.check)[0, :, 0]
    else:
        rewards = rows.rewards.copy()
        rewards[~permitted[problem.model.allowed]] = -np.inf
        values = best_from_above(rows.steps, rewards, discount, M, problem.check)
    q = problem.by_action(problem.row_values(values))
    visits = _chain_visits(problem, np.where(permitted[:, :, None], q, -np.inf).argmax(axis=1))
    gains = np.einsum("sm,sam->sa", visits, q - values[:, None, :])
    gains[~(problem.open if excluded else permitted)] = -np.inf
    return problem.worth(values), gains[None]


def weight_select_update(problem: MemorylessProblem) -> Indices:
    """The policy of weight-select-update, shape (H, S) [steimle2021].

    Without an end, the actions that are best if the context is revealed after the first step.
    """
    if problem.is_endless:
        return problem.informed.policy
    H, S, A, _ = problem.sizes
    policy = np.tile(problem.best(np.zeros((S, A))), (H, 1))
    problem.improve(policy, np.tile(problem.start.sum(axis=0), (H, S, 1)))
    return policy


def all_starts(
    problem: MemorylessProblem, random_starts: int, rng: np.random.Generator
) -> Iterator[Indices]:
    """Weight-select-update, each context's own policy, and random ones."""
    _, S, A, M = problem.sizes
    yield weight_select_update(problem)[: problem.shape[0]]
    for m in range(M):
        yield problem.informed.alone[..., m]
    ranked = np.argsort(~problem.open, axis=1, kind="stable")  # those that may be taken first
    number = problem.open.sum(axis=1)
    for _ in range(random_starts):
        rank = rng.integers(A, size=problem.shape, dtype=np.int32) % number
        yield ranked[np.arange(S), rank].astype(np.int32)
