"""The problem that a search sees: contexts and states with the same future are one.

Two pairs (s, m), (s', m') have the same future if every action pays the same and is followed, with
the same probabilities, by pairs that have the same future: a bisimulation, found by refining keys
until no class splits. In a state, contexts of one class need not be told apart any more (a rock
that was sampled). And a state whose classes are all among those of another, its *leader*, with
outcomes that match one by one, is the leader with some classes ruled out: V*(s, b) =
V*(leader, b by class), so that plans and points of one serve both. Outcomes of the leader's rows
carry a pattern, P(k | class), and where classes move, their targets among those of the next state.

The matching is checked outcome by outcome, so that a state that only seemed to be like its leader
leads itself. Where no two pairs are alike, this is the model's own table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from latentmdp._util import Flags, Floats, Indices, Integers, frozen
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes, RunInBlocks, at_once
from latentmdp.planning.hsvi import kernels_lumping as kernels
from latentmdp.planning.limits import LimitReached

_MOST_ROUNDS = 64
"""Refinements at most: a class that splits later than that belongs to states so far apart that
sharing plans between them would hardly help. Then nothing is lumped."""


class LumpedProblem(NamedTuple):
    """X states with classes of contexts, and the outcomes of their X A rows."""

    starts: Integers  # (X A + 1,): first outcome of each row
    next_state: Indices  # (n,)
    pattern: Integers  # (n,): where P(k | class) begins in probs
    shift: Integers  # (n,): where the targets of the classes begin, -1 if no class moves
    probs: Floats
    target: Indices
    pay: Integers  # (X A,): where the rewards of the classes begin in earned
    earned: Floats
    width: Integers  # (X,): classes of each state
    first: Integers  # (X + 1,): the first of them, counted over all states
    allowed: Flags  # (X, A)
    discount: float
    layers: int  # time steps that have cells of their own: H, or 1 without an end
    ends: bool  # whether there is an end


class Lumping(NamedTuple):
    """The lumped problem of a model, and where the model's states and contexts are in it."""

    problem: LumpedProblem
    state: Integers  # (S,): x of every state
    classes: Indices  # (S, M): the class of every context there
    outcome: Integers  # (n,): of each outcome of the model, its place in the lumped row
    leaders: Integers  # (X,): the model's state that each lumped state is
    contexts: Indices  # (X, most classes): a context of each class

    def push(self, s: int, weights: Floats) -> Floats:
        """Weights of the contexts (M,) in state s as weights of its classes."""
        width = int(self.problem.width[self.state[s]])
        return np.bincount(self.classes[s], weights, width).astype(np.float64)

    def flat(self) -> LatentMDP:
        """The MDP of one context whose states are the classes of all states."""
        problem, A = self.problem, self.problem.allowed.shape[1]
        N = int(problem.first[-1])
        none = np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, 1))
        n = kernels.flatten(problem, A, problem.first, *none)
        starts, next_state = np.zeros(N * A + 1, np.int64), np.empty(n, np.int32)
        probs = np.empty((n, 1))
        kernels.flatten(problem, A, problem.first, starts, next_state, probs)
        # Several outcomes may lead to the same class: a step there has their sum.
        steps = csr_array((probs[:, 0], next_state, starts), shape=(N * A, N))
        steps.sum_duplicates()
        state = np.repeat(np.arange(problem.width.size), problem.width)
        within = np.arange(N) - problem.first[state]
        places = problem.pay.reshape(-1, A)[state] + within[:, None]
        table = Outcomes.each(
            steps.indptr.astype(np.int64), steps.indices.astype(np.int32),
            np.zeros(steps.nnz, np.int32), steps.data[:, None],
        )  # fmt: skip
        others = {
            "horizon": problem.layers if problem.ends else None,
            "discount": problem.discount,
            "bonus": problem.earned[places][None],
            "allow_unvisited": True,
        }
        # Rows sum to what the model's do: to less than one in the optimistic models of learners.
        allowed = frozen(problem.allowed[state])
        return LatentMDP._of_table(table.frozen(), allowed, np.zeros(1), "state-action", others)


