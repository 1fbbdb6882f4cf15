"""Goals that can be reached with probability one in every context [vandervegt2023].

A policy reaches a goal *almost surely* if it does so with probability one in each context, whatever
the weights are. Only which outcomes are possible matters, and a policy need not remember more than
the set J of contexts that are still possible: (s, J) is won if there are actions in (s, J), and in
all that can follow, which never lead to a pair that is lost, and by which in every context of J the
goal can be reached. Any of these actions, drawn at random, then reaches it almost surely. Sets only
shrink, so pairs are decided depth first, those with fewer contexts before those that lead there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import Floats, Integers, Result, names
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
    actions: Mapping[tuple[int, bytes], tuple[int, ...]]  # by state and packed set of contexts

    def __repr__(self) -> str:
        return f"SupportPolicy({len(self.actions)} pairs of a state and a set of contexts)"

    def __call__(self, history: History) -> Floats:
        """The probabilities of the actions, (A,)."""
        model, table = self.model, self.model.outcomes
        S, A, Z = model.n_states, model.n_actions, model.n_rewards
        possible = model.initial_vectors.of(history.states[0]) > 0.0
        steps = zip(history.states, history.actions, history.states[1:], history.rewards)
        for s, a, n, z in steps:
            outcome = table.find(np.array([((s * A + a) * S + n) * Z + z]), S, Z)[0]
            possible = possible & (table.distinct[table.pattern[outcome]] > 0.0)
        s = history.states[-1]
        safe = self.actions.get((s, _packed(possible[None])[0].tobytes()), ())
        chosen = np.isin(np.arange(A), safe) if safe else model.allowed[s]
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
    search = _Search(model, model.state_numbers("goal", goal), max_nodes)
    for s in model.initial_vectors.nonzero().tolist():
        possible = np.flatnonzero(model.initial_vectors.of(s))
        # What is lost for some contexts is lost for all, and few are decided sooner.
        for size in [*(2**k for k in range(possible.size.bit_length())), possible.size]:
            if not search.is_won(s, possible[:size]):
                reason = search.why_not(s, possible[:size])
                return AlmostSurely(False, None, reason, search.n_nodes)
    reason = f"the policy reaches the goal in each of {model.n_contexts} contexts"
    return AlmostSurely(True, SupportPolicy(model, search.actions()), reason, search.n_nodes)


class _Search:
    """The nodes that were looked at, and the arrays that the kernels share."""

    def __init__(self, model: LatentMDP, goals: Integers, max_nodes: int) -> None:
        self.model, self.max_nodes = model, max_nodes
        table, A, M = model.outcomes, model.n_actions, model.n_contexts
        kind = np.where(model.terminal, kernels.LOST, kernels.UNKNOWN).astype(np.int8)
        kind[goals] = kernels.WON
        # Where nothing was ever said of a context, as in an empirical model, nothing is possible.
        support = _packed(table.distinct > 0.0)[table.pattern]
        self.problem = (A, table.starts, table.next_state, support, kind)
        W = support.shape[1]
        self.blamed = np.zeros(W, np.uint64)
        self.scratch = (np.zeros(M + 2, np.int64), np.full((M + 2, 2), -1), self.blamed)
        widest = int(np.diff(table.starts[::A]).max())
        nodes, edges = 1024 + 2 * widest, 4096 + 2 * widest
        self.graph = kernels.SupportGraph(
            np.zeros(nodes, np.int32), np.zeros((nodes, W), np.uint64), np.zeros(nodes, np.int8),
            np.full(nodes, -1, np.int32), np.full((nodes, A + 1), -1), np.zeros(edges, np.int32),
            np.full(1 << (4 * nodes).bit_length(), -1, np.int32), np.zeros(2, np.int64),
        )  # fmt: skip

    @property
    def n_nodes(self) -> int:
        """Pairs of a state and a set of contexts that were looked at."""
        return int(self.graph.sizes[0])

    def is_won(self, s: int, possible: Integers) -> bool:
        """Whether the goal can be reached surely from state s in all of some contexts."""
        contexts = _packed(np.isin(np.arange(self.model.n_contexts), possible)[None])[0]
        while True:
            node = kernels.decide(*self.problem, s, contexts, *self.scratch, self.graph)
            if node >= 0:
                return bool(self.graph.status[node] == kernels.WON)
            self._grow()

    def _grow(self) -> None:
        """Twice the room."""
        graph = self.graph
        if graph.state.size > self.max_nodes:
            raise TooLargeError(
                f"more than {self.max_nodes:,} pairs of a state and a set of contexts would have "
                "to be looked at: max_nodes=... allows more"
            )
        full = (2 * graph.sizes > (graph.state.size, graph.edges.size)).repeat((5, 1))
        larger: list[Any] = [
            np.concatenate([array, np.full_like(array, fill)]) if is_full else array
            for array, fill, is_full in zip(graph[:6], (0, 0, 0, -1, -1, 0), full)
        ]
        larger[3][:] = -1  # a component that was not finished is forgotten
        slots = np.full(1 << (4 * larger[0].size).bit_length(), -1, np.int32)
        self.graph = kernels.SupportGraph._make([*larger, slots, graph.sizes])
        kernels.fill_slots(self.graph)

    def actions(self) -> dict[tuple[int, bytes], tuple[int, ...]]:
        """The actions of won nodes after which all nodes are won."""
        graph = self.graph
        won = graph.status == kernels.WON
        nodes = np.flatnonzero(won & (graph.first_edge[:, 0] >= 0))
        among = np.concatenate([[0], np.cumsum(won[graph.edges])])  # edges before to won nodes
        begin, end = graph.first_edge[nodes, :-1], graph.first_edge[nodes, 1:]
        safe = (begin < end) & (among[end] - among[begin] == end - begin)
        pairs = zip(graph.state[nodes].tolist(), graph.contexts[nodes], safe)
        return {(s, G.tobytes()): tuple(np.flatnonzero(row).tolist()) for s, G, row in pairs}

    def why_not(self, s: int, possible: Integers) -> str:
        """The context in which the goal is out of reach from the first state s, and why."""
        model, blamed = self.model, self.blamed.copy()
        where = names.called("state", s, model.state_names)
        here = possible.tolist()
        for m in here:
            if not self.is_won(s, np.array([m])):
                context = names.called("context", m, model.context_names)
                return f"in {context} no policy reaches the goal surely from {where}"
        stuck = [m for m in here if int(blamed[m // 64]) >> (m % 64) & 1] or here
        context = names.called("context", stuck[0], model.context_names)
        return (
            f"in {context}: from {where} the goal can be reached surely in each of {len(here)} "
            "contexts, but no way to it in this one is safe in all of them that look alike"
        )


def _packed(flags: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Sets of contexts (n, M) as words of 64 bits, (n, W)."""
    n, M = flags.shape
    padded = np.zeros((n, 64 * -(-M // 64)), np.bool_)
    padded[:, :M] = flags
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)
