"""What a policy graph earns in every context, exactly or between bounds.

    alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m)

by one pass from the last step to the first or, where there is no end, as the linear equations that
they are (`latentmdp.planning.chains`). What is left of rounding, or of a solution that is not
exact, is bounded: with T one application of the right-hand side, and d_min <= 0 and d_max >= 0 the
least and largest entry of T alpha - alpha in a context, the solution lies there between
T alpha + c d_min and T alpha + c d_max with c = discount / (1 - discount) [macqueen1966].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._util import Floats, Indices, Integers, segments
from latentmdp.model import LatentMDP
from latentmdp.planning.chains import solve_chains
from latentmdp.policies import AlphaVectorPolicy, PolicyGraph

if TYPE_CHECKING:
    from latentmdp._kernels import Links

_ROUNDING = 1e-15
"""Of a backup, relative to the values: no solution comes closer than this / (1 - discount)."""


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
    # The bounds hold after any number of iterations, which go on where no solver converges.
    for iteration in range(100_000):
        after = np.zeros_like(rows)
        evaluate_plans(0, n, *problem, offsets, offsets, rows, after)
        change, rows = after - rows, after
        least, largest = change.min(axis=0), change.max(axis=0)  # the last row does not change
        size = float(np.abs(rows).max(initial=0.0))
        if float((largest - least).max()) <= max(1e-12 / share, 10.0 * _ROUNDING) * size:
            break
        if iteration == 0:
            earned = rewards[states, labels]
            rows[:n] = _solved(model, earned, offsets, links, states, labels, rows[:n])
    noise = _ROUNDING * (1.0 + share) * size
    return rows[:n] + share * least - noise, rows[:n] + share * largest + noise


def _solved(
    model: LatentMDP, rewards: Floats, offsets: Integers, links: Links, states: Integers,
    actions: Integers, guess: Floats | None,
) -> Floats:  # fmt: skip
    """The values (n, M) of nodes that earn `rewards` (n, M) and go on for ever."""
    table, rows = model.outcomes, states * model.n_actions + actions
    node, outcome = segments(table.starts, rows)
    later = table.next_state[outcome]
    # A node that stays goes on at its own place among those of the next state, if there is one.
    follower = offsets[later] + (np.arange(rows.size) - offsets[states])[node]
    follower[follower >= offsets[later + 1]] = -1
    follower[~links.stays[node]] = links.followers
    probs = np.where(follower[:, None] >= 0, table.probs[outcome], 0.0)
    starts = np.concatenate([[0], np.cumsum(np.diff(table.starts)[rows])])
    chains = (starts, np.maximum(follower, 0), probs)
    return solve_chains(*chains, rewards, model.discount, guess=guess)


def evaluated_graph(
    model: LatentMDP,
    actions: Integers,
    offsets: Integers,
    followers: Indices | Integers,
    first: Integers,
    guess: Floats | None = None,
) -> PolicyGraph:
    """The graph with these links, its nodes' vectors the values (from below) in every context."""
    from latentmdp._kernels import Links

    rows = np.repeat(np.arange(offsets.size - 1) % model.n_states, np.diff(offsets))
    rows = rows * model.n_actions + actions
    node_starts = np.concatenate([[0], np.cumsum(np.diff(model.outcomes.starts)[rows])])
    links = Links(node_starts, followers.astype(np.int32), np.zeros(actions.size, np.bool_))
    vectors, _ = node_bounds(model, actions, offsets, links, guess)
    return PolicyGraph(AlphaVectorPolicy(vectors, actions, offsets, model), followers, first)


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
