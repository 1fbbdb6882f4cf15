"""Total rewards: no horizon and no discount, where what can be earned is bounded all the same.

An episode lasts until a terminal state, or for ever in a cycle that pays nothing. That is so where

* no reward is negative, and no cycle that can go on for ever, in any context, pays anything
  (goals: the value is a probability, or what is collected on the way);
* no reward is positive, and in every context alone some rule surely leads from every state to an
  end, or to where one can stay for nothing (costs until a goal);
* no cycle can go on for ever at all, whatever is done.

What can go on for ever in a context are its end components (`latentmdp._util.cycles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latentmdp._util import names
from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.cycles import EndComponents, distances, end_components
from latentmdp.errors import ModelError

if TYPE_CHECKING:
    from latentmdp.model import LatentMDP
    from latentmdp.outcomes import Outcomes

__all__ = ["require_bounded", "sure_rule"]


def components_by_context(model: LatentMDP) -> list[EndComponents]:
    """The maximal end components of every context alone; rows are s A + a."""
    table, A = model.outcomes, model.n_actions
    first = np.arange(model.n_states + 1) * A
    known: dict[bytes, EndComponents] = {}  # contexts often differ in probabilities only
    found = []
    for m in range(model.n_contexts):
        possible = table.distinct[table.pattern, m] > 0.0
        key = np.packbits(possible).tobytes()
        if key not in known:
            known[key] = end_components(first, table.starts, table.next_state, possible)
        found.append(known[key])
    return found


def require_bounded(model: LatentMDP) -> None:
    """Raise `ModelError` unless the total reward of a model is bounded, naming a cycle."""
    M, rows = model.n_contexts, model.n_states * model.n_actions
    rewards = model.planning_rewards().reshape(M, rows)
    rounding = 1e-12 * float(np.abs(rewards).max(initial=0.0))
    some_earn, some_cost = bool((rewards > rounding).any()), bool((rewards < -rounding).any())
    if not (some_earn or some_cost):
        return
    found = components_by_context(model)
    for m, component in enumerate(found):
        inside = component.inside
        wrong = inside & (np.abs(rewards[m]) > rounding)
        if (some_earn and wrong.any()) or (some_earn and some_cost and inside.any()):
            row = int(np.argmax(wrong if wrong.any() else inside))
            raise ModelError(
                "without a horizon and with discount 1 the total reward must be bounded, but in "
                f"{names.called('context', m, model.context_names)} "
                f"{_cycle(model, m, component, row)} can go on for ever"
                + ("" if wrong.any() else ", and some rewards are positive, others negative")
                + ": give a horizon or a discount below 1"
            )
    if some_cost and any(inside.any() for _, inside in found):
        for m in range(M):
            reached = _sure_rule(
                model.outcomes.select(np.array([m])), rewards[m : m + 1], model.n_states
            )[1]
            if not reached.all():
                s = int(np.argmin(reached))
                raise ModelError(
                    "without a horizon and with discount 1 costs must come to an end, but in "
                    f"{names.called('context', m, model.context_names)} no policy surely leads "
                    f"to one from {names.called('state', s, model.state_names)}: give a horizon "
                    "or a discount below 1"
                )


def _cycle(model: LatentMDP, m: int, component: EndComponents, row: int) -> str:
    """A cycle of context m that begins with a row inside an end component, in words."""
    table, A = model.outcomes, model.n_actions
    entries = np.flatnonzero(
        (table.distinct[table.pattern, m] > 0.0) & component.inside[table.rows()]
    )
    rows, ahead = table.rows()[entries], table.next_state[entries].astype(np.int64)
    home = np.arange(model.n_states) == row // A
    steps = distances(model.n_states, rows // A, ahead, home)
    words, s = [], row // A
    while True:
        state = names.called("state", s, model.state_names)
        words.append(f"{state}, {names.called('action', row % A, model.action_names)}")
        following = ahead[rows == row]
        s = int(following[np.argmin(steps[following])])
        if home[s]:
            return "the cycle " + ", ".join(words)
        way = rows // A == s
        row = int(rows[way][np.argmin(steps[ahead[way]])])


def sure_rule(model: LatentMDP) -> tuple[Integers, Flags]:
    """Actions (S,) that surely lead to an end in every context, and from which states they do.

    An end is a terminal state, or where one can stay for nothing. An action is taken by which, in
    every context, one may come nearer to an end, and by which one is never led to where there is
    no way: each time there is a chance to go all the way.
    """
    rewards = model.planning_rewards()
    return _sure_rule(model.outcomes, rewards.reshape(len(rewards), -1), model.n_states)


def _sure_rule(table: Outcomes, rewards: Floats, S: int) -> tuple[Integers, Flags]:
    """`sure_rule` of a table of S states, with rewards (M, S A)."""
    A = (table.starts.size - 1) // S
    allowed = np.diff(table.starts) > 0
    terminal = ~allowed.reshape(S, A).any(axis=1)
    free = (np.abs(rewards) <= 1e-12 * np.abs(rewards).max(initial=0.0)).all(axis=0) & allowed
    actions, resting = np.zeros(S, np.int64), ~terminal
    while True:  # the largest set that can be stayed in for nothing
        stays = free & ~_any_leads(table, np.logical_not(resting | terminal))
        left = resting & stays.reshape(S, A).any(axis=1)
        if (left == resting).all():
            break
        resting = left
    actions[resting] = stays.reshape(S, A)[resting].argmax(axis=1)
    won = np.ones(S, np.bool_)
    while True:  # the largest set in which everyone can come nearer, without leaving it
        safe = allowed & ~_any_leads(table, ~won)
        reached = np.logical_or(resting, terminal)
        while True:
            nearer = safe & _all_may_lead(table, reached)
            fresh = ~reached & nearer.reshape(S, A).any(axis=1)
            if not fresh.any():
                break
            actions[fresh] = nearer.reshape(S, A)[fresh].argmax(axis=1)
            reached = reached | fresh
        if (reached == won).all():
            return actions, won
        won = won & reached


def _any_leads(table: Outcomes, states: Flags) -> Flags:
    """The rows after which one of some states is possible in some context."""
    hits = np.bincount(table.rows()[states[table.next_state]], minlength=table.starts.size - 1)
    return np.asarray(hits > 0)


def _all_may_lead(table: Outcomes, states: Flags) -> Flags:
    """The rows after which, in every context, one of some states is possible, or nothing."""
    from latentmdp.outcomes import row_sums

    possible = (table.probs > 0.0).astype(np.float64)
    into = row_sums(table, possible, states[table.next_state].astype(np.float64))
    return np.asarray(((into > 0.0) | (row_sums(table, possible) == 0.0)).all(axis=1))
