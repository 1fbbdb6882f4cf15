"""Markov chains: the solution of (I - discount P_m) x_m = b_m for the chain of every context.

With b the rewards of a policy's steps, x are its values; with the transposed matrix and b the first
states, x are its discounted visits. This is the one place where such equations are solved: dense
and all contexts at once where there are few states, otherwise by a Krylov method, and by a sparse
factorisation where that fails.

A chain is given by its rows: next_state[offsets[s]] .. next_state[offsets[s + 1] - 1] may follow s,
with the probabilities `probs` of all contexts side by side. An entry may be listed twice, then both
count. A row may sum to less than one, and is empty in a terminal state.

With a discount of 1, x are total rewards: 0 in states from which nothing is ever earned, though the
chain may stay there for ever, and infinite in those from which something may be earned for ever. In
the others, P is left for good in a finite number h of steps on average, and a residual of at most d
in all states is an error of at most d h (`total_bounds`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from latentmdp._kernels.bellman import Successors
from latentmdp._util.arrays import Flags, Floats, Indices, Integers, segments
from latentmdp._util.cycles import components, reaching
from latentmdp.planning.limits import Check


def solve_chains(
    offsets: Integers, next_state: Integers | Indices, probs: Floats, right: Floats,
    discount: float, transposed: bool = False, guess: Floats | None = None,
    check: Check | None = None, ends: bool = False,
) -> Floats:  # fmt: skip
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
    ends
        Whether it is known that nothing is paid for ever.
    """
    S, M = right.shape
    endless = np.zeros(1)
    if discount == 1.0 and not ends:
        probs, right, _, endless = _paying(offsets, next_state, probs, right)
    # From here on a Krylov method is as fast, and linear algebra begins to use threads, which is
    # slow where the machine is busy.
    if S > 64:
        start = np.zeros_like(right) if guess is None else guess
        chain = (offsets, next_state, probs, right, discount, transposed)
        return endless + _solve_sparse(*chain, start, check)
    state = np.repeat(np.arange(S), np.diff(offsets))
    cell = next_state * S + state if transposed else state * S + next_state
    solved = np.empty((M, S))
    for m in range(0, M, 1_000):  # so many contexts at once take 64 MB
        columns = discount * probs[:, m : m + 1_000].T
        moves = np.array([np.bincount(cell, column, S * S) for column in columns], np.float64)
        solved[m : m + 1_000] = solve_dense(moves.reshape(-1, S, S), right[:, m : m + 1_000].T)
    return endless + solved.T


def solve_dense(moves: Floats, right: Floats) -> Floats:
    """Solve (I - moves) x = right for matrices (..., n, n); right (..., n), or columns (..., n, k).

    Raises `numpy.linalg.LinAlgError` where a matrix is singular.
    """
    if right.ndim < moves.ndim:
        return solve_dense(moves, right[..., None])[..., 0]
    return np.asarray(np.linalg.solve(np.eye(moves.shape[-1]) - moves, right), np.float64)


def _solve_sparse(
    offsets: Integers, next_state: Integers | Indices, probs: Floats, right: Floats,
    discount: float, transposed: bool, start: Floats, check: Check | None,
) -> Floats:  # fmt: skip
    """`solve_chains` context by context, up to a residual of 1e-12 or what rounding allows."""
    from scipy import sparse
    from scipy.sparse import linalg

    S, M = right.shape
    solution = start.copy()
    for m in range(M):
        if check is not None:
            check()
        moves = sparse.csr_array((discount * probs[:, m], next_state, offsets), shape=(S, S))
        moves = moves.T.tocsr() if transposed else moves
        b, answer, off = right[:, m], start[:, m], math.inf
        size = float(np.abs(b).max(initial=0.0))
        enough = size * max(1e-12, 1e-15 / max(1.0 - discount, 1e-3))
        # Where plain steps are sure to end soon they are the fastest; from a residual in one state
        # only a Krylov method would break down, so there are some of them always.
        for _ in range(50 if discount**1000 < 1e-12 else 1):
            for _ in range(19):
                answer = b + moves @ answer
            before, answer = answer, b + moves @ answer
            off = float(np.abs(answer - before).max(initial=0.0))
            if off <= enough:
                break
        if off > 10.0 * enough:
            closer = _bicgstab(moves, b, answer, enough)
            now = float(np.abs(b + moves @ closer - closer).max(initial=0.0))
            answer, off = (closer, now) if now < off else (answer, off)
        # One that has not converged may be periodic. The factors may be full: 200 MB for 5,000
        # states.
        if off > 10.0 * enough and (S <= 5_000 or discount == 1.0):
            answer = linalg.spsolve((sparse.eye_array(S, format="csr") - moves).tocsc(), b)
        solution[:, m] = answer
    return solution


