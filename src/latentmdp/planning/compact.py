"""Plans with few alpha vectors: small enough to read, with their own proved lower bound.

The few vectors are nodes of a policy graph, N for each (t, s), or for each s without an end. What a
graph earns is linear in every node's arrivals

    u_i(m) = discounted probability, in context m and with its weight, of coming to node i,

so with the rest of the graph given, the best action and the best links of node i are those of the
backup at the belief u_i. Hence

    begin     with the beliefs that the policy meets, by simulation: back them up, from the last
              step to the first, each from the few vectors kept for the next step, and keep those
              that add most to sum_b (how often b is met) max_i <b, alpha_i>, one by one;
    repeat    forward, compute all arrivals; backward, back every node up at its arrivals, and put
              nodes that nothing arrives at where they add most to what arrives there.

With an end every such round raises the value of the graph, or leaves it. Without one, all nodes are
backed up at once, the graph is evaluated, and the best of the rounds counts. The vectors are those
of the graph, exactly, so its value at the start is a proved lower bound for it, and also for acting
by the best of its vectors at every belief. That policy mostly earns more, and more is proved by
following it for a while from the start: with the beliefs met after d steps, its value is at least
what was earned on the way plus what the best vectors promise there. Without an end the graph that
is worth most need not have the best vectors to act by. So all is done again with the beliefs that
the policy of these vectors meets, a few times, and with beliefs told apart more or less finely; the
policy of which most is proved counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from latentmdp._util import Floats, Integers, arrays
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.planning.base import Plan
from latentmdp.planning.graphs import evaluated_graph
from latentmdp.planning.point_based.expansion import belief_keys
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy, PolicyGraph
from latentmdp.simulation import simulate
from latentmdp.worlds import Space

_STEPS, _FEWEST_EPISODES, _MOST_EPISODES = 50_000, 50, 1_000
"""Steps that are simulated to see which beliefs a policy meets, and limits on its episodes: they
only make the first graph."""


class _Look(NamedTuple):
    """At which beliefs vectors are looked for."""

    resolution: float  # beliefs that agree to 1 / resolution in every context are one
    most_points: int  # of a (t, s), or of s without an end: those met most


_LOOKS = (_Look(100.0, 150), _Look(30.0, 150), _Look(100.0, 400), _Look(50.0, 800))
"""Without an end, one after the other until little is lost: none is best on every problem."""

_ROUNDS, _FRUITLESS, _GAIN = 30, 3, 1e-5
"""Rounds at most, and how many may bring less than this share of the value in a row."""

_ARRIVED = 1e-9
"""The share of an episode's steps that counts as arrivals at all."""

_FINEST = 1e12
"""Beliefs that agree to 1e-12 are the same: their histories differ in order only."""

_VISITS = 1e-6
"""Without an end arrivals are summed until this share is left."""


_MOST_FOLLOWED, _MOST_PROVED = 5_000, 100_000
"""Beliefs of one step from which a policy is followed further, those met most: while policies are
compared, and for the last proof without an end. More prove a little more and take longer."""

_LITTLE = 0.005
"""Of the value: a loss that is small enough to look no further."""

_MEETINGS, _FRUITLESS_MEETINGS = 8, 3
"""How often vectors are looked for again at the beliefs that their own policy meets, at most, and
how often in a row that may prove nothing more."""


