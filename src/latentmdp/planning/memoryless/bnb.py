"""The best memoryless policy by branch and bound over partial policies, the best bound first.

A node of the tree fixes the actions of some (t, s), or of some s where the policy is stationary.
Where nothing is fixed, each context may act by itself, and at each time anew: no policy with these
rules earns more than

    sum_m max_{pi agrees with the rules} sum_s y_0(s, m) V^pi_{0,m}(s)

(`MemorylessProblem.relax`). The node with the largest bound is split at the (t, s) where the
contexts disagree most, by what the best common action loses under the occupancies of their own
solutions, into one node for each action. The actions that lose least everywhere are a policy: it is
valued, and improved by coordinate ascent where it beats the incumbent. A node whose bound is at
most the incumbent's value is dropped; when none is left, the incumbent is optimal, and until then
the largest bound left bounds all policies.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Indices
from latentmdp.planning.limits import PlanningClock
from latentmdp.planning.memoryless.cadp import Incumbent, MemorylessProblem, coordinate_ascent


class _Node(NamedTuple):
    """A partial policy. Nodes compare by their bounds, then by age."""

    negative_bound: float
    number: int
    split: tuple[int, int]  # the (t, s), or (0, s), to fix next
    rules: Indices  # (H or 1, S), -1 where free


def branch_and_bound(
    problem: MemorylessProblem, incumbent: Incumbent, clock: PlanningClock
) -> None:
    """Search until the incumbent is proven optimal or a limit is reached (`LimitReached`)."""
    # Q-values and values of all times, and for a node some 300 bytes beside its rules.
    H, S, _, M = problem.sizes
    layers = 8.0 * H * (problem.rows.rewards.size + S * M)
    table_bytes, node_bytes = problem.ascent_bytes + layers, 300.0 + 4.0 * np.prod(problem.shape)
    clock.require_memory(table_bytes)
    nothing = np.full(problem.shape, -1, np.int32)
    tree: list[_Node] = []
    recorded = np.inf
    _add(tree, problem, incumbent, nothing)
    while tree and -tree[0].negative_bound > incumbent.lower + problem.tolerance:
        incumbent.prove(-tree[0].negative_bound)
        # Every node may move the bounds: on record goes what closed a tenth of the gap.
        if incumbent.upper - incumbent.lower < 0.9 * recorded:
            recorded = incumbent.upper - incumbent.lower
            clock.record(incumbent.lower, incumbent.upper)
        used = table_bytes + node_bytes * len(tree)
        clock.require_memory(used, used)
        _, _, (layer, state), rules = heapq.heappop(tree)
        for action in np.flatnonzero(problem.open[state]):
            child = rules.copy()
            child[layer, state] = action
            _add(tree, problem, incumbent, child)
    incumbent.upper = incumbent.lower


def _add(
    tree: list[_Node], problem: MemorylessProblem, incumbent: Incumbent, rules: Indices
) -> None:
    """Put a partial policy into the tree, unless nothing in it beats the incumbent."""
    incumbent.n_iter += 1
    problem.check()
    bound, gains = problem.relax(rules)
    if bound <= incumbent.lower + problem.tolerance:
        return
    policy = gains.argmax(axis=-1).astype(np.int32)
    if problem.value(policy) > incumbent.lower:
        coordinate_ascent(problem, incumbent, iter([policy]))
    losses = np.where(rules < 0, -gains.max(axis=-1), -1.0)
    layer, state = np.unravel_index(int(losses.argmax()), losses.shape)
    if bound > incumbent.lower + problem.tolerance and rules[layer, state] < 0:
        split = int(layer), int(state)
        heapq.heappush(tree, _Node(-bound, incumbent.n_iter, split, rules))
