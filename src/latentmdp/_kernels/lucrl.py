"""L-UCRL with Q-MDP as one compiled loop [kwon2021, Alg. 1-3], and its steps for other loops.

Counts and what is derived from them live in an `Estimate`. Everything derived is a function of the
counts of its own row (m, s, a) alone, so after an episode only the rows it visited are refreshed,
and only contexts whose counts changed are planned again: the numbers are those of starting afresh.

Steps are inlined: a call that passes a tuple of arrays counts references to every one of them,
which costs more than most steps.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latentmdp._kernels.belief import AWAKE, reset_belief, update_belief
from latentmdp._kernels.induction import context_q_values
from latentmdp._kernels.rollout import _draw_uniforms, _observe, begin_episode

__all__ = [
    "KNOWN",
    "LEARNED",
    "UNIFORM",
    "Estimate",
    "Plans",
    "absorb_episode",
    "discounted_return",
    "distances",
    "greedy_action",
    "observe",
    "play_lucrl",
    "refresh",
    "replan",
]


UNIFORM, KNOWN, LEARNED = 0, 1, 2
"""How a belief starts: uniform, the first state ignored [kwon2021, Alg. 3]; from known or from
learned weights, and the learned nu-hat."""


class Estimate(NamedTuple):
    """Belief-weighted counts of an empirical model, and the tables that act and plan on it."""

    sizes: tuple[int, int, int]  # S, A, Z
    by_next_state: bool  # whether rewards are counted by (s, a, s') rather than (s, a)
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


class Plans(NamedTuple):
    """Q-values of each context in the optimistic model, and when they are due.

    With n visits, N = max(1, n), the bonus is
    min(reach, reach (1 - n)^+ + spread min(1, sqrt(width / N))).
    """

    reach: float
    width: float
    lowest: float  # the least an episode can earn, at most 0
    adaptive: bool  # whether `spread` follows the values of the last plan

    growth: float  # replan when a count exceeds growth times what it was; 0: always
    discount: float
    values: NDArray[np.float64]  # (M, H, A W), in lanes
    bonus: NDArray[np.float64]  # (M, A W) of the last plan
    rewards: NDArray[np.float64]  # (M, A W): means plus bonus
    spread: NDArray[np.float64]  # (M,)
    planned_visits: NDArray[np.float64]  # (S A, M) at the last plan
    stale: NDArray[np.bool_]  # (M,): whether counts changed since the last plan
    due: NDArray[np.bool_]  # (1,)


@njit(cache=True, nogil=True)
def refresh(estimate):
    """Derive every table from the counts."""
    S, A, _ = estimate.sizes
    for m in range(estimate.visits.shape[1]):
        for row in range(S * A):
            _refresh_row(estimate, row, m)
        _refresh_start(estimate, m)


@njit(cache=True, nogil=True, inline="always")
def _refresh_row(estimate, row, m):
    """T-hat and the mean of R-hat of one (m, s, a)."""
    S, A, Z = estimate.sizes
    counts, T = estimate.transition_counts[row], estimate.transitions[m]
    column = row % A * (estimate.means.shape[1] // A) + row // A
    total = 0.0
    for x in range(S):
        total += counts[x, m]
    scale = 1.0 / max(1.0, total)
    for x in range(S):
        T[x, column] = counts[x, m] * scale
    sources = S if estimate.by_next_state else 1
    mean = 0.0
    for source in range(row * sources, (row + 1) * sources):
        for z in range(Z):
            mean += estimate.reward_counts[source, z, m] * estimate.reward_values[z]
    estimate.means[m, column] = mean * scale
    estimate.visits[row, m] = total
    estimate.scale[row, m] = scale


@njit(cache=True, nogil=True, inline="always")
def observe(estimate, belief, s, a, x, z):
    """Condition a belief on (s', r) by the smoothed likelihoods [kwon2021, Alg. 3]."""
    S, A, Z = estimate.sizes
    row = s * A + a
    counts, scale = estimate.transition_counts[row, x], estimate.scale[row]
    floor, slope = estimate.smoothing, 1.0 - estimate.smoothing * S * Z
    paid = estimate.reward_counts[row * S + x if estimate.by_next_state else row, z]
    for m in range(belief.shape[1]):
        share = paid[m] * scale[m]
        if not estimate.by_next_state:
            share *= counts[m] * scale[m]
        estimate.scratch[0, m] = floor + slope * share
    update_belief(belief, estimate.scratch, 0)


@njit(cache=True, nogil=True, inline="always")
def _refresh_start(estimate, m):
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
def absorb_episode(estimate, plans, belief, states, actions, rewards, length):
    """Add an episode to the counts with weight belief[m] [kwon2021, Alg. 1, lines 6-16]."""
    visited = _distinct_rows(estimate, states, actions, length)
    for m in range(belief.shape[0]):
        weight = belief[m]
        if weight == 0.0:
            continue
        estimate.initial_counts[states[0], m] += weight
        _refresh_start(estimate, m)
        if not _count(estimate, m, weight, states, actions, rewards, length):
            continue
        plans.stale[m] = True
        for i in range(visited):
            row = estimate.rows[i]
            _refresh_row(estimate, row, m)
            planned = max(1.0, plans.planned_visits[row, m])
            plans.due[0] |= estimate.visits[row, m] > plans.growth * planned


@njit(cache=True, nogil=True, inline="always")
def _distinct_rows(estimate, states, actions, length):
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
def _count(estimate, m, weight, states, actions, rewards, length):
    """Add the steps to the counts of one context; False if all were below their rounding."""
    S, A, _ = estimate.sizes
    changed = False
    for t in range(length):
        row, x, z = states[t] * A + actions[t], states[t + 1], rewards[t]
        source = row * S + x if estimate.by_next_state else row
        count, paid = estimate.transition_counts[row, x, m], estimate.reward_counts[source, z, m]
        estimate.transition_counts[row, x, m] = count + weight
        estimate.reward_counts[source, z, m] = paid + weight
        changed |= count + weight != count or paid + weight != paid
    return changed


@njit(cache=True, nogil=True, inline="always")
def _add_bonus(estimate, plans, m):
    """Hidden rewards of one context [kwon2021, Prop. 3.2]."""
    S, A, _ = estimate.sizes
    width = plans.bonus.shape[1] // A
    for row in range(S * A):
        visits = estimate.visits[row, m]
        column = row % A * width + row // A
        missing = max(0.0, 1.0 - visits)
        share = min(1.0, math.sqrt(plans.width / max(1.0, visits)))
        bonus = min(plans.reach, plans.reach * missing + plans.spread[m] * share)
        plans.bonus[m, column] = bonus
        plans.rewards[m, column] = estimate.means[m, column] + bonus


@njit(cache=True, nogil=True, inline="always")
def _largest_value(estimate, plans, m):
    """The largest first-step value of a state that context m has been seen in, from 0 to reach."""
    S, A, _ = estimate.sizes
    width = plans.bonus.shape[1] // A
    largest, seen = 0.0, False
    for s in range(S):
        visited = False
        for a in range(A):
            visited |= estimate.visits[s * A + a, m] >= 1.0
        if visited:
            seen = True
            for a in range(A):
                largest = max(largest, plans.values[m, 0, a * width + s])
    return min(largest, plans.reach + plans.lowest) if seen else plans.reach + plans.lowest


@njit(cache=True, nogil=True, inline="always")
def replan(estimate, plans):
    """Q-values of the contexts whose counts changed, once a plan is due; whether it was."""
    if not plans.due[0]:
        return False
    A = estimate.sizes[1]
    for m in range(plans.stale.shape[0]):
        if plans.stale[m]:
            _add_bonus(estimate, plans, m)
            context_q_values(
                estimate.transitions, plans.rewards, m, A, plans.discount, plans.values
            )
            if plans.adaptive:
                plans.spread[m] = _largest_value(estimate, plans, m) - plans.lowest
            plans.stale[m] = False
            plans.planned_visits[:, m] = estimate.visits[:, m]
    plans.due[0] = plans.growth == 0.0
    return True


@njit(cache=True, nogil=True)
def distances(estimate, truth, out):
    """Fill out (M', M) with sum_{s,a} ||P_n - Phat_m||_1, from P (S A S' Z, M') context-last."""
    S, A, Z = estimate.sizes
    out[:] = 0.0
    for m in range(out.shape[1]):
        for row in range(S * A):
            total = estimate.visits[row, m]
            scale = 1.0 / total if total > 0.0 else 0.0
            for x in range(S):
                share = estimate.transition_counts[row, x, m] * scale
                for z in range(Z):
                    if estimate.by_next_state:
                        p = estimate.reward_counts[row * S + x, z, m] * scale
                    else:
                        p = share * estimate.reward_counts[row, z, m] * scale
                    for n in range(out.shape[0]):
                        out[n, m] += abs(truth[(row * S + x) * Z + z, n] - p)


@njit(cache=True, nogil=True, inline="always")
def greedy_action(values, n_actions, t, s, belief):
    """argmax_a sum_m b(m) Q_{t,m}(s, a), the first of equally good ones."""
    best, winner = -np.inf, 0
    width = values.shape[2] // n_actions
    for a in range(n_actions):
        value = 0.0
        for m in range(values.shape[0]):
            value += values[m, t, a * width + s] * belief[AWAKE, m]
        if value > best:
            best, winner = value, a
    return winner


@njit(cache=True, nogil=True)
def discounted_return(rewards, length, reward_values, discount):
    """Sum of discount^t r_t over the first `length` rewards, given as indices."""
    total, scale = 0.0, 1.0
    for t in range(length):
        total += scale * reward_values[rewards[t]]
        scale *= discount
    return total


@njit(cache=True, nogil=True)
def play_lucrl(
    world, key, first_episode, revealed, estimate, plans, returns, true_belief, contexts
):
    """Play as many episodes of Algorithm 1 as `returns` has entries.

    Fills the returns, the final belief in the true context and the true contexts.
    """
    M, H = plans.values.shape[:2]
    belief, weight = np.empty((3, M)), np.zeros(M)
    first, second = np.empty(H), np.empty(H)
    states = np.empty(H + 1, np.int64)
    actions, rewards = np.empty(H, np.int64), np.empty(H, np.int64)
    for i in range(returns.shape[0]):
        replan(estimate, plans)
        episode = np.uint64(first_episode + i)
        context = _play_episode(
            world, key, episode, estimate, plans, belief, first, second, states, actions, rewards
        )
        for m in range(M):
            weight[m] = belief[AWAKE, m]
            if revealed:
                weight[m] = 1.0 if m == context else 0.0
        absorb_episode(estimate, plans, weight, states, actions, rewards, H)
        returns[i] = discounted_return(rewards, H, estimate.reward_values, plans.discount)
        contexts[i] = context
        true_belief[i] = belief[AWAKE, context] if context < M else np.nan


@njit(cache=True, nogil=True, inline="always")
def _play_episode(
    world, key, episode, estimate, plans, belief, first, second, states, actions, rewards
):
    context, s = begin_episode(world, key, episode)
    reset_belief(belief, estimate.prior, estimate.initial, s)
    _draw_uniforms(key, episode, 1, first.shape[0], first, second)
    states[0] = s
    for t in range(first.shape[0]):
        a = greedy_action(plans.values, estimate.sizes[1], t, s, belief)
        following, z = _observe(world, second[t], context, s, a)
        observe(estimate, belief, s, a, following, z)
        actions[t], rewards[t], states[t + 1] = a, z, following
        s = following
    return context
