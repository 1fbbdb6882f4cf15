"""The state of an exploration: which nodes (C, s) are known, and what is still to be tried.

Why (C, s) is enough. Let K(C) be the contexts that agree with every distinguishing observation in
C. An action in (C, s) either has one outcome, the same in all of K(C), and tells nothing; or it has
several, and each is a new distinguishing observation. So the contexts that are possible after a
history are exactly K(C), whatever the order in which C was collected, and what follows (C, s, a)
does not depend on the time. It is explored once, at the first level where (C, s) occurs.

What an episode teaches. Before an episode the explorer fixes, as a function of what it knows, what
it would do in every branch. All contexts of K(C) go the same way to (C, s). So in every episode
whose plan leads some branch to (C, s, a), be it the branch that happens or not, each context of
K(C) shows its outcome with probability at least w_min. These episodes are counted as *tries* of
(C, s, a), also when the episode went elsewhere and another node was explored there.

How many contexts are behind C. If action a in state s, given C, was seen to have outcomes
o_1, ..., o_k with k > 1, it splits K(C) into disjoint non-empty parts, so that

    |K(C)| >= sum_i |K(C + o_i)|    and    |K(C + o_i)| <= |K(C)| - sum_{j != i} |K(C + o_j)|.

`ClassSizes` keeps the best lower and upper bounds that follow. They hold with certainty in any
deterministic latent MDP with at most M contexts, so a contradiction is evidence against it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from latentmdp.errors import LatentMDPError
from latentmdp.worlds import Space

Outcome = tuple[int, int]

FAR = 10**9
"""The distance of a node from which nothing useful can be reached: more than any horizon."""


class ExplorationError(LatentMDPError):
    """The environment is not deterministic given its context, or has more contexts than told.

    Attributes
    ----------
    observations
        C, the distinguishing observations of the node where it showed.
    state, action
        Where and what was done; None where it was the start of the episode.
    outcomes
        What followed: (next state, reward index) -> how often.
    """

    def __init__(
        self,
        reason: str,
        observations: frozenset[Any] = frozenset(),
        state: int | None = None,
        action: int | None = None,
        outcomes: dict[Any, int] | None = None,
    ) -> None:
        self.observations, self.state, self.action = observations, state, action
        self.outcomes = dict(outcomes or {})
        counts = ", ".join(f"{outcome} x{count}" for outcome, count in self.outcomes.items())
        condition = ", ".join(sorted(map(str, observations)))
        where = f"state {state}, action {action}, given C = {{{condition}}}"
        if state is None:
            where = "the start of the episode"
        super().__init__(f"{reason} (at {where}: outcomes {counts or 'none'})")


class ContradictionError(Exception):
    """The bounds of the class with this number exclude each other."""


class ClassSizes:
    """Bounds low <= |K(C)| <= high for every set C, by its number; high is M at first."""

    def __init__(self, n_contexts: int) -> None:
        self.n_contexts = n_contexts
        self.low: list[int] = []
        self.high: list[int] = []
        self.changed: set[int] = set()  # classes whose bounds moved since somebody last looked
        self._splits: list[dict[object, Sequence[int]]] = []
        self._above: list[list[int]] = []

    def add(self) -> int:
        """A new class; its number."""
        self.low.append(1)
        self.high.append(self.n_contexts)
        self._splits.append({})
        self._above.append([])
        return len(self.low) - 1

    def split(self, c: int, by: object, parts: Sequence[int]) -> None:
        """Record that `by` splits class c into disjoint parts (a longer list replaces a shorter).

        Raises
        ------
        ContradictionError
            If no deterministic latent MDP with M contexts can show this.
        """
        for part in parts:
            if c not in self._above[part]:
                self._above[part].append(c)
        self._splits[c][by] = tuple(parts)
        self._propagate([c])

    def _propagate(self, waiting: list[int]) -> None:
        while waiting:
            c = waiting.pop()
            before = (self.low[c], self.high[c])
            for parts in self._splits[c].values():
                waiting += self._tighten(c, parts)
            if self.low[c] > self.high[c]:
                raise ContradictionError(c)
            if (self.low[c], self.high[c]) != before:
                self.changed.add(c)
                waiting += [c, *self._above[c]]

    def _tighten(self, c: int, parts: Sequence[int]) -> list[int]:
        """Apply one split; the parts whose bounds changed."""
        low, high = self.low, self.high
        total_low = sum(low[p] for p in parts)
        low[c] = max(low[c], total_low)
        changed = []
        for p in parts:
            top = high[c] - (total_low - low[p])
            if top < high[p]:
                high[p] = top
                changed.append(p)
                self.changed.add(p)
                if low[p] > top:
                    raise ContradictionError(p)
        return changed


class SearchNode:
    """(C, s) and what is known of its actions."""

    def __init__(self, c: int, state: int, level: int, n_actions: int) -> None:
        self.c, self.state, self.level = c, state, level
        self.tries = [0] * n_actions
        self.needed: list[int | None] = [None] * n_actions
        self.outcomes: list[dict[Outcome, int]] = [{} for _ in range(n_actions)]
        self.children: list[dict[Outcome, int]] = [{} for _ in range(n_actions)]
        self.parents: set[int] = set()
        self.distance = FAR


class Search:
    """Nodes, counts and distances; see the module's text.

    Parameters
    ----------
    space
        Of the world; S, one beyond its states, is the absorbing one, with nothing left to explore.
    horizon, n_contexts
        H, M.
    repeats
        How many tries an action needs, given how many outcomes it may have; called once for each
        action that needs any.
    visits
        How often the outcome of an action is looked at where all its outcomes are known.
    facts
        Outcomes seen before a restart: (C, s, a) -> outcomes.
    """

    def __init__(
        self, space: Space, horizon: int, n_contexts: int, repeats: Callable[[int], int],
        visits: int, facts: dict[Any, set[Outcome]],
    ) -> None:  # fmt: skip
        self.n_actions, self.horizon, self.terminal = space.n_actions, horizon, space.n_states
        self.repeats, self.visits, self.facts = repeats, visits, facts
        every = np.ones((space.n_states, space.n_actions), np.bool_)
        rows = every if space.allowed is None else space.allowed
        self.allowed = [np.flatnonzero(row).tolist() for row in rows]
        self.sizes = ClassSizes(n_contexts)
        self.sets: list[frozenset[Any]] = []
        self.nodes: list[SearchNode] = []
        self.roots: dict[int, int] = {}
        self.tried: list[int] = []  # episodes whose plan reaches class c
        self.hits: list[int] = []  # and those that did
        self.undecided: set[int] | None = None  # classes still to be weighed, once all is explored
        self._numbers: dict[frozenset[Any], int] = {}
        self._index: dict[tuple[int, int], int] = {}
        self._members: list[list[int]] = []

    # -- growing the graph ----------------------------------------------------------------------

    def number(self, observations: frozenset[Any]) -> int:
        """The number of a set C."""
        if observations not in self._numbers:
            self._numbers[observations] = self.sizes.add()
            self.sets.append(observations)
            self.tried.append(0)
            self.hits.append(0)
            self._members.append([])
        return self._numbers[observations]

    def node(self, observations: frozenset[Any], state: int, level: int) -> int:
        """The number of the node (C, s), new or not, known to occur at `level`."""
        c = self.number(observations)
        if (c, state) not in self._index:
            self._index[c, state] = len(self.nodes)
            self.nodes.append(SearchNode(c, state, level, self.n_actions))
            self._members[c].append(len(self.nodes) - 1)
            self._recall(len(self.nodes) - 1)
        n = self._index[c, state]
        self._lower_level(n, level)
        return n

    def _recall(self, n: int) -> None:
        """Begin with the outcomes known from before a restart."""
        node = self.nodes[n]
        for a in range(self.n_actions):
            recorded = self.facts.get((self.sets[node.c], node.state, a), ())
            node.outcomes[a] = dict.fromkeys(sorted(recorded), 0)
            if len(node.outcomes[a]) > 1:
                self._split(node, a)
        self.settle([n])

    def _lower_level(self, n: int, level: int) -> None:
        waiting = [(n, level)]
        while waiting:
            n, level = waiting.pop()
            if level < self.nodes[n].level:
                self.nodes[n].level = level
                self.settle([n])
                for action in self.nodes[n].children:
                    waiting += [(child, level + 1) for child in action.values()]

    def expanded(self, node: SearchNode, a: int) -> bool:
        """Whether the nodes behind an action are settled.

        A single outcome leaves C as it is, several extend it. So one outcome is settled only when
        no other is to be expected.
        """
        number = len(node.outcomes[a])
        return number > 1 or (number == 1 and (self.alone(node) or self._tried_enough(node, a)))

    def alone(self, node: SearchNode) -> bool:
        """Whether a single context is left."""
        return self.sizes.high[node.c] == 1

    def finished(self, node: SearchNode, a: int) -> bool:
        """Whether an action needs no more tries."""
        visits = sum(node.outcomes[a].values())
        if visits == 0:
            return False
        if len(node.outcomes[a]) >= self.sizes.high[node.c] and visits >= self.visits:
            return True
        return not self.alone(node) and self._tried_enough(node, a)

    def _tried_enough(self, node: SearchNode, a: int) -> bool:
        needed = node.needed[a]
        return needed is not None and node.tries[a] >= needed

    def record(self, n: int, a: int, outcome: Outcome) -> bool:
        """Count an outcome. False if it unsettles what was taken for settled."""
        node = self.nodes[n]
        fresh = outcome not in node.outcomes[a]
        settled_alone = fresh and len(node.outcomes[a]) == 1 and bool(node.children[a])
        node.outcomes[a][outcome] = node.outcomes[a].get(outcome, 0) + 1
        self.facts.setdefault((self.sets[node.c], node.state, a), set()).add(outcome)
        if len(node.outcomes[a]) > 1 and fresh:
            self._split(node, a)
        return not settled_alone

    def _split(self, node: SearchNode, a: int) -> None:
        base, outcomes = self.sets[node.c], sorted(node.outcomes[a])
        parts = [self.number(base | {(node.state, a, *outcome)}) for outcome in outcomes]
        try:
            self.sizes.split(node.c, (node.state, a), parts)
        except ContradictionError:
            M = self.sizes.n_contexts
            raise ExplorationError(
                f"what was observed needs more than {M} deterministic contexts: either there are "
                f"more than n_contexts={M}, or the environment is not deterministic given its "
                "context",
                *(base, node.state, a, node.outcomes[a]),
            ) from None

    def settle(self, affected: list[int]) -> None:
        """Create the nodes behind settled actions and restore distances.

        Called with the nodes that were tried or seen; nodes whose class has new bounds join them.
        """
        moved = [n for c in sorted(self.sizes.changed) for n in self._members[c]]
        self.sizes.changed.clear()
        affected = [*affected, *moved]
        for n in affected:
            if self.nodes[n].level < self.horizon:
                for a in range(self.n_actions):
                    self._expand(n, a)
        self._relax(affected)

    def _expand(self, n: int, a: int) -> None:
        node = self.nodes[n]
        if len(node.children[a]) == len(node.outcomes[a]) or not self.expanded(node, a):
            return
        base = self.sets[node.c]
        for outcome in node.outcomes[a]:
            if outcome not in node.children[a]:
                more = {(node.state, a, *outcome)} if len(node.outcomes[a]) > 1 else set()
                child = self.node(base | more, outcome[0], node.level + 1)
                node.children[a][outcome] = child
                self.nodes[child].parents.add(n)

    # -- deciding what to do --------------------------------------------------------------------

    def unfinished(self, node: SearchNode) -> list[int]:
        """The actions of a node that need more tries."""
        if node.level >= self.horizon or node.state == self.terminal:
            return []
        return [a for a in self.allowed[node.state] if not self.finished(node, a)]

    def _relax(self, waiting: list[int]) -> None:
        """Restore distance = steps to the nearest target, beginning with these nodes."""
        while waiting:
            n = waiting.pop()
            node = self.nodes[n]
            target = self.unfinished(node) if self.undecided is None else node.c in self.undecided
            distance = 0 if target else 1 + self._nearest(node)[0]
            distance = distance if distance <= self.horizon else FAR
            if distance != node.distance:
                node.distance = distance
                waiting += node.parents

    def _nearest(self, node: SearchNode) -> tuple[int, int]:
        best, action = FAR, -1
        for a, children in enumerate(node.children):
            for child in children.values():
                if self.nodes[child].distance < best:
                    best, action = self.nodes[child].distance, a
        return best, action

    def weigh(self, undecided: set[int] | None) -> None:
        """From now on look for these classes instead of unfinished actions."""
        self.undecided = undecided
        self._relax(list(range(len(self.nodes))))

    def choose(self, n: int, t: int) -> int | None:
        """What to do in a node at time t; None if nothing useful can be reached any more."""
        node = self.nodes[n]
        if t >= self.horizon:
            return None
        if self.undecided is None:
            open_actions = self.unfinished(node)
            if open_actions:
                return min(
                    open_actions, key=lambda a: (node.tries[a], sum(node.outcomes[a].values()))
                )
        distance, action = self._nearest(node)
        last = self.horizon - (self.undecided is None)  # a target must still be acted in
        return action if t + 1 + distance <= last else None

    def plan(self, roots: list[int]) -> dict[tuple[int, int], int | None]:
        """What the coming episode does in each branch; counted as a try of all it leads to.

        Branches with a single context left are not followed: they need no tries.
        """
        plan: dict[tuple[int, int], int | None] = {}
        reached = set()
        waiting = [(root, 0) for root in roots]
        while waiting:
            n, t = waiting.pop()
            node = self.nodes[n]
            reached.add(node.c)
            if self.alone(node):
                continue
            a = plan[n, t] = self.choose(n, t)
            if a is None:
                continue
            if node.needed[a] is None:
                node.needed[a] = self.repeats(self.sizes.high[node.c])
            waiting += [(child, t + 1) for child in node.children[a].values()]
        for (n, _), a in plan.items():
            if a is not None:
                self.nodes[n].tries[a] += 1
        for c in reached:
            self.tried[c] += 1
        return plan
