"""The plans that are followed from the start, as vectors of the model's own states and contexts.

Acting by the label of the best plan earns at least that plan's value, as long as every plan is the
backup of plans that are still in the set: at the next step the belief finds one at least as good as
the one that the backup counted on. So from the plans at the start, those that they are linked to
are kept, step by step. A plan of a lumped state serves each of the model's states that it stands
for, but only in those that are reached with it is it kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentmdp._util import Floats, Indices, Integers, segments
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.policies import AlphaVectorPolicy


class Nodes(NamedTuple):
    """Pairs of a state and a plan, in the order of (layer, state), policies before plans.

    A plan is a number of `Bounds.plans`, or -1 - k for policy k of those that ask no questions:
    there is one in every state that is not terminal.
    """

    states: Integers  # (n,)
    plans: Integers  # (n,)
    offsets: Integers  # (layers S + 1,)


def reached(bounds: Bounds, states: Integers, plans: Integers, everywhere: bool = False) -> Nodes:
    """All nodes that are reached from plans (n,) in first states (n,) of the model.

    With `everywhere`, policies that are followed anywhere are nodes of all states.
    """
    layers, n_policies = bounds.problem.layers, bounds.first_actions.shape[2]
    S, size = bounds.model.n_states, n_policies + bounds.n_plans
    alive = np.flatnonzero(~bounds.model.terminal)
    found: list[Integers] = [np.empty(0, np.int64) for _ in range(layers)]  # codes of each layer
    frontier, t = _codes(bounds, states, plans), 0
    while frontier.size and t < layers:
        fresh = np.setdiff1d(frontier, found[t], assume_unique=True)
        found[t] = np.union1d(found[t], fresh)
        frontier = _codes(bounds, *_links(bounds, t, fresh))
        t = t + 1 if bounds.problem.ends else 0
    # In every state there are two at least, also where no plan leads: a policy whose belief plays
    # no part is followed without one. (One, where two would take more than a tenth of the memory.)
    # Where that does not double their number, all that are followed somewhere are there, for those
    # who begin with another belief or in another state.
    two = 16.0 * alive.size * layers * bounds.model.n_contexts
    standing = np.arange(min(2 if 10.0 * two <= bounds.memory else 1, n_policies))
    ranks = np.unique(np.concatenate([codes % size for codes in found]))
    followed = np.union1d(standing, n_policies - 1 - ranks[ranks < n_policies])
    if everywhere or followed.size * alive.size * layers <= sum(codes.size for codes in found):
        standing = followed
    first = np.repeat(alive, standing.size) * size + np.tile(n_policies - 1 - standing, alive.size)
    codes = [np.union1d(each, first) for each in found]
    counts = np.concatenate([np.bincount(each // size, minlength=S) for each in codes])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    node_states, ranks = np.divmod(np.concatenate(codes), size)
    return Nodes(node_states, ranks - n_policies, offsets)


def _codes(bounds: Bounds, states: Integers, plans: Integers) -> Integers:
    """Distinct numbers of pairs of a state that is not terminal and a plan, rising."""
    n_policies = bounds.first_actions.shape[2]
    alive = ~bounds.model.terminal[states]
    size = n_policies + bounds.n_plans
    return np.unique(states[alive] * size + n_policies + plans[alive])


def _links(bounds: Bounds, t: int, codes: Integers) -> tuple[Integers, Integers]:
    """The states that may follow pairs, after each outcome of the model, and the plans there."""
    plans, table, n_policies = bounds.plans, bounds.model.outcomes, bounds.first_actions.shape[2]
    if bounds.problem.ends and t + 1 == bounds.problem.layers:  # nothing follows the last step
        return np.empty(0, np.int64), np.empty(0, np.int64)
    states, ranks = np.divmod(codes, n_policies + bounds.n_plans)
    numbers, is_plan = ranks - n_policies, ranks >= n_policies
    actions = bounds.first_actions[t, bounds.lumping.state[states], np.maximum(-1 - numbers, 0)]
    actions[is_plan] = plans.actions[numbers[is_plan]]
    source, outcomes = segments(table.starts, states * bounds.model.n_actions + actions)
    links = numbers[source]  # a policy goes on with itself
    linked = is_plan[source]
    places = plans.starts[links[linked]] + bounds.lumping.outcome[outcomes[linked]]
    links[linked] = plans.links[places]
    return table.next_state[outcomes].astype(np.int64), links


def actions_of(bounds: Bounds, nodes: Nodes) -> Indices:
    """The action of every node."""
    lumped = bounds.lumping.state[nodes.states]
    is_plan, layer = nodes.plans >= 0, _layers(bounds, nodes)
    actions = np.empty(nodes.states.size, np.int32)
    actions[is_plan] = bounds.plans.actions[nodes.plans[is_plan]]
    others = ~is_plan
    actions[others] = bounds.first_actions[layer[others], lumped[others], -1 - nodes.plans[others]]
    return actions


def vectors_of(bounds: Bounds, nodes: Nodes) -> Floats:
    """What every node earns in each of the model's contexts, (n, M)."""
    lumping, problem = bounds.lumping, bounds.problem
    n, M = nodes.states.size, bounds.model.n_contexts
    first = problem.first[lumping.state[nodes.states]]
    first += _layers(bounds, nodes) * problem.first[-1]
    vectors, at_once = np.empty((n, M)), max(1, 2**20 // M)
    for begin in range(0, n, at_once):
        some = slice(begin, begin + at_once)
        classes, plans, out = lumping.classes[nodes.states[some]], nodes.plans[some], vectors[some]
        is_plan = plans >= 0
        of_plans = bounds.plans.vectors[plans[is_plan]]
        out[is_plan] = np.take_along_axis(of_plans, classes[is_plan], 1)
        places = first[some][~is_plan, None] + classes[~is_plan]
        out[~is_plan] = bounds.tables.first_plans[-1 - plans[~is_plan, None], places]
    return vectors


def _layers(bounds: Bounds, nodes: Nodes) -> Integers:
    sizes = np.diff(nodes.offsets)
    return np.repeat(np.arange(sizes.size) // bounds.model.n_states, sizes)


def alpha_policy(bounds: Bounds) -> AlphaVectorPolicy:
    """The policy of the best plans at the start."""
    nodes = reached(bounds, bounds.start_states, bounds.best_plans)
    actions, vectors = actions_of(bounds, nodes), vectors_of(bounds, nodes)
    return AlphaVectorPolicy(vectors, actions, nodes.offsets, bounds.model)