class _Points(NamedTuple):
    """Masses (belief times how often it is met) in the order of their (t, s)."""

    masses: Floats  # (n, M)
    offsets: Integers  # (layers S + 1,)

    def layer(self, t: int, n_states: int) -> _Points:
        """Those of time t."""
        own = self.offsets[t * n_states : (t + 1) * n_states + 1]
        return _Points(self.masses[own[0] : own[-1]], own - own[0])

    @property
    def states(self) -> Integers:
        """The state of each point of one layer."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


class _Small(NamedTuple):
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
    if (vectors is None) == (loss is None):
        raise ValueError("give vectors= or loss=, one of them")
    choice = _Choice(policy)
    if vectors is not None:
        most = arrays.positive_integer("vectors", vectors)
        small = choice.of(most) if graph else _served(choice, most, plan.lower)
        return _stated(plan, choice, small, graph)
    assert loss is not None
    if not 0.0 < loss < 1.0:
        raise ValueError(f"loss must lie between 0 and 1, got {loss}")
    if plan.lower is None:
        raise ValueError("loss= is relative to the plan's lower bound, and this plan has none")
    return _stated(plan, choice, choice.within(plan.lower - loss * abs(plan.lower), graph), graph)


def _stated(plan: Plan, choice: _Choice, small: _Small, graph: bool) -> Plan:
    """The compact plan, with what it loses. Its filter is exact, as the proof asks for."""
    model, nodes = choice.model, small.graph.nodes
    most = int(np.diff(nodes.offsets).max())
    before = choice.policy.actions.size
    where = "a state" if model.horizon is None else "a time and state"
    message = f"{nodes.actions.size:,} vectors in place of {before:,}, at most {most} for {where}"
    loss = None
    if plan.lower is not None:
        loss = (plan.lower - small.lower) / abs(plan.lower) if plan.lower else 0.0
        message += f"; the lower bound loses {max(loss, 0.0):.2%}"
    policy: Policy = small.graph if graph else nodes
    guarantee = None if plan.upper is None else (1.0, max(plan.upper - small.lower, 0.0))
    return replace(
        plan,
        policy=policy,
        lower=small.lower,
        upper=None if plan.upper is None else max(plan.upper, small.lower),
        loss=loss,
        history=(),
        guarantee=guarantee,
        message=message,
    )


def _served(choice: _Choice, most: int, lower: float | None) -> _Small:
    """So many vectors to act by the best of them, from the beliefs where they do best.

    `lower` is what the plan before proves: losing little of it is good enough.
    """
    enough = math.inf if lower is None else lower - _LITTLE * abs(lower)
    best = choice.served(most, enough)
    if choice.model.horizon is not None:
        return best
    for look in _LOOKS[1:]:
        if best.lower >= enough:
            return best
        found = _Choice(choice.policy, look).served(most, enough)
        best = max(best, found, key=lambda small: small.lower)
    return choice.followed(best, _MOST_PROVED)


class _Choice:
    """The few vectors of a policy, for any number of them."""

    def __init__(self, policy: AlphaVectorPolicy, look: _Look = _LOOKS[0]) -> None:
        self.policy, self.model, self.look = policy, policy.model, look
        model = self.model
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        joint = model.weights[:, None] * model.initial
        self.starts = np.flatnonzero((joint.sum(axis=0) > 0.0) & ~model.terminal)
        self.joint = joint[:, self.starts].T.copy()
        self.met = _met(policy, model, look)

    def of(self, most: int, before: _Small | None = None) -> _Small:
        """At most so many vectors for each (t, s), or s; a graph before them is a place to begin.

        They are looked for at the beliefs that are met by the policy, or by that of the graph.
        """
        met = self.met if before is None else _met(before.graph.nodes, self.model, self.look)
        small = self._first(met, most, before)
        if self.model.horizon is None:
            small = _rounds(small, lambda found: self._first(met, most, found))
        return _rounds(small, lambda found: self._improved(found.graph, most))

    def served(self, most: int, enough: float) -> _Small:
        """So many vectors to act by the best of them, with what is proved of that."""
        small = self.of(most)
        best, fruitless = self.followed(small), 0
        if self.model.horizon is not None:
            return best
        for _ in range(_MEETINGS):
            if fruitless == _FRUITLESS_MEETINGS or best.lower >= enough:
                break
            small = self.of(most, small)
            found = self.followed(small)
            fruitless = 0 if found.lower > best.lower else fruitless + 1
            best = max(best, found, key=lambda small: small.lower)
        return best

    def within(self, lower: float, graph: bool) -> _Small:
        """About as few as keep the lower bound; as many as there are points if none does."""

        def proved(most: int) -> _Small:
            small = self.of(most)
            return small if graph else self.followed(small)

        few, many = 0, 1
        found = proved(many)
        while found.lower < lower and many < self.look.most_points:
            few, many = many, 2 * many
            found = proved(many)
        while many - few > 1 and found.lower >= lower:
            middle = (few + many) // 2
            other = proved(middle)
            if other.lower >= lower:
                many, found = middle, other
            else:
                few = middle
        return found

    def followed(self, small: _Small, followed: int = _MOST_FOLLOWED) -> _Small:
        """With what is proved of acting by the best of its vectors."""
        proved = self._proved(small.graph.nodes, followed)
        return small._replace(lower=max(small.lower, proved))

    def _first(self, met: _Points, most: int, before: _Small | None = None) -> _Small:
        """A graph over beliefs that are met; without an end, from a graph before."""
        none = _Points(np.zeros((0, self.model.n_contexts)), np.zeros_like(met.offsets))
        if self.model.horizon is not None:
            return self._passed(none, met, most, None)
        later = _useful(self.policy, met)
        if before is not None:
            later = before.graph.nodes.vectors, before.graph.nodes.offsets
        return self._passed(none, met, most, later)

    def _improved(self, graph: PolicyGraph, most: int) -> _Small:
        """Every node backed up at its arrivals, idle ones put elsewhere."""
        arrived = self._arrivals(graph)
        pieces = self._pieces(graph, arrived)
        arrived[arrived.sum(axis=1) <= _ARRIVED * arrived.sum()] = 0.0
        used = arrived.any(axis=1)
        groups = np.repeat(np.arange(graph.nodes.offsets.size - 1), np.diff(graph.nodes.offsets))
        sizes = np.bincount(groups[used], minlength=graph.nodes.offsets.size - 1)
        nodes = _Points(arrived[used], np.concatenate([[0], np.cumsum(sizes)]))
        endless = self.model.horizon is None
        later = (graph.nodes.vectors, graph.nodes.offsets) if endless else None
        return self._passed(nodes, pieces, most, later)

    def _passed(
        self,
        nodes: _Points,
        others: _Points,
        most: int,
        later: tuple[Floats, Integers] | None,
    ) -> _Small:
        """The graph of backups at the nodes' masses, and at those of the others that add most.

        Backward from the last step, or from `later` where there is no end.
        """
        model = self.model
        S, M, layers = model.n_states, model.n_contexts, model.n_layers
        after = later or (np.zeros((0, M)), np.zeros(S + 1, np.int64))
        kept = []
        for t in range(layers - 1, -1, -1):
            merged, taken = _merged(nodes.layer(t, S), others.layer(t, S))
            plans, labels = self._backed_up(merged, *after)
            chosen, offsets = _choose(merged, plans, taken, most)
            states, masses = np.repeat(np.arange(S), np.diff(offsets)), merged.masses[chosen]
            vectors, labels = plans[chosen], labels[chosen]
            links = self._links(states, masses, labels, vectors, offsets, after, t)
            kept.append((vectors, labels, np.diff(offsets), links))
            after = (vectors, offsets)
        vectors, actions, sizes, links = (np.concatenate(part) for part in zip(*kept[::-1]))
        return self._evaluated(vectors, actions, np.concatenate([[0], np.cumsum(sizes)]), links)

    def _links(
        self, states: Integers, masses: Floats, labels: Integers, vectors: Floats,
        offsets: Integers, after: tuple[Floats, Integers], t: int,
    ) -> Integers:  # fmt: skip
        """What each node goes on with, counted from the first node of the next layer."""
        from latentmdp.planning.point_based.kernels.compact import link_points

        model = self.model
        counts = np.diff(model.outcomes.starts)
        links = np.full(int(counts[states * model.n_actions + labels].sum()), -1)
        target = (vectors, offsets) if model.horizon is None else after
        link_points(model.outcomes, model.n_actions, states, masses, labels, *target, links)
        return links

    def _evaluated(
        self, vectors: Floats, actions: Integers, offsets: Integers, links: Integers
    ) -> _Small:
        """The graph and what it is worth."""
        model = self.model
        S, counts = model.n_states, np.diff(model.outcomes.starts)
        states = np.repeat(np.arange(offsets.size - 1) % S, np.diff(offsets))
        layer = np.repeat(np.arange(offsets.size - 1) // S, np.diff(offsets))
        if model.horizon is not None:  # links counted from the first node of their layer
            begins = np.append(offsets[::S], 0)[layer + 1]
            shift = np.repeat(begins, counts[states * model.n_actions + actions])
            links = np.where(links >= 0, links + shift, -1)
        first = np.where(model.terminal, -1, offsets[:S])
        guess = vectors
        for _ in range(2):  # the first nodes are chosen by their exact values
            for s, joint in zip(self.starts, self.joint):
                own = slice(offsets[s], offsets[s + 1])
                first[s] = own.start + int(np.argmax(guess[own] @ joint))
            graph = evaluated_graph(model, actions, offsets, links, first, guess=guess)
            guess = graph.nodes.vectors
        worth = (guess[first[self.starts]] * self.joint).sum()
        return _Small(model.initial_value() + float(worth), graph)

    def _backed_up(
        self, points: _Points, later: Floats, offsets: Integers
    ) -> tuple[Floats, Integers]:
        """The best plan at each point and its action."""
        from latentmdp.planning.point_based.kernels.compact import back_up_points

        model, n = self.model, len(points.masses)
        plans, labels = np.zeros((n, model.n_contexts)), np.zeros(n, np.int64)
        back_up_points(
            model.outcomes, self.rewards, model.discount, model.allowed, points.states,
            points.masses, np.ascontiguousarray(later), offsets, 0, n, plans, labels,
        )  # fmt: skip
        return plans, labels

    def _proved(self, policy: AlphaVectorPolicy, followed: int) -> float:
        """What acting by the best vector earns at least: followed from the start, then promised."""
        from latentmdp.planning.point_based.kernels.compact import best_plans_at

        model, table = self.model, self.model.outcomes
        states, masses = self.starts, self.joint
        earned, promised, best = 0.0, 0.0, -np.inf
        for t in range(Space.of(model).longest_episode):
            offsets = policy.offsets[(t if policy.n_layers > 1 else 0) * model.n_states :]
            nodes, values = np.empty(states.size, np.int64), np.empty(states.size)
            best_plans_at(policy.vectors, offsets, states, masses, nodes, values)
            best = max(best, earned + promised + float(values.sum()))
            order = np.argsort(-masses.sum(axis=1), kind="stable")
            promised += float(values[order[followed:]].sum())
            kept = order[:followed]
            if kept.size == 0:
                break
            states, masses, actions = states[kept], masses[kept], policy.actions[nodes[kept]]
            earned += float((masses * self.rewards[states, actions]).sum())
            rows = states * model.n_actions + actions
            counts = np.diff(table.starts)[rows]
            origin = np.repeat(np.arange(rows.size), counts)
            within = np.arange(origin.size) - np.repeat(np.cumsum(counts) - counts, counts)
            outcome = table.starts[rows][origin] + within
            masses = model.discount * masses[origin] * table.probs[outcome]
            states = table.next_state[outcome].astype(np.int64)
            alive = ~model.terminal[states] & masses.any(axis=1)
            states, masses = _same_beliefs(states[alive], masses[alive])
        if model.horizon is not None and promised == 0.0:
            best = max(best, earned)
        return model.initial_value() + best

    def _arrivals(self, graph: PolicyGraph) -> Floats:
        """u_i(m) of every node, (n, M)."""
        from latentmdp.planning.point_based.kernels.compact import arrive

        model, nodes = self.model, graph.nodes
        n, S = nodes.actions.size, model.n_states
        states = np.repeat(np.arange(nodes.offsets.size - 1) % S, np.diff(nodes.offsets))
        actions = nodes.actions.astype(np.int64)
        way = (model.outcomes, model.n_actions, model.discount, states, actions)
        links = (graph.node_starts, graph.followers)
        total = np.zeros((n + 1, model.n_contexts))
        total[graph.first[self.starts]] += self.joint
        if model.horizon is not None:
            arrive(*way, *links, total, total)
            return total[:n]
        moving = total.copy()
        for _ in range(int(np.log(_VISITS) / np.log(model.discount)) + 1):
            later = np.zeros_like(total)
            arrive(*way, *links, moving, later)
            later[n] = 0.0
            total, moving = total + later, later
        return total[:n]

    def _pieces(self, graph: PolicyGraph, arrived: Floats) -> _Points:
        """What arrives at each (t, s), apart by where it comes from."""
        model, nodes, table = self.model, graph.nodes, self.model.outcomes
        S, counts = model.n_states, np.diff(graph.node_starts)
        groups = np.repeat(np.arange(nodes.offsets.size - 1), np.diff(nodes.offsets))
        rows = groups % S * model.n_actions + nodes.actions
        node = np.repeat(np.arange(groups.size), counts)
        within = np.arange(node.size) - np.repeat(graph.node_starts[:-1], counts)
        outcome = table.starts[rows][node] + within
        masses = model.discount * arrived[node] * table.probs[outcome]
        layer = (groups // S)[node] + (model.horizon is not None)
        reached = table.next_state[outcome]
        alive = (layer < model.n_layers) & ~model.terminal[reached] & masses.any(axis=1)
        where = np.concatenate([self.starts, (layer * S + reached)[alive]])
        masses = np.concatenate([self.joint, masses[alive]])
        return _gathered(model, where, masses, self.look.most_points)


def _rounds(small: _Small, improve: Callable[[_Small], _Small]) -> _Small:
    """Improve a graph again and again; the best of all rounds."""
    best, fruitless = small, 0
    for _ in range(_ROUNDS):
        small = improve(small)
        fruitless += 1
        if small.lower > best.lower + _GAIN * abs(best.lower):
            fruitless = 0
        if small.lower > best.lower:
            best = small
        if fruitless == _FRUITLESS:
            break
    return best


def _met(policy: AlphaVectorPolicy, model: LatentMDP, look: _Look) -> _Points:
    """The beliefs that a policy meets in its model, by simulation from a fixed seed."""
    steps = Space.of(model).longest_episode
    episodes = int(np.clip(_STEPS // steps, _FEWEST_EPISODES, _MOST_EPISODES))
    logs = simulate(model, policy, episodes, rng=0)
    beliefs = posterior(model, logs, along=True)
    lengths = np.diff(logs.offsets) + 1
    t = np.arange(logs.states.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    acted = (t < steps) & ~model.terminal[logs.states]
    states, beliefs, t = logs.states[acted].astype(np.int64), beliefs[acted], t[acted]
    groups = states if model.horizon is None else t * model.n_states + states
    weights = model.discount**t / episodes
    keys = belief_keys(groups, beliefs, look.resolution)
    _, one, member = np.unique(keys, return_index=True, return_inverse=True)
    masses = beliefs[one] * np.bincount(member.ravel(), weights, one.size)[:, None]
    return _gathered(model, groups[one], masses, look.most_points)


def _gathered(model: LatentMDP, groups: Integers, masses: Floats, most: int) -> _Points:
    """Masses by (t, s), the largest of each; a trace of the prior where there is none."""
    S = model.n_states
    alive = np.flatnonzero(~model.terminal)
    every = (np.arange(model.n_layers)[:, None] * S + alive).ravel()
    missing = every[np.bincount(groups, minlength=model.n_layers * S)[every] == 0]
    groups = np.concatenate([groups, missing])
    masses = np.concatenate([masses, np.tile(_ARRIVED * model.weights, (missing.size, 1))])
    order = np.lexsort((-masses.sum(axis=1), groups))
    groups, masses = groups[order], masses[order]
    sizes = np.bincount(groups, minlength=model.n_layers * S)
    rank = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    sizes = np.minimum(sizes, most)
    return _Points(masses[rank < most], np.concatenate([[0], np.cumsum(sizes)]))


def _same_beliefs(states: Integers, masses: Floats) -> tuple[Integers, Floats]:
    """Masses of the same state and belief, up to rounding, added up: order does not matter."""
    totals = masses.sum(axis=1, keepdims=True)
    keys = belief_keys(states, masses / totals, _FINEST)
    _, one, member = np.unique(keys, return_index=True, return_inverse=True)
    added = [np.bincount(member.ravel(), column, one.size) for column in masses.T]
    return states[one], np.column_stack(added)


def _merged(nodes: _Points, others: _Points) -> tuple[_Points, Integers]:
    """The points of both by state, nodes first, and how many of each state are nodes."""
    states = np.concatenate([nodes.states, others.states])
    order = np.argsort(states, kind="stable")
    masses = np.concatenate([nodes.masses, others.masses])[order]
    return _Points(masses, nodes.offsets + others.offsets), np.diff(nodes.offsets)


def _useful(policy: AlphaVectorPolicy, points: _Points) -> tuple[Floats, Integers]:
    """The vectors of a policy without an end that are best at one of the points, by state."""
    kept, sizes = [], []
    for s in range(points.offsets.size - 1):
        own = policy.vectors[policy.offsets[s] : policy.offsets[s + 1]]
        at = points.masses[points.offsets[s] : points.offsets[s + 1]]
        best = np.unique((at @ own.T).argmax(axis=1)) if own.size else np.empty(0, np.int64)
        kept.append(own[best])
        sizes.append(len(best))
    return np.concatenate(kept), np.concatenate([[0], np.cumsum(sizes)])


def _choose(
    points: _Points, plans: Floats, taken: Integers, most: int
) -> tuple[Integers, Integers]:
    """Up to `most` plans of each state, the first `taken` and those that add most; offsets."""
    from latentmdp.planning.point_based.kernels.compact import choose_plans

    chosen, sizes = [], []
    room = np.empty(most, np.int64)
    for first, last, n in zip(points.offsets[:-1], points.offsets[1:], taken):
        own = slice(int(first), int(last))
        n = choose_plans(points.masses[own][n:], plans[own], min(n, most), most, room)
        chosen.append(own.start + np.sort(room[:n]))
        sizes.append(n)
    return np.concatenate(chosen), np.concatenate([[0], np.cumsum(sizes)])
