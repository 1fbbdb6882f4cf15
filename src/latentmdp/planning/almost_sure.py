"""Goals that can be reached with probability one in every context [vandervegt2023].

A policy reaches a goal *almost surely* if it does so with probability one in each context, whatever
the weights are. Only which outcomes are possible matters, and a policy need not remember more than
the set J of contexts that are still possible: (s, J) is won if there are actions in (s, J), and in
all that can follow, which never lead to a pair that is lost, and by which in every context of J the
goal can be reached. Any of these actions, drawn at random, then reaches it almost surely. Sets only
shrink, so pairs are decided depth first, those with fewer contexts before those that lead there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import names
from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.results import Result
from latentmdp.errors import TooLargeError
from latentmdp.logs import History
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning import kernels_almost_sure as kernels


@dataclass(frozen=True, eq=False, repr=False)
class SupportPolicy:
    """A policy that looks at the state and at which contexts are still possible.

    It is called with a history and gives the probabilities of the actions: equal ones for those
    that are known to be safe. `simulate` and `evaluate` take it as any function of the history.
    """

    model: LatentMDP
    graph: kernels.SupportGraph  # pairs of a state and a set of contexts
    first: Integers  # (S,): the pair in which an episode begins
    safe: Flags  # (pairs, A): actions after which the goal is still reached surely

    def __repr__(self) -> str:
        pairs = int(self.safe.any(axis=1).sum())
        return f"SupportPolicy({pairs} pairs of a state and a set of contexts)"

    def __call__(self, history: History) -> Floats:
        """The probabilities of the actions, (A,)."""
        model, table, graph = self.model, self.model.outcomes, self.graph
        S, A, Z = model.n_states, model.n_actions, model.n_rewards
        pair, states = int(self.first[history.states[0]]), history.states
        for s, a, n, z in zip(states, history.actions, states[1:], history.rewards):
            outcome = table.find(np.array([((s * A + a) * S + n) * Z + z]), S, Z)[0]
            begin, end = graph.first_edge[pair, a : a + 2]
            after = graph.edges[begin:end][graph.outcomes[begin:end] == outcome]
            if not after.size:  # nothing was found out about it, as the policy does not lead there
                return model.allowed[states[-1]] / model.allowed[states[-1]].sum()
            pair = int(after[0])
        chosen = self.safe[pair] if self.safe[pair].any() else model.allowed[states[-1]]
        return chosen / chosen.sum()


@dataclass(frozen=True, eq=False)
class AlmostSurely(Result):
    """Whether some policy reaches a goal with probability one in every context."""

    holds: bool
    policy: SupportPolicy | None
    """A policy that does, where there is one."""

    reason: str
    """Why it holds, or in which context it does not."""

    n_nodes: int
    """Pairs of a state and a set of contexts that were looked at."""


def almost_surely(
    model: LatentMDP, goal: ArrayLike | str, *, max_nodes: int = 20_000_000
) -> AlmostSurely:
    """Whether some policy reaches a goal with probability one in every context.

    Parameters
    ----------
    goal
        States by name or number, one or several.
    max_nodes
        Pairs of a state and a set of contexts that may be looked at: there can be S 2^M.

    Notes
    -----
    There is no horizon: an episode goes on until it ends by itself. Contexts of weight 0 count.

    Raises
    ------
    TooLargeError
        If more than `max_nodes` pairs would have to be looked at.
    """
    require_model(model)
    return decided(model, model.state_numbers("goal", goal), max_nodes)


def decided(
    model: LatentMDP, goals: Integers, max_nodes: int, check: Callable[[float], None] | None = None
) -> AlmostSurely:
    """The verdict; `check` is now and then called with the bytes in use, and may raise to stop."""
    kind = np.where(model.terminal, kernels.LOST, kernels.UNKNOWN).astype(np.int8)
    kind[goals] = kernels.WON
    search = SupportSearch(model, kind, max_nodes, check)
    first = np.full(model.n_states, -1)
    for s in model.initial_vectors.nonzero().tolist():
        possible = np.flatnonzero(model.initial_vectors.of(s))
        # What is lost for some contexts is lost for all, and few are decided sooner.
        for size in [*(2**k for k in range(possible.size.bit_length())), possible.size]:
            first[s] = search.decide(s, possible[:size])
            if search.graph.status[first[s]] != kernels.WON:
                reason = search.why_not(s, possible[:size])
                return AlmostSurely(False, None, reason, search.n_nodes)
    reason = f"the policy reaches the goal in each of {model.n_contexts} contexts"
    graph = search.found()
    policy = SupportPolicy(model, graph, first, kernels.safe_actions(model.n_actions, graph))
    return AlmostSurely(True, policy, reason, search.n_nodes)


class SupportSearch:
    """The pairs that were met, and the arrays that the kernels share."""

    def __init__(
        self, model: LatentMDP, kind: NDArray[np.int8], max_nodes: float,
        check: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.max_nodes, self.check = model, max_nodes, check
        table, A, M = model.outcomes, model.n_actions, model.n_contexts
        # Where nothing was ever said of a context, as in an empirical model, nothing is possible.
        support = packed(table.distinct > 0.0)[table.pattern]
        self.problem = (A, table.starts, table.next_state, support, kind)
        W = support.shape[1]
        self.blamed = np.zeros(W, np.uint64)
        self.scratch = (np.zeros(M + 2, np.int64), np.full((M + 2, 2), -1), self.blamed)
        widest = int(np.diff(table.starts[::A]).max())
        self.least = np.array([1 + max(widest, model.initial_vectors.nonzero().size), widest])
        nodes, edges = 1024 + 2 * int(self.least[0]), 4096 + 2 * widest
        self.graph = kernels.SupportGraph(
            np.zeros(nodes, np.int32), np.zeros((nodes, W), np.uint64), np.zeros(nodes, np.int8),
            np.full(nodes, -1, np.int32), np.full((nodes, A + 1), -1, np.int32),
            np.zeros(edges, np.int32), np.zeros(edges, np.int32),
            np.full(1 << (4 * nodes).bit_length(), -1, np.int32), np.zeros(2, np.int64),
        )  # fmt: skip

    @property
    def n_nodes(self) -> int:
        """Pairs of a state and a set of contexts that were looked at."""
        return int(self.graph.sizes[0])

    def decide(self, s: int, possible: Integers) -> int:
        """The pair of state s and some contexts, whose status says whether it is won."""
        contexts = packed(np.isin(np.arange(self.model.n_contexts), possible)[None])[0]
        while True:
            node = int(kernels.decide(*self.problem, s, contexts, *self.scratch, self.graph))
            if node >= 0:
                return node
            self._grow()

    def list_all(self, begins: Integers, sets: Flags, most: float) -> None:
        """Meet all pairs that can follow the first; after so many edges sets are given up."""
        node, edges = 0, int(min(most, np.iinfo(np.int64).max))
        while True:
            node = kernels.list_all(*self.problem, begins, packed(sets), edges, node, self.graph)
            if node == self.n_nodes:
                return
            self._grow()

    def found(self) -> kernels.SupportGraph:
        """The pairs that were met, without the room for more."""
        nodes, edges = self.graph.sizes
        arrays = [*(a[:nodes] for a in self.graph[:5]), *(a[:edges] for a in self.graph[5:7])]
        return kernels.SupportGraph._make([*arrays, *self.graph[7:]])

    def _grow(self) -> None:
        """Half as much room again for what is full."""
        graph = self.graph
        if self.n_nodes > self.max_nodes:
            raise TooLargeError(
                f"more than {self.max_nodes:,} pairs of a state and a set of contexts would have "
                "to be looked at: max_nodes=... allows more"
            )
        if self.check is not None:
            self.check(float(sum(array.nbytes for array in graph)))
        room = np.array([graph.state.size, graph.edges.size])
        full = (graph.sizes + self.least >= room).repeat((5, 2))
        # Whatever is read before it is written is -1 at first, which is all bits set.
        larger = [
            np.concatenate([array, ~np.zeros_like(array[: len(array) // 2])]) if is_full else array
            for array, is_full in zip(graph[:7], full)
        ]
        larger[3][:] = -1  # a component that was not finished is forgotten
        self.graph = kernels.SupportGraph._make([*larger, graph.slots, graph.sizes])
        if 2 * larger[0].size > graph.slots.size:
            slots = np.full(2 * graph.slots.size, -1, np.int32)
            self.graph = self.graph._replace(slots=slots)
            kernels.fill_slots(self.graph)

    def why_not(self, s: int, possible: Integers) -> str:
        """The context in which the goal is out of reach from the first state s, and why."""
        model, blamed = self.model, self.blamed.copy()
        where = names.called("state", s, model.state_names)
        here = possible.tolist()
        for m in here:
            if self.graph.status[self.decide(s, np.array([m]))] != kernels.WON:
                context = names.called("context", m, model.context_names)
                return f"in {context} no policy reaches the goal surely from {where}"
        stuck = [m for m in here if int(blamed[m // 64]) >> (m % 64) & 1] or here
        context = names.called("context", stuck[0], model.context_names)
        return (
            f"in {context}: from {where} the goal can be reached surely in each of {len(here)} "
            "contexts, but no way to it in this one is safe in all of them that look alike"
        )


def packed(flags: Flags) -> NDArray[np.uint64]:
    """Sets of contexts (n, M) as words of 64 bits, (n, W)."""
    n, M = flags.shape
    padded = np.zeros((n, 64 * -(-M // 64)), np.bool_)
    padded[:, :M] = flags
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def unpacked(sets: NDArray[np.uint64], M: int) -> Flags:
    """Words of 64 bits (n, W) as sets of contexts, (n, M)."""
    bits = np.ascontiguousarray(sets.astype("<u8")).view(np.uint8)
    return np.unpackbits(bits, axis=1, count=M, bitorder="little").astype(np.bool_)
