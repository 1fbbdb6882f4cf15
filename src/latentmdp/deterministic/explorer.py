"""Algorithm 5 as a loop of episodes: what `explore` runs; its text says why it is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from latentmdp.deterministic.errors import ExplorationError
from latentmdp.deterministic.graph import Edge, Graph, Node
from latentmdp.deterministic.search import FAR, Outcome, Search
from latentmdp.deterministic.worlds import World

__all__ = ["BASEL", "MAIN_SHARE", "Explorer", "SurpriseError"]

MAIN_SHARE = 0.45
"""Share of the failure probability to see all outcomes, and again to find all probabilities."""

BASEL = math.pi**2 / 6.0

PAPER_REPEATS = 3.0
"""Factor of the paper's O(M log M) repeats."""

_NEVER_AGAIN = 40.0  # a class of weight w is missed w^-1 times this with probability e^-40


class SurpriseError(Exception):
    """An outcome where none was expected any more: begin again with what is known."""


class Explorer:
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
        """Forget the graph; keep every outcome that was seen."""
        self.restarts += 1
        self.search = self._new_search()

    def needed_tries(self, outcomes: int) -> int:
        """Tries after which all of at most `outcomes` outcomes have been seen."""
        self.tried_actions += 1
        if self.repeats == "union":
            share = MAIN_SHARE * self.failure / (BASEL * self.tried_actions**2)
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
        while any(self.search.nodes[n].distance < FAR for n in self.search.roots.values()):
            self.play()

    def _reset(self) -> int:
        self.episodes += 1
        return self.world.reset()

    def play(self) -> None:
        """Play one episode by the search's plan and record what it shows."""
        search, first = self.search, self._reset()
        self.starts[first] = self.starts.get(first, 0) + 1
        if first not in search.roots:
            raise SurpriseError
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
                raise SurpriseError
        known = len(search.nodes)
        search.settle([*(n for n, _ in plan), *(n for n, _, _ in steps)])
        if search.undecided is not None and len(search.nodes) > known:
            raise SurpriseError  # a new outcome after all seemed explored
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

    def graph(self, masses: Sequence[float]) -> Graph:
        """What was found, with the probability of each class."""
        search = self.search
        edges: list[Edge] = []
        for n, node in enumerate(search.nodes):
            for a, children in enumerate(node.children):
                edges += self._edges(n, a, children, masses)
        weights = {n: masses[search.nodes[n].c] for n in search.roots.values()}
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

    def _edges(
        self, n: int, a: int, children: dict[Outcome, int], masses: Sequence[float]
    ) -> list[Edge]:
        nodes, seen = self.search.nodes, self.search.nodes[n].seen[a]
        visits = sum(seen.values())
        total = sum(masses[nodes[child].c] for child in children.values())
        edges = []
        for outcome, child in children.items():
            share = seen[outcome] / visits
            spread = math.sqrt(share * (1.0 - share) / visits)
            p = masses[nodes[child].c] / total
            edges.append(Edge(n, a, child, *outcome, p, share, spread, visits))
        return edges
