"""Models from cluster centres or from counts, and the likelihood of episodes under them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, Integers, normalised
from latentmdp.model import LatentMDP
from latentmdp.spectral.psr import PSR
from latentmdp.trajectories import Trajectories, cell_counts, first_state_counts

__all__ = ["count_model", "log_likelihoods", "model_from_centres", "responsibilities_of"]

_CELL = ("state", "action", "next_state", "reward")


def model_from_centres(
    psr: PSR,
    logs: Trajectories,
    centres: Floats,
    contexts: Integers,
    present: NDArray[np.bool_],
    shares: Floats,
) -> LatentMDP:
    """The model whose rows at s are the centres of s, in the order of `contexts[s]`.

    First states and weights are counted with `shares` (N, M); rows at states that are not
    `present` are the pooled ones.
    """
    S, A, Z = psr.sizes
    M = shares.shape[1]
    rows = np.repeat(psr.pooled[None], M, axis=0)
    for s in np.flatnonzero(present):
        rows[contexts[s], s] = np.maximum(centres[s], 0.0).reshape(M, A, S, Z)
    return _model(psr, logs, rows, shares)


def count_model(
    psr: PSR,
    logs: Trajectories,
    shares: Floats,
    prior: LatentMDP | None = None,
    strength: float = 0.0,
    present: NDArray[np.bool_] | bool = True,
) -> LatentMDP:
    """The model counted from episodes that belong to the contexts by `shares` (N, M).

    With a prior, each of its rows at the states `present` counts as `strength` transitions.
    """
    S = psr.sizes[0]
    rows = cell_counts(logs, _CELL, psr.sizes, shares)
    if prior is not None:
        kept = np.broadcast_to(present, (S,))
        rows += strength * prior.observation_probs() * kept[:, None, None, None]
    empty = ~(rows.sum(axis=(3, 4)) > 0.0)
    rows[empty] = np.broadcast_to(psr.pooled, rows.shape)[empty]
    return _model(psr, logs, rows, shares)


def _model(psr: PSR, logs: Trajectories, rows: Floats, shares: Floats) -> LatentMDP:
    """Normalise: rows (M, S, A, S, Z) of any scale, first states and weights by shares."""
    S, _, Z = psr.sizes
    initial = normalised(first_state_counts(logs, S, shares), first_state_counts(logs, S))
    rows = np.where(rows.sum(axis=(3, 4), keepdims=True) > 0.0, rows, 1.0)
    values = np.arange(Z, dtype=np.float64) if psr.reward_values is None else psr.reward_values
    return LatentMDP(
        normalised(rows.sum(axis=4)),
        normalised(rows.sum(axis=3)),
        initial=initial,
        weights=normalised(shares.sum(axis=0)),
        horizon=int(logs.lengths.max()),
        reward_values=values,
    )


def log_likelihoods(model: LatentMDP, logs: Trajectories, mixed: float = 0.0) -> Floats:
    """Logarithms of w_m P_m(episode || its actions), shape (N, M).

    With `mixed`, that share of the average over contexts takes the place of as much of each.
    """
    sizes = (model.n_states, model.n_actions, model.n_rewards)
    cells, episodes = logs.cells(_CELL, sizes), logs.steps().episode
    table = model.packed().reshape(-1, model.n_contexts)
    steps = _log(_mixed(table, mixed))
    begin = _log(_mixed(model.initial.T, mixed))[logs.first_states]
    out = begin + _log(model.weights)
    for m in range(model.n_contexts):
        out[:, m] += np.bincount(episodes, steps[cells, m], minlength=len(logs))
    return out


def responsibilities_of(per_context: Floats) -> tuple[Floats, Floats]:
    """p(m | episode), shape (N, M), and log p(episode), shape (N,)."""
    largest = per_context.max(axis=1, keepdims=True)
    weights = np.exp(per_context - largest)
    totals = weights.sum(axis=1, keepdims=True)
    return weights / totals, (largest + np.log(totals))[:, 0]


def _mixed(table: Floats, share: float) -> Floats:
    return (1.0 - share) * table + share * table.mean(axis=1, keepdims=True)


def _log(table: Floats) -> Floats:
    return np.log(np.maximum(table, np.finfo(np.float64).tiny))
