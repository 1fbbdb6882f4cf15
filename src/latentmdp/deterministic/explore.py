"""Exploring a deterministic LMDP with hidden contexts [kwon2021, Alg. 5 and Thm. A.1].

    for each node (C, s), level by level, and each action a:
        go there and try a, until every outcome (s', r) has been seen with the asked confidence
        one outcome:   (C, s) -> (C, s')
        several:       (C, s) -> (C + (s, a, s', r), s') for each
    solve the graph exactly

A context in which (C, s, a) has an outcome is drawn with probability at least w_min (1/M if the
weights are uniform, as the paper assumes), so n tries miss one of at most k outcomes with
probability at most k (1 - w_min)^n. Action number j gets the share (6 / pi^2) j^-2 of nearly half
the failure probability, which sums to it whatever the number of actions turns out to be. Each
(C, s, a) is explored once and not at every time again, and what an episode does after it has left
the way to its target serves the node it has come to; both keep the guarantee (see `search`).

Probabilities. With uniform weights the probability of C is |K(C)| / M, a multiple of 1/M. It is
identified, where counting does not settle it already, by a likelihood ratio test between multiples
(by Ville's inequality it errs with at most the probability at which it stops, again nearly half of
what is allowed); so planning is exact, and the policy optimal, with the asked probability. Last,
the frequencies of all C are held against these multiples. If they do not fit, or if only
`min_weight` is known, probabilities are frequencies with a standard error of at most `accuracy`.

Starts. In a deterministic LMDP the context decides the first state, which is then a distinguishing
observation. A first state that is random given the context can be handled too (`random_start`): it
tells nothing, and the exploration goes on for each first state by itself.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from latentmdp import _arrays
from latentmdp._random import RNGLike
from latentmdp.deterministic.classes import ContradictionError
from latentmdp.deterministic.errors import ExplorationError
from latentmdp.deterministic.graph import Edge, Graph, GraphPolicy, Node, plan_graph
from latentmdp.deterministic.search import Outcome, Search
from latentmdp.deterministic.worlds import World, as_world

__all__ = ["Exploration", "episode_bound", "explore"]

PAPER_REPEATS = 3.0
"""Factor of the paper's O(M log M) repeats."""

_NEVER_AGAIN = 40.0  # a class of weight w is missed w^-1 times this with probability e^-40
_MAIN_SHARE = 0.45  # of the failure probability: to see all outcomes; to find all probabilities
_BASEL = math.pi**2 / 6.0


@dataclass(frozen=True)
class Exploration:
    """The result of `explore`.

    Attributes
    ----------
    policy
        Optimal in the graph; a callable of a `History`.
    value, stderr
        Its value, and how uncertain that is (0 if every probability is known exactly).
    episodes
        Episodes used.
    bound
        `episode_bound` of the problem's sizes.
    exact
        Whether the probabilities of the graph are exact (uniform weights) or frequencies.
    graph
        Nodes and edges, with recorded frequencies and their standard errors.
    n_contexts, horizon, failure_probability
        As asked.
    repeats
        The most tries that any action needed.
    restarts
        How often an outcome turned up where none was expected any more.
    """

    policy: GraphPolicy
    value: float
    stderr: float
    episodes: int
    bound: float
    exact: bool
    graph: Graph
    n_contexts: int
    horizon: int
    failure_probability: float
    repeats: int
    restarts: int


class _SurpriseError(Exception):
    """An outcome where none was expected any more: begin again with what is known."""


