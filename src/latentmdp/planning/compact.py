"""Plans with few alpha vectors: small enough to read, with their own proved lower bound.

The few vectors are nodes of a policy graph, N for each (t, s), or for each s without an end. What a
graph earns is linear in every node's arrivals

    u_i(m) = discounted probability, in context m and with its weight, of coming to node i,

so with the rest of the graph given, the best action and the best links of node i are those of the
backup at the belief u_i. Hence

    begin     with the beliefs that the policy visits, by simulation: back them up, from the last
              step to the first, each from the few vectors kept for the next step, and keep those
              that add most to sum_b (how often b is visited) max_i <b, alpha_i>, one by one;
    repeat    forward, compute all arrivals; backward, back every node up at its arrivals, and put
              nodes that nothing arrives at where they add most: at what arrives, apart by where it
              comes from, or at a belief that the policy visits.

With an end every such round raises the value of the graph, or leaves it. Without one, all nodes are
backed up at once, the graph is evaluated, and the best of the rounds counts. The vectors are those
of the graph, exactly, so its value at the start is a proved lower bound for it, and also for acting
by the best of its vectors at every belief. That policy mostly earns more, and more is proved by
following it for a while from the start: with the beliefs visited after d steps, its value is at
least what was earned on the way plus what the best vectors promise there.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from latentmdp._util import Floats, Integers, arrays
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.planning import kernels_compact as kernels
from latentmdp.planning.base import Plan
from latentmdp.planning.chains import solve_chains
from latentmdp.planning.graphs import evaluated_graph
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy, PolicyGraph
from latentmdp.simulation import simulate
from latentmdp.worlds import Space

_MOST_POINTS = 150
"""Beliefs of a (t, s), or of s without an end, at which vectors are looked for: those visited most.
More take longer, and bring next to nothing."""

_NEGLIGIBLE = 1e-9
"""The share of an episode's steps that does not count as arrivals at all."""


class _Points(NamedTuple):
    """Masses (belief times how often it is visited) in the order of their (t, s)."""

    masses: Floats  # (n, M)
    offsets: Integers  # (layers S + 1,)

    def layer(self, t: int, n_states: int) -> _Points:
        """Those of time t."""
        offsets = self.offsets[t * n_states : (t + 1) * n_states + 1]
        return _Points(self.masses[offsets[0] : offsets[-1]], offsets - offsets[0])

    @property
    def states(self) -> Integers:
        """The state of each point of one layer."""
        return _groups(self.offsets)


class _SmallGraph(NamedTuple):
    """A graph with few nodes, and what it is worth at the start."""

    lower: float
    graph: PolicyGraph


def compacted(plan: Plan, vectors: int | None, loss: float | None, graph: bool) -> Plan:
    """See `Plan.compact`."""
    policy = plan.policy
    if isinstance(policy, PolicyGraph) and not isinstance(policy, MixturePolicy):
        policy = policy.nodes
    if not isinstance(policy, AlphaVectorPolicy):
        raise TypeError(
            f"only a plan of alpha vectors can be made compact, not one of a "
            f"{type(policy).__name__}"
        )
    policy.model.duration.require_discount("compact")
    if (vectors is None) == (loss is None):
        raise ValueError("give vectors= or loss=, one of them")
    choice = _Choice(policy, graph)
    if vectors is not None:
        return _stated(plan, choice, choice.of(arrays.positive_integer("vectors", vectors)))
    assert loss is not None
    if not 0.0 < loss < 1.0:
        raise ValueError(f"loss must lie between 0 and 1, got {loss}")
    if plan.lower is None:
        raise ValueError("loss= is relative to the plan's lower bound, and this plan has none")
    return _stated(plan, choice, choice.within(plan.lower - loss * abs(plan.lower)))


def _stated(plan: Plan, choice: _Choice, small: _SmallGraph) -> Plan:
    """The compact plan, with what it loses. Its filter is exact, as the proof asks for."""
    nodes, before = small.graph.nodes, choice.policy.actions.size
    most = int(np.diff(nodes.offsets).max())
    where = "a state" if choice.is_endless else "a time and state"
    message = f"{nodes.actions.size:,} vectors in place of {before:,}, at most {most} for {where}"
    loss = None
    if plan.lower is not None:
        loss = (plan.lower - small.lower) / abs(plan.lower) if plan.lower else 0.0
        message += f"; the lower bound loses {max(loss, 0.0):.2%}"
    policy: Policy = small.graph if choice.follows_graph else nodes
    return replace(
        plan,
        policy=policy,
        lower=small.lower,
        upper=None if plan.upper is None else max(plan.upper, small.lower),
        loss=loss,
        history=(),
        guarantee=None if plan.upper is None else (1.0, max(plan.upper - small.lower, 0.0)),
        message=message,
    )


