"""Between the blocks of parameters that EM works on and latent MDPs.

Rows that no episode visits cannot be estimated: they become uniform over next states, with the
rewards of all transitions together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util.arrays import Floats, normalised
from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories, cell_counts

__all__ = [
    "SharedRewards",
    "parameters_from_model",
    "parameters_from_shares",
    "reward_values_of",
    "to_model",
]


class SharedRewards:
    """Rewards that all contexts share: how often each came, by (s, a) or by (s, a, s')."""

    def __init__(
        self, logs: Sequence[Trajectories], sizes: tuple[int, int, int], by_next_state: bool
    ) -> None:
        Z = sizes[2]
        rows = ("state", "action", "next_state") if by_next_state else ("state", "action")
        counts = cell_counts(logs, (*rows, "reward"), sizes)
        self.counts, self.shape = counts.reshape(-1, Z), counts.shape

    @property
    def n_parameters(self) -> int:
        """One less than the number of rewards seen, for every row visited."""
        return int(np.maximum(np.count_nonzero(self.counts, axis=1) - 1, 0).sum())

    def log_likelihood(self) -> float:
        """Sum over transitions of log R(z | ...) at the maximum."""
        totals = np.repeat(self.counts.sum(axis=1, keepdims=True), self.counts.shape[1], axis=1)
        seen = self.counts > 0.0
        return float(self.counts[seen] @ np.log(self.counts[seen] / totals[seen]))

    def probabilities(self) -> Floats:
        """R in its dense shape."""
        return normalised(self.counts, self.counts.sum(axis=0)).reshape(self.shape)


def reward_values_of(logs: Sequence[Trajectories | LatentMDP]) -> Floats:
    """The reward values that logs or models state, or the indices themselves."""
    for part in logs:
        if part.reward_values is not None:
            return part.reward_values
    return np.arange(max(part.n_rewards for part in logs), dtype=np.float64)


def to_model(
    likelihood: MixtureLikelihood,
    parameters: Parameters,
    reward_values: ArrayLike,
    shared: SharedRewards | None,
) -> LatentMDP:
    """The latent MDP with these parameters; `shared` rewards where all contexts share them."""
    episodes, M = likelihood.episodes, likelihood.structure.n_contexts
    S, A, Z = episodes.n_states, episodes.n_actions, episodes.n_rewards
    blocks: list[Floats] = []
    for block, values in zip(likelihood.rows, parameters):
        width = S * Z if likelihood.structure.joint else (S, Z)[len(blocks)]
        dense = np.zeros((S * A * width, M))
        dense[block.position] = values
        blocks.append(np.moveaxis(dense.reshape(S * A, width, M), -1, 0))
    if shared is not None:
        T = normalised(blocks[0], np.ones(S))
        rewards = np.repeat(shared.probabilities()[None], M, axis=0)
    elif likelihood.structure.joint:
        T, rewards = _split_joint(blocks[0].reshape(M, S * A, S, Z))
        rewards = rewards.reshape(M, S, A, S, Z)
    else:
        T = normalised(blocks[0], np.ones(S))
        overall = np.bincount(episodes.cells % Z, weights=likelihood.cell_counts, minlength=Z)
        rewards = normalised(blocks[1], overall.astype(np.float64)).reshape(M, S, A, Z)
    initial, weights = parameters[-2:]
    return LatentMDP(
        T.reshape(M, S, A, S),
        rewards,
        initial=initial.T,
        weights=weights / weights.sum(),
        horizon=episodes.longest,
        reward_values=reward_values,
    )


def _split_joint(joint: Floats) -> tuple[Floats, Floats]:
    """T(s'|s,a) and R(z|s,a,s') from P(s',z|s,a); unseen next states take R(z|s,a)."""
    T = normalised(joint.sum(axis=3), np.ones(joint.shape[2]))
    by_row = normalised(joint.sum(axis=2), np.ones(joint.shape[3]))
    totals = joint.sum(axis=3, keepdims=True)
    fallback = np.broadcast_to(by_row[:, :, None, :], joint.shape)
    return T, np.where(totals > 0.0, joint / np.where(totals > 0.0, totals, 1.0), fallback)


def parameters_from_model(likelihood: MixtureLikelihood, model: LatentMDP) -> Parameters:
    """The blocks of a model, on the cells that the episodes show."""
    joint, Z = model.observation_probs(), likelihood.episodes.n_rewards
    parts = (
        [joint] if likelihood.structure.joint and Z > 1 else [joint.sum(axis=4), joint.sum(axis=3)]
    )
    blocks = [
        np.ascontiguousarray(values.reshape(model.n_contexts, -1)[:, block.position].T)
        for block, values in zip(likelihood.rows, parts)
    ]
    return likelihood.mixed((*blocks, np.ascontiguousarray(model.initial.T), model.weights))


def parameters_from_shares(
    likelihood: MixtureLikelihood, logs: Sequence[Trajectories], shares: Floats
) -> Parameters:
    """The M-step for given responsibilities (N, M) of the original episodes."""
    return likelihood.maximised(*likelihood.episodes.shares_by_cell(logs, shares))
