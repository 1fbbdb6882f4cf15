"""The strengths of the pseudo-counts, chosen by the likelihood of held-out individuals.

For strengths k of each part (transitions, rewards, behaviour, initial states) the mixture is fitted
to training episodes and scored by the log-likelihood of episodes left out, of everything that they
show. The score is climbed along a geometric grid: first all strengths together, coarse and then
finer, then part by part. Each fit starts from its neighbour's; along the common climb a loss of a
few nats is noise and does not stop it.

An infinite strength means that all contexts share the part. Where that is open, the two ends of the
scale are compared like the other strengths: *views* of the logs, in which only some parts tell
contexts apart, are fitted first, and the best of them is where the climb begins. A part is called
the contexts' own only where that predicts held-out individuals clearly better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters, Part, PseudoCounts

__all__ = [
    "Climb",
    "Decision",
    "Fold",
    "HeldOut",
    "cross_validation",
    "distance",
    "paired",
    "views_of",
]

Climb = Callable[[MixtureLikelihood, Parameters], Parameters]
"""EM to the end from a point, with a tolerance and a cap of the caller's."""

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

_FIRST = 0.0
"""Exponent of the strengths at which views are compared: one observation of the pooled row, so that
rows with hardly any data cannot decide which is best."""

_OPENED = (2.0, 5.0)
"""Exponents at which a part that was shared is tried as the contexts' own: 16 and 1,024
observations of the pooled row."""

_INITIAL = 1.0
"""Pseudo-counts of the initial distributions where contexts have their own: one row each, with as
many observations as episodes, for which the strength hardly matters."""

_RIDGES = (4.0, 64.0)
"""Ridges at which covariates are tried: as if a few, or some dozens of individuals had said that
they do not matter."""

_CLEAR_ERRORS: dict[Part, float] = {"behaviour": 2.0, "weights": 2.0}
"""Standard errors that a part must gain to be the contexts' own, 1 for the parts not named here:
what differs between the worlds matters to a planner and is shrunk by its pseudo-counts anyway,
while a logger that seems to know, or covariates that seem to matter, change what every number
means."""

_LEAST_GAIN = 3.0
"""And so many nats, because the strength was chosen by the same episodes."""

_PARTS: tuple[Part, ...] = ("transitions", "rewards", "behaviour", "initial", "weights")


class Fold(NamedTuple):
    """Training episodes as a likelihood, the episodes left out, and where to climb from."""

    train: MixtureLikelihood
    test: Episodes
    starts: Mapping[PseudoCounts, Parameters]


class Decision(NamedTuple):
    """Whether contexts share a part: what it gains to have it of their own, in nats of held-out
    individuals, and the standard error of that.
    """

    part: Part
    shared: bool
    gain: float
    error: float

    def __str__(self) -> str:
        evidence = f"gain {self.gain:.1f} ± {self.error:.1f} nats"
        if self.part == "weights":
            return f"covariates {'not used' if self.shared else 'used'}: they {evidence}"
        said = "shared" if self.shared else "by context"
        return f"{self.part} {said}: own ones {evidence}"


