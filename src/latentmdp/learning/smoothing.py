"""How strongly to smooth towards the pooled model: the strength that predicts held-out episodes best.

Episodes are split into folds; for a strength k the mixture is fitted to each fold's training part,
from the estimate on all episodes, and scored by the log-likelihood of the part left out. The score
is climbed along a geometric grid of strengths, coarse and then finer, each fit starting from its
neighbour's; a loss of a few nats is noise and does not stop the climb.
"""

from __future__ import annotations

import numpy as np

from latentmdp.learning.mixture import MixtureLikelihood, Parameters
from latentmdp.learning.squarem import squarem

__all__ = ["choose_smoothing"]

_RATIO = 4.0
_CLEAR_LOSS = 3.0
_MANY_EPISODES = 20_000


class _HeldOut:
    """Held-out scores of strengths _RATIO ** exponent, computed once each."""

    def __init__(
        self,
        likelihood: MixtureLikelihood,
        start: Parameters,
        rng: np.random.Generator,
        tolerance: float,
        max_maps: int,
    ) -> None:
        number = 2 if likelihood.episodes.n_episodes >= _MANY_EPISODES else 5
        self.folds = [
            (MixtureLikelihood(train, likelihood.structure, 0.0, likelihood.team), test)
            for train, test in likelihood.episodes.folds(number, rng)
        ]
        self.start, self.tolerance, self.max_maps = start, tolerance, max_maps
        self.fits: dict[float, list[Parameters]] = {}
        self.scores: dict[float, float] = {}

    def __call__(self, exponent: float) -> float:
        if exponent not in self.scores:
            nearest = min(self.fits, key=lambda e: abs(e - exponent), default=None)
            starts = [self.start] * len(self.folds) if nearest is None else self.fits[nearest]
            self.fits[exponent] = []
            total = 0.0
            for (train, test), start in zip(self.folds, starts):
                smoothed = train.smoothed(_RATIO**exponent)
                ascent = squarem(
                    smoothed.step, smoothed.repair, start, self.tolerance, self.max_maps
                )
                self.fits[exponent].append(ascent.point)
                total += smoothed.held_out(ascent.point, test)
            self.scores[exponent] = total
        return self.scores[exponent]


def choose_smoothing(
    likelihood: MixtureLikelihood,
    start: Parameters,
    rng: np.random.Generator,
    tolerance: float,
    max_maps: int,
) -> float:
    """The strength with the best held-out log-likelihood.

    Parameters
    ----------
    likelihood
        All episodes.
    start
        An estimate on all episodes: folds are fitted from it, so that they find the same contexts.
    """
    score = _HeldOut(likelihood, start, rng, tolerance, max_maps)
    for exponent in (2.0, 4.0, 6.0):
        if score(exponent) < max(score.scores.values()) - _CLEAR_LOSS:
            break
    best = max(0.0, *score.scores, key=score)
    for step in (2.0, 1.0, 0.5) if best == 0.0 else (1.0, 0.5):
        best = max((best, best - step, best + step), key=score)
    return float(_RATIO**best)