def explore(
    env_or_model: Any,
    n_contexts: int,
    horizon: int | None = None,
    failure_probability: float = 0.01,
    rng: RNGLike = 0,
    repeats: Literal["union", "paper"] | int = "union",
    *,
    min_weight: float | None = None,
    accuracy: float = 0.02,
    random_start: bool | None = None,
) -> Exploration:
    """Find the optimal policy of a deterministic LMDP by interaction alone.

    Parameters
    ----------
    env_or_model
        A `LatentMDP`, which is only simulated, or a Gymnasium environment with Discrete spaces
        that is deterministic given a context drawn at `reset`. After `terminated` nothing more is
        earned; `truncated` must not come before the horizon.
    n_contexts
        M. An upper bound will do if `min_weight` is given.
    horizon
        H; by default the model's, or the environment's own limit.
    failure_probability
        Of missing an outcome or misjudging a probability anywhere.
    repeats
        Tries per action: "union" as the module's text says, "paper" for ceil(3 M ln M) without a
        union bound, or a number.
    min_weight
        A lower bound on the weights of the contexts. None: they are uniform.
    accuracy
        Standard error of probabilities where weights are not uniform.
    random_start
        Whether the first state is random, independently of the context. None: as a model says;
        for an environment, only if contexts alone cannot explain what is seen.

    Raises
    ------
    ExplorationError
        The environment is not deterministic given its context, or has more contexts than told;
        with the node, the action and the outcomes that show it.
    """
    M = _arrays.positive_integer("n_contexts", n_contexts)
    if not 0.0 < failure_probability < 1.0:
        raise ValueError(f"failure_probability must lie in (0, 1), got {failure_probability}")
    if min_weight is not None and not 0.0 < min_weight <= 1.0:
        raise ValueError(f"min_weight must lie in (0, 1], got {min_weight}")
    if repeats not in ("union", "paper"):
        repeats = _arrays.positive_integer("repeats", repeats)
    world = as_world(env_or_model, horizon, rng)
    weight = 1.0 / M if min_weight is None else min_weight
    explorer = _Explorer(world, M, weight, failure_probability, repeats)
    explorer.random_start = world.random_start if random_start is None else random_start
    while True:
        try:
            explorer.find_starts()
            explorer.find_outcomes()
            exact = explorer.find_probabilities(min_weight is None, accuracy)
            break
        except _SurpriseError:
            explorer.restart()
        except ExplorationError:
            if explorer.random_start or random_start is not None or len(explorer.starts) == 1:
                raise
            explorer.random_start = True
            explorer.restart()
    return explorer.result(exact, episode_bound(world, M, weight))


def episode_bound(
    world: Any, n_contexts: int, min_weight: float | None = None, constant: float = 8.0
) -> float:
    """The bound of Theorem A.1: constant H S A binom(M S A, M - 1) n, n = max(1, ln(1/w)) / w.

    The last factor is the paper's M log M for w = 1/M. The paper leaves the constant open; with
    the union bound it holds ln(1/failure_probability) and the logarithm of the number of nodes.

    Parameters
    ----------
    world
        Anything with `n_states`, `n_actions` and `horizon`, such as a `LatentMDP`.
    """
    M, S, A = n_contexts, world.n_states, world.n_actions
    w = 1.0 / M if min_weight is None else min_weight
    sets = math.comb(M * S * A, M - 1)
    return constant * world.horizon * S * A * sets * max(1.0, math.log(1.0 / w)) / w


