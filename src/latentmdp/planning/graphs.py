"""What a policy graph earns in every context, exactly or between bounds.

    alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m)

by one pass from the last step to the first or, where there is no end, as the values of a Markov
chain of nodes (`latentmdp.planning.chains`), between bounds (`latentmdp.planning.endless`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from latentmdp import _kernels
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.chains import solve_chains, total_bounds
from latentmdp.planning.endless import Flatness, enclosed
from latentmdp.planning.kernels_graphs import evaluate_plans
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, PolicyGraph, node_moves


def node_bounds(
    model: LatentMDP,
    actions: Indices | Integers,
    offsets: Integers,
    links: _kernels.rollout.Links,
    guess: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Bounds (n, M) on the values of the nodes of a graph; equal where there is an end."""
    S, n = model.n_states, actions.size
    states = np.repeat(np.arange(offsets.size - 1) % S, np.diff(offsets))
    choices, (rewards, paid) = states * model.n_actions + actions, model.row_rewards()
    rows = np.zeros((n + 1, model.n_contexts))
    problem = (model.outcomes, rewards[paid[choices]], model.discount, states, choices, links)
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
    if model.discount == 1.0:
        lower, upper = zip(*(total_bounds(*chain) for chain in _chains(problem, offsets)))
        return np.concatenate(lower, axis=1), np.concatenate(upper, axis=1)

    def solve(guess: Floats) -> Floats:
        chains, near = _chains(problem, offsets), guess.T[:, :, None]
        columns = [solve_chains(*c, model.discount, guess=x) for c, x in zip(chains, near)]
        return np.concatenate(columns, axis=1)

    def back_up(value: Floats) -> Floats:
        rows[:n], after = value, np.empty((n, model.n_contexts))
        evaluate_plans(0, n, *problem, offsets, offsets, rows, after)
        return after

    return enclosed(Flatness.of_model(model), rows[:n].copy(), back_up, solve)


def _chains(
    problem: tuple[Any, ...], offsets: Integers
) -> Iterator[tuple[Integers, Integers, Floats, Floats]]:
    """The chain of a graph's nodes without an end, and what they earn, in each context.

    They come one after another: a table for all would be large.
    """
    table, earned, _, states, choices, links = problem
    layers = np.zeros_like(states)
    source, target, outcome = node_moves(
        table, offsets.size - 1, choices, states, layers, offsets, links
    )
    starts = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=states.size))])
    for m in range(earned.shape[1]):
        probs = table.distinct[table.pattern[outcome], m : m + 1]
        yield starts, target, probs, earned[:, m : m + 1]


def evaluated_graph(
    model: LatentMDP,
    actions: Integers,
    offsets: Integers,
    followers: Indices | Integers,
    first: Integers,
    weights: Floats | None = None,
    guess: Floats | None = None,
) -> tuple[MixturePolicy, tuple[Floats, Floats]]:
    """The graphs (one by default) with these links, and what they earn in every context.

    The vectors of the nodes are their values there, from below.
    """
    rows = np.repeat(np.arange(offsets.size - 1) % model.n_states, np.diff(offsets))
    rows = rows * model.n_actions + actions
    node_starts = np.concatenate([[0], np.cumsum(np.diff(model.outcomes.starts)[rows])])
    stays = np.zeros(actions.size, np.bool_)
    links = _kernels.rollout.Links(node_starts, followers.astype(np.int32), stays)
    lower, upper = node_bounds(model, actions, offsets, links, guess)
    vectors = np.maximum(lower, -1e300)  # of a node that would pay for ever
    nodes = AlphaVectorPolicy(vectors, actions, offsets, model)
    policy = MixturePolicy(nodes, followers, first, np.ones(1) if weights is None else weights)
    return policy, (start_values(model, policy, lower), start_values(model, policy, upper))


def graph_bounds(model: LatentMDP, policy: PolicyGraph) -> tuple[Floats, Floats] | None:
    """What a graph earns in each context of a model; None unless both have the same outcomes."""
    if policy.model.dimensions[1:] != model.dimensions[1:]:
        return None
    if not policy.model.outcomes.lists_like(model.outcomes):
        return None
    policy.acting(model)  # raises if it does not fit
    nodes = policy.nodes
    guess = nodes.vectors if policy.model.n_contexts == model.n_contexts else None
    lower, upper = node_bounds(model, nodes.actions, nodes.offsets, policy.links(), guess)
    return start_values(model, policy, lower), start_values(model, policy, upper)


def start_values(model: LatentMDP, policy: PolicyGraph, values: Floats) -> Floats:
    """What a graph earns in each context, (M,), if its nodes have these values (n, M)."""
    hidden = np.zeros(model.n_contexts) if model.initial_bonus is None else model.initial_bonus
    start = model.initial_vectors.nonzero()
    start = start[~model.terminal[start]]
    first = np.atleast_2d(policy.first)[:, start]
    earned = np.einsum(
        "k,sm,ksm->m", policy.weights, model.initial_vectors.of(start), values[first]
    )
    return np.asarray(hidden + earned)
