"""Markov chains: the solution of (I - discount P_m) x_m = b_m for the chain of every context.

With b the rewards of a policy's steps, x are its values; with the transposed matrix and b the first
states, x are its discounted visits. This is the one place where such equations are solved: dense
and all contexts at once where there are few states, otherwise by a Krylov method, and by a sparse
factorisation where that fails.

A chain is given by its rows: next_state[offsets[s]] .. next_state[offsets[s + 1] - 1] may follow s,
with the probabilities `probs` of all contexts side by side. An entry may be listed twice, then both
count. A row may sum to less than one, and is empty in a terminal state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latentmdp._kernels import Successors
from latentmdp._util import Floats, Indices, Integers, segments


def solve_chains(
    offsets: Integers,
    next_state: Integers | Indices,
    probs: Floats,
    right: Floats,
    discount: float,
    transposed: bool = False,
    guess: Floats | None = None,
    check: Callable[[], None] | None = None,
) -> Floats:
    """Solve (I - discount P_m) x_m = right_m in every context, (S, M).

    Parameters
    ----------
    offsets, next_state, probs : (S + 1,), (n,), (n, M)
        The rows of the chains.
    right : (S, M)
        The right-hand sides.
    transposed
        Solve with the transposed matrix.
    guess : (S, M)
        Where an iteration begins, by default at 0.
    check
        Called before each context of a long solution; it may raise.
    """
    S, M = right.shape
    # From here on a Krylov method is as fast, and linear algebra begins to use threads, which is
    # slow where the machine is busy.
    if S > 64:
        start = np.zeros_like(right) if guess is None else guess
        return _solve_sparse(offsets, next_state, probs, right, discount, transposed, start, check)
    state = np.repeat(np.arange(S), np.diff(offsets))
    cell = next_state * S + state if transposed else state * S + next_state
    solved = np.empty((M, S))
    for m in range(0, M, 1_000):  # so many contexts at once take 64 MB
        columns = discount * probs[:, m : m + 1_000].T
        moves = np.array([np.bincount(cell, column, S * S) for column in columns], np.float64)
        solved[m : m + 1_000] = solve_dense(moves.reshape(-1, S, S), right[:, m : m + 1_000].T)
    return solved.T


def solve_dense(moves: Floats, right: Floats) -> Floats:
    """Solve (I - moves) x = right for matrices (..., n, n); right (..., n), or columns (..., n, k).

    Raises `numpy.linalg.LinAlgError` where a matrix is singular.
    """
    if right.ndim < moves.ndim:
        return solve_dense(moves, right[..., None])[..., 0]
    return np.asarray(np.linalg.solve(np.eye(moves.shape[-1]) - moves, right), np.float64)


def _solve_sparse(
    offsets: Integers, next_state: Integers | Indices, probs: Floats, right: Floats,
    discount: float, transposed: bool, start: Floats, check: Callable[[], None] | None,
) -> Floats:  # fmt: skip
    """`solve_chains` context by context, up to a residual of 1e-12 or what rounding allows."""
    from scipy import sparse
    from scipy.sparse import linalg

    S, M = right.shape
    # Chains that mix need a few dozen steps; one that has not converged after 400 may be periodic.
    methods: list[tuple[Any, dict[str, int]]] = [
        (linalg.bicgstab, {"maxiter": 400}),
        (linalg.gmres, {"restart": 50, "maxiter": 8}),
    ]
    solution = start.copy()
    for m in range(M):
        if check is not None:
            check()
        moves = sparse.csr_array((discount * probs[:, m], next_state, offsets), shape=(S, S))
        moves = moves.T.tocsr() if transposed else moves
        system: Any = sparse.eye_array(S, format="csr") - moves
        b, answer = right[:, m], start[:, m]
        size = float(np.abs(b).max(initial=0.0))
        enough = size * max(1e-12, 1e-15 / (1.0 - discount))
        for _ in range(20):  # from a residual in one state only a Krylov method would break down
            answer = b + moves @ answer
        off = float(np.abs(b - system @ answer).max(initial=0.0))
        for method, options in methods:
            if off <= 10.0 * enough:
                break
            closer, _ = method(system, b, x0=answer, rtol=0.0, atol=enough, **options)
            now = float(np.abs(b - system @ closer).max(initial=0.0))
            if now < off:
                answer, off = closer, now
        # The factors may be full: 200 MB for 5,000 states.
        if off > 10.0 * enough and S <= 5_000:
            answer = linalg.spsolve(system.tocsc(), b)
        solution[:, m] = answer
    return solution


def policy_chain(
    steps: Successors, discount: float, rows: Integers, right: Floats,
    contexts: Integers | None = None, guess: Floats | None = None, transposed: bool = False,
    check: Callable[[], None] | None = None,
) -> Floats:  # fmt: skip
    """`solve_chains` for the chain of one policy, (S, k).

    `rows` (S,) are rows of `steps`, -1 in terminal states; `right` and `guess` are (S, k) for the k
    contexts given, all by default.
    """
    starts = np.append(steps.starts, steps.starts[-1])  # row -1, the last, has no entries
    offsets = np.concatenate([[0], np.cumsum(np.diff(starts)[rows])])
    _, entries = segments(starts, rows)
    columns = np.arange(right.shape[1]) if contexts is None else contexts
    probs, next_state = steps.probs[entries][:, columns], steps.next_state[entries]
    return solve_chains(offsets, next_state, probs, right, discount, transposed, guess, check)