def _bicgstab(moves: Any, b: Floats, x: Floats, enough: float, most: int = 400) -> Floats:
    """The stabilised method of biconjugate gradients for (I - moves) x = b, from a guess.

    Chains that mix need a few dozen of its steps. Products of vectors are sums of NumPy's: a
    library of linear algebra would start threads for them, which take longer than they do.
    """
    residual = b + moves @ x - x
    shadow, along, rho = residual, residual, (residual * residual).sum()
    with np.errstate(all="ignore"):  # where it breaks down, the caller sees that nothing is near
        for _ in range(most):
            if np.abs(residual).max(initial=0.0) <= enough:
                break
            moved = along - moves @ along
            step = rho / (shadow * moved).sum()
            half = residual - step * moved
            turned = half - moves @ half
            omega = (turned * half).sum() / max((turned * turned).sum(), 1e-300)
            x = x + step * along + omega * half
            residual = half - omega * turned
            before, rho = rho, (shadow * residual).sum()
            along = residual + rho / before * step / omega * (along - omega * moved)
    return x


def _paying(
    offsets: Integers, next_state: Integers | Indices, probs: Floats, right: Floats
) -> tuple[Floats, Floats, Flags, Floats]:
    """A chain of total rewards without the states from which nothing, or no end, is earned.

    Its probabilities (n, M) and rewards (S, M), the states (S, M) that are left, and (S, M) inf or
    -inf where something may be earned for ever, else 0.
    """
    S, M = right.shape
    source = np.repeat(np.arange(S), np.diff(offsets))
    states, endless = np.zeros((S, M), np.bool_), np.zeros((S, M))
    for m in range(M):
        size = np.abs(right[:, m])
        pays, possible = size > 1e-12 * size.max(initial=0.0), probs[:, m] > 0.0
        ways = source[possible], next_state[possible].astype(np.int64)
        states[:, m] = reaching(S, *ways, pays)
        # What is never left among these states pays for ever: a class that no way leads out of.
        label = components(S, *ways)
        leaves = np.bincount(source, probs[:, m], S) < 1.0 - 1e-9
        leaves[ways[0][label[ways[0]] != label[ways[1]]]] = True
        is_left = np.zeros(S, np.bool_)
        is_left[label[leaves]] = True
        for_ever = states[:, m] & ~is_left[label]
        if for_ever.any():
            lost = reaching(S, *ways, for_ever)
            endless[lost, m] = np.copysign(np.inf, right[for_ever, m].sum())
            states[lost, m] = False
    inner = np.where(states[source] & states[next_state], probs, 0.0)
    return inner, np.where(states, right, 0.0), states, endless


def total_bounds(
    offsets: Integers, next_state: Integers | Indices, probs: Floats, right: Floats,
    guess: Floats | None = None, check: Check | None = None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Bounds (S, M) on the solution of `solve_chains` with discount 1, rounding counted."""
    from scipy import sparse

    chain = (offsets, next_state)
    inner, earned, states, endless = _paying(*chain, probs, right)
    value = solve_chains(*chain, inner, earned, 1.0, guess=guess, check=check, ends=True)
    steps = solve_chains(*chain, inner, states.astype(np.float64), 1.0, check=check, ends=True)
    lower, upper = value.copy(), value.copy()
    for m, left in enumerate(states.T):
        if not left.any():
            continue
        moves = sparse.csr_array((inner[:, m], next_state, offsets), shape=(len(steps),) * 2)
        # With h >= P h + least, a residual d is an error of at most d h / least.
        least = float((steps[:, m] - moves @ steps[:, m])[left].min())
        off = (earned[:, m] + moves @ value[:, m] - value[:, m])[left]
        noise = 1e-15 * float(np.abs(value[:, m]).max())
        scale = steps[left, m] / least if least > 0.0 else np.inf
        lower[left, m] += scale * (min(float(off.min()), 0.0) - noise)
        upper[left, m] += scale * (max(float(off.max()), 0.0) + noise)
        if right[:, m].min() >= 0.0:
            lower[:, m] = np.maximum(lower[:, m], 0.0)
    return lower + endless, upper + endless


def policy_chain(
    steps: Successors, discount: float, rows: Integers, right: Floats,
    contexts: Integers | None = None, guess: Floats | None = None, transposed: bool = False,
    check: Check | None = None,
) -> Floats:  # fmt: skip
    """`solve_chains` for the chain of one policy, (S, k).

    `rows` (S,) are rows of `steps`, -1 in terminal states; `right` and `guess` are (S, k) for the k
    contexts given, all by default.
    """
    chain = chain_of(steps, rows, np.arange(right.shape[1]) if contexts is None else contexts)
    return solve_chains(*chain, right, discount, transposed, guess, check)


def chain_of(
    steps: Successors, rows: Integers, contexts: Integers
) -> tuple[Integers, Indices, Floats]:
    """The rows of a policy's chain in some contexts: offsets, next states and probabilities."""
    starts = np.append(steps.starts, steps.starts[-1])  # row -1, the last, has no entries
    offsets = np.concatenate([[0], np.cumsum(np.diff(starts)[rows])])
    _, entries = segments(starts, rows)
    return offsets, steps.next_state[entries], steps.probs[entries][:, contexts]