class _Choice:
    """The few vectors of a policy, for any number of them.

    They are nodes of a graph that is followed, or that only proves what acting by them earns.
    """

    def __init__(self, policy: AlphaVectorPolicy, follows_graph: bool) -> None:
        self.policy, self.model, self.follows_graph = policy, policy.model, follows_graph
        model = self.model
        self.is_endless = model.horizon is None
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        joint = model.weights[:, None] * model.initial
        self.starts = np.flatnonzero((joint.sum(axis=0) > 0.0) & ~model.terminal)
        self.joint = joint[:, self.starts].T.copy()
        self.visited = _visited(policy, model)

    def of(self, most: int) -> _SmallGraph:
        """At most so many vectors for each (t, s), or s: the best of up to 30 rounds.

        The last three in a row bring no more than 1e-5 of the value.
        """
        groups, masses = self.visited
        nobody = _gathered(self.model, groups[:0], masses[:0], 0)
        later = self.policy.vectors, self.policy.offsets
        best = small = self._passed(nobody, _gathered(self.model, groups, masses), most, later)
        fruitless = rounds = 0
        while fruitless < 3 and rounds < 30:
            small = self._improved(small.graph, most)
            gained = small.lower > best.lower + 1e-5 * abs(best.lower)
            fruitless, rounds = 0 if gained else fruitless + 1, rounds + 1
            best = max(best, small, key=lambda graph: graph.lower)
        if not self.follows_graph:
            best = best._replace(lower=max(best.lower, self._proved(best.graph.nodes)))
        return best

    def within(self, lower: float) -> _SmallGraph:
        """About as few as keep the lower bound; as many as there are points if none does."""
        few, many = 0, 1
        best = self.of(many)
        while best.lower < lower and many < _MOST_POINTS:
            few, many = many, 2 * many
            best = self.of(many)
        while many - few > 1 and best.lower >= lower:
            middle = (few + many) // 2
            other = self.of(middle)
            if other.lower >= lower:
                many, best = middle, other
            else:
                few = middle
        return best

    def _improved(self, graph: PolicyGraph, most: int) -> _SmallGraph:
        """Every node backed up at its arrivals, idle ones put elsewhere."""
        nodes, arrived = graph.nodes, self._arrivals(graph)
        pieces, masses = self._pieces(graph, arrived)
        groups, n_groups = _groups(nodes.offsets), nodes.offsets.size - 1
        used = arrived.sum(axis=1) > _NEGLIGIBLE * arrived.sum()
        sizes = np.bincount(groups[used], minlength=n_groups)
        points = _Points(arrived[used], np.concatenate([[0], np.cumsum(sizes)]))
        visited, beliefs = self.visited
        others = np.concatenate([pieces, visited]), np.concatenate([masses, beliefs])
        return self._passed(
            points, _gathered(self.model, *others), most, (nodes.vectors, nodes.offsets)
        )

    def _passed(
        self, nodes: _Points, others: _Points, most: int, later: tuple[Floats, Integers]
    ) -> _SmallGraph:
        """The graph of backups at the nodes' masses, and at those of the others that add most.

        Backward from the last step, or from the vectors `later` where there is no end.
        """
        model, table = self.model, self.model.outcomes
        S, A, M = model.n_states, model.n_actions, model.n_contexts
        after = later if self.is_endless else (np.zeros((0, M)), np.zeros(S + 1, np.int64))
        layers = []
        for t in range(model.n_layers - 1, -1, -1):
            points, n_nodes = _merged(nodes.layer(t, S), others.layer(t, S))
            problem = (table, self.rewards, model.duration.planning_discount, model.allowed)
            plans, labels = kernels.back_up_points(*problem, points.states, points.masses, *after)
            selected, offsets = _select(points, plans, n_nodes, most)
            vectors, labels = plans[selected], labels[selected]
            states = np.repeat(np.arange(S), np.diff(offsets))
            # What each node goes on with, counted from the first node of the next layer.
            target = (vectors, offsets) if self.is_endless else after
            links = kernels.link_points(table, A, states, points.masses[selected], labels, *target)
            layers.append((vectors, labels, np.diff(offsets), links))
            after = (vectors, offsets)
        *columns, layered = zip(*layers[::-1])
        vectors, actions, sizes = (np.concatenate(column) for column in columns)
        ends = np.cumsum([len(layer) for layer in columns[0]])
        begins = [0] if self.is_endless else ends
        shifted = [np.where(link >= 0, link + n, -1) for link, n in zip(layered, begins)]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return self._evaluated(vectors, actions, offsets, np.concatenate(shifted))

    def _evaluated(
        self, vectors: Floats, actions: Integers, offsets: Integers, links: Integers
    ) -> _SmallGraph:
        """The graph and what it is worth."""
        model = self.model
        first = np.where(model.terminal, -1, offsets[: model.n_states])
        guess = vectors
        for _ in range(2):  # the first nodes are chosen by their exact values
            for s, joint in zip(self.starts, self.joint):
                nodes = slice(offsets[s], offsets[s + 1])
                first[s] = nodes.start + int(np.argmax(guess[nodes] @ joint))
            graph = evaluated_graph(model, actions, offsets, links, first, guess=guess)[0].parts[0]
            guess = graph.nodes.vectors
        worth = (guess[first[self.starts]] * self.joint).sum()
        return _SmallGraph(model.initial_value() + float(worth), graph)

    def _proved(self, policy: AlphaVectorPolicy, most_beliefs: int = 5_000) -> float:
        """What acting by the best vector earns at least: followed from the start, then promised.

        The policy is followed further from the `most_beliefs` of a step that are visited most.
        """
        model, table = self.model, self.model.outcomes
        states, masses = self.starts, self.joint
        earned, promised, best = 0.0, 0.0, -np.inf
        for t in range(Space.of(model).longest_episode):
            offsets = policy.offsets[(t if policy.n_layers > 1 else 0) * model.n_states :]
            nodes, values = kernels.best_plans_at(policy.vectors, offsets, states, masses)
            best = max(best, earned + promised + float(values.sum()))
            order = np.argsort(-masses.sum(axis=1), kind="stable")
            promised += float(values[order[most_beliefs:]].sum())
            order = order[:most_beliefs]
            if order.size == 0:
                break
            states, masses, actions = states[order], masses[order], policy.actions[nodes[order]]
            earned += float((masses * self.rewards[states, actions]).sum())
            origin, outcome = arrays.segments(table.starts, states * model.n_actions + actions)
            masses = model.discount * masses[origin] * table.probs_of(outcome)
            states = table.next_state[outcome].astype(np.int64)
            alive = ~model.terminal[states] & masses.any(axis=1)
            states, masses = _same_beliefs(states[alive], masses[alive])
        if not self.is_endless and promised == 0.0:
            best = max(best, earned)
        return model.initial_value() + best

    def _arrivals(self, graph: PolicyGraph) -> Floats:
        """u_i(m) of every node, (n, M)."""
        model, nodes, followers = self.model, graph.nodes, graph.followers
        table = model.outcomes
        n, rows = nodes.actions.size, _groups(nodes.offsets) % model.n_states * model.n_actions
        node, outcome = arrays.segments(table.starts, rows + nodes.actions)
        arrived = np.zeros((n + 1, model.n_contexts))  # the last row is where an episode is over
        arrived[graph.first[self.starts]] = self.joint
        if self.is_endless:
            goes_on = followers >= 0
            counts = np.bincount(node[goes_on], minlength=n)
            offsets = np.concatenate([[0], np.cumsum(counts)])
            chain = offsets, followers[goes_on], table.probs_of(outcome[goes_on])
            return solve_chains(*chain, arrived[:n], model.discount, transposed=True)
        for begin, end in pairwise(graph.node_starts[nodes.offsets[:: model.n_states]]):
            moved = arrived[node[begin:end]] * table.probs_of(outcome[begin:end])
            np.add.at(arrived, followers[begin:end], model.discount * moved)
        return arrived[:n]

    def _pieces(self, graph: PolicyGraph, arrived: Floats) -> tuple[Integers, Floats]:
        """What arrives at each (t, s), apart by where it comes from: the group and the mass."""
        model, nodes, table = self.model, graph.nodes, self.model.outcomes
        S, groups = model.n_states, _groups(nodes.offsets)
        node, outcome = arrays.segments(table.starts, groups % S * model.n_actions + nodes.actions)
        masses = model.discount * arrived[node] * table.probs_of(outcome)
        layer = (groups // S)[node] + (not self.is_endless)
        reached = table.next_state[outcome]
        alive = (layer < model.n_layers) & ~model.terminal[reached] & masses.any(axis=1)
        where = np.concatenate([self.starts, (layer * S + reached)[alive]])
        return where, np.concatenate([self.joint, masses[alive]])


def _groups(offsets: Integers) -> Integers:
    """The group t S + s, or s, of each node."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _visited(policy: AlphaVectorPolicy, model: LatentMDP) -> tuple[Integers, Floats]:
    """Groups and masses of the beliefs that a policy visits, by simulation from a fixed seed.

    About 50,000 steps are simulated, in 50 to 1,000 episodes. Beliefs that agree to a hundredth in
    every context are one.
    """
    steps = Space.of(model).longest_episode
    episodes = int(np.clip(50_000 // steps, 50, 1_000))
    logs = simulate(model, policy, episodes, rng=0)
    beliefs = posterior(model, logs, along=True)
    lengths = np.diff(logs.offsets) + 1
    t = np.arange(logs.states.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    acted = (t < steps) & ~model.terminal[logs.states]
    states, beliefs, t = logs.states[acted].astype(np.int64), beliefs[acted], t[acted]
    groups = states if model.horizon is None else t * model.n_states + states
    weights = model.discount**t / episodes
    one, member = _merge_beliefs(groups, beliefs, digits=2)
    masses = beliefs[one] * np.bincount(member, weights, one.size)[:, None]
    return groups[one], masses


def _gathered(
    model: LatentMDP, groups: Integers, masses: Floats, most: int = _MOST_POINTS
) -> _Points:
    """Masses by (t, s), the largest of each; a trace of the prior where there is none."""
    S = model.n_states
    alive = np.flatnonzero(~model.terminal)
    every = (np.arange(model.n_layers)[:, None] * S + alive).ravel()
    missing = every[np.bincount(groups, minlength=model.n_layers * S)[every] == 0]
    groups = np.concatenate([groups, missing])
    masses = np.concatenate([masses, np.tile(_NEGLIGIBLE * model.weights, (missing.size, 1))])
    order = np.lexsort((-masses.sum(axis=1), groups))
    groups, masses = groups[order], masses[order]
    sizes = np.bincount(groups, minlength=model.n_layers * S)
    rank = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    sizes = np.minimum(sizes, most)
    return _Points(masses[rank < most], np.concatenate([[0], np.cumsum(sizes)]))


def _merge_beliefs(
    states: Integers, beliefs: Floats, digits: int = 12
) -> tuple[Integers, Integers]:
    """Index of one member of every group of equal (s, b), and the group of each.

    Twelve digits are coarse enough for rounding along different orders of the same observations.
    """
    keys = np.column_stack([states.astype(np.float64), np.round(beliefs, digits)])
    # A row as one item of bytes is sorted several times as fast as by columns. Adding zero makes
    # -0.0, which differs in its bytes, the same as 0.0.
    rows = np.ascontiguousarray(keys + 0.0).view(f"V{8 * keys.shape[1]}").ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def _same_beliefs(states: Integers, masses: Floats) -> tuple[Integers, Floats]:
    """Masses of the same state and belief added up: histories may differ in their order only."""
    one, member = _merge_beliefs(states, masses / masses.sum(axis=1, keepdims=True))
    added = [np.bincount(member, column, one.size) for column in masses.T]
    return states[one], np.column_stack(added)


def _merged(nodes: _Points, others: _Points) -> tuple[_Points, Integers]:
    """The points of both by state, nodes first, and how many of each state are nodes."""
    states = np.concatenate([nodes.states, others.states])
    order = np.argsort(states, kind="stable")
    masses = np.concatenate([nodes.masses, others.masses])[order]
    return _Points(masses, nodes.offsets + others.offsets), np.diff(nodes.offsets)


def _select(
    points: _Points, plans: Floats, n_nodes: Integers, most: int
) -> tuple[Integers, Integers]:
    """Up to `most` plans of each state, the first `n_nodes` and those that add most; offsets."""
    selected, sizes = [], []
    for first, last, n in zip(points.offsets[:-1], points.offsets[1:], n_nodes.tolist()):
        # What each plan is worth at the masses that are no node's, less what is reached there.
        worth = plans[first:last] @ points.masses[first + n : last].T
        chosen = list(range(min(n, most)))
        reached = worth[chosen].max(axis=0, initial=-np.inf)
        while len(chosen) < min(most, last - first):
            rises = np.maximum(worth[n:] - reached, 0.0) if chosen else worth[n:]
            gains = rises.sum(axis=1)
            if chosen and gains.max() <= 0.0:
                break
            chosen.append(n + int(gains.argmax()))
            reached = np.maximum(reached, worth[chosen[-1]])
        selected.append(first + np.sort(chosen).astype(np.int64))
        sizes.append(len(chosen))
    return np.concatenate(selected), np.concatenate([[0], np.cumsum(sizes)])
