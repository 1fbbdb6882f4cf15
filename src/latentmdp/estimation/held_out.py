"""Comparison of settings of EM by the likelihood of held-out individuals.

Individuals are divided at random, once, into folds. A candidate, so many contexts with strengths k
of the pseudo-counts, is fitted to all folds but one and scored by the log-likelihood of the one
left out, of everything that it shows, for each fold in turn: so every individual i has a score
l_i under a fit that has not seen it. What a candidate gains over another is sum_i d_i, the
difference of their scores, with the standard error sqrt(sum_i (d_i - mean d)^2); it is *clear* if
it is more than some standard errors and more than `NOISE` nats. Every question is decided by that
rule: the simpler candidate stays unless another is clearly better.

`HeldOut` asks for the strengths of each part (transitions, rewards, behaviour, initial states,
weights) and for what contexts share, of a given number of contexts. The score is climbed along a
geometric grid: first all strengths together, coarse and then finer, then part by part. Each fit
starts from its neighbour's; along the common climb a loss of a few nats is noise and does not stop
it. An infinite strength means that all contexts share the part. Where that is open, the two ends of
the scale are compared like the other strengths: *sharing hypotheses*, in which only some parts tell
contexts apart, are fitted first, and the best of them is where the climb begins.

How many contexts there are, and whether the logger knew them, is asked in `n_contexts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters, Part, PseudoCounts

Climb = Callable[[MixtureLikelihood, Parameters], Parameters]
"""EM to the end from a point, with a tolerance and a cap of the caller's."""

NOISE = 3.0
"""Nats that a candidate must gain whatever the standard error, because its strengths were chosen by
the same individuals; as much is lost along a climb before it stops."""

_PARTS: tuple[Part, ...] = ("transitions", "rewards", "behaviour", "initial", "weights")

CLEAR_ERRORS = {
    "contexts": 0.5,
    "transitions": 1.0,
    "rewards": 1.0,
    "initial": 1.0,
    "behaviour": 2.0,
    "weights": 2.0,
}
"""Standard errors by which a candidate must be better to be taken for a simpler one: with more
contexts, or with a part that contexts have of their own. Where contexts are equal the best number
leads by less than half of one, and more would throw away groups that predict. What differs between
the worlds matters to a planner and is shrunk by its pseudo-counts anyway, while a logger that seems
to know, or covariates that seem to matter, change what every number means."""


class Gain(NamedTuple):
    """What is gained on all individuals left out, in nats, and its standard error."""

    nats: float
    error: float

    def clear(self, errors: float) -> bool:
        """Whether it is more than so many standard errors, and than noise."""
        return self.nats > max(errors * self.error, NOISE)

    def __str__(self) -> str:
        return f"{self.nats:.1f} ± {self.error:.1f} nats"


class Decision(NamedTuple):
    """Whether contexts share a part, what it gains to have it of their own, and what else counts.

    For `weights` it is the individuals that share them, unless covariates matter.
    """

    part: Part
    shared: bool
    gain: Gain
    reason: str = ""

    def __str__(self) -> str:
        if self.part == "weights":
            text = f"covariates {'not used' if self.shared else 'used'}: they gain {self.gain}"
        else:
            how = "shared" if self.shared else "by context"
            text = f"{self.part} {how}: own ones gain {self.gain}"
        return text + self.reason


class Folds:
    """Individuals divided at random into parts, each left out once.

    Parameters
    ----------
    likelihood
        Of all episodes; of very many, a sample is divided.
    number
        How many parts; by default five, or `few` of more than 20,000 individuals: the noise of a
        score falls with their number, and each fold costs all fits again.

    Attributes
    ----------
    trains, tests
        What is fitted, as a likelihood, and what is left out.
    weights : (I,)
        How often each individual left out counts; those of all folds, one fold after the other.
    """

    def __init__(
        self,
        likelihood: MixtureLikelihood,
        number: int | None,
        rng: np.random.Generator,
        few: int = 2,
    ) -> None:
        episodes = likelihood.episodes.sample()
        number = number or (few if episodes.n_episodes >= 20_000 else 5)
        parts = episodes.folds(number, rng)
        self.trains: list[MixtureLikelihood] = [likelihood.of(train) for train, _ in parts]
        self.tests: list[Episodes] = [test for _, test in parts]
        counts = np.concatenate([group.counts for test in self.tests for group in test.groups])
        self._counted = counts > 0.0
        self.weights: Floats = counts[self._counted]

    def individuals(self, scores: Sequence[Floats]) -> Floats:
        """The scores of all groups of all tests, (I,), without those of the other folds."""
        return np.asarray(np.concatenate(scores)[self._counted])

    def gain(self, scores: Floats, others: Floats) -> Gain:
        """What some scores (I,) gain over others."""
        difference, total = scores - others, float(self.weights.sum())
        mean = float(self.weights @ difference) / max(total, 1.0)
        return Gain(mean * total, float(np.sqrt(self.weights @ (difference - mean) ** 2)))


class Candidate(NamedTuple):
    """Strengths for some number of contexts: the folds' estimates, and scores by individual."""

    n_contexts: int
    strengths: PseudoCounts
    points: list[Parameters]
    scores: Floats


