"""The graph of (distinguishing observations, state), its optimal policy, and how to follow it.

A node is (C, s). Action a leads to outcomes (s', r) with probability p(s', r | C, s, a); a single
outcome leaves C as it is, several extend it by (s, a, s', r). This is a plain MDP, solved exactly:

    V_t(C, s) = max_a sum_{s', r} p(s', r | C, s, a) (r + discount V_{t+1}(C', s')).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import validation
from latentmdp._util.arrays import frozen, positive_integer
from latentmdp._util.fields import Fielded, float_field, integer_field
from latentmdp.policies import History


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


@dataclass(frozen=True, eq=False)
class Graph(Fielded):
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

    def to_fields(self) -> dict[str, Any]:
        """Nodes and edges as arrays; what is known of a node is a row of `observations` each."""
        observed = [sorted(map(_as_row, node.observations)) for node in self.nodes]
        edges = list(zip(*self.edges)) or [()] * len(Edge._fields)
        rows = np.array([row for rows in observed for row in rows], np.int64).reshape(-1, 4)
        return {
            "node_states": np.array([node.state for node in self.nodes], np.int64),
            "node_levels": np.array([node.level for node in self.nodes], np.int64),
            "observations": rows,
            "observation_offsets": np.array([0, *accumulate(map(len, observed))], np.int64),
            "edges": np.array(edges[:5], np.int64).T,
            "edge_shares": np.array(edges[5:8], np.float64).T,
            "edge_visits": np.array(edges[8], np.int64),
            "start_nodes": np.array(list(self.starts), np.int64),
            "start_probabilities": np.array(list(self.starts.values()), np.float64),
            "reward_values": np.array(self.reward_values, np.float64),
            "n_actions": self.n_actions,
            "horizon": self.horizon,
            "discount": self.discount,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The graph with these fields; raises where they do not fit each other."""
        n_actions, horizon = (
            positive_integer(name, fields[name]) for name in ("n_actions", "horizon")
        )
        values = float_field(fields, "reward_values", None)
        states = integer_field(fields, "node_states", None)
        N = states.size
        levels = integer_field(fields, "node_levels", N)
        offsets = integer_field(fields, "observation_offsets", N + 1)
        rows = integer_field(fields, "observations", None, 4, low=-1)
        if offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
            raise ValueError("observation_offsets do not cut the observations into nodes")
        ends = integer_field(fields, "edges", None, 5)
        limits = (N, n_actions, N, None, values.size)
        for column, (name, limit) in enumerate(zip(Edge._fields, limits)):
            integer_field({name: ends[:, column]}, name, None, below=limit)
        shares = float_field(fields, "edge_shares", len(ends), 3)
        visits = integer_field(fields, "edge_visits", len(ends))
        first = integer_field(fields, "start_nodes", None, below=N)
        chances = float_field(fields, "start_probabilities", first.size)
        if np.unique(first).size < first.size:
            raise ValueError("start_nodes must be distinct")
        observed = (rows[a:b].tolist() for a, b in pairwise(offsets))
        sets = (frozenset(map(_as_observation, of_node)) for of_node in observed)
        columns = (*ends.T.tolist(), *shares.T.tolist(), visits.tolist())
        return cls(
            nodes=tuple(map(Node, sets, states.tolist(), levels.tolist())),
            edges=tuple(map(Edge, *columns)),
            starts=dict(zip(first.tolist(), chances.tolist())),
            reward_values=tuple(values.tolist()),
            n_actions=n_actions,
            horizon=horizon,
            discount=validation.discount(fields["discount"]),
        )

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes)} nodes, {len(self.edges)} edges, horizon={self.horizon})"


class GraphPolicy(Fielded):
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

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The policy with these fields; raises where they do not fit each other."""
        graph = fields["graph"]
        shape = (graph.horizon, len(graph.nodes))
        actions = integer_field(fields, "actions", *shape, low=-1, below=graph.n_actions)
        return cls(graph, frozen(actions.astype(np.int32)))

    def __repr__(self) -> str:
        return f"GraphPolicy({self.graph!r})"


def plan_graph(graph: Graph) -> tuple[GraphPolicy, float, float]:
    """The optimal policy, its value, and the standard deviation of its return.

    With V the mean and W the mean square of what follows, an outcome that pays r is worth
    r + discount V, and r^2 + 2 r discount V + discount^2 W of the square; sums run over the edges
    of a node and action in their order.
    """
    H, N, A, g = graph.horizon, len(graph.nodes), graph.n_actions, graph.discount
    edges: Any = list(zip(*graph.edges)) or [()] * len(Edge._fields)
    source, action, target, _, z = np.array(edges[:5], np.int64)
    p, r = np.array(edges[5]), np.array(graph.reward_values)[z]
    row, levels = source * A + action, np.array([node.level for node in graph.nodes])
    open_ = np.bincount(row, minlength=N * A).reshape(N, A) > 0
    mean, square = np.zeros(N), np.zeros(N)
    actions = np.full((H, N), -1, np.int32)
    for t in range(H - 1, -1, -1):
        V, W = mean[target], square[target]
        q = np.bincount(row, p * (r + g * V), N * A).reshape(N, A)
        q2 = np.bincount(row, p * (r**2 + 2.0 * r * g * V + g**2 * W), N * A).reshape(N, A)
        acts = open_.any(axis=1) & (levels <= t)
        best = np.where(open_, q, -np.inf).argmax(axis=1)
        actions[t, acts] = best[acts]
        mean, square = (np.where(acts, x[np.arange(N), best], 0.0) for x in (q, q2))
    value, squared = (
        math.fsum(chance * x[n] for n, chance in graph.starts.items()) for x in (mean, square)
    )
    return GraphPolicy(graph, frozen(actions)), value, math.sqrt(max(0.0, squared - value**2))


def _as_row(observation: tuple[Any, ...]) -> tuple[int, ...]:
    """(s, a, s', r) of an observation; a first state has -1 in the other three places."""
    return (-1, -1, observation[1], -1) if observation[0] == "init" else observation


def _as_observation(row: list[int]) -> tuple[Any, ...]:
    return ("init", row[2]) if row[0] < 0 else tuple(row)