class _Explorer:
    """Algorithm 5, resumable from what it knows."""

    def __init__(
        self, world: World, M: int, weight: float, failure: float, repeats: str | int
    ) -> None:
        self.world, self.M, self.weight, self.failure = world, M, weight, failure
        self.repeats = repeats
        self.confirmations = max(1, math.ceil(math.log2(1.0 / failure)))
        self.facts: dict[Any, set[Outcome]] = {}
        self.starts: dict[int, int] = {}
        self.random_start = False
        self.episodes = self.restarts = self.tried_actions = self.most_repeats = 0
        self.search = self._new_search()

    def _new_search(self) -> Search:
        return Search(
            self.world.n_actions,
            self.world.horizon,
            self.M,
            self.world.n_states,
            self.needed_tries,
            self.confirmations,
            self.facts,
        )

    def restart(self) -> None:
        self.restarts += 1
        self.search = self._new_search()

    def needed_tries(self, outcomes: int) -> int:
        """Tries after which all of at most `outcomes` outcomes have been seen."""
        self.tried_actions += 1
        if self.repeats == "union":
            share = _MAIN_SHARE * self.failure / (_BASEL * self.tried_actions**2)
            decay = -math.log1p(-self.weight) if self.weight < 1.0 else math.inf
            n = max(1, math.ceil(math.log(outcomes / share) / decay))
        elif self.repeats == "paper":
            n = max(1, math.ceil(PAPER_REPEATS * self.M * math.log(self.M)))
        else:
            n = int(self.repeats)
        self.most_repeats = max(self.most_repeats, n)
        return n

    def find_starts(self) -> None:
        """The initialisation of Algorithm 5: every first state, each a node of level 0."""
        if not self.starts:
            needed = self.needed_tries(self.M)
            while self.episodes < needed:
                state = self._reset()
                self.starts[state] = self.starts.get(state, 0) + 1
                if len(self.starts) == self.M and self.episodes >= self.confirmations:
                    break
        self.random_start = self.random_start or len(self.starts) > self.M
        search = self.search
        alone = len(self.starts) == 1
        sets = {s: frozenset() if alone else frozenset({("init", s)}) for s in self.starts}
        if not alone and not self.random_start:
            parts = [search.number(observations) for observations in sets.values()]
            search.sizes.split(search.number(frozenset()), "init", parts)
        search.roots = {s: search.node(sets[s], s, 0) for s in self.starts}

    def find_outcomes(self) -> None:
        """The loops of Algorithm 5: until no action of any node before the horizon is open."""
        while any(search_node.distance == 0 for search_node in self.search.nodes):
            self._episode()

    def find_probabilities(self, uniform: bool, accuracy: float) -> bool:
        """Weigh every class; whether the weights are known exactly."""
        if uniform:
            bounds = copy.deepcopy(self.search.sizes)
            try:
                self._identify()
                return True
            except ContradictionError:
                warnings.warn(
                    "the observed frequencies are not those of equally likely contexts: "
                    "probabilities are estimated; give min_weight",
                    stacklevel=3,
                )
                self.search.sizes = bounds
        self._measure(accuracy)
        return False

    def _identify(self) -> None:
        """Find |K(C)| for each C by testing the multiples of 1/M against each other."""
        search, sizes = self.search, self.search.sizes
        sizes.close(self._whole_classes())
        while True:
            for c in self._classes():
                if sizes.low[c] < sizes.high[c]:
                    best = self._likeliest_size(c)
                    if best is not None:
                        sizes.fix(c, best)
            open_classes = {c for c in self._classes() if sizes.low[c] < sizes.high[c]}
            search.weigh(open_classes)
            if not open_classes:
                break
            for _ in range(16):
                self._episode()
        allowance = math.log(2.0 * len(search.sets) / ((1.0 - 2.0 * _MAIN_SHARE) * self.failure))
        for c in self._classes():
            if search.tried[c]:
                radius = math.sqrt(allowance / (2.0 * search.tried[c]))
                if abs(search.hits[c] / search.tried[c] - sizes.low[c] / self.M) > radius:
                    raise ContradictionError(c)

    def _likeliest_size(self, c: int) -> int | None:
        low, high = self.search.sizes.low[c], self.search.sizes.high[c]
        hits, misses = self.search.hits[c], self.search.tried[c] - self.search.hits[c]
        scores = sorted(
            (_log_likelihood(hits, misses, k / self.M), k) for k in range(low, high + 1)
        )
        needed = math.log(self.M * _BASEL * (c + 1) ** 2 / (_MAIN_SHARE * self.failure))
        return scores[-1][1] if scores[-1][0] - scores[-2][0] >= needed else None

    def _measure(self, accuracy: float) -> None:
        """Weigh each class that is part of a split by its frequency."""
        needed = math.ceil(0.25 / accuracy**2)
        while True:
            scarce = {c for c in self._classes() if self.search.tried[c] < needed}
            self.search.weigh(scarce)
            if not scarce:
                return
            for _ in range(16):
                self._episode()

    def _classes(self) -> list[int]:
        return sorted({node.c for node in self.search.nodes})

    def _whole_classes(self) -> list[int]:
        """The classes that all contexts belong to."""
        if self.random_start or len(self.starts) == 1:
            return [self.search.nodes[n].c for n in self.search.roots.values()]
        return [self.search.number(frozenset())]

    def _reset(self) -> int:
        self.episodes += 1
        return self.world.reset()

    def _episode(self) -> None:
        """Play one episode by the search's plan and record what it shows."""
        search, first = self.search, self._reset()
        self.starts[first] = self.starts.get(first, 0) + 1
        if first not in search.roots:
            raise _SurpriseError
        n, t = search.roots[first], 0
        plan = search.plan([n] if self.random_start else list(search.roots.values()))
        steps: list[tuple[int, int, Outcome]] = []
        once: dict[tuple[int, int], Outcome] = {}
        classes = {search.nodes[n].c}
        while True:
            a = plan[n, t] if (n, t) in plan else search.choose(n, t)
            if a is None:
                break
            node = search.nodes[n]
            outcome = self.world.step(a)
            steps.append((n, a, outcome))
            if once.setdefault((node.state, a), outcome) != outcome:
                raise ExplorationError(
                    "the environment is not deterministic: within one episode the same action in "
                    "the same state had two outcomes",
                    search.sets[node.c],
                    node.state,
                    a,
                    {once[node.state, a]: 1, outcome: 1},
                )
            if outcome not in node.children[a]:
                break
            n, t = node.children[a][outcome], t + 1
            classes.add(search.nodes[n].c)
        self._learn(plan, steps, classes)

    def _learn(self, plan: dict[Any, Any], steps: list[Any], classes: set[int]) -> None:
        search = self.search
        for c in classes:
            search.hits[c] += 1
        for n, a, outcome in steps:
            if not search.record(n, a, outcome):
                raise _SurpriseError
        search.settle([*(n for n, _ in plan), *(n for n, _, _ in steps)])
        for c in {search.nodes[n].c for n, _ in plan}:
            if search.hits[c] == 0 and search.tried[c] > _NEVER_AGAIN / self.weight:
                raise ExplorationError(
                    f"observations that occurred once did not occur again in {search.tried[c]} "
                    "episodes: the environment is not deterministic given its context, or a "
                    f"context is rarer than {self.weight:.3g}",
                    search.sets[c],
                    None,
                    None,
                    {},
                )

    def result(self, exact: bool, bound: float) -> Exploration:
        graph = self._graph(exact)
        policy, value, spread = plan_graph(graph)
        certain = exact and (len(self.starts) == 1 or not self.random_start)
        fewest = min((n for n in self.search.tried if n), default=1)
        samples = self.episodes if exact else fewest
        return Exploration(
            policy=policy,
            value=value,
            stderr=0.0 if certain else spread / math.sqrt(samples),
            episodes=self.episodes,
            bound=bound,
            exact=exact,
            graph=graph,
            n_contexts=self.M,
            horizon=self.world.horizon,
            failure_probability=self.failure,
            repeats=self.most_repeats,
            restarts=self.restarts,
        )

    def _graph(self, exact: bool) -> Graph:
        search = self.search
        edges: list[Edge] = []
        for n, node in enumerate(search.nodes):
            for a, children in enumerate(node.children):
                edges += self._edges(n, a, children, exact)
        weights = {n: self._weight(search.nodes[n].c, exact) for n in search.roots.values()}
        if self.random_start:
            weights = {n: float(self.starts[s]) for s, n in search.roots.items()}
        total = sum(weights.values())
        return Graph(
            nodes=tuple(Node(search.sets[x.c], x.state, x.level) for x in search.nodes),
            edges=tuple(edges),
            starts={n: weight / total for n, weight in weights.items()},
            reward_values=tuple(self.world.reward_values),
            n_actions=self.world.n_actions,
            horizon=self.world.horizon,
            discount=self.world.discount,
        )

    def _edges(self, n: int, a: int, children: dict[Outcome, int], exact: bool) -> list[Edge]:
        nodes, seen = self.search.nodes, self.search.nodes[n].seen[a]
        visits = sum(seen.values())
        masses = {o: self._weight(nodes[child].c, exact) for o, child in children.items()}
        total = sum(masses.values())
        edges = []
        for outcome, child in children.items():
            share = seen[outcome] / visits
            spread = math.sqrt(share * (1.0 - share) / visits)
            p = masses[outcome] / total
            edges.append(Edge(n, a, child, *outcome, p, share, spread, visits))
        return edges

    def _weight(self, c: int, exact: bool) -> float:
        if exact:
            return self.search.sizes.low[c] / self.M
        return self.search.hits[c] / max(1, self.search.tried[c])


def _log_likelihood(hits: int, misses: int, p: float) -> float:
    if p == 1.0:
        return 0.0 if misses == 0 else -math.inf
    return hits * math.log(p) + misses * math.log1p(-p)
