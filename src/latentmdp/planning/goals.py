"""Goals without a discount: what can go on for ever without news and without pay is made one state.

Backups from above would stay too high where a cycle earns nothing: one could always promise to
leave it later. In a process of beliefs such a cycle, an end component, has one belief only, since
beliefs are martingales and converge: all that happens in it is equally likely in all contexts that
are possible. So it depends on the set G of these contexts, and not on the belief otherwise. The
nodes (s, G) that can be met are listed breadth first; among the actions of a set G whose outcomes
are equally likely in all its contexts the end components are found; and the nodes of each are made
one, whose actions are those that leave it. `Quotient.model` is that problem, a latent MDP again,
and a policy graph of it is translated back: inside a component it walks to where it leaves.

Where some policy reaches a goal with probability one in every context (`theory.almost_surely`),
nothing is left to search: one step pays, and that policy is a graph.

Where there are too many nodes, those that follow have all contexts for their set: then fewer cycles
are found, and upper bounds are still bounds.

With costs nothing needs to be joined, since a promise to leave later is no gain; but plans need a
first policy that surely comes to an end. Where no rule by states does so in all contexts, nodes are
searched, and one by nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentmdp._total_reward import sure_rule
from latentmdp._util import names
from latentmdp._util.arrays import Flags, Floats, Integers, segments
from latentmdp._util.cycles import distances, end_components
from latentmdp.errors import ModelError
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes
from latentmdp.planning import kernels_almost_sure as kernels
from latentmdp.planning.almost_sure import SupportPolicy, SupportSearch, decided, unpacked
from latentmdp.planning.graphs import evaluated_graph
from latentmdp.planning.limits import LimitReached, PlanningClock
from latentmdp.policies import MixturePolicy

_SAME = 1e-12
"""Chances that differ by no more are equal: those of contexts that outcomes do not tell apart."""

_LARGER = 16.0
"""How many times as many outcomes as the model's the nodes may have before sets are given up: more
find more cycles, and make the search as much slower."""


class SupportNodes(NamedTuple):
    """Pairs (s, G) of a state and the contexts that are possible there, and what follows them."""

    states: Integers  # (n,)
    sets: Flags  # (n, M)
    first: Integers  # (S,): the node in which an episode begins, -1 for none
    starts: Integers  # (n A + 1,): the outcomes of each action
    outcomes: Integers  # (k,): which of the model's they are; only those that are possible
    following: Integers  # (k,): their nodes


class Quotient(NamedTuple):
    """A model without cycles that change nothing, and the way back to the model's own states."""

    own: LatentMDP
    model: LatentMDP  # the own one where it has no such cycles
    way: Callable[[MixturePolicy], EvaluatedGraph] | None = None
    keep_apart: Callable[[], None] | None = None  # for `lump`: nodes of other sets have other rules

    def translated(self, policy: MixturePolicy) -> EvaluatedGraph:
        """A policy of the quotient in the model's own states; what it earns in each context."""
        assert self.way is not None
        return self.way(policy)


EvaluatedGraph = tuple[MixturePolicy, Floats, Floats]
"""A graph, and bounds on what it earns in each context."""


def quotient(model: LatentMDP, memory: float, clock: PlanningClock) -> Quotient:
    """The quotient of a model, which takes about so many bytes at most."""
    plain = Quotient(model, model)
    if not model.duration.is_total:
        return plain
    costs = model.planning_rewards().min() < 0.0
    if costs and sure_rule(model)[1].all():
        return plain
    most = min(memory / (8.0 * model.n_contexts), _LARGER * model.outcomes.size)
    sure = None if costs else _sure_goal(model, clock)
    if sure is not None:
        return sure
    nodes = _listed(model, most)
    A, n = model.n_actions, nodes.states.size
    if costs:
        # Which contexts are possible may tell how to come to an end in all of them.
        product = _joined(model, nodes, np.full(n, -1), np.zeros(n * A, np.bool_))
        surely = sure_rule(product.model)[1]
        if not surely.all():
            s = int(nodes.states[np.argmin(surely)])
            raise ModelError(
                "no policy was found that surely comes to an end in every context from "
                f"{names.called('state', s, model.state_names)}: give a horizon or a discount"
            )
        return product._replace(keep_apart=_keep_apart)
    silent = _silent(model, nodes)
    every = np.ones(nodes.outcomes.size, np.bool_)
    found = end_components(np.arange(n + 1) * A, nodes.starts, nodes.following, every, silent)
    if found.inside.all(where=np.diff(nodes.starts) > 0) or not found.inside.any():
        return plain  # what never leaves a cycle earns nothing in any context, as Q-MDP knows
    return _joined(model, nodes, found.of_state, found.inside)


