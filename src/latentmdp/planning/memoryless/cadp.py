"""Coordinate ascent over memoryless policies, from several starts [steimle2021; su2023].

A memoryless policy earns sum_t sum_{s,m} y_t(s, m) R_m(s, pi_t(s)) with the occupancy
y_t(s, m) = w_m discount^t P_m^pi(s_t = s), in which every method of `Memoryless` works.

The first start is weight-select-update: going back in time, each (t, s) takes the action that is
best on average over the contexts, given the rules already chosen for later times. Then

    repeat:  y_t(s, m) = w_m discount^t P_m^pi(s_t = s)                     for all t
             for t = H..1:  pi_t(s) = argmax_a sum_m y_t(s, m) Q^pi_{t,m}(s, a)

until nothing improves. A sweep never lowers the value: the action in force is always a candidate.
A stationary policy changes one state at a time, at all times at once.

Without an end the policy is stationary. It is valued by linear solves, and whole sets of states
change their actions where sum_m y(s, m) (Q^pi_m(s, a) - V^pi_m(s)) says that it pays, halved until
the value rises; where there are few states, every change of a single one is tried too.

Other starts are each context's own optimal policy and random policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latentmdp._kernels import Successors, bellman
from latentmdp._util import Flags, Floats, Indices, Integers, require_memory
from latentmdp.engines import blocks, run_blocks
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.chains import policy_chain, solve_dense
from latentmdp.planning.endless import best_from_above
from latentmdp.planning.memoryless import kernels
from latentmdp.planning.qmdp import planning_rows, policy_values, q_values

Check = Callable[[], None]

_TOLERANCE = 1e-10
"""Values closer than this share of the informed bound count as equal: rounding in sums over time
and states stays below it, and differences that small would keep an ascent going for nothing."""

_SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class MemorylessProblem:
    """A model in context-last tables, and what each context alone is worth."""

    model: LatentMDP
    steps: Successors  # with a row for each (s, a)
    open: Flags  # (S, A): what may be taken; action 0 in a terminal state, where it is the end
    rewards: Floats  # (S, A, M), hidden bonus included
    start: Floats  # (S, M): y_0
    values: Floats  # (H or 1, S, A, M): Q_{t,m}(s, a) of each context's optimal policy
    stationary: bool

    @classmethod
    def of(
        cls,
        model: LatentMDP,
        stationary: bool,
        values: Floats | None = None,
        check: Check | None = None,
    ) -> MemorylessProblem:
        """The problem of a model, with its `q_values` if they are known; `check` may raise."""
        M, S, A, _ = model.dimensions
        require_memory(
            3.0 * 8.0 * model.n_layers * S * A * M, "the values of all times, states and actions"
        )
        size = max(1, int(1e7 / (M * S)))  # entries that are made between two looks at the clock

        def run(kernel: Callable[..., None], total: int, *arguments: Any) -> None:
            run_blocks(kernel, blocks(total, size), 1, check, *arguments)

        table = model.successors(run)
        open_ = model.allowed.copy()
        open_[model.terminal, 0] = True
        return cls(
            model=model,
            steps=Successors(np.arange(S + 1) * A, table.starts, table.next_state, table.probs),
            open=open_,
            rewards=np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1)),
            start=np.ascontiguousarray((model.weights[:, None] * model.initial).T),
            values=q_values(model, check) if values is None else values,
            stationary=stationary or model.horizon is None,
        )

    @property
    def constant(self) -> float:
        """The part of the value that no policy changes."""
        return self.model.initial_value()

    @property
    def is_endless(self) -> bool:
        """Whether there is no end, so that rules are valued by linear solves."""
        return self.model.horizon is None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """H (1 where there is no end), S, A, M."""
        H, S, A, M = self.values.shape
        return H, S, A, M

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a policy: (H, S), or (1, S) if stationary."""
        H, S, _, _ = self.sizes
        return (1 if self.stationary else H), S

    @property
    def step_cost(self) -> float:
        """Multiplications of a backup of all times and actions."""
        return float(self.values.shape[0]) * self.steps.probs.size

    def best(self, scores: Floats) -> Indices:
        """The best action (..., S) that may be taken, by scores (..., S, A)."""
        if not self.open.all():
            scores = np.where(self.open, scores, -np.inf)
        return scores.argmax(axis=-1).astype(np.int32)

    def bound(self) -> float:
        """Q-MDP's bound: the first action is the same in all contexts, later ones are informed."""
        first = np.einsum("sm,sam->sa", self.start, self.values[0])
        return float(np.where(self.open, first, -np.inf).max(axis=1).sum())

    def value(self, policy: Indices) -> float:
        """What a policy earns, without the constant."""
        if self.is_endless:
            values = _chain_values(self, policy[0])
        else:
            values = policy_values(self.model, policy[:, :, None])[0, :, 0]
        return float((self.start * values).sum())

    def action_values(self, later: Floats) -> Floats:
        """R_m(s, a) + discount sum_s' T_m(s' | s, a) later_m(s'), (S, A, M)."""
        q = np.empty(self.rewards.shape)
        _, S, A, M = self.sizes
        rows = np.arange(S * A)[:, None]
        steps, rewards, discount, _ = self.tables
        later = discount * later
        bellman.follow(0, S * A, steps, rewards, rows, later, q.reshape(S * A, M))
        return q

    def relax(self, rules: Indices, excluded: bool = False) -> tuple[float, Floats]:
        """A bound on all policies with these rules, and what each action would gain.

        Each context acts by itself where the rules (H or 1, S) are -1; with all of them fixed, the
        bound is the value of the policy. The gains (H or 1, S, A) are explained at
        `kernels.relax`: -inf for what may not be taken, and for what the rules exclude unless
        `excluded`.
        """
        if self.is_endless:
            return _relax_without_end(self, rules[0], excluded)
        H, S, A, M = self.sizes
        gains, q = np.empty((*self.shape, A)), np.empty((H, S * A, M))
        bound = kernels.relax(*self.tables, self.rows, H, rules, excluded, q, gains)
        return float(bound), gains

    @property
    def tables(self) -> tuple[Successors, Floats, float, Floats]:
        """What kernels read: steps, rewards (S A, M), discount and start.

        The discount breaks ties for the sooner; policies are valued by the model's own.
        """
        rewards = self.rewards.reshape(-1, self.sizes[3])
        return self.steps, rewards, self.model.duration.planning_discount, self.start

    @cached_property
    def rows(self) -> Integers:
        """The number s A + a of each row that may be taken, -1 for the others."""
        return np.where(self.open.ravel(), np.arange(self.open.size), -1)

    @cached_property
    def tolerance(self) -> float:
        """The absolute difference below which two values count as equal."""
        if self.is_endless:  # ten times what a bound on the optimal values may be off
            return 10.0 * _TOLERANCE * max(float(np.abs(self.values).max()), _SMALLEST)
        informed = np.einsum("sm,sam->sam", self.start, np.abs(self.values[0])).max(axis=1).sum()
        return _TOLERANCE * max(float(informed), _SMALLEST)


