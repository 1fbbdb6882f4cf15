"""The plans that are followed from the start, as vectors of the model's own states and contexts.

Acting by the label of the best plan earns at least that plan's value, as long as every plan is the
backup of plans that are still in the set: at the next step the belief finds one at least as good as
the one that the backup counted on. So from the plans at the start, those that they are linked to
are kept, step by step. A plan of a lumped state serves each of the model's states that it stands
for, but only in those that are reached with it is it kept.

A policy graph follows the links themselves: a plan is an action and, for each outcome, the plan to
go on with, so its vector is what it earns in each context when these links are followed. Acting by
the best vector at every belief earns at least as much on average, but perhaps less in some context;
a graph earns what it says in all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Flags, Floats, Indices, Integers, segments
from latentmdp.planning.graphs import graph_bounds
from latentmdp.planning.hsvi import kernels
from latentmdp.planning.hsvi.bounds import AT_ONCE, Bounds
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, PolicyGraph


class Nodes(NamedTuple):
    """Pairs of a group, which is t S + s, or s without an end, and a plan.

    A plan is a number of `Bounds.plans`, or -1 - k for policy k of those that ask no questions:
    there is one in every state that is not terminal.
    """

    bounds: Bounds
    groups: Integers  # (n,)
    plans: Integers  # (n,)

    @property
    def states(self) -> Integers:
        """The model's state of every node."""
        return self.groups % self.bounds.model.n_states

    @property
    def codes(self) -> Integers:
        """A number of every node, in the order of (group, policy or plan)."""
        n_policies = self.bounds.first_actions.shape[2]
        return self.groups * (n_policies + self.bounds.n_plans) + n_policies + self.plans

    def of_codes(self, codes: Integers) -> Nodes:
        """The nodes with these numbers."""
        n_policies = self.bounds.first_actions.shape[2]
        groups, ranks = np.divmod(codes, n_policies + self.bounds.n_plans)
        return Nodes(self.bounds, groups, ranks - n_policies)

    @property
    def offsets(self) -> Integers:
        """Where the nodes of each group begin, (layers S + 1,), if they are in order."""
        n_groups = self.bounds.problem.layers * self.bounds.model.n_states
        return np.concatenate([[0], np.cumsum(np.bincount(self.groups, minlength=n_groups))])

    @property
    def actions(self) -> Indices:
        """The action of every node."""
        bounds, is_plan = self.bounds, self.plans >= 0
        layers, states = np.divmod(self.groups, bounds.model.n_states)
        number = np.maximum(-1 - self.plans, 0)
        actions = bounds.first_actions[layers, bounds.lumping.state[states], number]
        actions[is_plan] = bounds.plans.action[self.plans[is_plan]]
        return actions.astype(np.int32)

    def vectors(self) -> Floats:
        """What every node earns in each of the model's contexts, (n, M)."""
        bounds, problem, lumping = self.bounds, self.bounds.problem, self.bounds.lumping
        layers, states = np.divmod(self.groups, bounds.model.n_states)
        first = layers * problem.first[-1] + problem.first[lumping.state[states]]
        vectors = np.empty((states.size, bounds.model.n_contexts))
        of_plans = (bounds.plans.vector, bounds.tables.first_plans, first)
        of_states = (lumping.members, lumping.member[states])
        bounds.share_all(
            kernels.write_vectors, states.size, self.plans, *of_plans, *of_states, vectors
        )
        return vectors

    def policy(self) -> AlphaVectorPolicy:
        """The policy of the vectors of all nodes, if they are in order."""
        arrays = (self.vectors(), self.actions, self.offsets)
        return AlphaVectorPolicy.of_arrays(*arrays, self.bounds.model)

    def followers(self) -> Nodes:
        """The nodes that follow, outcome by outcome of the model; group -1 where all is over."""
        bounds, model, table = self.bounds, self.bounds.model, self.bounds.model.outcomes
        rows = self.states * model.n_actions + self.actions
        source, outcomes = segments(table.starts, rows)
        layers = self.groups[source] // model.n_states + bounds.problem.ends
        over = (layers == bounds.problem.layers) | model.terminal[table.next_state[outcomes]]
        groups = np.where(over, -1, layers * model.n_states + table.next_state[outcomes])
        links = self.plans[source]  # a policy goes on with itself
        linked = (links >= 0) & ~over
        places = bounds.plans.start[links[linked]] + bounds.lumping.outcome[outcomes[linked]]
        links[linked] = bounds.plans.link[places]
        return Nodes(bounds, groups, links)


