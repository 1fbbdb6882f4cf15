"""An empirical model of the contexts from belief-weighted counts [kwon2021, Alg. 1 and 3].

Counts and what is derived from them live in an `Estimate`. Everything derived is a function of the
counts of its own row (m, s, a) alone, so after an episode only the rows it visited are refreshed:
the numbers are those of starting afresh.

Steps are inlined: a call that passes a tuple of arrays counts references to every one of them,
which costs more than most steps.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.belief import update_belief

__all__ = [
    "KNOWN",
    "LEARNED",
    "UNIFORM",
    "Estimate",
    "count",
    "distances",
    "distinct_rows",
    "observe",
    "refresh",
    "refresh_row",
    "refresh_start",
]

UNIFORM, KNOWN, LEARNED = 0, 1, 2
"""How a belief starts: uniform, the first state ignored [kwon2021, Alg. 3]; from known or from
learned weights, and the learned nu-hat."""


class Estimate(NamedTuple):
    """Belief-weighted counts of an empirical model, and the tables that act and plan on it."""

    sizes: tuple[int, int, int]  # S, A, Z
    transition_rewards: bool  # whether rewards are counted by (s, a, s') rather than (s, a)
    start: int  # how a belief starts: UNIFORM, KNOWN or LEARNED
    reward_values: NDArray[np.float64]  # (Z,)
    smoothing: float  # alpha
    transition_counts: NDArray[np.float64]  # (S A, S', M)
    reward_counts: NDArray[np.float64]  # (S A, Z, M), or (S A S', Z, M) by next state
    initial_counts: NDArray[np.float64]  # (S, M)
    visits: NDArray[np.float64]  # (S A, M): sum over s' of transition_counts
    scale: NDArray[np.float64]  # (S A, M): 1 / max(1, visits)
    scratch: NDArray[np.float64]  # (1, M)
    rows: NDArray[np.int64]  # (S A,), scratch
    seen: NDArray[np.bool_]  # (S A,), scratch, all False between episodes
    prior: NDArray[np.float64]  # (M,)
    initial: NDArray[np.float64]  # (S, M)
    transitions: NDArray[np.float64]  # (M, S', A W): T-hat, in lanes
    means: NDArray[np.float64]  # (M, A W): mean of R-hat


@njit(cache=True, nogil=True)
def refresh(estimate):
    """Derive every table from the counts."""
    S, A, _ = estimate.sizes
    for m in range(estimate.visits.shape[1]):
        for row in range(S * A):
            refresh_row(estimate, row, m)
        refresh_start(estimate, m)


@njit(cache=True, nogil=True, inline="always")
def refresh_row(estimate, row, m):
    """T-hat and the mean of R-hat of one (m, s, a)."""
    S, A, Z = estimate.sizes
    counts, T = estimate.transition_counts[row], estimate.transitions[m]
    column = row % A * (estimate.means.shape[1] // A) + row // A
    total = 0.0
    for n in range(S):
        total += counts[n, m]
    scale = 1.0 / max(1.0, total)
    for n in range(S):
        T[n, column] = counts[n, m] * scale
    sources = S if estimate.transition_rewards else 1
    mean = 0.0
    for source in range(row * sources, (row + 1) * sources):
        for z in range(Z):
            mean += estimate.reward_counts[source, z, m] * estimate.reward_values[z]
    estimate.means[m, column] = mean * scale
    estimate.visits[row, m] = total
    estimate.scale[row, m] = scale


@njit(cache=True, nogil=True, inline="always")
def refresh_start(estimate, m):
    """w-hat and nu-hat with one pseudo-count each, so that no context is ruled out unseen.

    w-hat is not normalised: a belief that starts from it is.
    """
    if estimate.start == UNIFORM:
        return
    S = estimate.initial_counts.shape[0]
    episodes = 0.0
    for s in range(S):
        episodes += estimate.initial_counts[s, m]
    scale = 1.0 / (episodes + S)
    for s in range(S):
        estimate.initial[s, m] = (estimate.initial_counts[s, m] + 1.0) * scale
    if estimate.start == LEARNED:
        estimate.prior[m] = episodes + 1.0


@njit(cache=True, nogil=True, inline="always")
def distinct_rows(estimate, states, actions, length):
    """Put the rows (s, a) of an episode into `estimate.rows`, each once; how many there are."""
    A = estimate.sizes[1]
    visited = 0
    for t in range(length):
        row = states[t] * A + actions[t]
        if not estimate.seen[row]:
            estimate.seen[row] = True
            estimate.rows[visited] = row
            visited += 1
    for i in range(visited):
        estimate.seen[estimate.rows[i]] = False
    return visited


@njit(cache=True, nogil=True, inline="always")
def count(estimate, m, weight, states, actions, rewards, length):
    """Add the steps to the counts of one context; False if all were below their rounding."""
    S, A, _ = estimate.sizes
    changed = False
    for t in range(length):
        row, n, z = states[t] * A + actions[t], states[t + 1], rewards[t]
        source = row * S + n if estimate.transition_rewards else row
        count, paid = estimate.transition_counts[row, n, m], estimate.reward_counts[source, z, m]
        estimate.transition_counts[row, n, m] = count + weight
        estimate.reward_counts[source, z, m] = paid + weight
        changed |= count + weight != count or paid + weight != paid
    return changed


@njit(cache=True, nogil=True, inline="always")
def observe(estimate, belief, s, a, n, z):
    """Condition a belief on (s', r) by the smoothed likelihoods [kwon2021, Alg. 3]."""
    S, A, Z = estimate.sizes
    row = s * A + a
    counts, scale = estimate.transition_counts[row, n], estimate.scale[row]
    floor, slope = estimate.smoothing, 1.0 - estimate.smoothing * S * Z
    paid = estimate.reward_counts[row * S + n if estimate.transition_rewards else row, z]
    for m in range(belief.shape[1]):
        share = paid[m] * scale[m]
        if not estimate.transition_rewards:
            share *= counts[m] * scale[m]
        estimate.scratch[0, m] = floor + slope * share
    update_belief(belief, estimate.scratch, 0)


@njit(cache=True, nogil=True)
def distances(estimate, truth, out):
    """Fill out (M', M) with sum_{s,a} ||P_k - Phat_m||_1, from P (S A S' Z, M') context-last."""
    S, A, Z = estimate.sizes
    out[:] = 0.0
    for m in range(out.shape[1]):
        for row in range(S * A):
            total = estimate.visits[row, m]
            scale = 1.0 / total if total > 0.0 else 0.0
            for n in range(S):
                share = estimate.transition_counts[row, n, m] * scale
                for z in range(Z):
                    if estimate.transition_rewards:
                        p = estimate.reward_counts[row * S + n, z, m] * scale
                    else:
                        p = share * estimate.reward_counts[row, z, m] * scale
                    for k in range(out.shape[0]):
                        out[k, m] += abs(truth[(row * S + n) * Z + z, k] - p)
