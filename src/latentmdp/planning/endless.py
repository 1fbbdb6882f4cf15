"""Values where there is no end: bounds on the fixed points V = r + discount P V of each context.

For any V let d = L V - V, where L is one backup, by the best action or by a policy's. If the rows
of P sum to at most p and at least q, the fixed point is [macqueen1966; porteus1971]

    at most  L V + c(max d),   c(x) = x g / (1 - g),   g = discount p if x > 0, else discount q,

and at least the mirror image of it. So V may come from anywhere, and the bounds are as tight as
L V - V is flat. V is found by policy iteration, each policy evaluated by a linear solve: dense if
there are few states, otherwise a Krylov method, and a sparse factorisation where that fails. What
rounding can add, about 1e-16 / (1 - discount) of the values, is added to the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latentmdp._kernels import bellman
from latentmdp._kernels.bellman import Successors
from latentmdp._util.arrays import Floats, Integers

__all__ = [
    "TOLERANCE",
    "best_from_above",
    "greedy_rows",
    "policies_from_below",
    "policy_chain",
    "solve_policies",
]

TOLERANCE = 1e-10
"""How far a bound may be from the value, relative to the largest value, unless rounding forbids."""

_FEW_STATES = 64
"""Up to here policies are evaluated by dense solves; a Krylov method is as fast from here on, and
linear algebra begins to use threads, which is slow where the machine is busy."""

_SWEEPS = 20
"""Backups before the first linear solve, which is dearer, if there are more than a few states."""

_DENSE_BYTES = 1 << 26
"""Of dense systems solved at once."""

_KRYLOV_STEPS = 400
"""Of a Krylov method: chains that mix need a few dozen, and one that has not converged by now may
well be periodic."""

_SPREADING = 20
"""Plain iterations before it: from a residual in one state only it would break down."""

_FACTORISED_STATES = 5_000
"""Up to here a system is factorised if need be; the factors may be full, 200 MB."""

_ENOUGH = 30.0
"""Backups in units of 1 / (1 - discount): they leave exp(-30) of the first error."""


class _Flatness(NamedTuple):
    """How far L V can be from the fixed point, by context."""

    discount: float
    most: Floats  # (M,): the largest sum of a row
    least: Floats  # (M,): the smallest
    noise: float  # rounding of a backup, relative to the values

    @classmethod
    def of(cls, steps: Successors, discount: float, M: int) -> _Flatness:
        """For any policy of a problem; a terminal state is a row without successors."""
        padded = np.concatenate([steps.probs, np.zeros((1, M))])
        sums = np.add.reduceat(padded, steps.starts, axis=0)
        lengths = np.diff(steps.starts, append=steps.starts[-1])
        sums[lengths == 0] = 0.0
        with_end = sums if (np.diff(steps.first) == 0).any() else sums[:-1]
        noise = (4.0 + float(lengths.max()) ** 0.5) * float(np.finfo(np.float64).eps)
        return cls(discount, sums.max(axis=0), with_end.min(axis=0), noise)

    def above(self, d: Floats, size: Floats) -> tuple[Floats, Floats]:
        """c(max d) by context from L V - V (..., M) and the largest values, and rounding's part."""
        x = d.reshape(-1, d.shape[-1]).max(axis=0)
        g = self.discount * np.where(x > 0.0, self.most, self.least)
        return np.asarray(x * g / (1.0 - g)), self.noise * size / (1.0 - self.discount)


def best_from_above(
    steps: Successors,
    rewards: Floats,
    discount: float,
    M: int,
    check: Callable[[], None] | None = None,
) -> Floats:
    """Upper bounds (S, M) on the optimal values of every context; 0 in terminal states.

    `rewards` (R, M) are those of the rows of `steps`. The bounds are within `TOLERANCE`,
    and a backup of them is at most they. `check` is called now and then, and may raise.
    """
    S = steps.first.size - 1
    flatness = _Flatness.of(steps, discount, M)
    q, ahead, nothing = np.empty((1, len(rewards), M)), np.zeros((2, S, M)), np.empty((0, S, M))
    value = np.zeros((S, M))
    sweeps, total, chosen = 1 if S <= _FEW_STATES else _SWEEPS, 0, np.empty((0, 0), np.int64)
    while True:
        for _ in range(sweeps):
            ahead[1] = discount * value
            bellman.outcome_values(0, S, steps, rewards, 1.0, 0, 1, ahead, q, nothing)
            value, before = ahead[0].copy(), value
            shift, close = _closeness(flatness, value, before)
            total += 1
            if close or total * (1.0 - discount) > _ENOUGH:
                return np.where(np.diff(steps.first)[:, None] > 0, value + shift, 0.0)
        if check is not None:
            check()
        sweeps *= 2  # what moves slowly through the states needs many, and few solves
        before_chosen, chosen = chosen, greedy_rows(steps, q[0])
        if not np.array_equal(chosen, before_chosen):  # else it was evaluated as well as it can be
            value = solve_policies(steps, rewards, discount, chosen, value[:, :, None], own=True)


def policies_from_below(
    steps: Successors, rewards: Floats, discount: float, chosen: Integers, M: int,
    check: Callable[[], None] | None = None,
) -> Floats:  # fmt: skip
    """Lower bounds (S, K, M) on the values of K policies in every context; 0 in terminal states.

    `chosen` (S, K) are rows of `steps`, -1 in terminal states; otherwise like `best_from_above`.
    """
    S, K = chosen.shape
    flatness = _Flatness.of(steps, discount, M)
    backed = np.zeros((S * K, M))
    value = solve_policies(steps, rewards, discount, chosen, np.zeros((S, K, M)))
    total = 0
    while True:
        later = discount * value.reshape(S * K, M)
        bellman.follow(steps, rewards, chosen, later, backed)
        value, before = backed.reshape(S, K, M).copy(), value
        shift, close = _closeness(flatness, -value, -before)
        total += 1
        if close or total * (1.0 - discount) > _ENOUGH:
            return np.where(chosen[:, :, None] >= 0, value - shift, 0.0)
        if check is not None:
            check()


