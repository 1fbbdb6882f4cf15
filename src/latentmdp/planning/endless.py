"""Values where there is no end: bounds on the fixed points V = r + discount P V of each context.

For any V let d = L V - V, where L is one backup, by the best action or by a policy's. If the rows
of P sum to at most p and at least q, the fixed point is [macqueen1966; porteus1971]

    at most  L V + c(max d),   c(x) = x g / (1 - g),   g = discount p if x > 0, else discount q,

and at least the mirror image of it. So V may come from anywhere, and the bounds are as tight as
L V - V is flat. V is found by policy iteration, each policy evaluated by a linear solve
(`latentmdp.planning.chains`). What rounding can add, about 1e-16 / (1 - discount) of the values,
is added to the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from latentmdp._kernels import bellman
from latentmdp._kernels.bellman import Successors
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.outcomes import numbered, row_sums
from latentmdp.planning.chains import chain_of, policy_chain, total_bounds
from latentmdp.planning.limits import Check, LimitReached
from latentmdp.planning.totals import best_backup, totals_from_above

TOLERANCE = 1e-10
"""How far a bound may be from the value, relative to the largest value, unless rounding forbids."""

_ENOUGH = 30.0
"""Backups in units of 1 / (1 - discount): they leave exp(-30) of the first error."""


class Flatness(NamedTuple):
    """How far L V can be from the fixed point, by context."""

    discount: float
    most: Floats  # (M,): the largest sum of a row
    least: Floats  # (M,): the smallest
    noise: float  # rounding of a backup, relative to the values

    @classmethod
    def of(cls, steps: Successors, discount: float, M: int) -> Flatness:
        """For any policy of a problem; a terminal state is a row without successors."""
        padded = np.concatenate([steps.probs, np.zeros((1, M))])
        sums = np.add.reduceat(padded, steps.starts, axis=0)
        lengths = np.diff(steps.starts, append=steps.starts[-1])
        sums[lengths == 0] = 0.0
        ends = bool((np.diff(steps.first) == 0).any())
        return cls._of_sums(sums[:-1], int(lengths.max()), ends, discount)

    @classmethod
    def of_model(cls, model: LatentMDP) -> Flatness:
        """The same from the outcome table, in which rows with equal vectors are summed once."""
        table = model.outcomes
        number, first = numbered(table.starts, table.pattern)
        rows = table.of_rows(first[np.unique(number[model.allowed.ravel()])])
        sums, longest = row_sums(rows, rows.probs), int(np.diff(rows.starts).max())
        return cls._of_sums(sums, longest, bool(model.terminal.any()), model.discount)

    @classmethod
    def _of_sums(cls, sums: Floats, longest: int, ends: bool, discount: float) -> Flatness:
        """From the sums of the rows; where an episode may end, a row may have no successor."""
        least = sums.min(axis=0, initial=0.0 if ends else np.inf)
        noise = (4.0 + float(longest) ** 0.5) * float(np.finfo(np.float64).eps)
        return cls(discount, sums.max(axis=0), least, noise)

    def above(self, d: Floats, size: Floats) -> tuple[Floats, Floats]:
        """c(max d) by context from L V - V (..., M) and the largest values, and rounding's part."""
        x = d.reshape(-1, d.shape[-1]).max(axis=0)
        g = self.discount * np.where(x > 0.0, self.most, self.least)
        return np.asarray(x * g / (1.0 - g)), self.noise * size / (1.0 - self.discount)


def best_from_above(
    steps: Successors, rewards: Floats, discount: float, M: int, check: Check | None = None
) -> Floats:
    """Upper bounds (S, M) on the optimal values of every context; 0 in terminal states.

    `rewards` (R, M) are those of the rows of `steps`. The bounds are within `TOLERANCE`,
    and a backup of them is at most they. `check` is called now and then; if it raises
    `LimitReached`, the bounds are those of the backups so far. Without a discount nothing is known
    before the end, and it is not called.
    """
    if discount == 1.0:
        return totals_from_above(steps, rewards, None)

    def is_over() -> bool:
        try:
            if check is not None:
                check()
        except LimitReached:
            return True
        return False

    S = steps.first.size - 1
    flatness = Flatness.of(steps, discount, M)
    q, value = np.empty((1, len(rewards), M)), np.zeros((S, M))
    # Backups before the first linear solve, which is dearer where there are more than a few states.
    sweeps, total, rows = 1 if S <= 64 else 20, 0, np.empty((0, 0), np.int64)
    while True:
        for _ in range(sweeps):
            value, before = best_backup(steps, rewards, discount * value, q), value
            shift, is_close = _closeness(flatness, value, before)
            total += 1
            is_close |= total * (1.0 - discount) > _ENOUGH
            if is_close or is_over():
                # No more than the largest reward at every step, where backups were few.
                most = max(float(rewards.max(initial=0.0)), 0.0)
                above = np.minimum(value + shift, most / (1.0 - discount * flatness.most))
                return np.where(np.diff(steps.first)[:, None] > 0, above, 0.0)
        sweeps *= 2  # what moves slowly through the states needs many, and few solves
        rows_before, rows = rows, np.empty((S, M), np.int64)
        bellman.greedy_rows(steps.first, q[0], rows)
        if not np.array_equal(rows, rows_before):  # else it was evaluated as well as it can be
            guess = value[:, :, None]
            with suppress(LimitReached):  # the next backup says how far the value may be off
                value = solve_policies(
                    steps, rewards, discount, rows, guess, by_context=True, check=check
                )


