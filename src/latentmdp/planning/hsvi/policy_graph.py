"""Policy graphs from the plans of a search.

Every plan is an action and, for each outcome, the plan to go on with, so its vector is what it
earns in each context when these links are followed. Acting by the best vector at every belief earns
at least as much on average, but perhaps less in some context; a graph earns what it says in all of
them.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util import Floats, Indices, Integers
from latentmdp.planning.graphs import graph_bounds
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.hsvi.nodes import Nodes, alpha_policy, reached
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, PolicyGraph


def earned_by_context(bounds: Bounds, plans: Integers) -> Floats:
    """What plans (n,) of the first states (n,) earn in each context, (M,)."""
    states, model = bounds.start_states, bounds.model
    vectors = Nodes(bounds, states, plans).vectors()
    earned = (model.initial_vectors.of(states) * vectors).sum(axis=0)
    return earned if model.initial_bonus is None else earned + model.initial_bonus


def planned_policy(bounds: Bounds) -> AlphaVectorPolicy | PolicyGraph:
    """The policy of the best plans at the start.

    Acting by the best vector could go round for ever among plans of equal value: where neither an
    end nor a discount prevents that, the links of the plans are followed.
    """
    if bounds.model.duration.is_total:
        return mixture_graph(bounds, bounds.best_plans[None], np.ones(1))[0].parts[0]
    return alpha_policy(bounds)


def mixture_graph(
    bounds: Bounds, plans: Integers, weights: Floats
) -> tuple[MixturePolicy, Floats, Floats]:
    """The mixture of the policies that begin with plans (K, n) in the first states (n,).

    With it what it earns in each context (M,), from below and from above.
    """
    model = bounds.model
    alive = ~model.terminal[bounds.start_states]
    states, plans = bounds.start_states[alive], plans[:, alive]
    start = Nodes(bounds, np.tile(states, len(plans)), plans.ravel())
    nodes = reached(start, everywhere=True)
    # Where no episode begins, a graph begins with any node of the state.
    first = np.tile(nodes.offsets[: model.n_states], (len(plans), 1))
    first[:, states] = np.searchsorted(nodes.codes, start.codes).reshape(len(plans), -1)
    first[:, model.terminal] = -1
    policy = MixturePolicy(nodes.policy(), _links(nodes), first, weights, nodes.plans < 0)
    if bounds.quotient.model is not bounds.quotient.own:
        return bounds.quotient.translated(policy)
    earned = graph_bounds(model, policy)
    assert earned is not None
    return policy, *earned


def _links(nodes: Nodes, at_once: int = 4096) -> Indices:
    """The places of the nodes that follow, outcome by outcome, of all nodes with a plan.

    So many nodes are done together: enough for numpy, few enough for memory.
    """
    codes, linked = nodes.codes, np.flatnonzero(nodes.plans >= 0)
    parts = [np.empty(0, np.int32)]
    for begin in range(0, linked.size, at_once):
        after = nodes.of_codes(codes[linked[begin : begin + at_once]]).followers()
        places = np.searchsorted(codes, after.codes)
        parts.append(np.where(after.groups >= 0, places, -1).astype(np.int32))
    return np.concatenate(parts)
