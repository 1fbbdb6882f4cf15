"""Algorithm 5 as a loop of episodes, and the probability of each class of contexts.

`exploration` says why the loop is right. After it, the probability of a class K(C) is |K(C)| / M if
weights are uniform. Where the bounds of `search.ClassSizes` do not settle which, episodes go on
until only one multiple of 1 / M is near the frequency with which C was met where it was looked for.
By Hoeffding's inequality and a union bound over all n, the frequencies of |C| classes are, after
any numbers n of tries and with probability 1 - p, all within

    r(n) = sqrt(ln(2 |C| (pi^2 / 6) n^2 / p) / (2 n)).

If some frequency is further from every multiple, or if weights are not uniform, probabilities are
frequencies, with a standard error of at most `accuracy`. Half of the failure probability is for
outcomes that are missed, half for these sizes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentmdp._util import arrays
from latentmdp.deterministic.graph import Edge, Graph, Node
from latentmdp.deterministic.search import FAR, ExplorationError, Outcome, Search
from latentmdp.model import LatentMDP
from latentmdp.worlds import Transition, World, play_episode

BASEL = math.pi**2 / 6.0


class SurpriseError(Exception):
    """An outcome where none was expected any more: begin again with what is known."""


@dataclass(eq=False)
class Explorer:
    """Algorithm 5, resumable from what it knows."""

    world: World
    horizon: int
    key: int
    M: int
    weight: float
    failure: float
    repeats: str | int

    def __post_init__(self) -> None:
        self.confirmations = max(1, math.ceil(math.log2(1.0 / self.failure)))
        self.facts: dict[Any, set[Outcome]] = {}
        self.starts: dict[int, int] = {}
        self.random_start = self.evident_start = False
        self.predicted = 0  # steps since the last surprise whose outcome the graph had
        self.episodes = self.restarts = self.tried_actions = self.most_repeats = 0
        self.search = self._new_search()

    def _new_search(self) -> Search:
        known = (self.needed_tries, self.confirmations, self.facts)
        return Search(self.world.space, self.horizon, self.M, *known)

    def restart(self) -> None:
        """Forget the graph; keep every outcome that was seen."""
        self.restarts += 1
        self.predicted = 0
        self.search = self._new_search()

    def assume_evidence(self, least: float | None) -> None:
        """From now on the first state is random and may depend on the context.

        Given it, a context may be less likely than its weight. Classes of contexts that are at
        least as likely as `least` are to be found. None: nothing of the kind is assumed.
        """
        self.evident_start = least is not None
        if least is not None:
            self.random_start = True
            self.weight = min(self.weight, least)

    def needed_tries(self, outcomes: int) -> int:
        """Tries after which all of at most `outcomes` outcomes have been seen."""
        self.tried_actions += 1
        if self.repeats == "union":
            share = 0.5 * self.failure / (BASEL * self.tried_actions**2)
            decay = -math.log1p(-self.weight) if self.weight < 1.0 else math.inf
            n = max(1, math.ceil(math.log(outcomes / share) / decay))
        elif self.repeats == "paper":
            n = max(1, math.ceil(3.0 * self.M * math.log(self.M)))  # the paper's O(M log M)
        else:
            n = int(self.repeats)
        self.most_repeats = max(self.most_repeats, n)
        return n

    def find_starts(self) -> None:
        """The initialisation of Algorithm 5: every first state, each a node of level 0."""
        if not self.starts:
            needed = self.needed_tries(self.M)
            while self.episodes < needed:
                state = self.world.begin(self.key, self.episodes)  # only to see its first state
                self.episodes += 1
                self.starts[state] = self.starts.get(state, 0) + 1
                if len(self.starts) == self.M and self.episodes >= self.confirmations:
                    break
        if len(self.starts) > self.M and not self.random_start:
            raise ExplorationError(
                f"there are more first states than n_contexts={self.M}, so contexts do not decide "
                'them: random_start=True or "by-context" allows that',
                outcomes=self.starts,
            )
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

    def confirm(self, noise: float) -> None:
        """Play on, with random actions, until noise of this size would have shown."""
        needed = math.ceil(math.log(self.failure) / math.log1p(-noise)) if noise < 1.0 else 1
        search = self.search
        while self.predicted < needed:
            walk = _RandomWalk(self)
            self.episodes += 1
            play_episode(self.world, walk, self.key, self.episodes - 1, self.horizon)
            for n, a, outcome in walk.steps:
                fresh = outcome not in search.nodes[n].outcomes[a]
                if not search.record(n, a, outcome) or fresh:
                    raise SurpriseError
            if not walk.steps:
                return  # every first state is final: there is nothing to predict

    def play(self) -> None:
        """Play an episode by the search's plan and record what it shows."""
        walk, search = _Walk(self), self.search
        self.episodes += 1
        play_episode(self.world, walk, self.key, self.episodes - 1, self.horizon)
        for c in walk.classes:
            search.hits[c] += 1
        for n, a, outcome in walk.steps:
            if not search.record(n, a, outcome):
                raise SurpriseError
        n_nodes = len(search.nodes)
        search.settle([*(n for n, _ in walk.plan), *(n for n, _, _ in walk.steps)])
        if search.undecided is not None and len(search.nodes) > n_nodes:
            raise SurpriseError  # a new outcome after all seemed explored
        for c in {search.nodes[n].c for n, _ in walk.plan}:
            # A class of weight w is missed 40 / w times with probability e^-40.
            if search.hits[c] == 0 and search.tried[c] > 40.0 / self.weight:
                raise ExplorationError(
                    f"observations that occurred once did not occur again in {search.tried[c]} "
                    "episodes: the environment is not deterministic given its context, or a "
                    f"context is rarer than {self.weight:.3g}",
                    search.sets[c],
                )

    def graph(self, masses: Sequence[float]) -> Graph:
        """What was found, with the probability of each class."""
        search = self.search
        edges: list[Edge] = []
        for n, node in enumerate(search.nodes):
            for a, children in enumerate(node.children):
                counts, visits = node.outcomes[a], sum(node.outcomes[a].values())
                total = sum(masses[search.nodes[child].c] for child in children.values())
                for outcome, child in children.items():
                    share = counts[outcome] / visits
                    spread = math.sqrt(share * (1.0 - share) / visits)
                    p = masses[search.nodes[child].c] / total
                    edges.append(Edge(n, a, child, *outcome, p, share, spread, visits))
        weights = {n: masses[search.nodes[n].c] for n in search.roots.values()}
        if self.random_start:
            weights = {n: float(self.starts[s]) for s, n in search.roots.items()}
        total = sum(weights.values())
        return Graph(
            nodes=tuple(Node(search.sets[x.c], x.state, x.level) for x in search.nodes),
            edges=tuple(edges),
            starts={n: weight / total for n, weight in weights.items()},
            reward_values=self.world.space.reward_values,
            n_actions=self.world.space.n_actions,
            horizon=self.horizon,
            discount=self.world.space.discount,
        )