def reached(first: Nodes, everywhere: bool = False) -> Nodes:
    """All nodes that are reached from the first ones, in the order of their numbers.

    With `everywhere`, policies that are followed anywhere are nodes of all states.
    """
    bounds, model, layers = first.bounds, first.bounds.model, first.bounds.problem.layers
    n_policies = bounds.first_actions.shape[2]
    frontier = np.unique(first.codes[~model.terminal[first.states]])
    parts, known = [frontier], frontier
    while frontier.size:
        nodes = first.of_codes(frontier)
        if everywhere:  # a policy goes on with itself
            nodes = first.of_codes(frontier[nodes.plans >= 0])
        after = nodes.followers()
        frontier = np.unique(after.codes[after.groups >= 0])
        if not bounds.problem.ends:  # otherwise no node comes twice
            frontier = np.setdiff1d(frontier, known, assume_unique=True)
            known = np.union1d(known, frontier)
        parts.append(frontier)
    codes, alive = np.concatenate(parts), np.flatnonzero(~model.terminal)
    # In every state there are two at least, also where no plan leads: a policy whose belief plays
    # no part is followed without one.
    # Where that does not double their number, all that are followed somewhere are there, for those
    # who begin with another belief or in another state.
    standing = np.arange(min(bounds.standing, n_policies))
    policies = -1 - first.of_codes(codes).plans
    followed = np.union1d(standing, policies[policies >= 0])
    if everywhere or followed.size * alive.size * layers <= codes.size:
        standing = followed
    groups = (np.arange(layers)[:, None] * model.n_states + alive).ravel()
    others = Nodes(bounds, np.repeat(groups, standing.size), np.tile(-1 - standing, groups.size))
    codes = codes[~np.isin(policies, standing)]
    return first.of_codes(np.sort(np.concatenate([codes, others.codes])))


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
    return reached(Nodes(bounds, bounds.start_states, bounds.best_plans)).policy()


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
    everywhere = bounds.may_hold(bounds.first_actions.shape[2])
    nodes = reached(start, everywhere)
    stays = (nodes.plans < 0) & everywhere
    # Where no episode begins, a graph begins with any node of the state.
    first = np.tile(nodes.offsets[: model.n_states], (len(plans), 1))
    first[:, states] = np.searchsorted(nodes.codes, start.codes).reshape(len(plans), -1)
    first[:, model.terminal] = -1
    policy = MixturePolicy(nodes.policy(), _links(nodes, ~stays), first, weights, stays)
    if bounds.quotient.model is not bounds.quotient.own:
        return bounds.quotient.translated(policy)
    earned = graph_bounds(model, policy)
    assert earned is not None
    return policy, *earned


def _links(nodes: Nodes, chosen: Flags) -> Indices:
    """The places of the nodes that follow, outcome by outcome, of chosen nodes."""
    codes, linked = nodes.codes, np.flatnonzero(chosen)
    at_once = max(1, AT_ONCE // max(1, nodes.bounds.model.outcomes.size // codes.size))
    parts = [np.empty(0, np.int32)]
    for begin in range(0, linked.size, at_once):
        after = nodes.of_codes(codes[linked[begin : begin + at_once]]).followers()
        places = np.searchsorted(codes, after.codes)
        parts.append(np.where(after.groups >= 0, places, -1).astype(np.int32))
    return np.concatenate(parts)
