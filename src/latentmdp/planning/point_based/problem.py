"""What a planner knows of a model before it starts: packed tables and per-context solutions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentmdp._kernels import induction
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.qmdp import q_values

__all__ = ["Problem", "Roots", "prepare"]


class Roots(NamedTuple):
    """The beliefs at the start of an episode: one for every possible first state."""

    states: Integers  # (n,)
    beliefs: Floats  # (n, M)
    weights: Floats  # (n,): probabilities of the first states


class Problem(NamedTuple):
    """A model as kernels see it, and what holds in each context alone.

    `q` is the optimal action value (H, S, A, M), `least` (H, S, M) the value of the worst policy,
    `plans` (H, S, M, M) the value in context m (last) of the optimal policy of context k, and
    `constant` the part of the value that no policy changes.
    """

    table: Floats
    rewards: Floats
    discount: float
    q: Floats
    least: Floats
    plans: Floats
    labels: Integers
    roots: Roots
    constant: float


def prepare(model: LatentMDP) -> Problem:
    """Solve every context on its own, and evaluate each solution in every context."""
    rewards = model.planning_rewards()
    q = q_values(model)
    labels = q.argmax(axis=2)
    joint = model.weights[:, None] * model.initial
    weights = joint.sum(axis=0)
    states = np.flatnonzero(weights > 0.0)
    bonus = model.initial_bonus
    return Problem(
        table=model.packed(),
        rewards=np.ascontiguousarray(np.moveaxis(rewards, 0, -1)),
        discount=model.discount,
        q=q,
        least=_least_values(model),
        plans=_cross_values(model, rewards, labels),
        labels=labels,
        roots=Roots(states, (joint[:, states] / weights[states]).T.copy(), weights[states]),
        constant=0.0 if bonus is None else float(model.weights @ bonus),
    )


def _least_values(model: LatentMDP) -> Floats:
    """Value of the worst policy of every context, shape (H, S, M): the best one for costs."""
    transitions, rewards = model.lanes()
    lanes = np.empty((model.n_contexts, model.horizon, rewards.shape[1]))
    induction.q_values(transitions, -rewards, model.n_actions, model.discount, lanes)
    costs = np.empty((model.horizon, model.n_states, model.n_actions, model.n_contexts))
    induction.interleave(lanes, costs)
    return -costs.max(axis=2)


def _cross_values(model: LatentMDP, rewards: Floats, labels: Integers) -> Floats:
    """Value in context m of following, from (t, s), the optimal policy of context k."""
    H, S, M = labels.shape
    values = np.zeros((H + 1, S, M, M))
    states = np.arange(S)[:, None]
    for t in range(H - 1, -1, -1):
        follow = np.einsum("mskn,nkm->skm", model.transitions[:, states, labels[t]], values[t + 1])
        earned = np.moveaxis(rewards[:, states, labels[t]], 0, -1)
        values[t] = earned + model.discount * follow
    return values[:H]
