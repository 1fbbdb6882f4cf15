"""Explicit transition systems of model checkers, one a context, as one latent MDP.

A system is an MDP as Storm and PRISM build it: states that can be reached, each with choices that
have a label, and what follows each choice. States and actions of different systems are the same if
they have the same name, so contexts may reach different states; a context that cannot be in a state
does there what the first does that can. A state that several contexts can reach must offer the same
actions in each of them, since what is offered is seen.

States that satisfy the goal are one state, in which the episode ends. Without a goal the rewards of
choices are paid and not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util import Flags, Floats, Integers, require_memory
from latentmdp.errors import FormatError
from latentmdp.io.determined_pomdp import check_sum
from latentmdp.model import LatentMDP
from latentmdp.outcomes import outcomes_from_entries, row_sums


class System(NamedTuple):
    """One context: C choices of states, each with the entries of what follows it."""

    states: Sequence[str]
    first: Integers  # states in which an episode may begin
    choice_state: Integers  # (C,), rising
    choice_name: Sequence[str]
    choice_reward: Floats  # (C,)
    entry_choice: Integers  # (n,)
    entry_state: Integers  # (n,): the next state
    probability: Floats  # (n,)
    goal: Flags | None  # of each state


def latent_mdp(
    systems: Sequence[System], context_names: Sequence[str], goal: str | None, **others: Any
) -> LatentMDP:
    """The latent MDP of systems; `goal` is what the state is called that its states become.

    `others` are the horizon and the discount.
    """
    state_of: dict[str, int] = {}
    action_of: dict[str, int] = {}
    parts = [_numbered(system, goal, state_of, action_of) for system in systems]
    M, S, A = len(systems), len(state_of), len(action_of)
    require_memory(8.0 * M * S * A * (1 + (goal is None)), f"{M:,} contexts of {S:,} states")
    here, enabled = np.zeros((M, S), np.bool_), np.zeros((S, A), np.int64)
    for m, (rows, _, _) in enumerate(parts):
        here[m, rows // A] = True
        np.add.at(enabled.reshape(-1), rows, 1)
    wrong = (enabled > 0) & (enabled < here.sum(axis=0)[:, None])
    names, actions = list(state_of), list(action_of)
    if wrong.any():
        s, a = np.argwhere(wrong)[0]
        has = [np.isin(s * A + a, rows) for rows, _, _ in parts]
        lacks = next(m for m in range(M) if here[m, s] and not has[m])
        raise FormatError(
            f"action {actions[a]!r} is possible in state {names[s]!r:.80} in context "
            f"{context_names[has.index(True)]!r}, but not in context {context_names[lacks]!r}: what "
            "a state offers must not depend on the context"
        )
    context = np.repeat(np.arange(M), [entries.shape[1] for _, entries, _ in parts])
    row, following = np.concatenate([entries for _, entries, _ in parts], axis=1)
    probability = np.concatenate([system.probability for system in systems])
    probability = probability[np.concatenate([kept for _, _, kept in parts])]
    zero = np.zeros(row.size, np.int64)
    table = outcomes_from_entries(row, following, zero, context, probability, (M, S, A, 1))
    sums = row_sums(table, table.probs)
    off = np.where(sums > 0.0, np.abs(sums - 1.0), 0.0)
    worst, m = np.unravel_index(int(off.argmax()), off.shape)
    check_sum(
        float(sums[worst, m]) or 1.0,
        f"action {actions[worst % A]!r} of state {names[worst // A]!r:.80} in context "
        f"{context_names[m]!r}",
    )
    # A context that is never in a state does there what the first does that can be.
    example = np.where(sums > 0.0, np.arange(M), (sums > 0.0).argmax(axis=1)[:, None])
    probs = np.take_along_axis(
        table.probs / np.where(sums > 0.0, sums, 1.0)[table.rows()], example[table.rows()], axis=1
    )
    bonus = None
    if goal is None:
        bonus = np.zeros((M, S * A))
        for m, (rows, _, _) in enumerate(parts):
            bonus[m, rows] = systems[m].choice_reward
        bonus = np.take_along_axis(bonus, example.T, axis=0).reshape(M, S, A)
    initial = np.zeros((M, S))
    for m, system in enumerate(systems):
        begin = [_name(system, x, goal) for x in system.first]
        initial[m, [state_of[name] for name in begin]] = 1.0 / len(begin)
    model = LatentMDP.from_outcomes(
        *table._replace(probs=probs),
        n_states=S,
        reward_values=[0.0],
        reward_model="state-action",
        allowed=enabled > 0,
        initial=initial,
        bonus=bonus,
        context_names=context_names if M > 1 else None,
        state_names=names,
        action_names=actions,
        **others,
    )
    return model if goal is None else model.reaching(goal)


def _name(system: System, x: int, goal: str | None) -> str:
    return goal if goal is not None and system.goal is not None and system.goal[x] else system.states[x]


def _numbered(
    system: System, goal: str | None, state_of: dict[str, int], action_of: dict[str, int]
) -> tuple[Integers, Any, Any]:
    raise NotImplementedError