@dataclass
class HeldOut:
    """Held-out scores of strengths for some number of contexts, each computed once.

    Attributes
    ----------
    starts
        For each fold, where to climb from at some strengths.
    open_parts
        Those of which it is to be decided whether contexts share them.
    fixed
        The strengths of what is not shared; searched for by default.
    candidates
        Those fitted so far, by strengths.
    """

    folds: Folds
    n_contexts: int
    starts: Sequence[Mapping[PseudoCounts, Parameters]]
    climb: Climb
    open_parts: tuple[Part, ...] = ()
    fixed: PseudoCounts | None = None
    candidates: dict[PseudoCounts, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trains = [train.with_contexts(self.n_contexts) for train in self.folds.trains]

    def __call__(self, strengths: PseudoCounts) -> float:
        """The log-likelihood of all individuals left out."""
        return float(self.candidate(strengths).scores @ self.folds.weights)

    def candidate(self, strengths: PseudoCounts) -> Candidate:
        """The estimates at some strengths, and the scores of all individuals."""
        if strengths not in self.candidates:
            points: list[Parameters] = []
            scores: list[Floats] = []
            for k, (train, test) in enumerate(zip(self.trains, self.folds.tests)):
                likelihood = train.with_pseudo_counts(strengths)
                points.append(self.climb(likelihood, likelihood.mixed(self._start(strengths, k))))
                scores += likelihood.held_out(points[-1], test)
            self.candidates[strengths] = Candidate(
                self.n_contexts, strengths, points, self.folds.individuals(scores)
            )
        return self.candidates[strengths]

    def _start(self, strengths: PseudoCounts, fold: int) -> Parameters:
        """Where to climb from: the start for these strengths, or the nearest estimate."""
        starts = self.starts[fold]
        if strengths in starts:
            return starts[strengths]
        nearest = min((*self.candidates, *starts), key=lambda other: distance(other, strengths))
        known = self.candidates.get(nearest)
        return starts[nearest] if known is None else known.points[fold]

    def choice(self) -> tuple[PseudoCounts, tuple[Decision, ...]]:
        """The strengths with the best score, and what was decided about the parts that were open.

        A logger of contexts' own must be of use, and not only likelier.
        """
        if "behaviour" not in self.open_parts:
            best = self._best()
            return best, tuple(self._decisions(best))
        shared, own = self._by_logger(True), self._by_logger(False)
        ends = [one._best() for one in (shared, own)]
        self.candidates |= shared.candidates | own.candidates
        logger = self._logger_decision(*ends)
        kind, best = (shared, ends[0]) if logger.shared else (own, ends[1])
        return best, (*kind._decisions(best), logger)

    def _by_logger(self, shared: bool) -> HeldOut:
        """The search among strengths with which contexts share the logger, or have their own."""
        strength = np.inf if shared else 1.0
        starts = [
            {k: point for k, point in of_fold.items() if np.isinf(k.behaviour) == shared}
            or {k.but("behaviour", strength): point for k, point in of_fold.items()}
            for of_fold in self.starts
        ]
        others = tuple(part for part in self.open_parts if part != "behaviour")
        return replace(self, starts=starts, open_parts=others, candidates={})

    def _logger_decision(self, shared: PseudoCounts, own: PseudoCounts) -> Decision:
        """Whether loggers of contexts' own predict clearly better, and are of use."""
        gain = self._gain(own, shared)
        if not gain.clear(CLEAR_ERRORS["behaviour"]):
            return Decision("behaviour", True, gain)
        others_open = len(self.open_parts) > 1
        if others_open and np.isinf([own.transitions, own.rewards, own.initial]).all():
            reason = ", but individuals who were treated differently respond alike"
            return Decision("behaviour", True, gain, reason)
        loss = self.folds.gain(*map(self._outcome_scores, (shared, own)))
        worse = loss.clear(CLEAR_ERRORS["contexts"])
        return Decision("behaviour", worse, gain, f", but outcomes lose {loss}" if worse else "")

    def _outcome_scores(self, strengths: PseudoCounts) -> Floats:
        """The scores without what predictions of the logger's actions add."""
        candidate, acted = self.candidate(strengths), []
        for train, test, point in zip(self.trains, self.folds.tests, candidate.points):
            acted += train.with_pseudo_counts(strengths).held_out_actions(point, test)
        return candidate.scores - self.folds.individuals(acted)

    def _best(self) -> PseudoCounts:
        """The strengths with the best score, from the best of the starts on."""
        best = self._climbed(max(self.starts[0], key=self))
        for _ in range(2 if self.open_parts else 1):
            before = best
            for part in _PARTS:
                best = self._along(best, part)
            if best == before:
                break
        for part in self.open_parts:  # share what does not clearly gain by being the contexts' own
            less = best.but(part, np.inf)
            if less != best and not self._gain(best, less).clear(CLEAR_ERRORS[part]):
                best = less
        return best

    def near(self, strengths: PseudoCounts) -> PseudoCounts:
        """The best of these strengths and their neighbours, all parts together."""
        best = strengths
        for factor in (4.0, 2.0):
            best = self._better(best, self._finite(best), factor)
        return best

    def _decisions(self, strengths: PseudoCounts) -> Iterator[Decision]:
        """What the scores say about the parts that were open."""
        for part in self.open_parts:
            less = more = strengths
            if np.isinf(strengths.of(part)):
                tried = [e for e in self.candidates if np.isfinite(e.of(part))]
                alike = [e for e in tried if e.but(part, np.inf) == strengths]
                more = max(alike, key=self, default=self._opened(strengths, part)[0])
            else:
                less = strengths.but(part, np.inf)
            yield Decision(part, less == strengths, self._gain(more, less))

    def _gain(self, more: PseudoCounts, less: PseudoCounts) -> Gain:
        return self.folds.gain(self.candidate(more).scores, self.candidate(less).scores)

    def _finite(self, strengths: PseudoCounts) -> tuple[Part, ...]:
        """The parts with a strength to search: those that contexts have of their own."""
        blocks = self.trains[0].structure.parts
        return tuple(part for part in blocks if np.isfinite(strengths.of(part)))

    def _climbed(self, best: PseudoCounts) -> PseudoCounts:
        """All strengths together, coarse and then finer."""
        parts = self._finite(best)
        if not parts or self.fixed is not None:
            return best
        for factor in (16.0, 256.0, 4096.0):
            stronger = _multiplied(best, parts, factor)
            if self(stronger) < max(self(best), self(stronger)) - NOISE:
                break
        best = max(self.candidates, key=self)
        for factor in (16.0, 4.0, 2.0):
            best = self._better(best, self._finite(best), factor)
        return best

    def _along(self, best: PseudoCounts, part: Part) -> PseudoCounts:
        """The best strength of one part, the others as they are."""
        if np.isinf(best.of(part)) and part in self.open_parts:
            best = max((best, *self._opened(best, part)), key=self)
        searched = self.fixed is None and (
            part in self._finite(best) or (part == "weights" and np.isfinite(best.weights))
        )
        if searched and (len(self._finite(best)) > 1 or self.open_parts):
            for factor in (16.0, 4.0, 2.0):
                while (better := self._better(best, (part,), factor)) != best:
                    best = better
        return best

    def _opened(self, strengths: PseudoCounts, part: Part) -> list[PseudoCounts]:
        """The strengths at which a part that was shared is tried as the contexts' own."""
        if self.fixed is not None:
            return [strengths.but(part, self.fixed.of(part))]
        # Few or many observations of the pooled row; of individuals who say, by the ridge, that
        # covariates do not matter. An initial distribution is one row with as many observations as
        # episodes, for which the strength hardly matters.
        tried = {"initial": (1.0,), "weights": (4.0, 64.0)}.get(part, (16.0, 1024.0))
        return [strengths.but(part, k) for k in tried]

    def _better(self, best: PseudoCounts, parts: tuple[Part, ...], factor: float) -> PseudoCounts:
        """The best of this point and its two neighbours along some parts together."""
        if not parts:
            return best
        neighbours = [_multiplied(best, parts, by) for by in (factor, 1.0 / factor)]
        # from next to nothing to where all contexts are close to the pooled model
        inside = [e for e in neighbours if all(1 / 64 <= e.of(p) <= 65_536.0 for p in parts)]
        return max((best, *inside), key=self)


def _multiplied(strengths: PseudoCounts, parts: tuple[Part, ...], factor: float) -> PseudoCounts:
    for part in parts:
        strengths = strengths.but(part, strengths.of(part) * factor)
    return strengths


def distance(one: PseudoCounts, other: PseudoCounts) -> float:
    """How far apart strengths are, in logarithms; the shared end is a little beyond the highest."""
    a, b = (np.log(np.clip(x, 1e-3, 2.0**20)) for x in (one, other))
    return float(np.abs(a - b).sum())


def sharing_hypotheses(
    own_parts: Sequence[Part], open_parts: Sequence[Part], fixed: PseudoCounts | None = None
) -> list[PseudoCounts]:
    """Strengths at which only some parts tell contexts apart, `own_parts` always among them.

    They are compared at one observation of the pooled row, so that rows with hardly any data cannot
    decide which is best.
    """
    strengths = fixed or PseudoCounts(1.0, 1.0, 1.0, 1.0, 4.0)
    in_steps: list[Part] = [part for part in open_parts if part not in ("initial", "weights")]
    of_world: list[Part] = [part for part in in_steps if part != "behaviour"]
    choices: list[list[Part]] = [[part] for part in in_steps] + [of_world, in_steps]
    if "initial" in open_parts:
        # Where only the first state tells contexts apart in time, no mixture without it finds them.
        choices.append([*of_world, "initial"])
    always = set(own_parts) - {"initial", "weights"}
    if always:
        choices = [[], *choices]
    hypotheses = [
        PseudoCounts._make(
            k if part in {*own_parts, *some} else np.inf for part, k in zip(_PARTS, strengths)
        )
        for some in choices
        if some or always
    ]
    return list(dict.fromkeys(hypotheses))