@dataclass
class Incumbent:
    """The best policy so far with its value, and the least upper bound, without the constant."""

    policy: Indices
    lower: float
    upper: float
    magnitude: float  # the largest absolute value of an action in any context, at any time
    n_iter: int = 0

    @classmethod
    def first(cls, problem: MemorylessProblem) -> Incumbent:
        """Weight-select-update as it is, under Q-MDP's bound."""
        policy = weight_select_update(problem)[: problem.shape[0]]
        incumbent = cls(policy, problem.value(policy), np.inf, float(np.abs(problem.values).max()))
        incumbent.prove(problem.bound())
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
    problem: MemorylessProblem,
    incumbent: Incumbent,
    random_starts: int,
    rng: np.random.Generator,
    check: Check,
) -> None:
    """Ascend from one start after another; what is found on the way counts if `check` raises."""
    for start in _starts(problem, random_starts, rng):
        for policy, value in ascent(problem, start):
            incumbent.offer(policy, value)
            incumbent.n_iter += 1
            check()


def ascent(problem: MemorylessProblem, start: Indices) -> Iterator[tuple[Indices, float]]:
    """The policies on the way up with their values, the last one where it ends.

    A policy may be changed in place to become the next: who keeps one must copy it.
    """
    policy = np.array(start, dtype=np.int32)
    if problem.is_endless:
        yield from _endless_ascent(problem, policy)
    elif problem.stationary:
        yield from _stationary_ascent(problem, policy)
    else:
        value, tolerance = -np.inf, problem.tolerance
        while True:
            improved = kernels.sweep(*problem.tables, problem.rows, policy)
            yield policy, problem.value(policy)
            if improved <= value + tolerance:
                return
            value = improved


