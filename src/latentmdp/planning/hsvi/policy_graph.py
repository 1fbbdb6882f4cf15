"""Policy graphs from the plans of a search.

Every plan is an action and, for each outcome, the plan to go on with, so its vector is what it
earns in each context when these links are followed. Acting by the best vector at every belief earns
at least as much on average, but perhaps less in some context; a graph earns what it says in all of
them.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util import Floats, Indices, Integers, segments
from latentmdp.planning.graphs import graph_bounds
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.hsvi.nodes import Nodes, actions_of, alpha_policy, reached, vectors_of
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, PolicyGraph


def earned_by_context(bounds: Bounds, plans: Integers) -> Floats:
    """What plans (n,) of the first states (n,) earn in each context, (M,)."""
    states, model = bounds.start_states, bounds.model
    offsets = np.concatenate([[0], np.cumsum(np.bincount(states, minlength=model.n_states))])
    vectors = vectors_of(bounds, Nodes(states, plans, offsets))
    earned = (model.initial[:, states] * vectors.T).sum(axis=1)
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
    nodes = reached(bounds, np.tile(states, len(plans)), plans.ravel(), everywhere=True)
    numbers, actions = _Numbers(bounds, nodes), actions_of(bounds, nodes)
    # Where no episode begins, a graph begins with any node of the state.
    first = np.tile(nodes.offsets[: model.n_states], (len(plans), 1))
    first[:, states] = [numbers.of(states, row) for row in plans]
    first[:, model.terminal] = -1
    vectors = AlphaVectorPolicy(vectors_of(bounds, nodes), actions, nodes.offsets, model)
    followers = _followers(bounds, nodes, numbers, actions)
    policy = MixturePolicy(vectors, followers, first, weights, nodes.plans < 0)
    if bounds.quotient.model is not bounds.quotient.own:
        return bounds.quotient.translated(policy)
    earned = graph_bounds(model, policy)
    assert earned is not None
    return policy, *earned


class _Numbers:
    """The numbers of nodes: their order is that of (group, policy or plan)."""

    def __init__(self, bounds: Bounds, nodes: Nodes) -> None:
        self.groups = np.repeat(np.arange(nodes.offsets.size - 1), np.diff(nodes.offsets))
        self._n_policies = bounds.first_actions.shape[2]
        self._size = self._n_policies + bounds.n_plans
        self._codes = self._code(self.groups, nodes.plans)

    def _code(self, groups: Integers, plans: Integers) -> Integers:
        return groups * self._size + self._n_policies + plans

    def of(self, groups: Integers, plans: Integers) -> Integers:
        """The nodes of plans in groups t S + s, or s without an end."""
        return np.searchsorted(self._codes, self._code(groups, plans))


def _followers(
    bounds: Bounds, nodes: Nodes, numbers: _Numbers, actions: Indices, at_once: int = 4096
) -> Indices:
    """The nodes that follow each outcome of the model's table, of all nodes with a plan.

    So many nodes are done together: enough for numpy, few enough for memory.
    """
    model, problem, plans = bounds.model, bounds.problem, bounds.plans
    S, table = model.n_states, model.outcomes
    linked, parts = np.flatnonzero(nodes.plans >= 0), [np.empty(0, np.int32)]
    for begin in range(0, linked.size, at_once):
        some = linked[begin : begin + at_once]
        rows = nodes.states[some] * model.n_actions + actions[some]
        source, outcomes = segments(table.starts, rows)
        followers = np.full(source.size, -1, np.int32)
        layers = numbers.groups[some[source]] // S + problem.ends
        goes_on = (layers < problem.layers) & ~model.terminal[table.next_state[outcomes]]
        source, outcomes, layers = source[goes_on], outcomes[goes_on], layers[goes_on]
        places = plans.starts[nodes.plans[some[source]]] + bounds.lumping.outcome[outcomes]
        groups = layers * S + table.next_state[outcomes]
        followers[goes_on] = numbers.of(groups, plans.links[places])
        parts.append(followers)
    return np.concatenate(parts)