def _sure_goal(model: LatentMDP, clock: PlanningClock) -> Quotient | None:
    """One step that pays, where all that can be paid is a goal that some policy surely reaches.

    None where it is not so, or where to see that takes more than half of the memory limit, or the
    third of the time in which a plan that converges is the same in every process. The policy takes
    the contexts that are left in turn: it heads for the goal in one until something else happens
    than what leads nearer, and then goes on with the next. In the true context no round is without
    a chance to go all the way.
    """
    table, M = model.outcomes, model.n_contexts
    amounts = model.reward_values[table.reward]
    pays, worth = amounts != 0.0, float(amounts.max(initial=0.0))
    goal = np.zeros(model.n_states, np.bool_)
    goal[table.next_state[pays]] = True
    bonuses = model.has_bonus or model.initial_bonus is not None
    same = (amounts[goal[table.next_state]] == worth).all() and model.terminal[goal].all()
    if bonuses or not same or not goal.any():
        return None

    def check(used: float) -> None:
        clock.check()
        clock.require_memory(2.0 * used)
        if math.isfinite(clock.remaining):
            raise LimitReached("the search needs the time that is left")

    try:
        found = decided(model, np.flatnonzero(goal), np.iinfo(np.int32).max, check)
        graph = None if found.policy is None else _in_turn(found.policy, goal)
    except LimitReached:
        return None
    if graph is None or graph[1].min() < worth * (1.0 - 1e-9):
        return None
    step = Outcomes.each(
        np.array([0, 1, 1]), np.ones(1, np.int32), np.zeros(1, np.int32), np.ones((1, M))
    )
    initial, bonus = np.zeros((M, 2)), np.zeros((M, 2, 1))
    initial[:, 0] = 1.0
    bonus[:, 0] = worth
    searched = LatentMDP._trusted(
        model, outcomes=step.frozen(), _table_rewards="transition", reward_values=np.zeros(1),
        allowed=np.array([[True], [False]]), initial=initial, bonus=bonus,
        state_names=None, action_names=None, reward_edges=None,
    )  # fmt: skip
    return Quotient(model, searched, lambda _: graph)