def policies_from_below(
    steps: Successors, rewards: Floats, discount: float, rows: Integers, M: int,
    check: Check | None = None,
) -> Floats:  # fmt: skip
    """Lower bounds (S, K, M) on the values of K policies in every context; 0 in terminal states.

    `rows` (S, K) are rows of `steps`, -1 in terminal states; otherwise like `best_from_above`.
    """
    S, K = rows.shape
    if discount == 1.0:
        lower = np.empty((S, K, M))
        for k in range(K):
            earned = np.where(rows[:, k, None] < 0, 0.0, rewards[rows[:, k]])
            chain = chain_of(steps, rows[:, k], np.arange(M))
            lower[:, k] = total_bounds(*chain, earned, check=check)[0]
        return lower
    flatness, backed = Flatness.of(steps, discount, M), np.zeros((S * K, M))

    def back_up(value: Floats) -> Floats:
        later = discount * value.reshape(S * K, M)
        bellman.follow(0, S, steps, rewards, rows, later, backed)
        return backed.reshape(S, K, M).copy()

    def solve(value: Floats) -> Floats:
        return solve_policies(steps, rewards, discount, rows, value, check=check)

    lower, _ = enclosed(flatness, np.zeros((S, K, M)), back_up, solve, check)
    return np.where(rows[:, :, None] >= 0, lower, 0.0)


def enclosed(
    flatness: Flatness, value: Floats, back_up: Callable[[Floats], Floats],
    solve: Callable[[Floats], Floats], check: Check | None = None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Bounds on the fixed point of a policy's backup, from any values (..., M).

    If these are not near it, they are solved for first; `solve` is given a better guess.
    """
    total = 0
    while True:
        before, value = value, back_up(value)
        above, is_close = _closeness(flatness, value, before)
        total += 1
        if is_close or total * (1.0 - flatness.discount) > _ENOUGH:
            below, _ = _closeness(flatness, -value, -before)
            return value - below, value + above
        if total == 1:
            value = solve(value)
        if check is not None:
            check()


def _closeness(flatness: Flatness, value: Floats, before: Floats) -> tuple[Floats, bool]:
    """What to add to a backup for an upper bound, by context, and whether that is close."""
    d = value - before
    size = np.abs(value.reshape(-1, value.shape[-1])).max(axis=0)
    above, rounding = flatness.above(d, size)
    below, _ = flatness.above(-d, size)
    is_close = above + below <= TOLERANCE * size + 2.0 * rounding
    return above + rounding, bool(is_close.all())


def solve_policies(
    steps: Successors, rewards: Floats, discount: float, rows: Integers, start: Floats,
    by_context: bool = False, check: Check | None = None,
) -> Floats:  # fmt: skip
    """Values of K policies in M contexts, (S, K, M), up to the accuracy of a linear solve.

    `rows` (S, K) are rows of `steps`, -1 in terminal states, and `start` (S, K, M) is a guess.
    With `by_context`, policy m counts in context m only: `start` is (S, M, 1), the answer (S, M).
    """
    values = start.copy()
    for k in range(rows.shape[1]):
        contexts = np.array([k]) if by_context else np.arange(start.shape[2])
        ended = rows[:, k, None] < 0
        earned = np.where(ended, 0.0, rewards[rows[:, k]][:, contexts])
        values[:, k] = policy_chain(
            steps, discount, rows[:, k], earned, contexts, values[:, k], check=check
        )
    return values[:, :, 0] if by_context else values
