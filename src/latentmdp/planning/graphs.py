"""What a policy graph earns in every context, exactly or between bounds.

    alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m)

by one pass from the last step to the first or, where there is no end, by iteration: with T one
application of the right-hand side, and d_min and d_max the least and largest entry of
T alpha - alpha in a context, the solution lies there between T alpha + c d_min and
T alpha + c d_max with c = discount / (1 - discount) [macqueen1966].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._util import Floats, Indices, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.endless import TOLERANCE
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, PolicyGraph

if TYPE_CHECKING:
    from latentmdp._kernels import Links
    from latentmdp.outcomes import RunInBlocks

_ROUNDING = 1e-15
"""Of a backup, relative to the values: iteration cannot come closer than this / (1 - discount)."""


class ContextBounds(NamedTuple):
    """Bounds on what is earned in every context."""

    lower: Floats  # (M,)
    upper: Floats  # (M,)


def node_bounds(
    model: LatentMDP,
    actions: Indices | Integers,
    offsets: Integers,
    links: Links,
    guess: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Bounds (n, M) on the values of the nodes of a graph; equal where there is an end."""
    from latentmdp.planning.kernels_graphs import evaluate_plans

    S, n = model.n_states, actions.size
    states = np.repeat(np.arange(offsets.size - 1) % S, np.diff(offsets))
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    labels, rows = actions.astype(np.int64), np.zeros((n + 1, model.n_contexts))
    problem = (model.outcomes, rewards, model.discount, states, labels, links)
    # The last row stays zero: what follows where the episode is over, node -1.
    if model.horizon is not None and offsets.size > S + 1:
        later = np.full(S + 1, n)  # no nodes
        for t in range((offsets.size - 1) // S - 1, -1, -1):
            layer = offsets[t * S : t * S + S + 1]
            evaluate_plans(layer[0], layer[S], *problem, layer, later, rows, rows)
            later = layer
        return rows[:n], rows[:n]
    if model.horizon is not None:
        other = rows.copy()
        for _ in range(model.horizon):
            evaluate_plans(0, n, *problem, offsets, offsets, rows, other)
            rows, other = other, rows
        return rows[:n], rows[:n]
    if guess is not None:
        rows[:n] = guess
    share = model.discount / (1.0 - model.discount)

    def evaluate(start: int, stop: int, now: Floats, after: Floats) -> None:
        evaluate_plans(start, stop, *problem, offsets, offsets, now, after)

    # As close as the values of single policies are known (`TOLERANCE`), where a planner's graphs
    # end: closer, and their every node would be iterated anew.
    def enough(values: Floats) -> float:
        return (TOLERANCE / share + 10.0 * _ROUNDING) * float(np.abs(values).max(initial=0.0))

    # The bounds hold after any number of iterations, they are only less tight.
    rows, least, largest = settle(evaluate, n, rows, _all_go_on(model), enough, 100_000)
    noise = _ROUNDING * (1.0 + share) * float(np.abs(rows).max(initial=0.0))
    return rows[:n] + share * least - noise, rows[:n] + share * largest + noise


def settle(
    evaluate: Callable[[int, int, Floats, Floats], None],
    n: int,
    values: Floats,
    goes_on: bool,
    enough: Callable[[Floats], float],
    most: int,
    run: RunInBlocks | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Iterate T until T alpha - alpha is even; the last T alpha, its least and largest change (M,).

    Steps are extrapolated [anderson1965, with one step back]: context by context, alpha is taken
    from the line through the last two T alpha on which the change is most even, which often saves
    more than half of the iterations. Where it made the change less even, plain iterations follow,
    which make it more even for sure: twice as many every time.

    If something may end on the way, a change that is even is no shift of the solution: then 0 is
    among the changes, and they must be small.

    Parameters
    ----------
    evaluate
        Called with (start, stop, alpha, out): T alpha of the items start..stop-1.
    n, values
        How many items there are, and where to begin: alpha (n, M), or more rows that T leaves
        alone.
    goes_on
        Whether something follows every action for sure.
    enough
        Given T alpha, the difference between the largest and the least change of a context that is
        small enough.
    most
        Iterations at most.
    run
        Does the work of all items, by default all at once.
    """
    from latentmdp.outcomes import at_once
    from latentmdp.planning.kernels_graphs import SUMMED, compare_changes, extrapolate

    run = run or at_once
    M, parts = values.shape[1], -(-n // SUMMED)
    sums, extremes = np.empty((parts, 4, M)), np.empty((parts, 2, M))
    now, after, older, older_after, spare = values, *(values.copy() for _ in range(4))
    uneven, is_extrapolated, plain, pause = np.inf, False, 1, 1
    for iteration in range(1, most + 1):
        run(evaluate, n, now, after)
        pairs = (array[:n] for array in (older, older_after, now, after))
        run(compare_changes, parts, *pairs, sums, extremes)
        edge = np.inf if goes_on else 0.0
        least = extremes[:, 0].min(axis=0, initial=edge)
        largest = extremes[:, 1].max(axis=0, initial=-edge)
        before, uneven = uneven, float((largest - least).max())
        if uneven <= enough(after) or iteration == most:
            break
        if is_extrapolated and uneven > before:
            plain, pause = pause, 2 * pause
        is_extrapolated = plain == 0
        plain = max(0, plain - 1)
        shares = _most_even(sums.sum(axis=0), n, goes_on) if is_extrapolated else np.zeros(M)
        run(extrapolate, n, older_after, after, shares, spare)
        now, after, older, older_after, spare = spare, older_after, now, after, older
    return after, least, largest


def _most_even(sums: Floats, n: int, goes_on: bool) -> Floats:
    """How far back to go, (M,), for the change with the least variance, see `compare_changes`.

    The least sum of squares if it does not go on.
    """
    mean = sums[1] / n if goes_on else np.zeros_like(sums[1])
    variance, covariance = sums[3] - mean * sums[1], sums[2] - mean * sums[0]
    is_clear = variance > 1e-9 * sums[3]  # more than rounding of the squares
    return np.where(is_clear, covariance, 0.0) / np.where(is_clear, variance, 1.0)


def _all_go_on(model: LatentMDP) -> bool:
    """Whether something follows every action for sure, in every state."""
    from latentmdp.outcomes import row_sums

    if model.terminal.any():
        return False
    sums = row_sums(model.outcomes, model.outcomes.probs)[model.allowed.ravel()]
    return bool((sums > 1.0 - 1e-9).all())


def evaluated_graph(
    model: LatentMDP,
    actions: Integers,
    offsets: Integers,
    followers: Indices | Integers,
    first: Integers,
    weights: Floats | None = None,
    guess: Floats | None = None,
) -> PolicyGraph:
    """The graph with these links, its nodes' vectors the values (from below) in every context."""
    from latentmdp._kernels import Links

    rows = np.repeat(np.arange(offsets.size - 1) % model.n_states, np.diff(offsets))
    rows = rows * model.n_actions + actions
    node_starts = np.concatenate([[0], np.cumsum(np.diff(model.outcomes.starts)[rows])])
    links = Links(node_starts, followers.astype(np.int32), np.zeros(actions.size, np.bool_))
    vectors, _ = node_bounds(model, actions, offsets, links, guess)
    nodes = AlphaVectorPolicy(vectors, actions, offsets, model)
    if weights is None:
        return PolicyGraph(nodes, followers, first)
    return MixturePolicy(nodes, followers, first, weights)


def graph_bounds(model: LatentMDP, policy: PolicyGraph) -> ContextBounds | None:
    """What a graph earns in each context of a model; None unless both have the same outcomes."""
    planned, table = policy.model.outcomes, model.outcomes
    if policy.model.dimensions[1:] != model.dimensions[1:]:
        return None
    columns = ("starts", "next_state", "reward")  # all but the probabilities
    if not all(np.array_equal(getattr(planned, name), getattr(table, name)) for name in columns):
        return None
    policy.acting(model)  # raises if it does not fit
    nodes = policy.nodes
    guess = nodes.vectors if policy.model.n_contexts == model.n_contexts else None
    lower, upper = node_bounds(model, nodes.actions, nodes.offsets, policy.links(), guess)
    return ContextBounds(start_values(model, policy, lower), start_values(model, policy, upper))


def start_values(model: LatentMDP, policy: PolicyGraph, values: Floats) -> Floats:
    """What a graph earns in each context, (M,), if its nodes have these values (n, M)."""
    hidden = np.zeros(model.n_contexts) if model.initial_bonus is None else model.initial_bonus
    start = np.flatnonzero(~model.terminal & model.initial.any(axis=0))
    first = np.atleast_2d(policy.first)[:, start]
    earned = np.einsum("k,ms,ksm->m", policy.weights, model.initial[:, start], values[first])
    return np.asarray(hidden + earned)
