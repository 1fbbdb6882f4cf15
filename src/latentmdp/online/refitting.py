"""Maximum likelihood on a growing history.

Every fit is EM over all episodes so far: the previous estimate and fresh starts compete. What EM
does not estimate by itself is settled whenever the data have doubled: how many contexts there are
(if that is to be found), whether rewards depend on the next state (if that is to be found), and
how strongly to smooth.

The number of contexts found never falls while the form of the rewards stays: the better a policy
is, the less its episodes show of what the contexts differ in, and what was once clear still holds.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from latentmdp.estimation.em import EM
from latentmdp.estimation.initialization import choose_contexts, may_show_contexts
from latentmdp.estimation.reward_model import RewardForm, preferred_reward_form
from latentmdp.fit import Fit, FitWarning
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories

__all__ = ["Settled", "refit"]

_DOUBLED = 2


class Settled(NamedTuple):
    """What was settled about the model, and with how many episodes."""

    episodes: int
    n_contexts: int
    rewards_by_next_state: bool
    smoothing: float
    reward_smoothing: float

    @property
    def reward_form(self) -> RewardForm:
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
            smoothing=settled.smoothing,
            reward_smoothing=settled.reward_smoothing,
            reward_model=settled.reward_form,
        )
        return em.fit(logs, start=_starts(previous, settled.n_contexts), rng=rng), settled


def _settle(
    logs: Trajectories,
    previous: LatentMDP | None,
    settings: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Fit, Settled]:
    """Fit with nothing taken for granted but what the user said."""
    form: RewardForm = settings["reward_model"]
    if settings["reward_model"] == "auto":
        by_next = previous is not None and previous.reward_model == "transition"
        form = "transition" if by_next else "state-action"
    least = 1 if previous is None else previous.n_contexts
    fit = _fitted(logs, previous, least, form, settings, rng)
    if settings["reward_model"] == "auto":
        better = preferred_reward_form(logs, fit.responsibilities)
        if better != form:
            form, fit = better, _fitted(logs, fit.model, 1, better, settings, rng)
    settled = Settled(
        len(logs),
        fit.model.n_contexts,
        form == "transition",
        fit.smoothing,
        fit.reward_smoothing,
    )
    return fit, settled


def _fitted(
    logs: Trajectories,
    previous: LatentMDP | None,
    least: int,
    form: RewardForm,
    settings: dict[str, Any],
    rng: np.random.Generator,
) -> Fit:
    number = settings["n_contexts"]
    if number == "auto":
        number = least
        if may_show_contexts([logs]):
            found = choose_contexts(logs, settings["max_contexts"], form, rng).n_contexts
            number = max(least, found)
    em = EM(number, restarts=settings["restarts"], reward_model=form)
    return em.fit(logs, start=_starts(previous, number), rng=rng)


def _starts(previous: LatentMDP | None, n_contexts: int) -> Any:
    """The previous estimate, where it has as many contexts, and fresh starts."""
    if previous is None or previous.n_contexts != n_contexts:
        return None
    return [previous, None]