def lump(
    model: LatentMDP, run: RunInBlocks = at_once, check: Callable[[], None] | None = None
) -> Lumping:
    """Lump a model; `run` shares the work, see `latentmdp.outcomes`.

    `check` is called now and then; if it raises `LimitReached`, nothing is lumped.
    """
    S, A, M = model.n_states, model.n_actions, model.n_contexts
    table = model.tabulate(run)
    rewards, paid = model.row_rewards(run)
    pairs = _classes(model, table, paid, rewards, run, check)
    own, contexts = np.empty((S, M), np.int32), np.zeros((S, M), np.int32)
    counts, leader = np.empty(S, np.int64), np.arange(S)
    room = np.full(int(pairs.max()) + 1, -1)
    kernels.number_classes(pairs, room, own, counts, contexts)
    classes, position = own.copy(), np.empty(table.size, np.int64)
    if counts.sum() > pairs.max() + 1:  # some state has a class that another has too
        order = np.argsort(-counts, kind="stable")
        place = room.copy()
        kernels.choose_leaders(order, pairs, own, counts, contexts, room, place, leader, classes)
    while kernels.check_leaders(table, A, own, contexts, leader, classes, position):
        pass
    leaders = np.flatnonzero(leader == np.arange(S))
    number = np.empty(S, np.int64)
    number[leaders] = np.arange(leaders.size)
    number = number[leader]
    # Only now outcomes are merged that say the same: a reading of a rock that was sampled says
    # nothing, and must still match that of one that is bad.
    led = table.of_rows((leaders[:, None] * A + np.arange(A)).ravel())
    merged, places = led.merged(run)
    pays = (paid, rewards)
    problem = _problem(model, merged, *pays, leaders, number, contexts, classes, counts[leaders])
    contexts = np.ascontiguousarray(contexts[leaders, : int(counts.max())])
    rows = table.rows()
    rows = number[rows // A] * A + rows % A
    outcome = places[led.starts[rows] + position] - merged.starts[rows]
    return Lumping(problem, number, classes, outcome, leaders, contexts)


def _classes(
    model: LatentMDP, table: Outcomes, paid: Integers, rewards: Floats, run: RunInBlocks,
    check: Callable[[], None] | None,
) -> Indices:  # fmt: skip
    """The class of every pair, (S, M), such that outcomes match; or each pair its own."""
    S, A, M = model.n_states, model.n_actions, model.n_contexts
    each = np.arange(S * M, dtype=np.int32).reshape(S, M)
    scale = max(float(np.abs(rewards).max(initial=0.0)), 1e-300)
    earned = np.rint(rewards / scale * 2.0**40).astype(np.int64).view(np.uint64)
    # Probabilities that round to the same multiple of 2^-40 are the same.
    chances = np.rint(table.distinct * 2.0**40).astype(np.uint64)
    keys, pairs, salt = (np.zeros((S, M), kind) for kind in (np.uint64, np.int32, np.uint16))
    count = 1
    for _ in range(_MOST_ROUNDS):
        try:
            if check is not None:
                check()
        except LimitReached:
            return each
        run(kernels.hash_pairs, S, table, chances, model.allowed, paid, earned, salt, pairs, keys)
        distinct = kernels.number_keys(keys.reshape(-1), pairs.reshape(-1))
        if distinct == S * M:
            return each
        if distinct == count:
            failed = np.zeros(S, np.bool_)
            run(kernels.split_classes, S, table, A, pairs, distinct, salt, failed)
            if not failed.any():
                return pairs
            distinct = 0  # refine once more, and compare with what that gives
        count = distinct
    return each


def _problem(
    model: LatentMDP, table: Outcomes, paid: Integers, rewards: Floats, leaders: Integers,
    number: Integers, contexts: Indices, classes: Indices, width: Integers,
) -> LumpedProblem:  # fmt: skip
    """The rows of the leaders."""
    A, X = model.n_actions, leaders.size
    lumped = (table, A, paid, rewards, leaders, number, contexts, classes, width)
    i8, i4, f8 = (np.empty(0, kind) for kind in (np.int64, np.int32, np.float64))
    n, entries, room, earned = kernels.fill_problem(*lumped, i8, i4, i8, i8, f8, i4, i8, f8)
    starts = np.zeros(X * A + 1, np.int64)
    arrays = (
        starts, np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64),
        np.empty(entries), np.empty(room, np.int32), np.empty(X * A, np.int64), np.empty(earned),
    )  # fmt: skip
    kernels.fill_problem(*lumped, *arrays)
    first = np.concatenate([[0], np.cumsum(width)])
    ends = model.horizon is not None
    return LumpedProblem(
        *arrays, width, first, model.allowed[leaders], model.discount, model.n_layers, ends
    )
