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
              nodes that nothing arrives at where they add most to what arrives there.

With an end every such round raises the value of the graph, or leaves it. Without one, all nodes are
backed up at once, the graph is evaluated, and the best of the rounds counts. The vectors are those
of the graph, exactly, so its value at the start is a proved lower bound for it, and also for acting
by the best of its vectors at every belief. That policy mostly earns more, and more is proved by
following it for a while from the start: with the beliefs visited after d steps, its value is at
least what was earned on the way plus what the best vectors promise there. Without an end the graph
that is worth most need not have the best vectors to act by. So all is done again with the beliefs
that the policy of these vectors visits, a few times, and with beliefs told apart more or less
finely; the policy of which most is proved counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import Floats, Integers, arrays
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.planning import kernels_compact as kernels
from latentmdp.planning.base import Plan
from latentmdp.planning.graphs import evaluated_graph
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy, PolicyGraph
from latentmdp.simulation import simulate
from latentmdp.worlds import Space


class _BeliefSample(NamedTuple):
    """At which beliefs vectors are looked for."""

    resolution: float  # beliefs that agree to 1 / resolution in every context are one
    most_points: int  # of a (t, s), or of s without an end: those visited most


_SAMPLES = (
    _BeliefSample(100.0, 150),
    _BeliefSample(30.0, 150),
    _BeliefSample(100.0, 400),
    _BeliefSample(50.0, 800),
)
"""Without an end, one after the other until little is lost: none is best on every problem."""

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
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


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
    if (vectors is None) == (loss is None):
        raise ValueError("give vectors= or loss=, one of them")
    choice = _Choice(policy)
    if vectors is not None:
        most = arrays.positive_integer("vectors", vectors)
        small = choice.of(most) if graph else _best_for_acting(choice, most, plan.lower)
        return _stated(plan, choice, small, graph)
    assert loss is not None
    if not 0.0 < loss < 1.0:
        raise ValueError(f"loss must lie between 0 and 1, got {loss}")
    if plan.lower is None:
        raise ValueError("loss= is relative to the plan's lower bound, and this plan has none")
    return _stated(plan, choice, choice.within(plan.lower - loss * abs(plan.lower), graph), graph)


def _stated(plan: Plan, choice: _Choice, small: _SmallGraph, graph: bool) -> Plan:
    """The compact plan, with what it loses. Its filter is exact, as the proof asks for."""
    nodes, before = small.graph.nodes, choice.policy.actions.size
    most = int(np.diff(nodes.offsets).max())
    where = "a state" if choice.is_endless else "a time and state"
    message = f"{nodes.actions.size:,} vectors in place of {before:,}, at most {most} for {where}"
    loss = None
    if plan.lower is not None:
        loss = (plan.lower - small.lower) / abs(plan.lower) if plan.lower else 0.0
        message += f"; the lower bound loses {max(loss, 0.0):.2%}"
    policy: Policy = small.graph if graph else nodes
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


def _best_for_acting(choice: _Choice, most: int, lower: float | None) -> _SmallGraph:
    """So many vectors to act by the best of them, from the beliefs where they do best.

    `lower` is what the plan before proves: to lose half a per cent of it is good enough.
    """
    enough = math.inf if lower is None else lower - 0.005 * abs(lower)
    best = choice.best_for_acting(most, enough)
    if not choice.is_endless:
        return best
    for sample in _SAMPLES[1:]:
        if best.lower >= enough:
            return best
        other = _Choice(choice.policy, sample).best_for_acting(most, enough)
        best = max(best, other, key=lambda small: small.lower)
    return choice.followed(best, 100_000)  # the last proof: more beliefs prove a little more


def _best_round(
    small: _SmallGraph,
    improve: Callable[[_SmallGraph], _SmallGraph],
    rounds: int = 30,
    gain: float = 1e-5,
    enough: float = math.inf,
) -> _SmallGraph:
    """Improve a graph again and again; the best of all rounds.

    It ends after so many `rounds`, after three in a row that bring no more than the share `gain` of
    the value, or once `enough` is proved.
    """
    best, fruitless = small, 0
    for _ in range(rounds):
        if fruitless == 3 or best.lower >= enough:
            break
        small = improve(small)
        fruitless = 0 if small.lower > best.lower + gain * abs(best.lower) else fruitless + 1
        best = max(best, small, key=lambda graph: graph.lower)
    return best