class HeldOut:
    """Held-out scores of strengths, each computed once.

    Parameters
    ----------
    open_parts
        Those of which it is to be decided whether contexts share them.
    given
        The strengths of what is not shared; searched for by default.
    """

    def __init__(
        self,
        folds: list[Fold],
        climb: Climb,
        open_parts: tuple[Part, ...] = (),
        given: PseudoCounts | None = None,
    ) -> None:
        self.folds, self.climb, self.open_parts, self.given = folds, climb, open_parts, given
        self.fits: dict[PseudoCounts, list[Parameters]] = {}
        self.scores: dict[PseudoCounts, float] = {}

    def __call__(self, strengths: PseudoCounts) -> float:
        """The log-likelihood of all episodes left out."""
        if strengths not in self.scores:
            fits, total = [], 0.0
            for k, fold in enumerate(self.folds):
                likelihood = fold.train.with_pseudo_counts(strengths)
                fits.append(self.climb(likelihood, likelihood.mixed(self._start(strengths, k))))
                total += likelihood.held_out(fits[-1], fold.test)
            self.fits[strengths], self.scores[strengths] = fits, total
        return self.scores[strengths]

    def _start(self, strengths: PseudoCounts, fold: int) -> Parameters:
        """Where to climb from: the start for these strengths, or the nearest fit."""
        starts = self.folds[fold].starts
        if strengths in starts:
            return starts[strengths]
        known = {e: distance(e, strengths) for e in (*self.fits, *starts)}
        nearest = min(known, key=lambda e: known[e])
        return self.fits[nearest][fold] if nearest in self.fits else starts[nearest]

    def by_individual(self, strengths: PseudoCounts) -> tuple[Floats, Floats]:
        """Scores of all individuals, each when it was left out, and how often each counts."""
        self(strengths)
        scores, counts = [], []
        for fold, point in zip(self.folds, self.fits[strengths]):
            train = fold.train.with_pseudo_counts(strengths)
            scores += train.held_out_by_episode(point, fold.test)
            counts += [group.counts for group in fold.test.groups]
        weights = np.concatenate(counts)
        return np.concatenate(scores)[weights > 0.0], weights[weights > 0.0]

    def best(self) -> PseudoCounts:
        """The strengths with the best score, from the best of the starts on."""
        views = list(self.folds[0].starts)
        best = self._climbed(max(views, key=self))
        for _ in range(2 if self.open_parts else 1):
            before = best
            for part in _PARTS:
                best = self._along(best, part)
            if best == before:
                break
        return self._simplest(best)

    def near(self, strengths: PseudoCounts) -> PseudoCounts:
        """The best of these strengths and their neighbours, all parts together."""
        best = strengths
        for step in (1.0, 0.5):
            best = self._better(best, self._finite(best), step)
        return best

    def decisions(self, strengths: PseudoCounts) -> Iterator[Decision]:
        """What the scores say about the parts that were open."""
        for part in self.open_parts:
            shared = np.isinf(strengths.of(part))
            if shared:
                tried = [e for e in self.scores if np.isfinite(e.of(part))]
                alike = [e for e in tried if e.but(part, np.inf) == strengths]
                own = max(alike, key=self, default=self._opened(strengths, part)[0])
                yield Decision(part, True, *self._gain(strengths, own))
            else:
                yield Decision(part, False, *self._gain(strengths.but(part, np.inf), strengths))

    def _finite(self, strengths: PseudoCounts) -> tuple[Part, ...]:
        """The parts with a strength to search: those that contexts have of their own."""
        known = (*self.folds[0].train.structure.parts,)
        return tuple(p for p in known if np.isfinite(strengths.of(p)))

    def _climbed(self, best: PseudoCounts) -> PseudoCounts:
        """All strengths together, coarse and then finer."""
        parts = self._finite(best)
        if not parts or self.given is not None:
            return best
        for step in (2.0, 4.0, 6.0):
            stronger = _moved(best, parts, step)
            if self(stronger) < max(self(best), self(stronger)) - _CLEAR_LOSS:
                break
        best = max(self.scores, key=self)
        for step in (2.0, 1.0, 0.5):
            best = self._better(best, self._finite(best), step)
        return best

    def _along(self, best: PseudoCounts, part: Part) -> PseudoCounts:
        """The best strength of one part, the others as they are."""
        if np.isinf(best.of(part)) and part in self.open_parts:
            best = max((best, *self._opened(best, part)), key=self)
        searched = self.given is None and (
            part in self._finite(best) or (part == "weights" and np.isfinite(best.weights))
        )
        if searched and (len(self._finite(best)) > 1 or self.open_parts):
            for step in (2.0, 1.0, 0.5):
                while (better := self._better(best, (part,), step)) != best:
                    best = better
        return best

    def _opened(self, strengths: PseudoCounts, part: Part) -> list[PseudoCounts]:
        """The strengths at which a part that was shared is tried as the contexts' own."""
        if self.given is not None:
            return [strengths.but(part, self.given.of(part))]
        if part == "initial":
            return [strengths.but(part, _INITIAL)]
        if part == "weights":
            return [strengths.but(part, ridge) for ridge in _RIDGES]
        return [strengths.but(part, _RATIO**exponent) for exponent in _OPENED]

    def _simplest(self, best: PseudoCounts) -> PseudoCounts:
        """Share what does not clearly gain by being the contexts' own."""
        for part in self.open_parts:
            one = best.but(part, np.inf)
            if one != best:
                gain, error = self._gain(one, best)
                if gain <= max(_CLEAR_ERRORS.get(part, 1.0) * error, _LEAST_GAIN):
                    best = one
        return best

    def _gain(self, less: PseudoCounts, more: PseudoCounts) -> tuple[float, float]:
        """What some strengths gain over others, and its standard error."""
        (before, weights), (after, _) = self.by_individual(less), self.by_individual(more)
        return paired(after - before, weights)

    def _better(self, best: PseudoCounts, parts: tuple[Part, ...], step: float) -> PseudoCounts:
        """The best of this point and its two neighbours along some parts together."""
        if not parts:
            return best
        neighbours = [_moved(best, parts, step), _moved(best, parts, -step)]
        low, high = _RATIO**_LOWEST, _RATIO**_HIGHEST
        inside = [e for e in neighbours if all(low <= e.of(part) <= high for part in parts)]
        return max((best, *inside), key=self)


