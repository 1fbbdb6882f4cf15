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

from latentmdp._util import Flags, Floats, Integers, names, require_memory
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
    systems: Sequence[System],
    context_names: Sequence[str] | None,
    goal: str | None,
    **others: Any,
) -> LatentMDP:
    """The latent MDP of systems; `goal` is what the state is called that its states become.

    `others` are the horizon and the discount.
    """
    state_of: dict[str, int] = {}
    action_of: dict[str, int] = {}
    numbers, actions = [], []
    for system in systems:
        reached = np.zeros(len(system.states), np.bool_) if system.goal is None else system.goal
        called = [goal if is_goal else name for name, is_goal in zip(system.states, reached)]
        numbers.append(np.array([state_of.setdefault(str(x), len(state_of)) for x in called]))
        # A label that only the goal has is no action: -1.
        offers = zip(system.choice_name, reached[system.choice_state])
        labelled = [
            -1 if is_goal else action_of.setdefault(x, len(action_of)) for x, is_goal in offers
        ]
        actions.append(np.array(labelled))
    M, S, A = len(systems), len(state_of), len(action_of)
    require_memory(8.0 * M * S * A, f"{M:,} contexts of {S:,} states and {A:,} actions")
    end = state_of.get(str(goal), -1)
    enabled, bonus = np.zeros((M, S * A), np.bool_), np.zeros((M, S * A))
    initial, here = np.zeros((M, S)), np.zeros((M, S), np.bool_)
    entries: list[Integers] = []
    chances: list[Floats] = []
    for m, (system, number, action) in enumerate(zip(systems, numbers, actions)):
        here[m, number] = True
        rows = number[system.choice_state] * A + action
        live = number[system.choice_state] != end
        enabled[m, rows[live]] = True
        bonus[m, rows[live]] = system.choice_reward[live]
        initial[m, number[system.first]] = 1.0 / system.first.size
        following = number[system.entry_state]
        entry = np.stack([rows[system.entry_choice], following, np.full(following.size, m)])
        kept = live[system.entry_choice]
        entries.append(entry[:, kept])
        chances.append(system.probability[kept])
    row, following, context = np.concatenate(entries, axis=1)
    probability = np.concatenate(chances)
    offered = enabled.any(axis=0)
    lacking = offered & (here.repeat(A, axis=1) & ~enabled)
    states, labels = list(state_of), list(action_of)
    if lacking.any():
        m, k = (int(x) for x in np.argwhere(lacking)[0])
        other = names.called("context", int(enabled[:, k].argmax()), context_names)
        raise FormatError(
            f"state {states[k // A]!r:.80} has action {labels[k % A]!r} in {other}, but not in "
            f"{names.called('context', m, context_names)}: what a state offers must not tell the "
            "context"
        )
    zero = np.zeros(row.size, np.int64)
    table = outcomes_from_entries(row, following, zero, context, probability, (M, S, A, 1))
    sums = np.where(enabled.T, row_sums(table, table.probs), 1.0)  # (S A, M)
    k, m = (int(x) for x in np.unravel_index(int(np.abs(sums - 1.0).argmax()), sums.shape))
    culprit = f"action {labels[k % A]!r} of state {states[k // A]!r:.80}"
    check_sum(float(sums[k, m]), f"{culprit} in {names.called('context', m, context_names)}")
    # A context that is never in a state does there what the first does that can be.
    example = np.where(enabled, np.arange(M)[:, None], enabled.argmax(axis=0))
    probs = (table.probs / sums[table.rows()])[
        np.arange(table.size)[:, None], example.T[table.rows()]
    ]
    model = LatentMDP.from_outcomes(
        *table._replace(probs=probs),
        n_states=S,
        reward_values=[0.0],
        reward_model="state-action",
        allowed=offered.reshape(S, A),
        initial=initial,
        bonus=np.take_along_axis(bonus, example, axis=0).reshape(M, S, A),
        context_names=context_names,
        state_names=states,
        action_names=labels,
        **others,
    )
    return model if goal is None else model.reaching([end])
