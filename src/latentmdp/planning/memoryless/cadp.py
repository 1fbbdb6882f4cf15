"""Coordinate ascent over memoryless policies, from several starts [steimle2021; su2023].

The first start is weight-select-update: going back in time, each (t, s) takes the action that is
best on average over the contexts, given the rules already chosen for later times. Then

    repeat:  b_t(m, s) = w_m discount^t P_m^pi(s_t = s)                     for all t
             for t = H..1:  pi_t(s) = argmax_a sum_m b_t(m, s) Q^pi_{t,m}(s, a)

until nothing improves. A sweep never lowers the value, since at every (t, s) the action in force is
one of the candidates. A stationary policy changes one state at a time, at all times at once.

Other starts are each context's own optimal policy and random policies. A start from the optimal
policy of context m earns at least w_m V*_m, if no reward is negative; hence the factor 1/M.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import memoryless as kernels
from latentmdp.planning.memoryless.problem import Incumbent, MemorylessProblem

__all__ = ["coordinate_ascent", "improve", "weight_select_update"]

Actions = NDArray[np.int32]


def coordinate_ascent(
    problem: MemorylessProblem, random_starts: int, rng: np.random.Generator
) -> Iterator[Incumbent]:
    """Ascend from one start after another; yields the incumbent after each."""
    incumbent: Incumbent | None = None
    for start in _starts(problem, random_starts, rng):
        policy, value, sweeps = improve(problem, start)
        if incumbent is None:
            incumbent = Incumbent(policy, value, max(value, problem.bound()))
        incumbent.offer(policy, value)
        incumbent.n_iter += sweeps
        yield incumbent


def improve(problem: MemorylessProblem, start: Actions) -> tuple[Actions, float, int]:
    """Coordinate ascent from one policy: the policy reached, its value, and the sweeps made."""
    policy = np.array(start, dtype=np.int32)
    tables = (problem.transitions, problem.rewards, problem.discount, problem.start)
    if problem.stationary:
        horizon = problem.values.shape[0]
        _, sweeps = kernels.ascend_stationary(*tables, horizon, policy, problem.tolerance())
    else:
        _, sweeps = kernels.ascend(*tables, policy, problem.tolerance())
    return policy, problem.value(policy), int(sweeps)


def weight_select_update(problem: MemorylessProblem) -> Actions:
    """The policy of weight-select-update, shape (H, S) [steimle2021]."""
    H, S, _, M = problem.sizes
    weights = problem.start.sum(axis=0)
    policy = np.empty((H, S), np.int32)
    later = np.zeros((S, M))
    for t in range(H - 1, -1, -1):
        q = problem.rewards + problem.discount * np.einsum(
            "sanm,nm->sam", problem.transitions, later
        )
        policy[t] = (q @ weights).argmax(axis=1)
        later = q[np.arange(S), policy[t]]
    return policy


def _starts(
    problem: MemorylessProblem, random_starts: int, rng: np.random.Generator
) -> Iterator[Actions]:
    _, _, A, M = problem.sizes
    rows = problem.shape[0]
    yield weight_select_update(problem)[:rows]
    for m in range(M):
        yield problem.values[:rows, ..., m].argmax(axis=2).astype(np.int32)
    for _ in range(random_starts):
        yield rng.integers(A, size=problem.shape, dtype=np.int32)
