"""How strongly to smooth towards the pooled model: as strongly as predicts held-out episodes best.

For a strength k the mixture is fitted to training episodes and scored by the log-likelihood of
episodes left out. The score is climbed along a geometric grid of strengths, coarse and then finer,
each fit starting from its neighbour's; a loss of a few nats is noise and does not stop the climb.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentmdp.learning.episodes import Episodes
from latentmdp.learning.mixture import MixtureLikelihood, Parameters
from latentmdp.learning.squarem import squarem

__all__ = ["Fold", "HeldOut", "choose_smoothing"]

_RATIO = 4.0
_CLEAR_LOSS = 3.0
_MANY_EPISODES = 20_000


class Fold(NamedTuple):
    """Training episodes as a likelihood, the episodes left out, and where to climb from."""

    train: MixtureLikelihood
    test: Episodes
    start: Parameters


class HeldOut:
    """Held-out scores of the strengths _RATIO ** exponent, each computed once."""

    def __init__(self, folds: list[Fold], tolerance: float, max_maps: int) -> None:
        self.folds, self.tolerance, self.max_maps = folds, tolerance, max_maps
        self.fits: dict[float, list[Parameters]] = {}
        self.scores: dict[float, float] = {}

    def __call__(self, exponent: float) -> float:
        """The log-likelihood of all episodes left out."""
        if exponent not in self.scores:
            nearest = min(self.fits, key=lambda e: abs(e - exponent), default=None)
            starts = [f.start for f in self.folds] if nearest is None else self.fits[nearest]
            fits, total = [], 0.0
            for fold, start in zip(self.folds, starts):
                smoothed = fold.train.smoothed(_RATIO**exponent)
                climb = squarem(
                    smoothed.step, smoothed.repair, start, self.tolerance, self.max_maps
                )
                fits.append(climb.point)
                total += smoothed.held_out(climb.point, fold.test)
            self.fits[exponent], self.scores[exponent] = fits, total
        return self.scores[exponent]

    def best(self) -> tuple[float, list[Parameters]]:
        """The strength with the best score, and the folds' estimates at it."""
        for exponent in (0.0, 2.0, 4.0, 6.0):
            if self(exponent) < max(self.scores.values()) - _CLEAR_LOSS:
                break
        best = max(self.scores, key=self)
        for step in (2.0, 1.0, 0.5) if best == 0.0 else (1.0, 0.5):
            best = max((best, best - step, best + step), key=self)
        return float(_RATIO**best), self.fits[best]


def choose_smoothing(
    likelihood: MixtureLikelihood,
    start: Parameters,
    rng: np.random.Generator,
    tolerance: float,
    max_maps: int,
) -> float:
    """The best strength by cross-validation.

    Parameters
    ----------
    likelihood
        All episodes.
    start
        An estimate on all episodes: folds are fitted from it, so that they find the same contexts.
    """
    number = 2 if likelihood.episodes.n_episodes >= _MANY_EPISODES else 5
    folds = [
        Fold(MixtureLikelihood(train, likelihood.structure, 0.0, likelihood.team), test, start)
        for train, test in likelihood.episodes.folds(number, rng)
    ]
    return HeldOut(folds, tolerance, max_maps).best()[0]