class _Choice:
    """The few vectors of a policy, for any number of them."""

    def __init__(self, policy: AlphaVectorPolicy, sample: _BeliefSample = _SAMPLES[0]) -> None:
        self.policy, self.model, self.sample = policy, policy.model, sample
        model = self.model
        self.is_endless = model.horizon is None
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        joint = model.weights[:, None] * model.initial
        self.starts = np.flatnonzero((joint.sum(axis=0) > 0.0) & ~model.terminal)
        self.joint = joint[:, self.starts].T.copy()
        self.visited = _visited(policy, model, sample)

    def of(self, most: int, before: _SmallGraph | None = None) -> _SmallGraph:
        """At most so many vectors for each (t, s), or s; a graph before them is where to begin.

        They are looked for at the beliefs that are visited by the policy, or by that of the graph.
        """
        visited = self.visited
        if before is not None:
            visited = _visited(before.graph.nodes, self.model, self.sample)
        small = self._first(visited, most, before)
        if self.is_endless:
            small = _best_round(small, lambda graph: self._first(visited, most, graph))
        return _best_round(small, lambda graph: self._improved(graph.graph, most))

    def best_for_acting(self, most: int, enough: float) -> _SmallGraph:
        """So many vectors to act by the best of them, with what is proved of that.

        Without an end they are looked for again at the beliefs that their own policy visits.
        """
        small = self.followed(self.of(most))
        if not self.is_endless:
            return small

        def again(graph: _SmallGraph) -> _SmallGraph:
            return self.followed(self.of(most, graph))

        return _best_round(small, again, rounds=8, gain=0.0, enough=enough)

    def within(self, lower: float, graph: bool) -> _SmallGraph:
        """About as few as keep the lower bound; as many as there are points if none does."""

        def proved(most: int) -> _SmallGraph:
            small = self.of(most)
            return small if graph else self.followed(small)

        few, many = 0, 1
        best = proved(many)
        while best.lower < lower and many < self.sample.most_points:
            few, many = many, 2 * many
            best = proved(many)
        while many - few > 1 and best.lower >= lower:
            middle = (few + many) // 2
            other = proved(middle)
            if other.lower >= lower:
                many, best = middle, other
            else:
                few = middle
        return best

    def followed(self, small: _SmallGraph, most_beliefs: int = 5_000) -> _SmallGraph:
        """With what is proved of acting by the best of its vectors.

        The policy is followed further from the `most_beliefs` of a step that are visited most.
        """
        proved = self._proved(small.graph.nodes, most_beliefs)
        return small._replace(lower=max(small.lower, proved))

    def _first(self, visited: _Points, most: int, before: _SmallGraph | None = None) -> _SmallGraph:
        """A graph over beliefs that are visited; without an end, from a graph before."""
        none = _Points(np.zeros((0, self.model.n_contexts)), np.zeros_like(visited.offsets))
        later = None
        if self.is_endless and before is not None:
            later = before.graph.nodes.vectors, before.graph.nodes.offsets
        elif self.is_endless:
            later = _useful(self.policy, visited)
        return self._passed(none, visited, most, later)

    def _improved(self, graph: PolicyGraph, most: int) -> _SmallGraph:
        """Every node backed up at its arrivals, idle ones put elsewhere."""
        nodes, arrived = graph.nodes, self._arrivals(graph)
        pieces = self._pieces(graph, arrived)
        arrived[arrived.sum(axis=1) <= _NEGLIGIBLE * arrived.sum()] = 0.0
        used, n_groups = arrived.any(axis=1), nodes.offsets.size - 1
        groups = np.repeat(np.arange(n_groups), np.diff(nodes.offsets))
        sizes = np.bincount(groups[used], minlength=n_groups)
        points = _Points(arrived[used], np.concatenate([[0], np.cumsum(sizes)]))
        later = (nodes.vectors, nodes.offsets) if self.is_endless else None
        return self._passed(points, pieces, most, later)

    def _passed(
        self,
        nodes: _Points,
        others: _Points,
        most: int,
        later: tuple[Floats, Integers] | None,
    ) -> _SmallGraph:
        """The graph of backups at the nodes' masses, and at those of the others that add most.

        Backward from the last step, or from `later` where there is no end.
        """
        model, table = self.model, self.model.outcomes
        S, A, M = model.n_states, model.n_actions, model.n_contexts
        after = later or (np.zeros((0, M)), np.zeros(S + 1, np.int64))
        layers = []
        for t in range(model.n_layers - 1, -1, -1):
            points, n_nodes = _merged(nodes.layer(t, S), others.layer(t, S))
            plans, labels = self._backed_up(points, *after)
            selected, offsets = _select(points, plans, n_nodes, most)
            vectors, labels = plans[selected], labels[selected]
            states = np.repeat(np.arange(S), np.diff(offsets))
            # What each node goes on with, counted from the first node of the next layer.
            links = np.full(int(np.diff(table.starts)[states * A + labels].sum()), -1)
            target = (vectors, offsets) if self.is_endless else after
            kernels.link_points(table, A, states, points.masses[selected], labels, *target, links)
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
            graph = evaluated_graph(model, actions, offsets, links, first, guess=guess)
            guess = graph.nodes.vectors
        worth = (guess[first[self.starts]] * self.joint).sum()
        return _SmallGraph(model.initial_value() + float(worth), graph)

    def _backed_up(
        self, points: _Points, later: Floats, offsets: Integers
    ) -> tuple[Floats, Integers]:
        """The best plan at each point and its action."""
        model, n = self.model, len(points.masses)
        plans, labels = np.zeros((n, model.n_contexts)), np.zeros(n, np.int64)
        kernels.back_up_points(
            model.outcomes, self.rewards, model.duration.planning_discount, model.allowed,
            points.states, points.masses, np.ascontiguousarray(later), offsets, 0, n, plans, labels,
        )  # fmt: skip
        return plans, labels

    def _proved(self, policy: AlphaVectorPolicy, most_beliefs: int) -> float:
        """What acting by the best vector earns at least: followed from the start, then promised."""
        model, table = self.model, self.model.outcomes
        states, masses = self.starts, self.joint
        earned, promised, best = 0.0, 0.0, -np.inf
        for t in range(Space.of(model).longest_episode):
            offsets = policy.offsets[(t if policy.n_layers > 1 else 0) * model.n_states :]
            nodes, values = np.empty(states.size, np.int64), np.empty(states.size)
            kernels.best_plans_at(policy.vectors, offsets, states, masses, nodes, values)
            best = max(best, earned + promised + float(values.sum()))
            order = np.argsort(-masses.sum(axis=1), kind="stable")
            promised += float(values[order[most_beliefs:]].sum())
            order = order[:most_beliefs]
            if order.size == 0:
                break
            states, masses, actions = states[order], masses[order], policy.actions[nodes[order]]
            earned += float((masses * self.rewards[states, actions]).sum())
            origin, outcome = arrays.segments(table.starts, states * model.n_actions + actions)
            masses = model.discount * masses[origin] * table.probs[outcome]
            states = table.next_state[outcome].astype(np.int64)
            alive = ~model.terminal[states] & masses.any(axis=1)
            states, masses = _same_beliefs(states[alive], masses[alive])
        if not self.is_endless and promised == 0.0:
            best = max(best, earned)
        return model.initial_value() + best

    def _arrivals(self, graph: PolicyGraph) -> Floats:
        """u_i(m) of every node, (n, M); without an end, until a millionth of it is left."""
        model, nodes = self.model, graph.nodes
        n, S = nodes.actions.size, model.n_states
        states = np.repeat(np.arange(nodes.offsets.size - 1) % S, np.diff(nodes.offsets))
        actions = nodes.actions.astype(np.int64)
        way = (model.outcomes, model.n_actions, model.discount, states, actions)
        links = (graph.node_starts, graph.followers)
        total = np.zeros((n + 1, model.n_contexts))
        total[graph.first[self.starts]] += self.joint
        if not self.is_endless:
            kernels.arrive(*way, *links, total, total)
            return total[:n]
        moving = total.copy()
        for _ in range(int(np.log(1e-6) / np.log(model.discount)) + 1):
            later = np.zeros_like(total)
            kernels.arrive(*way, *links, moving, later)
            later[n] = 0.0
            total, moving = total + later, later
        return total[:n]

    def _pieces(self, graph: PolicyGraph, arrived: Floats) -> _Points:
        """What arrives at each (t, s), apart by where it comes from."""
        model, nodes, table = self.model, graph.nodes, self.model.outcomes
        S = model.n_states
        groups = np.repeat(np.arange(nodes.offsets.size - 1), np.diff(nodes.offsets))
        rows = groups % S * model.n_actions + nodes.actions
        node, outcome = arrays.segments(table.starts, rows)
        masses = model.discount * arrived[node] * table.probs[outcome]
        layer = (groups // S)[node] + (not self.is_endless)
        reached = table.next_state[outcome]
        alive = (layer < model.n_layers) & ~model.terminal[reached] & masses.any(axis=1)
        where = np.concatenate([self.starts, (layer * S + reached)[alive]])
        masses = np.concatenate([self.joint, masses[alive]])
        return _gathered(model, where, masses, self.sample.most_points)


def _visited(policy: AlphaVectorPolicy, model: LatentMDP, sample: _BeliefSample) -> _Points:
    """The beliefs that a policy visits in its model, by simulation from a fixed seed.

    About 50,000 steps are simulated, in 50 to 1,000 episodes: they only make the first graph.
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
    keys = _belief_keys(groups, beliefs, sample.resolution)
    _, one, member = np.unique(keys, return_index=True, return_inverse=True)
    masses = beliefs[one] * np.bincount(member.ravel(), weights, one.size)[:, None]
    return _gathered(model, groups[one], masses, sample.most_points)


def _gathered(model: LatentMDP, groups: Integers, masses: Floats, most: int) -> _Points:
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


def _same_beliefs(states: Integers, masses: Floats) -> tuple[Integers, Floats]:
    """Masses of the same state and belief added up: histories may differ in their order only.

    Beliefs that agree to 1e-12 are the same.
    """
    totals = masses.sum(axis=1, keepdims=True)
    keys = _belief_keys(states, masses / totals, 1e12)
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
    best, values = np.empty(len(points.masses), np.int64), np.empty(len(points.masses))
    kernels.best_plans_at(
        policy.vectors, policy.offsets, points.states, points.masses, best, values
    )
    useful = np.unique(best[best >= 0])  # rising, so still in the order of the states
    return policy.vectors[useful], np.searchsorted(useful, policy.offsets)


def _select(
    points: _Points, plans: Floats, n_nodes: Integers, most: int
) -> tuple[Integers, Integers]:
    """Up to `most` plans of each state, the first `n_nodes` and those that add most; offsets."""
    selected, sizes = [], []
    room = np.empty(most, np.int64)
    for first, last, n in zip(points.offsets[:-1], points.offsets[1:], n_nodes):
        masses, candidates = points.masses[first + n : last], plans[first:last]
        n = kernels.choose_plans(masses, candidates, min(n, most), most, room)
        selected.append(first + np.sort(room[:n]))
        sizes.append(n)
    return np.concatenate(selected), np.concatenate([[0], np.cumsum(sizes)])


def _belief_keys(states: Integers, beliefs: Floats, resolution: float) -> NDArray[np.uint64]:
    """A 64-bit key of the state and the rounded belief (a polynomial in a random odd number)."""
    rounded = np.rint(beliefs * resolution).astype(np.uint64)
    keys = states.astype(np.uint64)
    for column in rounded.T:
        keys = (keys + column + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys
