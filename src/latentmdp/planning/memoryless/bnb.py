"""Branch and bound over memoryless policies, as MAA* over joint policies [szer2005].

A Markov policy is built forward in time (`latentmdp._kernels.memoryless_search`), a stationary one
state by state (`latentmdp._kernels.stationary_search`). What is left open is bounded by solutions
of each context alone, the better of two reward tables: its own, R, and R - lambda with the prices
of the linear relaxation, which charge the contexts for disagreeing (`mip`).

The search goes depth first, in passes with a falling target between the lower and the upper bound.
A pass drops every branch whose bound is at most the target, so when it ends, the largest bound it
dropped bounds all policies, and the last pass, with the incumbent's value as its target, proves the
optimum. Memory is one path, which can be left and resumed at any node.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np

from latentmdp._kernels import memoryless, memoryless_search, stationary_search
from latentmdp._util.arrays import Floats
from latentmdp.planning.limits import PlanningClock
from latentmdp.planning.memoryless.cadp import Incumbent, MemorylessProblem, improve
from latentmdp.planning.memoryless.mip import Program, mixed_integer_program

__all__ = ["branch_and_bound"]

_SHARES = (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.0)
"""Where the targets of the passes stand between the lower (0) and the upper bound (1) at the root.
A high target ends soon and proves little; each halving costs about what all before did."""

_FIRST_BUDGET, _FIRST_WORK, _SLICE_SECONDS = 1000, 3e7, 0.05
"""Nodes of the first slice between two looks at the clock, fewer if each may cost so many
multiplications together; a slice doubles until it takes so many seconds: short enough for Ctrl-C
and limits, long enough for looks to cost nothing."""

_PRICING_SHARE = 0.5
"""Of the time left, for the linear relaxation: its prices are worth most of a search, but without
time to search they prove little."""


class _Search(NamedTuple):
    """A depth-first search that can be left and resumed: its kernels, its problem and its path."""

    kernels: ModuleType
    relaxed: memoryless_search.Relaxed | stationary_search.Priced
    path: memoryless_search.MarkovPath | stationary_search.Branches

    def begin(self) -> float:
        """Put the search back to the root and return the root's bound."""
        return float(self.kernels.begin(self.relaxed, self.path))


def branch_and_bound(
    problem: MemorylessProblem, incumbent: Incumbent, clock: PlanningClock
) -> None:
    """Search until the incumbent is proven optimal or a limit is reached (`LimitReached`).

    Without an end, the search is that of the mixed-integer program.
    """
    if problem.horizon is None:
        mixed_integer_program(problem, incumbent, clock)
        return
    prices, charges = _relax(problem, incumbent, clock)
    clock.check()
    build = _stationary_search if problem.stationary else _markov_search
    search = build(problem, incumbent, prices, charges)
    incumbent.prove(search.begin())
    width = incumbent.upper - incumbent.lower
    for share in _SHARES:
        target = incumbent.lower + share * width
        if share > 0.0 and target >= incumbent.upper:
            continue
        _pass(problem, search, target, incumbent, clock)
    incumbent.upper = incumbent.lower


def _relax(
    problem: MemorylessProblem, incumbent: Incumbent, clock: PlanningClock
) -> tuple[Floats, Floats]:
    """Lambda (H, S, A, M) and what it charges at most for each (t, s, a); empty without room.

    The relaxation's likeliest actions are one more start for the coordinate ascent.
    """
    none = np.zeros((0, *problem.sizes[1:])), np.zeros((0, *problem.sizes[1:3]))
    if Program.bytes_needed(problem) > clock.memory:
        return none
    if not Program.is_built_within(problem, clock.remaining):
        return none
    program = Program.of(problem)
    clock.check()
    prices, actions = program.relax(clock.remaining * _PRICING_SHARE)
    if actions is None:
        return none
    policy, value, _ = improve(problem, actions)
    incumbent.offer(policy, value)
    return prices, np.einsum("tsm,tsam->tsa", program.reach, prices)


def _pass(
    problem: MemorylessProblem,
    search: _Search,
    target: float,
    incumbent: Incumbent,
    clock: PlanningClock,
) -> None:
    """One pass over the tree; at its end the upper bound is what was dropped."""
    kernels, relaxed, path = search
    H, _, A, _ = problem.sizes
    search.begin()
    node = 4.0 * problem.moves.probs.size * (H if problem.stationary else A)
    budget, finished = max(1, min(_FIRST_BUDGET, int(_FIRST_WORK / node))), False
    while not finished:
        before = clock.seconds
        nodes, finished = kernels.search(relaxed, path, target, problem.tolerance(), budget)
        incumbent.n_iter += int(nodes)
        if path.best[0] > incumbent.lower:
            policy, value, _ = improve(problem, path.policy)
            incumbent.offer(policy, value)
            path.best[0] = max(path.best[0], value)
            clock.record(incumbent.lower + problem.constant, incumbent.upper + problem.constant)
        if clock.seconds - before < _SLICE_SECONDS:
            budget *= 2
        if not finished:
            clock.check()
    incumbent.prove(max(float(path.dropped[0]), incumbent.lower))
    clock.record(incumbent.lower + problem.constant, incumbent.upper + problem.constant)


def _markov_search(
    problem: MemorylessProblem, incumbent: Incumbent, prices: Floats, charges: Floats
) -> _Search:
    """Over policies (H, S), forward in time."""
    H, _, A, _ = problem.sizes
    values, tails = problem.values[None], np.zeros((1, H + 1))
    if prices.size:
        charge = np.append(charges.max(axis=2).sum(axis=1), 0.0)
        values = np.stack([_priced_values(problem, prices), problem.values])
        tails = np.stack([np.cumsum(charge[::-1])[::-1], np.zeros(H + 1)])
    relaxed = memoryless_search.Relaxed(
        problem.moves, problem.rewards, problem.discount, values=values, tails=tails
    )
    path = memoryless_search.new_path(problem.start, H, A, incumbent.lower, incumbent.policy)
    return _Search(memoryless_search, relaxed, path)


def _stationary_search(
    problem: MemorylessProblem, incumbent: Incumbent, prices: Floats, charges: Floats
) -> _Search:
    """Over policies (1, S), state by state."""
    H, S, A, _ = problem.sizes
    priced = stationary_search.Priced(
        problem.moves,
        problem.rewards,
        discount=problem.discount,
        horizon=H,
        prices=prices,
        charges=charges.sum(axis=0),
        start=problem.start,
    )
    branches = stationary_search.new_branches(S, A, incumbent.lower, incumbent.policy)
    return _Search(stationary_search, priced, branches)


def _priced_values(problem: MemorylessProblem, prices: Floats) -> Floats:
    """Q of each context under the rewards R - lambda, shape (H, S, A, M)."""
    H, S, A, M = problem.sizes
    values = np.empty((H, S, A, M))
    later = np.zeros((S, M))
    for t in range(H - 1, -1, -1):
        tables = (problem.moves, problem.rewards - prices[t], problem.discount)
        memoryless.action_values(*tables, later, values[t])
        later = np.where(problem.moves.open[:, :, None], values[t], -np.inf).max(axis=1)
    return values
