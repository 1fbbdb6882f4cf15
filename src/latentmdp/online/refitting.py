"""Maximum likelihood on a growing history.

Every fit is EM over all episodes so far: the previous estimate and fresh starts compete. What EM
does not estimate by itself is settled whenever the data have doubled: how many contexts there are
(if that is to be found), whether rewards depend on the next state (if that is to be found), and
how many pseudo-counts to take.

The number of contexts found never falls while the form of the rewards stays: the better a policy
is, the less its episodes show of what the contexts differ in, and what was once clear still holds.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from latentmdp.estimation import (
    EM,
    choose_contexts,
    may_show_contexts,
    preferred_reward_model,
)
from latentmdp.fit import Fit, FitWarning
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.trajectories import Trajectories

__all__ = ["Settled", "refit"]

_DOUBLED = 2


class Settled(NamedTuple):
    """What was settled about the model, and with how many episodes."""

    episodes: int
    n_contexts: int
    rewards_by_next_state: bool
    pseudo_counts: float
    reward_pseudo_counts: float

    @property
    def reward_model(self) -> RewardModel:
        """The name that EM knows it by."""
        return "transition" if self.rewards_by_next_state else "state-action"


def refit(
    logs: Trajectories,
    previous: LatentMDP | None,
    settled: Settled | None,
    settings: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Fit, Settled]:
    """Fit all episodes, and say what is settled now.

    Parameters
    ----------
    previous
        The estimate of the last fit.
    settings
        Those of `learn`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        if settled is None or len(logs) >= _DOUBLED * settled.episodes:
            return _settle(logs, previous, settings, rng)
        em = EM(
            settled.n_contexts,
            restarts=settings["restarts"],
            pseudo_counts=settled.pseudo_counts,
            reward_pseudo_counts=settled.reward_pseudo_counts,
            reward_model=settled.reward_model,
        )
        return em.fit(logs, start=_starts(previous, settled.n_contexts), rng=rng), settled


def _settle(
    logs: Trajectories,
    previous: LatentMDP | None,
    settings: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Fit, Settled]:
    """Fit with nothing taken for granted but what the user said."""
    chosen: RewardModel = settings["reward_model"]
    if settings["reward_model"] == "auto":
        chosen = "state-action" if previous is None else previous.reward_model
    least = 1 if previous is None else previous.n_contexts
    fit = _fitted(logs, previous, least, chosen, settings, rng)
    if settings["reward_model"] == "auto":
        better = preferred_reward_model(logs, fit.responsibilities)
        if better != chosen:
            chosen, fit = better, _fitted(logs, fit.model, 1, better, settings, rng)
    settled = Settled(
        len(logs),
        fit.model.n_contexts,
        chosen == "transition",
        fit.pseudo_counts,
        fit.reward_pseudo_counts,
    )
    return fit, settled


def _fitted(
    logs: Trajectories,
    previous: LatentMDP | None,
    least: int,
    reward_model: RewardModel,
    settings: dict[str, Any],
    rng: np.random.Generator,
) -> Fit:
    number = settings["n_contexts"]
    if number == "auto":
        number = least
        if may_show_contexts([logs]):
            most = settings["max_contexts"]
            found = choose_contexts(logs, max_contexts=most, reward_model=reward_model, rng=rng)
            number = max(least, found.n_contexts)
    em = EM(number, restarts=settings["restarts"], reward_model=reward_model)
    return em.fit(logs, start=_starts(previous, number), rng=rng)


def _starts(previous: LatentMDP | None, n_contexts: int) -> Any:
    """The previous estimate, where it has as many contexts, and fresh starts."""
    if previous is None or previous.n_contexts != n_contexts:
        return None
    return [previous, None]
