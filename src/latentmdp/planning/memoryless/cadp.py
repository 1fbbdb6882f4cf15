"""Coordinate ascent over memoryless policies, from several starts [steimle2021; su2023].

A memoryless policy earns sum_t sum_{s,m} y_t(s, m) R_m(s, pi_t(s)) with the occupancy
y_t(s, m) = w_m discount^t P_m^pi(s_t = s), in which every method of `Memoryless` works.

The first start is weight-select-update: going back in time, each (t, s) takes the action that is
best on average over the contexts, given the rules already chosen for later times. Then

    repeat:  y_t(s, m) = w_m discount^t P_m^pi(s_t = s)                     for all t
             for t = H..1:  pi_t(s) = argmax_a sum_m y_t(s, m) Q^pi_{t,m}(s, a)

until nothing improves. A sweep never lowers the value: the action in force is always a candidate.
A stationary policy changes one state at a time, at all times at once.

Other starts are each context's own optimal policy and random policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from latentmdp._kernels import memoryless as kernels
from latentmdp._util.arrays import Floats, Indices
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.qmdp import q_values

__all__ = ["Incumbent", "MemorylessProblem", "coordinate_ascent", "improve", "weight_select_update"]

_TOLERANCE = 1e-10
"""Values closer than this share of the informed bound count as equal: rounding in sums over time
and states stays below it, and differences that small would keep an ascent going for nothing."""


@dataclass(frozen=True)
class MemorylessProblem:
    """A model in context-last tables, and what each context alone is worth."""

    transitions: Floats  # (S, A, S, M)
    rewards: Floats  # (S, A, M), hidden bonus included
    discount: float
    start: Floats  # (S, M): y_0
    values: Floats  # (H, S, A, M): Q_{t,m}(s, a) of each context's optimal policy
    constant: float  # the part of the value that no policy changes
    stationary: bool

    @classmethod
    def of(cls, model: LatentMDP, stationary: bool) -> MemorylessProblem:
        """The problem of a model."""
        return cls(
            transitions=np.ascontiguousarray(np.moveaxis(model.transitions, 0, -1)),
            rewards=np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1)),
            discount=model.discount,
            start=np.ascontiguousarray((model.weights[:, None] * model.initial).T),
            values=q_values(model),
            constant=model.initial_value(),
            stationary=stationary,
        )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """H, S, A, M."""
        H, S, A, M = self.values.shape
        return H, S, A, M

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a policy: (H, S), or (1, S) if stationary."""
        H, S, _, _ = self.sizes
        return (1 if self.stationary else H), S

    def bound(self) -> float:
        """Q-MDP's bound: the first action is the same in all contexts, later ones are informed."""
        return float(np.einsum("sm,sam->sa", self.start, self.values[0]).max(axis=1).sum())

    def value(self, policy: Indices) -> float:
        """What a policy earns, without the constant."""
        tables = (self.transitions, self.rewards, self.discount, self.start)
        return float(kernels.policy_value(*tables, self.values.shape[0], policy))

    def tolerance(self) -> float:
        """The absolute difference below which two values count as equal."""
        informed = np.einsum("sm,sam->sam", self.start, np.abs(self.values[0])).max(axis=1).sum()
        return _TOLERANCE * max(float(informed), np.finfo(np.float64).tiny)


@dataclass
class Incumbent:
    """The best policy so far with its value, and the least upper bound, without the constant."""

    policy: Indices
    lower: float
    upper: float
    magnitude: float  # the largest absolute value of an action in any context, at any time
    n_iter: int = 0

    def offer(self, policy: Indices, value: float) -> None:
        """Keep a policy if it is better; `CrossedBoundsError` if no policy can be that good."""
        if value > self.lower:
            self.policy, self.lower = policy.copy(), value
            self.prove(self.upper)

    def prove(self, upper: float) -> None:
        """Keep a bound if it is tighter; `CrossedBoundsError` if a policy attains more."""
        self.upper = enclosing(self.lower, min(self.upper, upper), self.magnitude)


def coordinate_ascent(
    problem: MemorylessProblem, random_starts: int, rng: np.random.Generator
) -> Iterator[Incumbent]:
    """Ascend from one start after another; yields the incumbent after each."""
    incumbent: Incumbent | None = None
    for start in _starts(problem, random_starts, rng):
        policy, value, sweeps = improve(problem, start)
        if incumbent is None:
            incumbent = Incumbent(policy, value, np.inf, float(np.abs(problem.values).max()))
            incumbent.prove(problem.bound())
        incumbent.offer(policy, value)
        incumbent.n_iter += sweeps
        yield incumbent


def improve(problem: MemorylessProblem, start: Indices) -> tuple[Indices, float, int]:
    """Coordinate ascent from one policy: the policy reached, its value, and the sweeps made."""
    policy = np.array(start, dtype=np.int32)
    tables = (problem.transitions, problem.rewards, problem.discount, problem.start)
    if problem.stationary:
        horizon = problem.values.shape[0]
        _, sweeps = kernels.ascend_stationary(*tables, horizon, policy, problem.tolerance())
    else:
        _, sweeps = kernels.ascend(*tables, policy, problem.tolerance())
    return policy, problem.value(policy), int(sweeps)


def weight_select_update(problem: MemorylessProblem) -> Indices:
    """The policy of weight-select-update, shape (H, S) [steimle2021]."""
    H, S, _, M = problem.sizes
    weights = problem.start.sum(axis=0)
    policy = np.empty((H, S), np.int32)
    later = np.zeros((S, M))
    for t in range(H - 1, -1, -1):
        follow = np.einsum("sanm,nm->sam", problem.transitions, later)
        q = problem.rewards + problem.discount * follow
        policy[t] = (q @ weights).argmax(axis=1)
        later = q[np.arange(S), policy[t]]
    return policy


def _starts(
    problem: MemorylessProblem, random_starts: int, rng: np.random.Generator
) -> Iterator[Indices]:
    _, _, A, M = problem.sizes
    rows = problem.shape[0]
    yield weight_select_update(problem)[:rows]
    for m in range(M):
        yield problem.values[:rows, ..., m].argmax(axis=2).astype(np.int32)
    for _ in range(random_starts):
        yield rng.integers(A, size=problem.shape, dtype=np.int32)