def _closeness(flatness: _Flatness, value: Floats, before: Floats) -> tuple[Floats, bool]:
    """What to add to a backup for an upper bound, by context, and whether that is close."""
    d = value - before
    size = np.abs(value.reshape(-1, value.shape[-1])).max(axis=0)
    above, rounding = flatness.above(d, size)
    below, _ = flatness.above(-d, size)
    close = above + below <= TOLERANCE * size + 2.0 * rounding
    return above + rounding, bool(close.all())


def greedy_rows(steps: Successors, q: Floats) -> Integers:
    """The row of the best action in every state and context, (S, M); -1 in terminal states."""
    chosen = np.empty((steps.first.size - 1, q.shape[1]), np.int64)
    bellman.greedy_rows(steps.first, q, chosen)
    return chosen


def solve_policies(
    steps: Successors, rewards: Floats, discount: float, chosen: Integers, start: Floats,
    own: bool = False,
) -> Floats:  # fmt: skip
    """Values of K policies in M contexts, (S, K, M), up to the accuracy of a linear solve.

    `chosen` (S, K) are rows of `steps`, -1 in terminal states, and `start` (S, K, M) is a guess.
    With `own`, policy m counts in context m only: `start` is (S, M, 1), the answer (S, M).
    """
    values = start.copy()
    for k in range(chosen.shape[1]):
        contexts = np.array([k]) if own else np.arange(start.shape[2])
        ended = chosen[:, k, None] < 0
        earned = np.where(ended, 0.0, rewards[chosen[:, k]][:, contexts])
        values[:, k] = policy_chain(steps, discount, chosen[:, k], earned, contexts, values[:, k])
    return values[:, :, 0] if own else values


def policy_chain(
    steps: Successors, discount: float, rows: Integers, right: Floats,
    contexts: Integers | None = None, start: Floats | None = None, transposed: bool = False,
) -> Floats:  # fmt: skip
    """Solve (I - discount P_m) x_m = right_m for the chain of one policy in each context.

    `rows` (S,) are rows of `steps`, -1 in terminal states; `right` and the answer are (S, k) for
    the k contexts given, all by default; `start` is a guess. `transposed` solves with the
    transposed matrix: from earned rewards to values, or from first states to visits.
    """
    S = len(right)
    kept = np.maximum(rows, 0)
    counts = np.where(rows < 0, 0, steps.starts[kept + 1] - steps.starts[kept])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    entries = np.repeat(steps.starts[kept] - offsets[:-1], counts) + np.arange(offsets[-1])
    columns = np.arange(right.shape[1]) if contexts is None else contexts
    probs, following = steps.probs[entries][:, columns], steps.next_state[entries]
    if S <= _FEW_STATES:
        return _solve_dense(offsets, following, probs, right, discount, transposed)
    guess = np.zeros_like(right) if start is None else start
    return _solve_sparse(offsets, following, probs, right, discount, transposed, guess)


def _solve_dense(
    offsets: Integers, following: Integers, probs: Floats, right: Floats, discount: float,
    transposed: bool,
) -> Floats:  # fmt: skip
    S, M = right.shape
    state = np.repeat(np.arange(S), np.diff(offsets))
    step = max(1, _DENSE_BYTES // (8 * S * S))
    found = np.empty_like(right)
    for begin in range(0, M, step):
        part = slice(begin, begin + step)
        system = np.zeros((right[:, part].shape[1], S, S))
        place = (following, state) if transposed else (state, following)
        system[:, *place] = -discount * probs[:, part].T
        system[:, np.arange(S), np.arange(S)] += 1.0
        found[:, part] = np.linalg.solve(system, right[:, part].T[:, :, None])[:, :, 0].T
    return found


def _solve_sparse(
    offsets: Integers, following: Integers, probs: Floats, right: Floats, discount: float,
    transposed: bool, start: Floats,
) -> Floats:  # fmt: skip
    from scipy import sparse
    from scipy.sparse import linalg

    S, M = right.shape
    found = start.copy()
    for m in range(M):
        moves = sparse.csr_array((discount * probs[:, m], following, offsets), shape=(S, S))
        moves = moves.T.tocsr() if transposed else moves
        system: Any = sparse.eye_array(S, format="csr") - moves
        wanted, answer = right[:, m], start[:, m]
        size = float(np.abs(wanted).max(initial=0.0))
        enough = size * max(0.01 * TOLERANCE, 1e-15 / (1.0 - discount))
        for _ in range(_SPREADING):
            answer = wanted + moves @ answer
        off = float(np.abs(wanted - system @ answer).max(initial=0.0))
        methods: list[tuple[Any, dict[str, int]]] = [
            (linalg.bicgstab, {"maxiter": _KRYLOV_STEPS}),
            (linalg.gmres, {"restart": 50, "maxiter": _KRYLOV_STEPS // 50}),
        ]
        for method, options in methods:
            if off <= 10.0 * enough:
                break
            closer, _ = method(system, wanted, x0=answer, rtol=0.0, atol=enough, **options)
            now = float(np.abs(wanted - system @ closer).max(initial=0.0))
            if now < off:
                answer, off = closer, now
        if off > 10.0 * enough and S <= _FACTORISED_STATES:
            answer = linalg.spsolve(system.tocsc(), wanted)
        found[:, m] = answer
    return found
