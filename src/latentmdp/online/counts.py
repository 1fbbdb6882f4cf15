"""Belief-weighted visit counts N_m(s' | s, a), N_m(r | s, a), N_m(s) of [kwon2021, Alg. 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats, frozen, normalised
from latentmdp.model import LatentMDP
from latentmdp.space import Space
from latentmdp.trajectories import Trajectories, cell_counts, first_state_counts

__all__ = ["Counts"]


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts, context first.

    Attributes
    ----------
    transitions : (M, S, A, S)
        N_m(s' | s, a).
    rewards : (M, S, A, Z) or (M, S, A, S, Z)
        N_m(r | s, a), or N_m(s', r | s, a) where rewards are counted by next state.
    initial : (M, S)
        N_m(s): how often an episode began in s.
    """

    transitions: Floats
    rewards: Floats
    initial: Floats

    def __post_init__(self) -> None:
        for array in (self.transitions, self.rewards, self.initial):
            frozen(array)

    @property
    def visits(self) -> Floats:
        """N_m(s, a) before it is clipped at one, shape (M, S, A)."""
        # Added in the order of the compiled loop, so that both give the same bits.
        return np.cumsum(self.transitions, axis=-1)[..., -1]

    @property
    def episodes(self) -> Floats:
        """N(m), shape (M,)."""
        return self.initial.sum(axis=-1)

    @property
    def by_next_state(self) -> bool:
        """Whether rewards are counted by (s, a, s')."""
        return self.rewards.ndim == 5

    def model(self, space: Space, weights: Floats | None = None) -> LatentMDP:
        """The empirical model; rows without a visit are all zero.

        Weights are the shares N(m) of all episodes, uniform if there are none, unless given.
        """
        total = self.episodes.sum()
        if weights is None:
            uniform = np.full(space.n_contexts, 1.0 / space.n_contexts)
            weights = self.episodes / total if total > 0.0 else uniform
        return LatentMDP(
            normalised(self.transitions),
            normalised(self.rewards),
            initial=normalised(self.initial),
            weights=weights,
            horizon=space.horizon,
            discount=space.discount,
            reward_values=space.rewards,
            allow_unvisited=True,
        )

    @classmethod
    def zero(cls, space: Space, by_next_state: bool) -> Counts:
        """No visits at all."""
        M, S, A, Z = space.n_contexts, space.n_states, space.n_actions, space.n_rewards
        rewards = (M, S, A, S, Z) if by_next_state else (M, S, A, Z)
        return cls(np.zeros((M, S, A, S)), np.zeros(rewards), np.zeros((M, S)))

    @classmethod
    def start(cls, start: Any, space: Space, prior_count: float, by_next_state: bool) -> Counts:
        """What a learner begins with.

        `start` is None, a model (or a `Fit` that holds one) whose every row counts as
        `prior_count` visits, or logs with contexts.
        """
        if start is None:
            return cls.zero(space, by_next_state)
        if isinstance(start, Trajectories):
            return _counts_of_logs(start, space, by_next_state)
        model = start if isinstance(start, LatentMDP) else getattr(start, "model", None)
        if not isinstance(model, LatentMDP):
            raise TypeError(
                "start must be None, a LatentMDP, a Fit or Trajectories with contexts, got "
                f"{type(start).__name__}"
            )
        space.require_fit("start", model)
        joint = model.observation_probs()
        rewards = joint if by_next_state else joint.sum(axis=3)
        return cls(
            prior_count * model.transitions, prior_count * rewards, prior_count * model.initial
        )


def _counts_of_logs(logs: Trajectories, space: Space, by_next_state: bool) -> Counts:
    if logs.contexts is None:
        raise ValueError("start: the logs must know their contexts")
    if logs.contexts.size and int(logs.contexts.max()) >= space.n_contexts:
        worst = int(np.argmax(logs.contexts))
        raise ValueError(
            f"start: episode {worst} has context {logs.contexts[worst]}, the world only "
            f"{space.n_contexts} contexts"
        )
    for name in ("n_states", "n_actions", "n_rewards"):
        if getattr(logs, name) > getattr(space, name):
            raise ValueError(
                f"start has {name}={getattr(logs, name)}, the world {getattr(space, name)}"
            )
    sizes = (space.n_states, space.n_actions, space.n_rewards)
    shares = np.eye(space.n_contexts)[logs.contexts]
    by = ("state", "action", "next_state") if by_next_state else ("state", "action")
    return Counts(
        cell_counts(logs, ("state", "action", "next_state"), sizes, shares),
        cell_counts(logs, (*by, "reward"), sizes, shares),
        first_state_counts(logs, space.n_states, shares),
    )
