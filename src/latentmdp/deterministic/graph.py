"""The graph of (distinguishing observations, state), its optimal policy, and how to follow it.

A node is (C, s). Action a leads to outcomes (s', r) with probability p(s', r | C, s, a); a single
outcome leaves C as it is, several extend it by (s, a, s', r). This is a plain MDP, solved exactly:

    V_t(C, s) = max_a sum_{s', r} p(s', r | C, s, a) (r + discount V_{t+1}(C', s')).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp.policies import History

__all__ = ["Edge", "Graph", "GraphPolicy", "Node", "plan_graph"]


class Node(NamedTuple):
    """Distinguishing observations C, state s, and the first level (0-based time) it occurs at."""

    observations: frozenset[Any]
    state: int
    level: int


class Edge(NamedTuple):
    """One outcome of an action.

    Attributes
    ----------
    source, action, target
        Node numbers and the action.
    state, reward
        The next state and the index of the reward.
    probability
        What planning uses.
    frequency, stderr, visits
        The recorded share of visits to (C, s, a) with this outcome, its standard error, and how
        many visits there were.
    """

    source: int
    action: int
    target: int
    state: int
    reward: int
    probability: float
    frequency: float
    stderr: float
    visits: int


@dataclass(frozen=True)
class Graph:
    """What exploration found.

    Attributes
    ----------
    nodes, edges
        The nodes, and the outcomes of every action of those before the horizon.
    starts
        First node of an episode and its probability.
    reward_values
        What the rewards are worth, by index.
    n_actions, horizon, discount
        Of the problem.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    starts: dict[int, float]
    reward_values: tuple[float, ...]
    n_actions: int
    horizon: int
    discount: float

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes)} nodes, {len(self.edges)} edges, horizon={self.horizon})"


class GraphPolicy:
    """The optimal policy of a graph: a callable of a `History`, executable by `lm.simulate`.

    For environments, follow it by hand: `node = policy.start(state)`, `policy.action(t, node)`,
    `node = policy.follow(node, action, state, reward)` with the reward's value; a terminated
    environment needs no more actions. Where exploration has never been (the node is None), it
    takes action 0.
    """

    def __init__(self, graph: Graph, actions: NDArray[np.int32]) -> None:
        self.graph = graph
        self.actions = actions
        self._starts = {graph.nodes[n].state: n for n in graph.starts}
        self._children = {(e.source, e.action, e.state, e.reward): e.target for e in graph.edges}
        self._rewards = {value: z for z, value in enumerate(graph.reward_values)}

    def start(self, state: int) -> int | None:
        """The node of a first state."""
        return self._starts.get(state)

    def follow(self, node: int | None, action: int, state: int, reward: float) -> int | None:
        """The node after an action, by the next state and the reward's value."""
        return self._next(node, action, state, self._rewards.get(float(reward), -1))

    def action(self, t: int, node: int | None) -> int:
        """What to do in a node at time t (0-based)."""
        return 0 if node is None else max(0, int(self.actions[t, node]))

    def _next(self, node: int | None, action: int, state: int, z: int) -> int | None:
        return None if node is None else self._children.get((node, action, state, z))

    def __call__(self, history: History) -> int:
        """The action after a history (rewards by index)."""
        node = self.start(history.states[0])
        steps = zip(history.actions, history.states[1:], history.rewards)
        for action, state, z in steps:
            node = self._next(node, action, state, z)
        return self.action(len(history.actions), node)

    def __repr__(self) -> str:
        return f"GraphPolicy({self.graph!r})"


def plan_graph(graph: Graph) -> tuple[GraphPolicy, float, float]:
    """The optimal policy, its value, and the standard deviation of its return."""
    H, N = graph.horizon, len(graph.nodes)
    by_action = _by_action(graph)
    first, second = np.zeros((H + 1, N)), np.zeros((H + 1, N))
    actions = np.full((H, N), -1, np.int32)
    for t in range(H - 1, -1, -1):
        for n, node in enumerate(graph.nodes):
            if node.level > t or not by_action[n]:
                continue
            best = -math.inf
            for a, edges in by_action[n].items():
                mean, square = _moments(graph, edges, first[t + 1], second[t + 1])
                if mean > best:
                    best, first[t, n], second[t, n] = mean, mean, square
                    actions[t, n] = a
    value = math.fsum(p * first[0, n] for n, p in graph.starts.items())
    square = math.fsum(p * second[0, n] for n, p in graph.starts.items())
    actions.flags.writeable = False
    return GraphPolicy(graph, actions), value, math.sqrt(max(0.0, square - value**2))


def _by_action(graph: Graph) -> list[dict[int, list[Edge]]]:
    grouped: list[dict[int, list[Edge]]] = [{} for _ in graph.nodes]
    for edge in graph.edges:
        grouped[edge.source].setdefault(edge.action, []).append(edge)
    return grouped


def _moments(
    graph: Graph, edges: Sequence[Edge], first: NDArray[Any], second: NDArray[Any]
) -> tuple[float, float]:
    """Mean and mean square of reward plus discounted rest, over the outcomes of one action."""
    mean = square = 0.0
    for edge in edges:
        reward = graph.reward_values[edge.reward]
        rest, rest_square = first[edge.target], second[edge.target]
        mean += edge.probability * (reward + graph.discount * rest)
        square += edge.probability * (
            reward**2 + 2.0 * reward * graph.discount * rest + graph.discount**2 * rest_square
        )
    return mean, square