def _stationary_ascent(
    problem: MemorylessProblem, policy: Indices
) -> Iterator[tuple[Indices, float]]:
    """One state after the other; many together first, where that would take long."""
    _, S, A, _ = problem.sizes
    # A round in which every state tries every action values S A policies: where that takes more
    # than about a second, sets of states change together first.
    if S * A * problem.step_cost / A > 2e8:
        for step in _ascent_by_sets(problem, policy):
            yield step
            policy, _ = step
    tolerance, value = problem.tolerance, problem.value(policy)
    yield policy, value
    while True:
        before = value
        for s in range(S):
            others = problem.open[s] & (np.arange(A) != policy[0, s])
            for a in np.flatnonzero(others):
                changed = policy.copy()
                changed[0, s] = a
                risen = problem.value(changed)
                if risen > value + tolerance:
                    policy, value = changed, risen
            yield policy, value
        if value <= before + tolerance:
            return


def _endless_ascent(problem: MemorylessProblem, policy: Indices) -> Iterator[tuple[Indices, float]]:
    """By sets of states; then one change of a single state at a time, where there are few."""
    while True:
        value = -np.inf
        for step in _ascent_by_sets(problem, policy):
            yield step
            policy, value = step
        if problem.sizes[1] > 200:  # to try every change of one state takes an inverse
            return
        rises = _single_rises(problem, policy)
        s, a = np.unravel_index(int(np.argmax(rises)), rises.shape)
        changed = policy.copy()
        changed[0, s] = a
        if rises[s, a] <= problem.tolerance or problem.value(changed) <= value:
            return
        policy = changed


def _ascent_by_sets(problem: MemorylessProblem, policy: Indices) -> Iterator[tuple[Indices, float]]:
    """Change all states that seem to gain, or half of them, and so on, while the value rises."""
    tolerance = problem.tolerance
    while True:
        value, (gains,) = problem.relax(policy, excluded=True)
        yield policy, value
        best = gains.argmax(axis=1)
        gain = gains.max(axis=1)
        order = np.argsort(-gain, kind="stable")[: int((gain > 0.0).sum())]
        while order.size:
            changed = policy.copy()
            changed[0, order] = best[order]
            risen = problem.value(changed)
            yield (changed, risen) if risen > value else (policy, value)
            if risen > value + tolerance:
                break
            order = order[: order.size // 2]
        if not order.size:
            return
        policy = changed


def _chain_values(problem: MemorylessProblem, rule: Indices) -> Floats:
    """Values (S, M) of a rule (S,) that is followed without an end."""
    _, S, A, M = problem.sizes
    rows = np.arange(S) * A + rule
    earned = problem.rewards.reshape(S * A, M)[rows]
    return policy_chain(problem.steps, problem.model.discount, rows, earned)


def _chain_visits(problem: MemorylessProblem, rules: Integers) -> Floats:
    """Discounted visits (S, M), weighted by the start, where context m follows rules[:, m]."""
    _, S, A, M = problem.sizes
    rows, start, discount = np.arange(S)[:, None] * A + rules, problem.start, problem.model.discount

    def solved(m: int) -> Floats:
        context = np.array([m])
        right = start[:, context]
        return policy_chain(problem.steps, discount, rows[:, m], right, context, transposed=True)

    return np.concatenate([solved(m) for m in range(M)], axis=1)


def _relax_without_end(
    problem: MemorylessProblem, rules: Indices, excluded: bool
) -> tuple[float, Floats]:
    """`MemorylessProblem.relax` where there is no end, by policy iteration in each context."""
    _, S, A, M = problem.sizes
    permitted = problem.open & ((rules[:, None] < 0) | (rules[:, None] == np.arange(A)))
    if (rules >= 0).all():
        values = _chain_values(problem, rules)
    else:
        rows = planning_rows(problem.model)
        state = np.repeat(np.arange(S), np.diff(rows.steps.first))
        rewards = rows.rewards.copy()
        rewards[~permitted[state, rows.action]] = -np.inf
        values = best_from_above(rows.steps, rewards, problem.model.discount, M)
    q = problem.action_values(values)
    visits = _chain_visits(problem, np.where(permitted[:, :, None], q, -np.inf).argmax(axis=1))
    gains = np.einsum("sm,sam->sa", visits, q - values[:, None, :])
    gains[~(problem.open if excluded else permitted)] = -np.inf
    return float((problem.start * values).sum()), gains[None]


def _single_rises(problem: MemorylessProblem, policy: Indices) -> Floats:
    """By how much the value rises if one state changes its action, (S, A): a rank-one update.

    With N = (I - discount P)^-1 and d = T(. | s, a) - P(. | s), V rises by
    N(., s) (Q(s, a) - V(s)) / (1 - discount d N(., s)).
    """
    _, S, A, M = problem.sizes
    values = _chain_values(problem, policy[0])
    visits = _chain_visits(problem, np.repeat(policy.T, M, axis=1))
    q = problem.action_values(values)
    _, starts, next_state, probs = problem.steps
    rows, state = np.repeat(np.arange(S * A), np.diff(starts)), np.arange(S)
    rises, discount = np.zeros((S, A)), problem.model.discount
    for m in range(M):
        T = np.zeros((S * A, S))
        T[rows, next_state] = probs[:, m]
        P = T[state * A + policy[0]]
        back = solve_dense(discount * P, np.eye(S))
        ahead = (T @ back).reshape(S, A, S)[state, :, state]
        staying = ahead - (P @ back)[state, state][:, None]
        rise = (q[..., m] - values[:, m, None]) / (1.0 - discount * staying)
        rises += visits[:, m, None] * rise
    rises[~problem.open] = -np.inf
    return rises


def weight_select_update(problem: MemorylessProblem) -> Indices:
    """The policy of weight-select-update, shape (H, S) [steimle2021].

    Without an end, the actions that are best if the context is revealed after the first step.
    """
    H, S, _, M = problem.sizes
    weights = problem.start.sum(axis=0)
    if problem.is_endless:
        return problem.best(problem.values @ weights)
    policy = np.empty((H, S), np.int32)
    later = np.zeros((S, M))
    for t in range(H - 1, -1, -1):
        q = problem.action_values(later)
        policy[t] = problem.best(q @ weights)
        later = q[np.arange(S), policy[t]]
    return policy


def _starts(
    problem: MemorylessProblem, random_starts: int, rng: np.random.Generator
) -> Iterator[Indices]:
    _, S, A, M = problem.sizes
    rows = problem.shape[0]
    yield weight_select_update(problem)[:rows]
    for m in range(M):
        yield problem.best(problem.values[:rows, ..., m])
    ranked = np.argsort(~problem.open, axis=1, kind="stable")  # those that may be taken first
    number = problem.open.sum(axis=1)
    for _ in range(random_starts):
        rank = rng.integers(A, size=problem.shape, dtype=np.int32) % number
        yield ranked[np.arange(S), rank].astype(np.int32)
