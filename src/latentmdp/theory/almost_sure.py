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

from latentmdp._util import Floats, Result, names, read_only
from latentmdp.errors import TooLargeError
from latentmdp.logs import History
from latentmdp.model import LatentMDP, require_model


@dataclass(frozen=True, eq=False)
class SupportPolicy:
    """A policy that looks at the state and at which contexts are still possible.

    It is called with a history and gives the probabilities of the actions: equal ones for those
    that are known to be safe. `simulate` and `evaluate` take it as any function of the history.
    """

    model: LatentMDP
    actions: Mapping[tuple[int, bytes], tuple[int, ...]]  # by state and packed set of contexts

    def __call__(self, history: History) -> Floats:
        """The probabilities of the actions, (A,)."""
        model, table = self.model, self.model.outcomes
        S, A, Z = model.n_states, model.n_actions, model.n_rewards
        possible = model.initial[:, history.states[0]] > 0.0
        steps = zip(history.states, history.actions, history.states[1:], history.rewards)
        for s, a, n, z in steps:
            outcome = table.find(np.array([((s * A + a) * S + n) * Z + z]), S, Z)[0]
            possible = possible & (table.probs[outcome] > 0.0)
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
    goals = model.state_numbers("goal", goal)
    from latentmdp.theory import kernels

    table, A = model.outcomes, model.n_actions
    kind = np.where(model.terminal, kernels.LOST, kernels.UNKNOWN).astype(np.int8)
    kind[goals] = kernels.WON
    starts = np.flatnonzero((model.initial > 0.0).any(axis=0))
    problem = (A, table.starts, table.next_state, _packed(table.probs > 0.0), read_only(kind))
    at_start = _packed(model.initial[:, starts].T > 0.0)
    n, lost, state, sets, status, first_edge, edges, blamed = kernels.decide(
        *problem, starts, at_start, max_nodes
    )
    if n < 0:
        raise TooLargeError(
            f"more than {max_nodes:,} pairs of a state and a set of contexts would have to be "
            "looked at: max_nodes=... allows more"
        )
    if lost >= 0:
        reason = _why_not(model, problem, int(starts[lost]), blamed, max_nodes)
        return AlmostSurely(False, None, reason, int(n))
    actions = {}
    for i in np.flatnonzero((status[:n] == kernels.WON) & (first_edge[:n, 0] >= 0)):
        won = [
            a
            for a in range(A)
            if first_edge[i, a] < first_edge[i, a + 1]
            and (status[edges[first_edge[i, a] : first_edge[i, a + 1]]] == kernels.WON).all()
        ]
        actions[int(state[i]), sets[i].tobytes()] = tuple(won)
    reason = f"the policy reaches the goal in each of {model.n_contexts} contexts"
    return AlmostSurely(True, SupportPolicy(model, actions), reason, int(n))


def _packed(flags: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Sets of contexts (n, M) as words of 64 bits, (n, W)."""
    n, M = flags.shape
    padded = np.zeros((n, 64 * -(-M // 64)), np.bool_)
    padded[:, :M] = flags
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _why_not(
    model: LatentMDP, problem: tuple[Any, ...], s: int, blamed: NDArray[np.uint64], most: int
) -> str:
    """The context in which the goal is out of reach from the first state s, and why."""
    from latentmdp.theory import kernels

    here = np.flatnonzero(model.initial[:, s] > 0.0)
    where = names.called("state", s, model.state_names)
    for m in here:
        alone = _packed((np.arange(model.n_contexts) == m)[None])
        if kernels.decide(*problem, np.array([s]), alone, most)[1] >= 0:
            context = names.called("context", m, model.context_names)
            return f"in {context} no policy reaches the goal surely from {where}"
    stuck = [m for m in here if blamed[m // 64] >> np.uint64(m % 64) & np.uint64(1)]
    context = names.called("context", stuck[0] if stuck else here[0], model.context_names)
    return (
        f"in {context}: in each of the {here.size} contexts that begin in {where} the goal can be "
        "reached surely, but no way to reach it in this one is safe in all others that look alike"
    )