class _Walk:
    """An agent that does what the search has planned for an episode.

    A terminated episode is in a state of its own, `n_states`, in which nothing is left to explore:
    an environment may show the same state before and after its end.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.search = explorer, explorer.search
        self.plan: dict[tuple[int, int], int | None] = {}
        self.steps: list[tuple[int, int, Outcome]] = []
        self.classes: set[int] = set()
        self._once: dict[tuple[int, int], Outcome] = {}
        self._node, self._is_lost = 0, False

    def begin(self, episode: int, state: int) -> None:
        """Fix what the episode does in every branch."""
        explorer, search = self.explorer, self.search
        explorer.starts[state] = explorer.starts.get(state, 0) + 1
        if state not in search.roots:
            raise SurpriseError
        self._node = search.roots[state]
        roots = [self._node] if explorer.random_start else list(search.roots.values())
        self.plan = search.plan(roots)
        self.classes = {search.nodes[self._node].c}

    def act(self, t: int) -> int | None:
        """The plan's action; None once nothing more is to be learned."""
        if self._is_lost:
            return None
        branch = (self._node, t)
        return self.plan[branch] if branch in self.plan else self.search.choose(*branch)

    def observe(self, action: int, transition: Transition) -> None:
        """Follow the graph, as far as it is known."""
        search, node = self.search, self.search.nodes[self._node]
        outcome = self._outcome(transition)
        self.steps.append((self._node, action, outcome))
        if self._once.setdefault((node.state, action), outcome) != outcome:
            raise ExplorationError(
                "the environment is not deterministic: within one episode the same action in "
                "the same state had two outcomes",
                *(search.sets[node.c], node.state, action),
                {self._once[node.state, action]: 1, outcome: 1},
            )
        if outcome not in node.children[action]:
            self._is_lost = True
            return
        self.explorer.predicted += 1
        self._node = node.children[action][outcome]
        self.classes.add(search.nodes[self._node].c)

    def _outcome(self, transition: Transition) -> Outcome:
        t, horizon = len(self.steps) + 1, self.explorer.horizon
        if transition.truncated and t < horizon:
            raise ValueError(
                f"the environment cut the episode after {t} steps, before the horizon "
                f"{horizon}: give a shorter horizon"
            )
        end = self.explorer.world.space.n_states
        return end if transition.terminated else transition.next_state, transition.reward