def paired(difference: Floats, weights: Floats) -> tuple[float, float]:
    """The sum of differences that count `weights` times each, and its standard error."""
    total = float(weights.sum())
    if total == 0.0:
        return 0.0, 0.0
    mean = float(weights @ difference) / total
    return mean * total, float(np.sqrt(weights @ (difference - mean) ** 2))


def _moved(strengths: PseudoCounts, parts: tuple[Part, ...], step: float) -> PseudoCounts:
    for part in parts:
        strengths = strengths.but(part, strengths.of(part) * _RATIO**step)
    return strengths


def distance(one: PseudoCounts, other: PseudoCounts) -> float:
    """How far apart strengths are, in logarithms; the shared end is a little beyond the highest."""
    a, b = (np.log(np.clip(x, 1e-3, _RATIO ** (_HIGHEST + 2.0))) for x in (one, other))
    return float(np.abs(a - b).sum())


def views_of(
    own: tuple[Part, ...], open_parts: tuple[Part, ...], given: PseudoCounts | None = None
) -> list[PseudoCounts]:
    """Strengths at which only some parts tell contexts apart, `own` ones always among them."""
    first = _RATIO**_FIRST
    strengths = given or PseudoCounts(first, first, first, _INITIAL, _RIDGES[0])
    shown: list[Part] = [part for part in open_parts if part not in ("initial", "weights")]
    of_world: list[Part] = [part for part in shown if part != "behaviour"]
    choices: list[list[Part]] = [[part] for part in shown] + [of_world, shown]
    fixed = set(own) - {"initial", "weights"}
    if fixed:
        choices = [[], *choices]
    views = [
        PseudoCounts._make(
            k if part in {*own, *some} else np.inf for part, k in zip(_PARTS, strengths)
        )
        for some in choices
        if some or fixed
    ]
    return list(dict.fromkeys(views))


def cross_validation(
    likelihood: MixtureLikelihood,
    starts: Mapping[PseudoCounts, Parameters],
    rng: np.random.Generator,
    climb: Climb,
    open_parts: tuple[Part, ...] = (),
    given: PseudoCounts | None = None,
    folds: int | None = None,
) -> HeldOut:
    """Held-out scores by cross-validation of all episodes, or of a sample of very many.

    Folds are fitted by `climb` from `starts`, estimates on all episodes, so that they find the
    same contexts.
    """
    episodes = likelihood.episodes.sample()
    number = folds or (2 if episodes.n_episodes >= _MANY_EPISODES else 5)
    structure, prior, engine = likelihood.structure, likelihood.pseudo_counts, likelihood.engine
    parts = [
        Fold(MixtureLikelihood(train, structure, prior, engine), test, starts)
        for train, test in episodes.folds(number, rng)
    ]
    return HeldOut(parts, climb, open_parts, given)
