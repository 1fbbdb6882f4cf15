"""What a policy graph earns in every context, exactly or between bounds.

    alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m)

by one pass from the last step to the first or, where there is no end, by iteration: with T one
application of the right-hand side, and d_min and d_max the least and largest entry of
T alpha - alpha, the solution lies between T alpha + c d_min and T alpha + c d_max with
c = discount / (1 - discount) [macqueen1966].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp.model import LatentMDP
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, PolicyGraph

if TYPE_CHECKING:
    from latentmdp._kernels.graphs import Links

__all__ = ["ContextBounds", "evaluated_graph", "graph_bounds", "node_bounds", "start_values"]

_SETTLED = 1e-12
"""Iteration ends when the bounds are this close, relative to the largest value."""

_ROUNDING = 1e-15
"""Of a backup, relative to the values: iteration cannot come closer than this / (1 - discount)."""

_MOST_ITERATIONS = 100_000
"""Of an evaluation: its bounds hold after any number, they are only less tight."""

_OUTCOME = ("starts", "next_state", "reward")


class ContextBounds(NamedTuple):
    """Bounds on what is earned in every context."""

    lower: Floats  # (M,)
    upper: Floats  # (M,)


def node_bounds(
    model: LatentMDP,
    actions: Integers,
    offsets: Integers,
    links: Links,
    guess: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Bounds (n, M) on the values of the nodes of a graph; equal where there is an end."""
    from latentmdp._kernels.endless import evaluate_plans
    from latentmdp._kernels.sharing import alone

    S, n = model.n_states, actions.size
    states = np.repeat(np.arange(offsets.size - 1) % S, np.diff(offsets))
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    labels, rows = actions.astype(np.int64), np.zeros((n + 1, model.n_contexts))
    problem = (model.outcomes, rewards, model.discount, states, labels, links)
    changes = np.empty((2, n))
    # The last row stays zero: what follows where the episode is over, node -1.
    if model.horizon is not None and offsets.size > S + 1:
        later = np.full(S + 1, n)  # no nodes
        for t in range((offsets.size - 1) // S - 1, -1, -1):
            own = offsets[t * S : t * S + S + 1]
            evaluate_plans(alone(own[0], own[S]), *problem, own, later, rows, rows, changes)
            later = own
        return rows[:n], rows[:n]
    other = rows.copy()
    if model.horizon is not None:
        for _ in range(model.horizon):
            evaluate_plans(alone(0, n), *problem, offsets, offsets, rows, other, changes)
            rows, other = other, rows
        return rows[:n], rows[:n]
    if guess is not None:
        rows[:n] = guess
    share = model.discount / (1.0 - model.discount)
    least = largest = 0.0
    for _ in range(_MOST_ITERATIONS):
        evaluate_plans(alone(0, n), *problem, offsets, offsets, rows, other, changes)
        least, largest = float(changes[0].min()), float(changes[1].max())
        rows, other = other, rows
        finest = max(_SETTLED, _ROUNDING * share) * float(np.abs(rows).max(initial=0.0))
        if (largest - least) * share <= finest:
            break
    noise = _ROUNDING * (1.0 + share) * float(np.abs(rows).max(initial=0.0))
    if model.terminal.any() or not _all_go_on(model):
        least, largest = min(least, 0.0), max(largest, 0.0)
    return rows[:n] + share * least - noise, rows[:n] + share * largest + noise


def _all_go_on(model: LatentMDP) -> bool:
    """Whether something follows every action for sure."""
    from latentmdp.outcomes import row_sums

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
    from latentmdp._kernels.graphs import Links

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
    own = policy.model.outcomes
    same = policy.model.dimensions[1:] == model.dimensions[1:] and all(
        np.array_equal(getattr(own, name), getattr(model.outcomes, name)) for name in _OUTCOME
    )
    if not same:
        return None
    policy.acting(model)  # raises if it does not fit
    nodes = policy.nodes
    guess = nodes.vectors if policy.model.n_contexts == model.n_contexts else None
    lower, upper = node_bounds(model, nodes.actions, nodes.offsets, policy.links(), guess)
    return ContextBounds(start_values(model, policy, lower), start_values(model, policy, upper))


def start_values(model: LatentMDP, policy: PolicyGraph, values: Floats) -> Floats:
    """What a graph earns in each context, (M,), if its nodes have these values (n, M)."""
    shares = policy.weights if isinstance(policy, MixturePolicy) else np.ones(1)
    hidden = np.zeros(model.n_contexts) if model.initial_bonus is None else model.initial_bonus
    start = np.flatnonzero(~model.terminal & model.initial.any(axis=0))
    first = np.atleast_2d(policy.first)[:, start]
    earned = np.einsum("k,ms,ksm->m", shares, model.initial[:, start], values[first])
    return np.asarray(hidden + earned)
