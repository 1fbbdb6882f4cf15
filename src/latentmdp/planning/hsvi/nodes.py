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
    followed: Integers  # the policies that are followed, by number


def reached(bounds: Bounds, states: Integers, plans: Integers) -> Nodes:
    """All nodes that are reached from plans (n,) in first states (n,) of the model."""
    model, layers = bounds.model, bounds.problem.layers
    S, alive = model.n_states, ~model.terminal
    found: list[Integers] = [np.empty(0, np.int64) for _ in range(layers)]  # codes of each layer
    frontier, t = _codes(bounds, states, plans), 0
    followed = {int(-1 - code) for code in plans[plans < 0]}
    while frontier.size and t < layers:
        fresh = np.setdiff1d(frontier, found[t], assume_unique=True)
        found[t] = np.union1d(found[t], fresh)
        next_states, links = _links(bounds, fresh)
        followed |= {int(-1 - code) for code in np.unique(links[links < 0])}
        kept = (links >= 0) & alive[next_states]
        frontier = _codes(bounds, next_states[kept], links[kept])
        t = t + 1 if bounds.problem.ends else 0
    # In every state there are two at least, also where no plan leads: a policy whose belief plays
    # no part is followed without one.
    followed |= {0, bounds.first_actions.shape[2] - 1}
    policies = np.array(sorted(followed), np.int64)
    number = max(len(bounds.plans), 1)
    everywhere = np.flatnonzero(alive)
    parts, counts = [], []
    for codes in found:
        s = np.concatenate([np.repeat(everywhere, policies.size), codes // number])
        p = np.concatenate([np.tile(-1 - policies, everywhere.size), codes % number])
        order = np.argsort(s, kind="stable")
        parts.append((s[order], p[order]))
        counts.append(np.bincount(s, minlength=S))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    node_states, node_plans = (np.concatenate(part) for part in zip(*parts))
    return Nodes(node_states, node_plans, offsets, policies)


def _codes(bounds: Bounds, states: Integers, plans: Integers) -> Integers:
    """Distinct numbers of pairs with a plan, rising."""
    found = plans >= 0
    return np.unique(states[found] * max(len(bounds.plans), 1) + plans[found])


def _links(bounds: Bounds, codes: Integers) -> tuple[Integers, Integers]:
    """The states that may follow pairs, after each outcome of the model, and the plans there."""
    plans, table = bounds.plans, bounds.model.outcomes
    states, numbers = np.divmod(codes, max(len(plans), 1))
    if bounds.problem.ends:  # nothing follows the last step
        goes_on = plans.layers.used[numbers] + 1 < bounds.problem.layers
        states, numbers = states[goes_on], numbers[goes_on]
    rows = states * bounds.model.n_actions + plans.actions.used[numbers]
    source, outcomes = segments(table.starts, rows)
    places = plans.starts.used[numbers[source]] + bounds.lumping.outcome[outcomes]
    return table.next_state[outcomes].astype(np.int64), plans.links.used[places]


def actions_of(bounds: Bounds, nodes: Nodes) -> Indices:
    """The action of every node."""
    lumped = bounds.lumping.state[nodes.states]
    is_plan, layer = nodes.plans >= 0, _layers(bounds, nodes)
    actions = np.empty(nodes.states.size, np.int32)
    actions[is_plan] = bounds.plans.actions.used[nodes.plans[is_plan]]
    others = ~is_plan
    actions[others] = bounds.first_actions[layer[others], lumped[others], -1 - nodes.plans[others]]
    return actions


def vectors_of(bounds: Bounds, nodes: Nodes) -> Floats:
    """What every node earns in each of the model's contexts, (n, M)."""
    lumping, problem = bounds.lumping, bounds.problem
    classes, layer = lumping.classes[nodes.states], _layers(bounds, nodes)
    vectors = np.empty(classes.shape)
    is_plan = nodes.plans >= 0
    plans = nodes.plans[is_plan]
    vectors[is_plan] = np.take_along_axis(bounds.plans.vectors.used[plans], classes[is_plan], 1)
    others = ~is_plan
    places = problem.first[lumping.state[nodes.states[others]]][:, None] + classes[others]
    policies = -1 - nodes.plans[others]
    vectors[others] = bounds.tables.first_plans[layer[others, None], places, policies[:, None]]
    return vectors


def _layers(bounds: Bounds, nodes: Nodes) -> Integers:
    sizes = np.diff(nodes.offsets)
    return np.repeat(np.arange(sizes.size) // bounds.model.n_states, sizes)


def alpha_policy(bounds: Bounds) -> AlphaVectorPolicy:
    """The policy of the best plans at the start."""
    nodes = reached(bounds, bounds.start_states, bounds.best_plans)
    actions, vectors = actions_of(bounds, nodes), vectors_of(bounds, nodes)
    return AlphaVectorPolicy(vectors, actions, nodes.offsets, bounds.model)
