"""The problem that a search sees: contexts and states with the same future are one.

In a state, contexts with the same future need not be told apart any more (a rock that was sampled):
every outcome there is as likely in each of them, pays the same, and leads to a state where they
have the same future again. The coarsest such partition of the contexts of each state is found by
refining one class until none splits. Thousands of states have the same partition, and the same
kinds of outcomes after them, so both are kept and refined once (`kernels.split_contexts`).

What is left are pairs of a state and a class. Pairs of several states have the same future if every
action pays the same and is followed, with the same probabilities, by pairs that have the same
future: a bisimulation, found in the same way. A state whose pairs are all among those of another,
its *leader*, with outcomes that match one by one, is the leader with some classes ruled out:
V*(s, b) = V*(leader, b by class), so that plans and points of one serve both. Outcomes of the
leader's rows carry a pattern, P(k | class), and where classes move, their targets among those of
the next state.

The matching is checked outcome by outcome, so that a state that only seemed to be like its leader
leads itself. Where no two pairs are alike, this is the model's own table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util.arrays import Flags, Floats, Indices, Integers, frozen, read_only, segments
from latentmdp.model import LatentMDP
from latentmdp.outcomes import ContextVectors, Outcomes, RunInBlocks, at_once, numbered
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
    member: Integers  # (S,): which row of `members` each state has
    members: Indices  # (Q, M): the class of every context
    outcome: Integers  # (n,): of each outcome of the model, its place in the lumped row
    leaders: Integers  # (X,): the model's state that each lumped state is
    contexts: Integers  # (all classes,): a context of each class

    def classes(self, states: Integers | int) -> Indices:
        """The class of every context in some states, (k, M), or in one, (M,)."""
        return np.asarray(self.members[self.member[states]])

    def push(self, s: int, weights: Floats) -> Floats:
        """Weights of the contexts (M,) in state s as weights of its classes."""
        width = int(self.problem.width[self.state[s]])
        return np.bincount(self.classes(s), weights, width).astype(np.float64)

    def flat(self) -> LatentMDP:
        """The MDP of one context whose states are the classes of all states."""
        problem, A = self.problem, self.problem.allowed.shape[1]
        N = int(problem.first[-1])
        state = np.repeat(np.arange(problem.width.size), problem.width)
        starts, n = np.empty(N * A + 1, np.int64), 0
        for _ in range(2):  # the first time to count the steps
            next_state, probs = np.empty(n, np.int32), np.empty((n, 1))
            n = kernels.flatten(problem, A, starts, next_state, probs)
        within = np.arange(N) - problem.first[state]
        places = problem.pay.reshape(-1, A)[state] + within[:, None]
        table = Outcomes.each(starts, next_state, np.zeros(n, np.int32), probs)
        others = {
            "horizon": problem.layers if problem.ends else None,
            "discount": problem.discount,
            "bonus": problem.earned[places][None],
            "allow_unvisited": True,
        }
        # Rows sum to what the model's do: to less than one in the optimistic models of learners.
        allowed = frozen(problem.allowed[state])
        return LatentMDP._of_table(table.frozen(), allowed, np.zeros(1), "state-action", others)


class Pairs(NamedTuple):
    """Pairs of a state and a class of contexts there; states share D partitions of the contexts.

    Classes of a partition are numbered in the order of their first contexts.
    """

    part: Integers  # (S,): the partition of each state
    rows: Indices  # (D, M): the class of every context
    begin: Integers  # (D + 1,): where the classes of a partition begin in `context`
    context: Integers  # the first context of each class
    first: Integers  # (S + 1,): where the pairs of each state begin

    @classmethod
    def of(cls, part: Integers, rows: Indices) -> Pairs:
        """The pairs of states that have the partitions `part` among `rows`."""
        highest = np.maximum.accumulate(rows, axis=1)
        counts = highest[:, -1].astype(np.int64) + 1
        _, context = np.nonzero(np.diff(highest, axis=1, prepend=-1))
        return cls(part, rows, _bounds(counts), context, _bounds(counts[part]))

    @property
    def widths(self) -> Integers:
        """How many classes each state has."""
        return np.diff(self.first)

    def restricted(
        self, vectors: Floats, which: Indices | Integers, part: Integers
    ) -> tuple[Floats, Integers, Integers]:
        """What vectors[which] (n, M) say of the classes of the partitions `part` (n,).

        Equal ones once, side by side; where each begins, (n,); and which it is, (n,).
        """
        number, heads = _alike(which.astype(np.int64) * len(self.rows) + part)
        starts = _bounds(np.diff(self.begin)[part[heads]])
        out = np.empty(int(starts[-1]))
        kernels.restrict(vectors, which[heads], part[heads], self, out)
        return out, starts[number], number


def _bounds(counts: Integers) -> Integers:
    """Where runs of so many entries begin, and their end."""
    return np.concatenate([[0], np.cumsum(counts)])


def _alike(values: Any) -> tuple[Integers, Integers]:
    """Numbers of values, equal ones alike, in the order they come, and the first of each."""
    return numbered(np.arange(values.size + 1), values)


def lump(
    model: LatentMDP, run: RunInBlocks = at_once, check: Callable[[], None] | None = None
) -> Lumping:
    """Lump a model; `run` shares the work, see `latentmdp.outcomes`.

    `check` is called now and then; if it raises `LimitReached`, nothing is lumped.
    """
    S, A, M = model.n_states, model.n_actions, model.n_contexts
    table, rewards = model.tabulate(run), model.row_rewards(run)
    leader = np.arange(S)
    try:
        pairs, like = _alike_pairs(model, table, rewards, run, check or (lambda: None))
    except LimitReached:
        pairs = Pairs.of(np.zeros(S, np.int64), np.arange(M, dtype=np.int32)[None])
        like = np.arange(S * M)
    own = np.arange(like.size) - np.repeat(pairs.first[:-1], pairs.widths)
    lead = own.copy()
    n = int(like.max()) + 1
    if like.size > n:  # some state has a class that another has too
        order = np.argsort(-pairs.widths, kind="stable")
        kernels.choose_leaders(order, pairs.first, like, np.full(n, -1), leader, lead)
    position, failed = np.empty(table.size, np.int64), np.ones(S, np.bool_)
    longest = int(np.diff(table.starts).max())
    while failed.any():  # then those that rely on them must be checked again
        matched = (table, A, longest, pairs, leader, lead, position, failed)
        run(kernels.check_leaders, S, *matched)
        alone = np.flatnonzero(failed)
        leader[alone] = alone
        lead[segments(pairs.first, alone)[1]] = own[segments(pairs.first, alone)[1]]
    leaders = np.flatnonzero(leader == np.arange(S))
    number = np.empty(S, np.int64)
    number[leaders] = np.arange(leaders.size)
    number = number[leader]
    of_row = numbered(pairs.first, lead)[0] * len(pairs.rows) + pairs.part
    member, heads = _alike(of_row)
    members = lead[pairs.first[heads, None] + pairs.rows[pairs.part[heads]]].astype(np.int32)
    # Only now outcomes are merged that say the same: a reading of a rock that was sampled says
    # nothing, and must still match that of one that is bad.
    led_rows = (leaders[:, None] * A + np.arange(A)).ravel()
    led = table.of_rows(led_rows)
    merged, places = led.merged(run)
    earned = ContextVectors(rewards.distinct, rewards.pattern[led_rows])
    problem = _problem(model, merged, earned, pairs, leaders, number, member, members)
    _, classes = segments(pairs.begin, pairs.part[leaders])
    rows = table.rows()
    rows = number[rows // A] * A + rows % A
    outcome = places[led.starts[rows] + position] - merged.starts[rows]
    return Lumping(problem, number, member, members, outcome, leaders, pairs.context[classes])


def _alike_pairs(
    model: LatentMDP, table: Outcomes, rewards: ContextVectors, run: RunInBlocks,
    check: Callable[[], None],
) -> tuple[Pairs, Integers]:  # fmt: skip
    """The pairs of a model, and numbers of them: those with the same future have the same."""
    S, A, M = model.n_states, model.n_actions, model.n_contexts
    scale = max(float(np.abs(rewards.distinct).max(initial=0.0)), 1e-300)
    # Which contexts a vector tells apart is the same for many of them.
    P, Q = len(table.distinct), len(rewards.distinct)
    kinds = np.empty((P + Q, M), np.int32)
    run(kernels.label, P, read_only(table.distinct), 1.0, kinds)
    run(kernels.label, Q, read_only(rewards.distinct), scale, kinds[P:])
    kind, heads = numbered(np.arange(P + Q + 1) * M, kinds.ravel())
    kinds, of_outcome, of_reward = kinds[heads], kind[table.pattern], kind[P + rewards.pattern]
    part, rows, total = np.zeros(S, np.int64), np.zeros((1, M), np.int32), S
    for _ in range(_MOST_ROUNDS):
        check()
        units, heads = _alike(of_outcome * len(rows) + part[table.next_state])
        keys = np.empty(S, np.uint64)
        kernels.sign_states(table.starts, A, units, heads.size, of_reward, len(kinds), keys)
        same, states = _alike(keys)
        split = np.empty((states.size, M), np.int32)
        following = (units, heads.size, of_outcome, of_reward, kinds, part, rows)
        run(kernels.split_contexts, states.size, states, table, A, *following, split)
        number, heads = numbered(np.arange(len(split) + 1) * M, split.ravel())
        rows, part, before = split[heads], number[same], total
        total = int((rows.max(axis=1) + 1)[part].sum())
        if total in (before, S * M):
            break
    else:
        raise LimitReached("contexts are told apart too far from where they differ")
    pairs = Pairs.of(part, rows)
    like, count, salt = np.zeros(total, np.int64), 1, np.zeros(total, np.uint64)
    keys = np.empty(total, np.uint64)
    for _ in range(_MOST_ROUNDS):
        check()
        of_rows = (model.allowed, rewards, scale, pairs)
        run(kernels.hash_pairs, S, table, *of_rows, salt, like, keys)
        like, heads = _alike(keys)
        if heads.size == total:
            break
        if heads.size == count:
            if not kernels.keep_apart(pairs.first, like, np.full(count, -1), salt):
                break
            count = 0  # refine once more, and compare with what that gives
        else:
            count = heads.size
    else:
        like = np.arange(total)
    return pairs, like


def _problem(
    model: LatentMDP, table: Outcomes, rewards: ContextVectors, pairs: Pairs, leaders: Integers,
    number: Integers, member: Integers, members: Indices,
) -> LumpedProblem:  # fmt: skip
    """The rows of the leaders."""
    A, part, width = model.n_actions, pairs.part[leaders], pairs.widths[leaders]
    x, then = table.rows() // A, table.next_state
    probs, pattern, which = pairs.restricted(table.distinct, table.pattern, part[x])
    earned, pay, _ = pairs.restricted(rewards.distinct, rewards.pattern, np.repeat(part, A))
    # Where classes move depends on the partition and on the classes of the next state.
    move, heads = _alike(which * len(members) + member[then])
    lengths, straight = width[x[heads]], np.ones(heads.size, np.bool_)
    straight[move[width[number[then]] != width[x]]] = False
    target, shift = np.empty(int(lengths.sum()), np.int32), np.empty(heads.size, np.int64)
    of_moves = (pattern[heads], lengths, members, member[then[heads]], part[x[heads]], pairs)
    n = kernels.follow_classes(probs, *of_moves, straight, target, shift)
    return LumpedProblem(
        table.starts, number[then].astype(np.int32), pattern, shift[move], probs,
        target[:n].copy(), pay, earned, width, _bounds(width),
        model.allowed[leaders], model.discount, model.n_layers, model.horizon is not None,
    )  # fmt: skip
