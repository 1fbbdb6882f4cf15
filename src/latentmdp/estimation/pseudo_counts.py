"""The strength of the pseudo-counts, chosen by the likelihood of held-out episodes.

For strengths (k_T, k_R) the mixture is fitted to training episodes and scored by the
log-likelihood of episodes left out. The score is climbed along a geometric grid: first both
strengths together, coarse and then finer, then k_R and k_T in turn. Each fit starts from its
neighbour's; along the common climb a loss of a few nats is noise and does not stop it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters, PseudoCounts

__all__ = ["Climb", "Fold", "HeldOut", "choose_pseudo_counts"]

Climb = Callable[[MixtureLikelihood, Parameters], Parameters]
"""EM to the end from a point, with a tolerance and a cap of the caller's."""

Exponents = tuple[float, float]

_RATIO = 4.0
"""Strengths are powers of this. Steps of the search go from two exponents, a factor of 16, down to
half of one, a factor of 2: a strength need not be exact, and a step costs a fit of each fold."""

_CLEAR_LOSS = 3.0
"""The first climb stops when a score is this many nats below the best: less is within the noise of
a score, and more would only cost fits."""

_MANY_EPISODES = 20_000
"""From here on two folds are enough: the noise of a score falls with the number of episodes, and
each fold costs a fit at every strength."""

_LOWEST, _HIGHEST = -3.0, 8.0
"""Exponents searched: from 1/64 of an observation, next to nothing, to 65,536 of them, where all
contexts are close to the pooled model."""

_BOTH, _TRANSITIONS, _REWARDS = (1, 1), (1, 0), (0, 1)


class Fold(NamedTuple):
    """Training episodes as a likelihood, the episodes left out, and where to climb from."""

    train: MixtureLikelihood
    test: Episodes
    start: Parameters


class HeldOut:
    """Held-out scores of the strengths _RATIO ** exponents, each computed once."""

    def __init__(self, folds: list[Fold], climb: Climb) -> None:
        self.folds, self.climb = folds, climb
        self.fits: dict[Exponents, list[Parameters]] = {}
        self.scores: dict[Exponents, float] = {}

    def __call__(self, exponents: Exponents) -> float:
        """The log-likelihood of all episodes left out."""
        if exponents not in self.scores:
            near = {e: np.abs(np.subtract(e, exponents)).sum() for e in self.fits}
            nearest = min(near, key=lambda e: near[e], default=None)
            starts = [f.start for f in self.folds] if nearest is None else self.fits[nearest]
            fits, total = [], 0.0
            for fold, start in zip(self.folds, starts):
                likelihood = fold.train.with_pseudo_counts(_strengths(exponents))
                fits.append(self.climb(likelihood, start))
                total += likelihood.held_out(fits[-1], fold.test)
            self.fits[exponents], self.scores[exponents] = fits, total
        return self.scores[exponents]

    def best(self) -> tuple[PseudoCounts, list[Parameters]]:
        """The strengths with the best score, and the folds' estimates at them."""
        for exponent in (0.0, 2.0, 4.0, 6.0):
            if self((exponent, exponent)) < max(self.scores.values()) - _CLEAR_LOSS:
                break
        best = max(self.scores, key=self)
        for step in (2.0, 1.0, 0.5) if best == (0.0, 0.0) else (1.0, 0.5):
            best = self._better(best, _BOTH, step)
        if len(self.folds[0].train.rows) > 1:
            for axis in (_REWARDS, _TRANSITIONS):
                for step in (2.0, 1.0, 0.5):
                    while (better := self._better(best, axis, step)) != best:
                        best = better
        return _strengths(best), self.fits[best]

    def _better(self, exponents: Exponents, axis: tuple[int, int], step: float) -> Exponents:
        """The best of this point and its two neighbours along an axis."""
        (x, y), dx, dy = exponents, axis[0] * step, axis[1] * step
        neighbours = [(x + dx, y + dy), (x - dx, y - dy)]
        inside = [e for e in neighbours if min(e) >= _LOWEST and max(e) <= _HIGHEST]
        return max((exponents, *inside), key=self)


def choose_pseudo_counts(
    likelihood: MixtureLikelihood, start: Parameters, rng: np.random.Generator, climb: Climb
) -> PseudoCounts:
    """The best strengths by cross-validation of all episodes.

    Folds are fitted by `climb` from `start`, an estimate on all episodes, so that they find the
    same contexts.
    """
    number = 2 if likelihood.episodes.n_episodes >= _MANY_EPISODES else 5
    structure, given, team = likelihood.structure, likelihood.pseudo_counts, likelihood.team
    folds = [
        Fold(MixtureLikelihood(train, structure, given, team), test, start)
        for train, test in likelihood.episodes.folds(number, rng)
    ]
    return HeldOut(folds, climb).best()[0]


def _strengths(exponents: Exponents) -> PseudoCounts:
    return PseudoCounts(*(float(_RATIO**e) for e in exponents))
