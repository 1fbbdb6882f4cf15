"""The compiled loops of L-UCRL: counting, the filter of the estimate, optimistic planning, acting.

A pair (s, a) is column a W + s, where W is S padded as the dense Bellman backup has it; n = A W.

Counts are of cells, a column with a key: the transition to s' has the key s', the reward z the key
W + z or, where rewards depend on s', W + s' Z + z. They are context-first, (M, cells), in one of
two orders that only `find_cell` and the backup tell apart:

* dense: every cell there is, number key n + column. So the first W n are what the dense backup
  reads: it sums counts and multiplies by 1 / max(1, visits) afterwards.
* a growing list of the cells seen, those of a column linked in the order they were first seen.
  Whoever counts an episode must have made room for its cells before, two a step.

All else that is known of a column is in one array, (M, `TERMS`, n). Sums grow with the counts, in
the order of the episodes; the other terms are functions of the column's own sums, so that after an
episode only the columns it visited are brought up to date: the numbers are those of starting
afresh.

Only contexts whose counts changed are planned again. A context that an episode most likely did not
have changes by next to nothing: it is planned once its changes amount to `least_change` episodes.

Arrays are few, and loops get arrays rather than tuples of them: numba copies a tuple that it passes
on, and counts a reference, which takes as long as a step of a loop, for each array in it.

Unless a docstring says otherwise, arrays of one call do not alias, and sums over contexts, states
and steps are added in rising order. Padding (states S .. W - 1) has no counts: its values are
finite and are multiplied by zero, so that loops need not leave it out.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import njit
from latentmdp._kernels.belief import AWAKE, reset_belief, update_belief
from latentmdp._kernels.bellman import GROUP, expect_moments, maxima
from latentmdp._kernels.rollout import begin_by, draw_of_row, draw_uniforms
from latentmdp.online.bonus import AS_PRINTED, HIDDEN_REWARDS, Widths

UNIFORM, KNOWN, LEARNED = range(3)
"""How a belief starts: uniform, the first state ignored [kwon2021, Alg. 3]; from known or from
learned weights, and the learned nu-hat."""

DOUBLING = float("-inf")
"""A growth that stands for: a plan is due when a count reaches a power of two."""

VISITS, EARNED, SQUARES, SUPPORT = range(4)
"""Sums of a column: counts of its transitions, rewards and their squares times their counts, and
the number of next states with counts."""

PLANNED, BONUS, SCALE, MEAN, REWARD, SLOPE, SHARE, UNSEEN, FILLED, INVERSE = range(4, 14)
"""Terms of a column, with n visits: n at the last plan, where growth needs it; the bonus of the
last plan, the same at all times; 1 / max(1, n); the mean of R-hat; the same with a bonus; the
factors of the deviation and of the extent of V in the bonus; (1 - n)^+, min(1, n), and its inverse,
or 1 where there are no visits, 0 where an action is not allowed."""

SUMS, TERMS = SCALE, INVERSE + 1
"""The first terms are not derived from others; all there are."""


class Estimate(NamedTuple):
    """Belief-weighted counts, and what acting and planning derive from them."""

    sizes: tuple[int, int, int]  # S, A, Z
    dense: bool  # the order of the cells
    by_next: int  # of the key of a reward: Z where rewards depend on s', otherwise 0
    start: int  # how a belief starts
    smoothing: float  # alpha
    reward_values: NDArray[np.float64]  # (Z,)
    heads: NDArray[np.int64]  # (n,): the first listed cell of each column, -1 if there is none
    links: NDArray[np.int64]  # (cells, 3): column, key, the column's next cell or -1; if listed
    counts: NDArray[np.float64]  # (M, cells)
    groups: NDArray[np.float64]  # (M, keys / GROUP, GROUP, n): the same if dense, else none
    used: NDArray[np.int64]  # (1,): how many cells there are
    initial_counts: NDArray[np.float64]  # (S, M)
    columns: NDArray[np.float64]  # (M, TERMS, n)
    prior: NDArray[np.float64]  # (M,)
    initial: NDArray[np.float64]  # (S, M)
    likelihood: NDArray[np.float64]  # (1, M), scratch
    visited: NDArray[np.int64]  # (H,), scratch: the columns of an episode, each once
    seen: NDArray[np.bool_]  # (n,), scratch, all False between episodes
    tried: NDArray[np.bool_]  # (n,), scratch: see `greedy_action`; between episodes the forbidden
    places: NDArray[np.int64]  # (2, H), scratch: the cells of an episode's transitions and rewards


class OptimisticValues(NamedTuple):
    """Q-values of each context in the optimistic model, and when they are due.

    With n visits and N = max(1, n), hidden rewards are
    min(reach, reach (1 - n)^+ + spread min(1, sqrt(row / N))). In general Q is

        min(caps[t], reward + E V + bonus + unseen caps[t])
        bonus = slope sd(V) + share (max V - min V), or max(slope sd(V), share) as printed,

    by the terms of the column, where rows of That sum to min(1, n), sd(V)^2 is
    E V^2 - (E V)^2 / min(1, n), and the extent of V is over states that were met. Slopes, shares
    and unseen are 0 for hidden rewards. An action that is not allowed has a reward below any value
    and 0 for the rest; so has a terminal state with a reward of 0. Their cap is 0.
    """

    widths: Widths
    growth: float  # replan when a count exceeds growth times what it was; 0: always; `DOUBLING`
    least_change: float
    discount: float  # of returns
    planning_discount: float  # of values: breaks ties for the sooner
    retry: bool  # whether what a plan does not know may be tried more than once in an episode
    pairs: NDArray[np.int64]  # the columns of allowed actions
    terminal: NDArray[np.bool_]  # (S,)
    caps: NDArray[np.float64]  # (H,): the most that can be earned from each step on
    values: NDArray[np.float64]  # (M, H, A, W)
    met: NDArray[np.bool_]  # (M, W): states with a visit, and terminal ones
    spread: NDArray[np.float64]  # (M,)
    changes: NDArray[np.float64]  # (M,): weight of the episodes since the last plan
    stale: NDArray[np.bool_]  # (M,): whether counts changed since the last plan
    due: NDArray[np.bool_]  # (1,)


class Played(NamedTuple):
    """Episodes as they were played, one row each; the last row has the last one of any more."""

    lengths: NDArray[np.int64]  # (n,)
    states: NDArray[np.int64]  # (n, H + 1)
    actions: NDArray[np.int64]  # (n, H)
    rewards: NDArray[np.int64]  # (n, H)

    @classmethod
    def of(cls, n: int, H: int) -> "Played":
        """Room for n episodes of at most H steps."""
        steps = (np.zeros((n, length), np.int64) for length in (H + 1, H, H))
        return cls(np.zeros(n, np.int64), *steps)


# -- counts ----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def find_cell(dense, n, heads, links, column, key):
    """The cell of (column, key), -1 if there is none; n is the number of columns.

    heads (n,) and links (cells, 3) are read only where cells are listed.
    """
    if dense:
        return key * n + column
    k = heads[column]
    while k >= 0 and links[k, 1] != key:
        k = links[k, 2]
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def _join_cell(heads, links, counts, used, column, key):
    """The listed cell of (column, key), a new one at the end of its column if there was none.

    heads (n,), links (cells, 3), counts (M, cells) and used (1,) are changed in place; there must
    be room. The counts of a new cell are set to zero.
    """
    last, k = -1, heads[column]
    while k >= 0 and links[k, 1] != key:
        last, k = k, links[k, 2]
    if k >= 0:
        return k
    k = used[0]
    used[0] = k + 1
    links[k, 0], links[k, 1], links[k, 2] = column, key, -1
    for m in range(counts.shape[0]):
        counts[m, k] = 0.0
    if last < 0:
        heads[column] = k
    else:
        links[last, 2] = k
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def add_cells(estimate, columns, keys, counts):
    """Add counts (k, M) to those of the listed cells (columns, keys), for which there is room.

    columns and keys are (k,). They are added in their order; `counts` must not be the estimate's.
    """
    heads, links, own, used = estimate.heads, estimate.links, estimate.counts, estimate.used
    for i in range(columns.shape[0]):
        k = _join_cell(heads, links, own, used, columns[i], keys[i])
        for m in range(own.shape[0]):
            own[m, k] += counts[i, m]


def refresh(estimate: Estimate, optimistic: OptimisticValues) -> None:
    """Derive everything from the sums of all columns. Not compiled: it runs once a run.

    Writes the derived terms of `columns`, `met`, `initial` and `prior`, and reads no cell.
    """
    met, pairs, terminal = optimistic.met, optimistic.pairs, optimistic.terminal
    met[:, : terminal.size], met[:, terminal.size :] = terminal, False
    for m in range(met.shape[0]):
        _refresh_columns(
            estimate.columns,
            met,
            optimistic.widths.factors,
            optimistic.widths.kind,
            pairs,
            pairs.shape[0],
            m,
        )
        _refresh_start(estimate.start, estimate.initial_counts, estimate.initial, estimate.prior, m)


@njit(cache=True, nogil=True, error_model="numpy")
def _refresh_columns(columns, met, factors, kind, chosen, count, m):
    """Derive the terms of the first `count` of the chosen columns from their sums.

    columns (M, TERMS, n) and met (M, W) are changed for context m. Each column is a function of its
    own sums, so that the order does not matter, and some of them can be brought up to date alone.
    """
    deviation, remainder, reward_deviation, reward_remainder = factors
    width = met.shape[1]
    for i in range(count):
        c = chosen[i]
        n = columns[m, VISITS, c]
        share, filled = 1.0 / max(1.0, n), min(1.0, n)
        mean = columns[m, EARNED, c] * share
        columns[m, SCALE, c], columns[m, MEAN, c], columns[m, FILLED, c] = share, mean, filled
        # Visits whose inverse would not be safe add nothing to a variance but rounding.
        columns[m, INVERSE, c] = 1.0 / filled if n > 1e-100 else 1.0
        if kind == HIDDEN_REWARDS:
            continue
        variance = max(0.0, columns[m, SQUARES, c] * share - mean * mean)
        bonus = reward_deviation * math.sqrt(variance * share) + reward_remainder * share
        successors = columns[m, SUPPORT, c] if kind == AS_PRINTED else 1.0
        columns[m, REWARD, c] = mean + bonus
        columns[m, SLOPE, c] = deviation * math.sqrt(successors * share)
        columns[m, SHARE, c] = remainder * share
        columns[m, UNSEEN, c] = max(0.0, 1.0 - n)
        if n >= 1.0:
            met[m, c % width] = True


@njit(cache=True, nogil=True, error_model="numpy")
def _refresh_start(start, counts, initial, prior, m):
    """w-hat and nu-hat with one pseudo-count each, so that no context is ruled out unseen.

    w-hat is not normalised: a belief that starts from it is. counts and initial are (S, M), prior
    (M,); column m of `initial` and entry m of `prior` are written.
    """
    if start == UNIFORM:
        return
    S = counts.shape[0]
    episodes = 0.0
    for s in range(S):
        episodes += counts[s, m]
    scale = 1.0 / (episodes + S)
    for s in range(S):
        initial[s, m] = (counts[s, m] + 1.0) * scale
    if start == LEARNED:
        prior[m] = episodes + 1.0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _locate(dense, by_next, width, heads, links, counts, used, steps, places, seen, visited):
    """Note the cells of an episode's steps, where new ones join, and the columns it visited.

    `steps` are states, actions, rewards and their number. Returns how many columns there are. Fills
    places (2, H) up to the length and visited (H,) up to that number, in the order of first visits;
    `seen` (n,) is all False before and after, so nobody has to clear n flags for an episode.
    """
    states, actions, rewards, length = steps
    n, distinct = seen.shape[0], np.int64(0)  # not a literal, for which callees compile anew
    for t in range(length):
        column = actions[t] * width + states[t]
        reward_key = width + by_next * states[t + 1] + rewards[t]
        places[0, t], places[1, t] = states[t + 1] * n + column, reward_key * n + column
        if not dense:
            places[0, t] = _join_cell(heads, links, counts, used, column, states[t + 1])
            places[1, t] = _join_cell(heads, links, counts, used, column, reward_key)
        if not seen[column]:
            seen[column] = True
            visited[distinct] = column
            distinct += 1
    for i in range(distinct):
        seen[visited[i]] = False
    return distinct


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _count(counts, columns, places, values, width, m, weight, steps):
    """Add an episode to the counts of one context; False if all was below their rounding.

    counts (M, cells) and the sums of columns (M, TERMS, n) grow step by step, in the order of the
    episode: a cell that occurs twice is added to twice. places (2, H) are those of `_locate`.
    """
    states, actions, rewards, length = steps
    changed = False
    for t in range(length):
        k, j, c = places[0, t], places[1, t], actions[t] * width + states[t]
        moved, paid, value = counts[m, k], counts[m, j], values[rewards[t]]
        counts[m, k], counts[m, j] = moved + weight, paid + weight
        columns[m, VISITS, c] += weight
        columns[m, EARNED, c] += weight * value
        columns[m, SQUARES, c] += weight * value * value
        columns[m, SUPPORT, c] += moved == 0.0
        changed |= moved + weight != moved or paid + weight != paid
    return changed


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _is_due(columns, growth, visited, distinct, m):
    """Whether one of the columns just visited has grown so much that a plan is due.

    visited (H,) are the columns of the episode, `distinct` how many they are. The first visit of a
    column is due at any growth. Under `DOUBLING` the next power of two above the visits of the last
    plan is read from their exponent.
    """
    due = growth == 0.0
    for i in range(0 if due else distinct):
        before, now = columns[m, PLANNED, visited[i]], columns[m, VISITS, visited[i]]
        if growth == DOUBLING:
            power = math.ldexp(1.0, math.frexp(before)[1]) if before >= 1.0 else 1.0
            due |= now >= power
        else:
            due |= now > growth * max(1.0, before) or before < 1.0 <= now
    return due


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def absorb_episode(estimate, optimistic, belief, states, actions, rewards, length):
    """Add an episode to the counts with weight belief[m] [kwon2021, Alg. 1, lines 6-16].

    belief (M,), states (H + 1,), actions and rewards (H,) of which `length` steps count. Everything
    that depends on the counts is up to date afterwards, except the plan, which may be due.
    """
    counts, columns, places = estimate.counts, estimate.columns, estimate.places
    visited, met, widths = estimate.visited, optimistic.met, optimistic.widths
    first, initial, prior = estimate.initial_counts, estimate.initial, estimate.prior
    changes, stale, due = optimistic.changes, optimistic.stale, optimistic.due
    values, width, steps = estimate.reward_values, met.shape[1], (states, actions, rewards, length)
    distinct = _locate(
        estimate.dense, estimate.by_next, width, estimate.heads, estimate.links, counts,
        estimate.used, steps, places, estimate.seen, visited,
    )  # fmt: skip
    for m in range(belief.shape[0]):
        weight = belief[m]
        if weight == 0.0:
            continue
        first[states[0], m] += weight
        _refresh_start(estimate.start, first, initial, prior, m)
        if _count(counts, columns, places, values, width, m, weight, steps):
            changes[m] += weight
            stale[m] |= changes[m] > optimistic.least_change
            _refresh_columns(columns, met, widths.factors, widths.kind, visited, distinct, m)
            due[0] |= _is_due(columns, optimistic.growth, visited, distinct, m)


# -- the filter ------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _fill_likelihoods(joint, floor, slope, counts, k, j, columns, column, out):
    """Put the smoothed likelihoods of a step into out[0], of every context.

    k and j are the cells of its transition and its reward, -1 where no context has counts of them;
    `joint` says that the reward's alone counts both. Where a context has less than one visit of the
    column, what its row lacks is filled by that of all contexts together: a row that nobody has
    seen in a context speaks neither for nor against it. counts (M, cells), columns (M, TERMS, n),
    out (1, M), which must not be one of them.
    """
    M, known = out.shape[1], j >= 0 and (joint or k >= 0)
    lacking, common = False, 0.0
    for m in range(M):
        lacking |= columns[m, VISITS, column] < 1.0
    if lacking and known:
        total, arrived, earned = 0.0, 0.0, 0.0
        for m in range(M):
            total += columns[m, VISITS, column]
            earned += counts[m, j]
            arrived += 0.0 if joint else counts[m, k]
        if total > 0.0:
            common = earned / total if joint else (earned / total) * (arrived / total)
    # The last loop uses all arrays, so that numba sees that no reference need be counted.
    for m in range(M):
        share = counts[m, j] * columns[m, SCALE, column] if known else 0.0
        if not joint:
            share *= counts[m, k] * columns[m, SCALE, column] if known else 0.0
        if lacking:
            share += max(0.0, 1.0 - columns[m, VISITS, column]) * common
        out[0, m] = floor + slope * share


@njit(cache=True, nogil=True, error_model="numpy")
def observe(estimate, belief, s, a, n, z):
    """Condition a belief on (s', r) by the smoothed likelihoods [kwon2021, Alg. 3].

    belief (3, M) is changed in place, and so is the estimate's scratch `likelihood`: two threads
    must not observe with one estimate.
    """
    S, A, Z = estimate.sizes
    dense, by_next, heads, links = (
        estimate.dense, estimate.by_next, estimate.heads, estimate.links
    )  # fmt: skip
    n_columns = estimate.columns.shape[2]
    width = n_columns // A
    column, key = a * width + s, width + by_next * n + z
    k = find_cell(dense, n_columns, heads, links, column, n)
    j = find_cell(dense, n_columns, heads, links, column, key)
    floor, slope = estimate.smoothing, 1.0 - estimate.smoothing * S * Z
    counts, columns, likelihood = estimate.counts, estimate.columns, estimate.likelihood
    _fill_likelihoods(by_next > 0, floor, slope, counts, k, j, columns, column, likelihood)
    update_belief(belief, likelihood, np.int64(0))


@njit(cache=True, nogil=True, error_model="numpy")
def distances(estimate, starts, next_state, reward, probs, out):
    """Fill out (M', M) with sum_{s,a} ||P_k - Phat_m||_1; P is an outcome table.

    |P - Phat| is summed as Phat where P is 0, so that only the outcomes of P are looked up: a row
    adds its mass, 1 if it was visited, and |P - Phat| - Phat of each outcome. They are added row by
    row and outcome by outcome, so a distance of zero may come out as a rounding error below zero.
    """
    A, dense, by_next = estimate.sizes[1], estimate.dense, estimate.by_next
    heads, links, counts, columns = (
        estimate.heads, estimate.links, estimate.counts, estimate.columns
    )  # fmt: skip
    M, n_columns = out.shape[1], columns.shape[2]
    width, joint = n_columns // A, by_next > 0
    scale, p = np.empty(M), np.empty(M)
    for i in range(out.shape[0]):
        for m in range(M):
            out[i, m] = 0.0
    for row in range(starts.shape[0] - 1):
        column = row % A * width + row // A
        for m in range(M):
            visits = columns[m, VISITS, column]
            scale[m] = 1.0 / visits if visits > 0.0 else 0.0
            for i in range(out.shape[0]):
                out[i, m] += visits > 0.0
        for o in range(starts[row], starts[row + 1]):
            n, z = np.int64(next_state[o]), np.int64(reward[o])
            k = find_cell(dense, n_columns, heads, links, column, n)
            j = find_cell(dense, n_columns, heads, links, column, width + by_next * n + z)
            for m in range(M):
                p[m] = counts[m, j] * scale[m] if j >= 0 else 0.0
                if not joint:
                    p[m] *= counts[m, k] * scale[m] if k >= 0 else 0.0
            for i in range(out.shape[0]):
                for m in range(M):
                    out[i, m] += abs(probs[o, i] - p[m]) - p[m]


# -- planning --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _counted_moves(dense, links, counts, used, width, m):
    """Column, s' and count of the listed transitions that context m has; none if dense.

    Fresh arrays (2, k) and (k,), in the order of the list: a plan reads them H times, and a list of
    all contexts would be mostly zeros of this one.
    """
    size = 0 if dense else used[0]
    moves, weights, length = np.empty((2, size), np.int64), np.empty(size), 0
    for k in range(size):
        if links[k, 1] < width and counts[m, k] > 0.0:
            moves[0, length], moves[1, length], weights[length] = (
                links[k, 0], links[k, 1], counts[m, k]
            )  # fmt: skip
            length += 1
    return moves, weights[:length]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _listed_moments(moves, weights, value, out):
    """`expect_moments` of one context, from listed transitions; value is (W,), out (2, n).

    Sums of a column are added in the order of the list, by fused multiplication and addition.
    """
    for c in range(out.shape[1]):
        out[0, c], out[1, c] = 0.0, 0.0
    for k in range(weights.shape[0]):
        v = value[moves[1, k]]
        out[0, moves[0, k]] += weights[k] * v
        out[1, moves[0, k]] += weights[k] * (v * v)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _plan_context(
    dense, links, counts, groups, used, columns, met, caps, kind, reach, discount, values, m,
    tells_bonus,
):  # fmt: skip
    """Fill values[m] by backward induction in the optimistic model of one context.

    Means and variances are of V less that of the first state: near the values, it keeps variances
    from being differences of large numbers. Any other number would do.

    values (M, H, A, W) of context m are written, all else is read; later, shifted (W,) and sums
    (2, n) are scratch. `by_group` is `shifted` seen as (W / GROUP, GROUP), the layout in which the
    dense sums read it. A cap of step t limits the values of step t.
    """
    M, H, A, W = values.shape
    n, added = A * W, kind != AS_PRINTED
    span = 0.0 if added else 1.0
    flat = values.reshape((M, H, n))
    moves, weights = _counted_moves(dense, links, counts, used, W, m)
    later, shifted, sums = np.zeros(W), np.empty(W), np.empty((2, n))
    by_group = shifted.reshape((W // GROUP, GROUP))
    for t in range(H - 1, -1, -1):
        origin = later[0]
        for s in range(W):
            shifted[s] = later[s] - origin
        if dense:
            expect_moments(groups, m, by_group, sums)
        else:
            _listed_moments(moves, weights, shifted, sums)
        _raise_values(sums, columns, m, added, origin, span, caps[t], flat, t)
        if tells_bonus:
            _keep_largest_bonus(sums, columns, m, origin, flat, t)
        maxima(values, m, t, discount, later)
        if added:
            low, high = np.inf, -np.inf
            for s in range(W):
                if met[m, s]:
                    low, high = min(low, later[s]), max(high, later[s])
            span = high - low if low <= high else reach


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _raise_values(sums, columns, m, added, origin, span, cap, out, t):
    """Set out[m, t] to optimistic values, see `OptimisticValues`.

    `sums` (2, n) are of counts times V - origin and its square; `added` says whether the two parts
    of the bonus are added or the larger one counts. columns (M, TERMS, n), out (M, H, n). There is
    no branch in the loop, only choices between two numbers, so that it runs on vectors: an action
    that is not allowed has an inverse of 0 and with it a limit of 0.
    """
    for c in range(sums.shape[1]):
        mean = sums[0, c] * columns[m, SCALE, c]
        inverse = columns[m, INVERSE, c]
        variance = sums[1, c] * columns[m, SCALE, c] - mean * mean * inverse
        deviation = columns[m, SLOPE, c] * math.sqrt(variance if variance > 0.0 else 0.0)
        extent = columns[m, SHARE, c] * span
        larger = deviation if deviation > extent else extent
        bonus = deviation + extent if added else larger
        future = mean + origin * columns[m, FILLED, c] + columns[m, UNSEEN, c] * cap
        total, limit = columns[m, REWARD, c] + future + bonus, cap if inverse > 0.0 else 0.0
        out[m, t, c] = total if total < limit else limit


@njit(cache=True, nogil=True, error_model="numpy")
def _keep_largest_bonus(sums, columns, m, origin, out, t):
    """Let `BONUS` be the most, over this and all later t, by which values exceed expected ones.

    Once t is 0, a plan in the empirical model with it in every step is no less optimistic. Apart
    from `_raise_values`, whose loop it would slow down: only planners that are not Q-MDP need it.
    Arrays are as there.
    """
    for c in range(sums.shape[1]):
        expected = sums[0, c] * columns[m, SCALE, c] + origin * columns[m, FILLED, c]
        excess = out[m, t, c] - expected - columns[m, MEAN, c]
        if t == out.shape[1] - 1 or excess > columns[m, BONUS, c]:
            columns[m, BONUS, c] = excess


@njit(cache=True, nogil=True, error_model="numpy")
def _add_hidden_rewards(columns, pairs, reach, spread, width, m):
    """Hidden rewards of one context [kwon2021, Prop. 3.2], and the mean reward with them.

    Terms of the columns `pairs` (k,) are written; the others, of actions that are not allowed, keep
    what they were given at the start.
    """
    for i in range(pairs.shape[0]):
        c = pairs[i]
        visits = columns[m, VISITS, c]
        share = min(1.0, math.sqrt(width / max(1.0, visits)))
        columns[m, BONUS, c] = min(reach, reach * max(0.0, 1.0 - visits) + spread * share)
        columns[m, REWARD, c] = columns[m, MEAN, c] + columns[m, BONUS, c]


@njit(cache=True, nogil=True, error_model="numpy")
def _largest_value(columns, pairs, values, highest, m):
    """The largest first-step value of a state that context m has been seen in, 0 to `highest`.

    `highest` where it has been seen in none. columns (M, TERMS, n), pairs (k,) and values
    (M, H, A, W) are read.
    """
    A, W = values.shape[2:]
    largest, known = 0.0, False
    for i in range(pairs.shape[0]):
        if columns[m, VISITS, pairs[i]] >= 1.0:
            known = True
            for a in range(A):
                largest = max(largest, values[m, 0, a, pairs[i] % W])
    return min(largest, highest) if known else highest


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def replan(estimate, optimistic, tells_bonus):
    """Q-values of the contexts whose counts changed, once a plan is due, and on demand `BONUS`.

    Contexts are planned one by one and read nothing of each other. Afterwards no plan is due, or
    always one where growth is 0.
    """
    due, stale, changes = optimistic.due, optimistic.stale, optimistic.changes
    dense, links, counts, groups = (
        estimate.dense, estimate.links, estimate.counts, estimate.groups
    )  # fmt: skip
    used, columns = estimate.used, estimate.columns
    met, caps, values, pairs = optimistic.met, optimistic.caps, optimistic.values, optimistic.pairs
    kind, reach, lowest, _, row, adaptive, _ = optimistic.widths
    discount, spread = optimistic.planning_discount, optimistic.spread
    for m in range(stale.shape[0]):
        if not (due[0] and stale[m]):
            continue
        if kind == HIDDEN_REWARDS:
            _add_hidden_rewards(columns, pairs, reach, spread[m], row, m)
        _plan_context(
            dense, links, counts, groups, used, columns, met, caps, kind, reach, discount, values,
            m, tells_bonus,
        )  # fmt: skip
        if adaptive:
            spread[m] = _largest_value(columns, pairs, values, reach + lowest, m) - lowest
        stale[m], changes[m] = False, 0.0
        for c in range(columns.shape[2]):
            columns[m, PLANNED, c] = columns[m, VISITS, c]
    due[0] = due[0] and optimistic.growth == 0.0


# -- acting ----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def greedy_action(values, t, s, belief, tried):
    """argmax_a sum_m b(m) Q_{t,m}(s, a), the first of equally good ones.

    Actions that were `tried` (n,), or are not allowed, count only if all are. values (M, H, A, W),
    belief (3, M); products are added in the order of the contexts.
    """
    best, winner, fresh = -np.inf, 0, False
    for a in range(values.shape[2]):
        value, untried = 0.0, not tried[a * values.shape[3] + s]
        for m in range(belief.shape[1]):
            value += values[m, t, a, s] * belief[AWAKE, m]
        if (untried and not fresh) or (untried == fresh and value > best):
            best, winner, fresh = value, a, untried
    return winner


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def note_trial(columns, column, tried):
    """Note that an action was tried of which the last plan knew nothing, in any context.

    Plans do not change within an episode: without this the same hope, of what lies behind a wall
    say, would be followed until its end. columns (M, TERMS, n) are read, tried (n,) is written.
    """
    known = 0.0
    for m in range(columns.shape[0]):
        known += columns[m, PLANNED, column]
    tried[column] = known < 1.0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _act(
    starts, next_state, paid, tables, thresholds, aliases, context, sizes, smoothing, dense,
    by_next, heads, links, counts, columns, tried, values, terminal, retry, uniforms, belief,
    likelihood, states, actions, rewards,
):  # fmt: skip
    """Play one episode from states[0] by the optimistic values and the filter; its length.

    First the fields of `Chances`, then those of `Estimate` and of `OptimisticValues`; uniforms (H,)
    are the chance of the world. belief (3, M) is that at states[0] before and the last one after;
    states (H + 1,), actions and rewards (H,) are filled up to the length.
    """
    S, A, Z = sizes
    floor, slope, joint = smoothing, 1.0 - smoothing * S * Z, by_next > 0
    n_columns, width, s = columns.shape[2], values.shape[3], states[0]
    first = t = np.int64(0)  # functions are compiled anew for a number that is written out
    while t < actions.shape[0] and not terminal[s]:
        a = greedy_action(values, t, s, belief, tried)
        row, column = s * A + a, a * width + s
        if not retry:
            note_trial(columns, column, tried)
        o = draw_of_row(uniforms[t + 1], thresholds, aliases, context, row, starts, tables)
        n, z = np.int64(next_state[o]), np.int64(paid[o])
        k = find_cell(dense, n_columns, heads, links, column, n)
        j = find_cell(dense, n_columns, heads, links, column, width + by_next * n + z)
        _fill_likelihoods(joint, floor, slope, counts, k, j, columns, column, likelihood)
        update_belief(belief, likelihood, first)
        actions[t], rewards[t], states[t + 1] = a, z, n
        s, t = n, t + 1
    if not retry:
        for i in range(t):
            tried[actions[i] * width + states[i]] = False
    return t


@njit(cache=True, nogil=True, error_model="numpy")
def play_lucrl(
    chances, key, first_episode, revealed, estimate, optimistic, returns, true_belief, contexts,
    played, first_row,
):  # fmt: skip
    """Play as many episodes of Algorithm 1 as `returns` has entries; how many were played.

    They are fewer where a list of cells has no room for another episode. Fills the returns, the
    final belief in the true context, the true contexts, and the rows of `played` from `first_row`
    on. The estimate and the optimistic values go on in place, so that a call for 2 k
    episodes gives the bits of two calls for k.
    """
    M, H = optimistic.values.shape[:2]
    belief, weight, zero = np.empty((3, M)), np.empty(M), np.int64(0)
    first, second = np.empty(H + 1), np.empty(H + 1)
    # All that the loop reads of tuples is taken out of them once.
    dense, by_next, heads, links, counts, used = (
        estimate.dense, estimate.by_next, estimate.heads, estimate.links, estimate.counts,
        estimate.used,
    )  # fmt: skip
    columns, prior, initial, likelihood = (
        estimate.columns, estimate.prior, estimate.initial, estimate.likelihood
    )  # fmt: skip
    values, terminal, earned = optimistic.values, optimistic.terminal, estimate.reward_values
    starts, next_state, paid = chances.starts, chances.next_state, chances.reward
    thresholds, aliases = chances.outcome_threshold, chances.outcome_alias
    for i in range(returns.shape[0]):
        if not dense and used[0] + 2 * H > links.shape[0]:
            return i
        replan(estimate, optimistic, False)
        episode, row = np.uint64(first_episode + i), min(first_row + i, played.lengths.shape[0] - 1)
        states, actions, rewards = played.states[row], played.actions[row], played.rewards[row]
        draw_uniforms(key, episode, zero, H + 1, first, second)
        context, states[0] = begin_by(chances, first[0], second[0], -1)
        reset_belief(belief, prior, initial, states[0])
        length = _act(
            starts, next_state, paid, chances.tables, thresholds, aliases, context, estimate.sizes,
            estimate.smoothing, dense, by_next, heads, links, counts, columns, estimate.tried,
            values, terminal, optimistic.retry, second, belief, likelihood, states, actions,
            rewards,
        )  # fmt: skip
        for m in range(M):  # b-hat: revealed, or what the filter believes
            weight[m] = belief[AWAKE, m]
            if revealed:
                weight[m] = 1.0 if m == context else 0.0
        absorb_episode(estimate, optimistic, weight, states, actions, rewards, length)
        returns[i] = discounted_return(rewards, length, earned, optimistic.discount)
        contexts[i] = context
        true_belief[i] = belief[AWAKE, context] if context < M else np.nan
        played.lengths[row] = length
    return returns.shape[0]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def discounted_return(rewards, length, reward_values, discount):
    """Sum of discount^t r_t over the first `length` rewards, given as indices, first step first."""
    total, scale = 0.0, 1.0
    for t in range(length):
        total += scale * reward_values[rewards[t]]
        scale *= discount
    return total