def _in_turn(policy: SupportPolicy, goal: Flags) -> EvaluatedGraph:
    """The graph that heads for the goal in one context after the other by actions that are safe.

    Its nodes are i M + m for a pair i = (s, G) and the context m that it heads for.
    """
    model, graph = policy.model, policy.graph
    n, A, M = graph.state.size, model.n_actions, model.n_contexts
    ends = goal[graph.state]
    # Choices are pairs with a safe action, edges what may follow them.
    owner, action = policy.safe.nonzero()
    choice, edge = segments(graph.first_edge.ravel(), owner * (A + 1) + action)
    source, target = owner[choice], graph.edges[edge].astype(np.int64)
    steps, best = np.full((M, n), -1, np.int32), np.full((M, n), owner.size, np.int32)
    for m in range(M):
        ways = (graph.contexts[:, m // 64] >> np.uint64(m % 64) & np.uint64(1))[target] > 0
        steps[m] = distances(n, source[ways], target[ways], ends)
        nearer = ways & (steps[m][target] == steps[m][source] - 1)
        np.minimum.at(best[m], source[nearer], choice[nearer])
    edge_starts = np.searchsorted(choice, np.arange(owner.size + 1))

    def after(nodes: Integers) -> tuple[Integers, Integers, Integers]:
        """What follows nodes: (place among them, the model's outcome, the node there)."""
        i, m = np.divmod(nodes, M)
        place, edges = segments(edge_starts, best[m, i])
        goes_on = ~ends[target[edges]]
        place, edges = place[goes_on], edges[goes_on]
        later, heads = target[edges], m[place]
        left = unpacked(graph.contexts[later], M)
        here = np.arange(later.size)
        changes = ~left[here, heads] | (steps[heads, later] != steps[heads, i[place]] - 1)
        turns = (heads[changes, None] + 1 + np.arange(M)) % M
        following = np.take_along_axis(left[changes], turns, axis=1).argmax(axis=1)
        heads[changes] = turns[np.arange(len(turns)), following]
        return place, graph.outcomes[edge[edges]], later * M + heads

    begins = model.initial_vectors.nonzero()
    first = policy.first[begins]
    first = first * M + unpacked(graph.contexts[first], M).argmax(axis=1)
    return _linked_graph(
        model, begins, first[None], np.ones(1), lambda nodes: graph.state[nodes // M],
        lambda nodes: action[best[nodes % M, nodes // M]], after,
    )  # fmt: skip


def _keep_apart() -> None:
    """The check of a lumping that must not be done."""
    raise LimitReached("the rule that surely ends tells all states apart")


def _listed(model: LatentMDP, most: float) -> SupportNodes:
    """The nodes that can be met, with at most about so many outcomes before sets are given up."""
    A, begins = model.n_actions, model.initial_vectors.nonzero()
    kind = np.where(model.terminal, kernels.LOST, kernels.UNKNOWN).astype(np.int8)
    search = SupportSearch(model, kind, math.inf)
    sets = model.initial_vectors.of(begins) > 0.0
    sets[model.terminal[begins]] = True  # nothing follows, whatever is possible
    search.list_all(begins, sets, most)
    graph = search.found()
    first = np.full(model.n_states, -1)
    first[begins] = np.arange(begins.size)
    return SupportNodes(
        graph.state.astype(np.int64), unpacked(graph.contexts, model.n_contexts), first,
        np.append(graph.first_edge[:, :A].ravel(), graph.edges.size), graph.outcomes, graph.edges,
    )  # fmt: skip


def _chances(model: LatentMDP, nodes: SupportNodes) -> tuple[Floats, Integers]:
    """The probabilities of the nodes' outcomes, (k, M), and the context that excluded ones copy.

    So a context that is not possible in a node has the same future as one that is: a search takes
    them for one.
    """
    node = np.repeat(np.arange(nodes.starts.size - 1), np.diff(nodes.starts)) // model.n_actions
    like = np.where(nodes.sets, np.arange(model.n_contexts), nodes.sets.argmax(axis=1)[:, None])
    return np.take_along_axis(model.outcomes.probs_of(nodes.outcomes), like[node], 1), like


def _silent(model: LatentMDP, nodes: SupportNodes) -> Flags:
    """Whether the outcomes of each action of a node are equally likely in all its contexts."""
    probs, _ = _chances(model, nodes)
    differs = probs.max(axis=1) - probs.min(axis=1) > _SAME
    rows = np.repeat(np.arange(nodes.starts.size - 1), np.diff(nodes.starts))
    return np.asarray(np.bincount(rows[differs], minlength=nodes.starts.size - 1) == 0)


def _joined(model: LatentMDP, nodes: SupportNodes, of_node: Integers, inside: Flags) -> Quotient:
    """The quotient with each component one state; the actions of all others keep their numbers."""
    A, n, M = model.n_actions, nodes.states.size, model.n_contexts
    groups = np.where(of_node >= 0, n + of_node, np.arange(n))
    number = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    X = int(number.max()) + 1
    leaves = (np.diff(nodes.starts) > 0) & ~inside
    rows = np.flatnonzero(leaves)
    rows = rows[np.argsort(number[rows // A], kind="stable")]
    owner = number[rows // A]
    rank = np.arange(rows.size) - np.searchsorted(owner, owner)
    action = np.where(of_node[rows // A] >= 0, rank, rows % A)
    wide = int(action.max(initial=0)) + 1
    exits = np.full(X * wide, -1)
    exits[owner * wide + action] = rows
    used = np.flatnonzero(exits >= 0)
    source, entries = segments(nodes.starts, exits[used])
    row, ahead = used[source], number[nodes.following[entries]]
    order = np.lexsort((entries, ahead, row))
    place = np.full(nodes.outcomes.size, -1)
    place[entries[order]] = np.arange(order.size)
    entries, row, ahead = entries[order], row[order], ahead[order]
    # Outcomes that lead to one state are told apart by rewards that are worth nothing; what is paid
    # is the bonus.
    cells = row * X + ahead
    label = np.arange(cells.size) - np.searchsorted(cells, cells)
    probs, like = _chances(model, nodes)
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=X * wide))])
    table = Outcomes.each(starts, ahead.astype(np.int32), label.astype(np.int32), probs[entries])
    paid = np.moveaxis(model.planning_rewards(), 0, -1).reshape(-1, M)
    bonus = np.zeros((X * wide, M))
    of_node_row = nodes.states[exits[used] // A] * A + exits[used] % A
    bonus[used] = np.take_along_axis(paid[of_node_row], like[exits[used] // A], 1)
    initial, begins = np.zeros((M, X)), np.flatnonzero(nodes.first >= 0)
    np.add.at(initial.T, number[nodes.first[begins]], model.initial_vectors.of(begins))
    searched = LatentMDP._trusted(
        model, outcomes=table.frozen(), _table_rewards="transition",
        reward_values=np.zeros(int(label.max(initial=0)) + 1),
        allowed=(exits >= 0).reshape(X, wide), initial=initial,
        bonus=np.moveaxis(bonus.reshape(X, wide, M), -1, 0).copy(),
        state_names=None, action_names=None, reward_edges=None,
    )  # fmt: skip
    way = (nodes, number, exits, place, inside)
    return Quotient(model, searched, lambda policy: _translated(model, searched, *way, policy))


def _translated(
    own: LatentMDP, searched: LatentMDP, nodes: SupportNodes, number: Integers, exits: Integers,
    place: Integers, inside: Flags, policy: MixturePolicy,
) -> EvaluatedGraph:  # fmt: skip
    """A policy graph of the quotient `searched` in the own states of the model.

    Its nodes are i n + k for a node i = (s, G) and one of the n nodes k of the quotient's graph. In
    a component it walks, by actions that stay in it, to where k leaves; so k stays until then.

    Parameters
    ----------
    number : (N,)
        The quotient's state of each node.
    exits : (quotient's states x its actions,)
        The row node x A + a, -1 for none.
    place : (k,)
        Which of the quotient's outcomes each outcome of the nodes is, or -1.
    inside : (N A,)
        Actions that stay in their component.
    """
    A, n, offsets, links = own.n_actions, policy.n_nodes, policy.nodes.offsets, policy.links()
    states = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    rows = states * searched.n_actions + policy.nodes.actions
    leaves = exits[rows]  # where each node of the graph leaves
    walks: dict[int, Integers] = {}

    def walk(target: int) -> Integers:
        """The action of every node of the component of `target` that leads there."""
        if target not in walks:
            members = number == number[target]
            staying = np.flatnonzero(inside & np.repeat(members, A))
            source, entries = segments(nodes.starts, staying)
            ahead = nodes.following[entries]
            goals = np.arange(members.size) == target
            steps = distances(members.size, staying[source] // A, ahead, goals)
            nearest = np.full(inside.size, members.size)
            np.minimum.at(nearest, staying[source], steps[ahead])
            walks[target] = nearest.reshape(-1, A).argmin(axis=1)
        return walks[target]

    def act(codes: Integers) -> Integers:
        at, of = np.divmod(codes, n)
        actions = leaves[of] % A
        for i in np.flatnonzero(at != leaves[of] // A):
            actions[i] = walk(int(leaves[of[i]] // A))[at[i]]
        return actions

    def after(codes: Integers) -> tuple[Integers, Integers, Integers]:
        row = codes // n * A + act(codes)
        source, entries = segments(nodes.starts, row)
        ahead, followers = nodes.following[entries], (codes % n)[source]
        leaving = ~inside[row[source]]
        of, reached = followers[leaving], number[ahead[leaving]]
        listed = links.node_starts[of] + place[entries[leaving]]
        listed -= searched.outcomes.starts[rows[of]]
        # Where a node stays, nothing is listed.
        linked = np.append(links.followers, -1)[np.where(links.stays[of], -1, listed)]
        same = offsets[reached] + of - offsets[states[of]]
        followers[leaving] = np.where(links.stays[of], same, linked)
        goes_on = (followers >= 0) & ~searched.terminal[number[ahead]]
        later = ahead[goes_on] * n + followers[goes_on]
        return source[goes_on], nodes.outcomes[entries[goes_on]], later

    begins = np.flatnonzero((nodes.first >= 0) & ~own.terminal)
    at = nodes.first[begins]
    begun = policy.first[:, number[at]]
    first = np.where(begun < 0, -1, at * n + begun)
    return _linked_graph(
        own, begins, first, policy.weights, lambda codes: nodes.states[codes // n], act, after
    )


def _linked_graph(
    model: LatentMDP, begins: Integers, first: Integers, weights: Floats,
    state_of: Callable[[Integers], Integers], act: Callable[[Integers], Integers],
    after: Callable[[Integers], tuple[Integers, Integers, Integers]],
) -> EvaluatedGraph:  # fmt: skip
    """The graphs of the nodes that follow from the first, and what they earn in each context.

    Parameters
    ----------
    begins, first : (k,), (K, k)
        First states, and with which node each of the graphs begins there, -1 for none.
    weights : (K,)
        Of the graphs.
    state_of, act
        The states and the actions of nodes.
    after
        What follows nodes: place among them, outcome of the model's table, and node there. Where
        none does, nothing is left to earn.
    """
    reached = frontier = np.unique(first[first >= 0])
    while frontier.size:
        frontier = np.setdiff1d(after(frontier)[2], reached)
        reached = np.union1d(reached, frontier)
    S, table = model.n_states, model.outcomes
    # Every state has a node beside these, for what cannot happen, and where nothing is left to
    # earn: the first action it has.
    others = np.flatnonzero(~model.terminal)
    states = np.concatenate([others, state_of(reached)])
    actions = np.concatenate([model.allowed.argmax(axis=1)[others], act(reached)])
    order = np.argsort(states, kind="stable")
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    spare = np.full(S, -1)
    spare[others] = place[: others.size]
    rows = states * model.n_actions + actions
    counts = np.diff(table.starts)[rows]
    begin = np.cumsum(counts) - counts
    _, outcomes = segments(table.starts, rows)
    followers = spare[table.next_state[outcomes]]
    source, outcome, target = after(reached)
    of = source + others.size
    target = np.searchsorted(reached, target) + others.size
    followers[begin[of] + outcome - table.starts[rows[of]]] = place[target]
    _, entries = segments(np.append(begin, followers.size), order)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(states, minlength=S))])
    numbers = np.tile(spare, (len(first), 1))
    known = place[others.size - 1 + np.searchsorted(reached, first, "right")]
    numbers[:, begins] = np.where(first < 0, spare[begins], known)
    followers = followers[entries]
    policy, earned = evaluated_graph(model, actions[order], offsets, followers, numbers, weights)
    return policy, *earned