class _RandomWalk(_Walk):
    """The same with random actions, to see whether the graph predicts what follows."""

    def begin(self, episode: int, state: int) -> None:
        """See the first state; nothing is planned, so nothing counts as a try."""
        if state not in self.search.roots:
            self.explorer.starts[state] = self.explorer.starts.get(state, 0) + 1
            raise SurpriseError
        self._node = self.search.roots[state]
        self._chance = np.random.default_rng((self.explorer.key, episode))

    def act(self, t: int) -> int | None:
        """Any action that was explored; None at the end."""
        children = self.search.nodes[self._node].children
        explored = [a for a, behind in enumerate(children) if behind]
        if self._is_lost or not explored:
            return None
        return explored[self._chance.integers(len(explored))]


def weigh_classes(explorer: Explorer, uniform: bool, accuracy: float) -> tuple[list[float], bool]:
    """Play on until every class is weighed: their probabilities, and whether these are exact."""
    search = explorer.search
    if uniform:
        sizes = _identified(explorer)
        if sizes is not None:
            return [size / explorer.M for size in sizes], True
        warnings.warn(
            "the observed frequencies are not those of equally likely contexts: probabilities are "
            "estimated; give min_weight",
            stacklevel=3,
        )
    needed = math.ceil(0.25 / accuracy**2)
    _play_while(explorer, lambda c: search.tried[c] < needed)
    return [hits / max(1, tried) for hits, tried in zip(search.hits, search.tried)], False


def warn_of_light_classes(explorer: Explorer, min_weight: float) -> None:
    """Warn where a class of contexts is rarer than a single context is said to be at least."""
    from scipy.stats import binom

    search, classes = explorer.search, _classes(explorer)
    if explorer.evident_start:
        return  # given a first state, a context may be rarer than its weight
    for c in classes:
        hits, tried = search.hits[c], search.tried[c]
        if tried and binom.cdf(hits, tried, min_weight) < explorer.failure / len(classes):
            condition = ", ".join(sorted(map(str, search.sets[c])))
            warnings.warn(
                f"min_weight={min_weight:g} is contradicted: what shows {{{condition}}} has a "
                f"frequency of {hits / tried:.3g} in {tried} episodes. Outcomes as rare as that "
                "may have been missed; give a smaller min_weight",
                stacklevel=3,
            )
            return


def require_deterministic(model: LatentMDP) -> None:
    """`ExplorationError` unless every context of a model has one outcome for each (s, a)."""
    table = model.outcomes
    probs = table.probs
    random = (probs > 1e-9) & (probs < 1.0 - 1e-9)  # beyond rounding
    if not random.any():
        return
    k, m = arrays.first_index(random)
    row = int(np.searchsorted(table.starts, k, side="right")) - 1
    s, a = divmod(row, model.n_actions)
    here = [i for i in range(*table.starts[row : row + 2]) if probs[i, m] > 0.0]
    shares = {(int(table.next_state[i]), int(table.reward[i])): float(probs[i, m]) for i in here}
    listed = ", ".join(f"{outcome} with probability {p:.3g}" for outcome, p in shares.items())
    raise ExplorationError(
        f"the model is not deterministic: in context {m}, state {s}, action {a} has outcomes "
        f"{listed}",
        *(frozenset(), s, a),
        dict.fromkeys(shares, 1),
    )


def _identified(explorer: Explorer) -> list[int] | None:
    """|K(C)| of each class; None where a frequency is no multiple of 1/M."""
    search, M, sizes = explorer.search, explorer.M, explorer.search.sizes
    # The classes that all contexts belong to.
    whole = [search.nodes[n].c for n in search.roots.values()]
    if not explorer.random_start and len(explorer.starts) > 1:
        whole = [search.number(frozenset())]
    for c in whole:
        sizes.low[c] = M

    def radius(c: int) -> float:
        n = search.tried[c]
        error = 0.5 * explorer.failure / (2.0 * len(search.sets) * BASEL * max(1, n) ** 2)
        return math.sqrt(-math.log(error) / (2.0 * n)) if n else math.inf

    _play_while(explorer, lambda c: sizes.low[c] < sizes.high[c] and radius(c) >= 0.5 / M)
    found = list(sizes.low)
    for c in _classes(explorer):
        if search.tried[c]:
            frequency = search.hits[c] / search.tried[c]
            found[c] = min(max(round(M * frequency), sizes.low[c]), sizes.high[c])
            if abs(frequency - found[c] / M) > radius(c):
                return None
    return found


def _play_while(explorer: Explorer, is_open: Callable[[int], bool]) -> None:
    """Play until no class is open, 16 episodes between two looks."""
    search = explorer.search
    while undecided := {c for c in _classes(explorer) if is_open(c)}:
        search.weigh(undecided)
        for _ in range(16):
            explorer.play()
    search.weigh(set())


def _classes(explorer: Explorer) -> list[int]:
    return sorted({node.c for node in explorer.search.nodes})
