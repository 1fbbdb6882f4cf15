"""The number of contexts in logs: as many as predict unseen individuals best.

The mixture with M contexts is fitted to four fifths of the individuals and scored by the
log-likelihood of the others, five times, so that every individual is predicted once by a fit that
has not seen it. M grows until two candidates in a row bring nothing. Let d_i be what the best
candidate gains over another on individual i. The smallest M is taken whose total loss sum_i d_i is
within half a standard error, sqrt(sum_i (d_i - mean d)^2) / 2, of nothing: a group must predict,
and one that brings no more than noise is not worth having.

Every candidate is fitted as well as the final fit: from each context of the candidate before it cut
in two, from pair moments and at random (`starts`), with what contexts share and the pseudo-counts
chosen by the same held-out individuals (`pseudo_counts`).

Whether the logger knew the context is decided between two such searches, one in which its policy is
shared and one in which each context has its own. The second is taken if it predicts everything that
unseen individuals show clearly better, if its contexts differ in the world and not only in how they
were treated, and if outcomes are predicted no worse: groups that explain what was done, at the cost
of what followed, are no use to whoever acts next.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.words import plural
from latentmdp.engines.base import Engine, as_engine
from latentmdp.estimation.em import (
    EM,
    FitProblem,
    climb,
    problem_of,
    starting_points,
    starts_by_split,
)
from latentmdp.estimation.episodes import Episodes, checked_logs
from latentmdp.estimation.likelihood import (
    MixtureLikelihood,
    Parameters,
    PseudoCounts,
    behaviour_from_parameters,
    model_from_parameters,
    weight_model_from_parameters,
)
from latentmdp.estimation.pseudo_counts import Decision, Fold, HeldOut, paired, views_of
from latentmdp.estimation.reward_model import require_reward_model, settle_reward_model
from latentmdp.fit import ContextSelection, FitWarning, shares_of
from latentmdp.logs import Logs
from latentmdp.model import LatentMDP, RewardModel

__all__ = [
    "FEW_CONTEXTS",
    "MAX_CONTEXTS",
    "ChosenContexts",
    "choose_contexts",
    "may_show_contexts",
    "search_contexts",
]

MAX_CONTEXTS = 10
"""The largest number tried by default. The search ends by itself after two numbers that gain
nothing, so the limit only bounds the time where every further context helps a little."""

FEW_CONTEXTS = 2
"""What contexts share is settled before their number is known, by fits with so many: enough to see
what differs between contexts."""

_FOLDS, _FEW_FOLDS, _MANY_EPISODES = 5, 3, 20_000
"""Folds, and fewer from so many episodes on: there the noise of a score is small, and each fold
costs all fits again."""

_TOLERANCE, _MAPS = 0.02, 300
"""Tolerance in nats and cap on the maps of each fit. Numbers of contexts are told apart by
`_LEAST_GAIN` nats or more, so fits need not be more exact."""

_SHORT_TOLERANCE, _SHORT_MAPS, _FINALISTS = 0.5, 25, 2
"""Starts climb so far before the best of them go on to the end: a start that will win is seldom
third by then, and a full climb costs ten times as much."""

_STANDARD_ERRORS = 0.5
"""A smaller number of contexts is taken if it loses no more than this many standard errors. Where
contexts are equal the best candidate leads by less; more would throw away groups that predict."""

_LEAST_GAIN = 2.0
"""And no more than so many nats, because the pseudo-counts were chosen by the same individuals."""

_KNOWING_ERRORS, _KNOWING_GAIN = 2.0, 3.0
"""Standard errors, and nats, by which everything must be predicted better if the logger is to have
known the context: where it did not, chance gains that once in forty logs."""

_SURE_ERRORS = 2.0
"""A choice is sure if one context less loses more than so many standard errors."""


def may_show_contexts(logs: Sequence[Logs]) -> bool:
    """Whether there are two episodes, one of them of two steps: with less, all look alike."""
    episodes = sum(part.n_episodes for part in logs)
    return episodes > 1 and any(part.longest > 1 for part in logs)


def choose_contexts(
    logs: Logs | Sequence[Logs],
    *,
    max_contexts: int = MAX_CONTEXTS,
    min_contexts: int = 1,
    reward_model: RewardModel | Literal["auto"] = "auto",
    behaviour: Literal["shared", "by-context", "auto"] = "auto",
    shared_rewards: bool | Literal["auto"] = "auto",
    shared_transitions: bool | Literal["auto"] = "auto",
    shared_initial: bool | Literal["auto"] = "auto",
    folds: int | None = None,
    restarts: int = 4,
    patience: int = 2,
    rng: RNGLike = None,
    threads: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> ContextSelection:
    """Try 1, 2, ... contexts until two in a row predict no better, and choose.

    Parameters
    ----------
    max_contexts, min_contexts
        The largest and the smallest number that is tried; with a smallest one above 1 the logger's
        policy must be settled.
    reward_model
        What rewards depend on; "auto" decides by BIC.
    behaviour, shared_rewards, shared_transitions, shared_initial
        What contexts share; "auto" decides by held-out likelihood.
    folds
        Parts into which individuals are divided; each is predicted by a fit to the others. By
        default five, or three where there are more than 20,000 individuals.
    restarts
        Fresh starts of every fit, beside those from the candidate before it.
    patience
        Numbers in a row that must predict no better before the search ends: two contexts may only
        show together.
    report
        Called with a line for every decision.

    Returns
    -------
    ContextSelection
        The evidence, and the models fitted on the way.

    Warns
    -----
    FitWarning
        The evidence does not settle the number, or more contexts than were tried may be there.
    """
    generator = as_generator(rng)
    parts = checked_logs(logs)
    require_reward_model(reward_model)
    least = arrays.positive_integer("min_contexts", min_contexts)
    if least > max_contexts:
        raise ValueError(f"min_contexts is {least}, and max_contexts is {max_contexts}")
    if least > 1 and behaviour == "auto":
        raise ValueError(f'min_contexts={least} goes with behaviour="shared" or "by-context"')
    form = settle_reward_model(
        parts, FEW_CONTEXTS, reward_model, generator, threads=threads, report=report
    )
    settings = EM(
        FEW_CONTEXTS,
        behaviour=behaviour,
        shared_rewards=shared_rewards,
        shared_transitions=shared_transitions,
        initial={True: "shared", False: "own"}.get(shared_initial),  # type: ignore[arg-type]
        reward_model=form,
        threads=threads,
    )
    found = search_contexts(
        parts,
        settings,
        max_contexts,
        generator,
        least=least,
        folds=folds,
        restarts=restarts,
        patience=arrays.positive_integer("patience", patience),
        report=report,
    )
    return found.selection


class ChosenContexts(NamedTuple):
    """The evidence, the strengths and decisions that go with the choice, and where EM may start.

    `shares` (N, M) are p(m | episode) of all episodes.
    """

    selection: ContextSelection
    strengths: PseudoCounts
    decisions: tuple[str, ...]
    shares: Floats


def search_contexts(
    logs: list[Logs],
    settings: EM,
    max_contexts: int,
    rng: np.random.Generator,
    *,
    least: int = 1,
    folds: int | None = None,
    restarts: int = 4,
    patience: int = 2,
    report: Callable[[str], None] = lambda _: None,
    engine: Engine | None = None,
) -> ChosenContexts:
    """`choose_contexts` with the settings of an EM of `FEW_CONTEXTS` contexts."""
    most = arrays.positive_integer("max_contexts", max_contexts)
    if folds is None:
        folds = _FOLDS if sum(part.n_episodes for part in logs) < _MANY_EPISODES else _FEW_FOLDS
    for name, value in (("folds", folds), ("restarts", restarts)):
        arrays.positive_integer(name, value)
    if folds < 2:
        raise ValueError("folds must be at least 2: one part is left out, the others are fitted")
    problem = problem_of(settings, logs, [], as_engine(engine, settings.threads))
    parts = problem.likelihood.episodes.sample().folds(folds, rng)
    auto = "behaviour" in problem.open_parts
    plain = tuple(part for part in problem.open_parts if part != "behaviour")
    first = _ContextSearch(problem._replace(open_parts=plain), parts, restarts, rng, least)
    first.run(most, report, patience)
    if not auto:
        return first.outcome(report)
    known = problem._replace(own_parts=(*problem.own_parts, "behaviour"), open_parts=plain)
    second = _ContextSearch(known, parts, restarts, rng)
    second.found.append(first.found[0])
    second.run(min(most, FEW_CONTEXTS), lambda _: None, patience)
    if _gain(second, first).clear:
        report("contexts with loggers of their own:")
        second.run(most, report, patience)
    decision = _gain(second, first)
    chosen = second if not decision.shared else first
    report(str(decision))
    return chosen.outcome(report, decision)


class _LoggerDecision(NamedTuple):
    """Whether loggers of contexts' own predict better, and are of use."""

    gain: float
    error: float
    differ: bool
    loss: float
    loss_error: float

    @property
    def clear(self) -> bool:
        """Whether everything that individuals show is predicted clearly better."""
        return self.gain > max(_KNOWING_ERRORS * self.error, _KNOWING_GAIN)

    @property
    def shared(self) -> bool:
        """Whether one logger is assumed for all contexts."""
        worse = self.loss > max(_STANDARD_ERRORS * self.loss_error, _LEAST_GAIN)
        return not self.clear or not self.differ or worse

    def __str__(self) -> str:
        text = str(Decision("behaviour", self.shared, self.gain, self.error))
        if not self.clear or not self.shared:
            return text
        if not self.differ:
            return f"{text}, but individuals who were treated differently respond alike"
        return f"{text}, but outcomes lose {self.loss:.1f} ± {self.loss_error:.1f} nats"


def _gain(knowing: _ContextSearch, plain: _ContextSearch) -> _LoggerDecision:
    """What loggers by context gain, in everything and in outcomes alone."""
    one, other = knowing.choice(), plain.choice()
    if one == 0:
        return _LoggerDecision(0.0, 0.0, False, 0.0, 0.0)
    scores = knowing.found[one].scores - plain.found[other].scores
    outcomes = scores - knowing.action_scores(one) + plain.action_scores(other)
    strengths = knowing.found[one].strengths
    of_world = (strengths.transitions, strengths.rewards, strengths.initial)
    return _LoggerDecision(
        *paired(scores, knowing.weights),
        bool(np.isfinite(of_world).any()),
        *paired(-outcomes, knowing.weights),
    )


class _Candidate(NamedTuple):
    """A number of contexts: its strengths, the folds' estimates, and scores by individual."""

    strengths: PseudoCounts
    points: list[Parameters]
    scores: Floats


class _ContextSearch:
    """The candidates found so far, and what all of them are fitted to.

    Candidate k has `least` + k contexts.
    """

    def __init__(
        self,
        problem: FitProblem,
        folds: list[tuple[Episodes, Episodes]],
        restarts: int,
        rng: np.random.Generator,
        least: int = 1,
    ) -> None:
        self.problem, self.restarts, self.rng, self.least = problem, restarts, rng, least
        whole = problem.likelihood
        self.folds: list[tuple[MixtureLikelihood, Episodes]] = [
            (MixtureLikelihood(train, whole.structure, whole.pseudo_counts, whole.engine), test)
            for train, test in folds
        ]
        counts = [group.counts for _, test in self.folds for group in test.groups]
        weights = np.concatenate(counts)
        self.weights = weights[weights > 0.0]
        self.found: list[_Candidate] = []
        self.decisions: tuple[Decision, ...] = ()

    def run(self, most: int, report: Callable[[str], None], patience: int) -> None:
        """Try further candidates until so many in a row predict no better."""
        idle = 0
        while self.least + len(self.found) <= most and idle < patience:
            before = self.best
            self.try_next()
            last = len(self.found) - 1
            gained = last == 0 or self.loss(last, before)[0] > _LEAST_GAIN
            idle = 0 if gained else idle + 1
            if last == (self.least == 1):
                for decision in self.decisions:
                    report(str(decision))
            score = self.found[last].scores @ self.weights / self.weights.sum()
            report(f"{plural(self.least + last, 'context')}: {score:.4f} nats an unseen individual")

    def action_scores(self, k: int) -> Floats:
        """Of the scores of a candidate, what its predictions of the logger's actions add."""
        candidate, scores, counts = self.found[k], [], []
        for (train, test), point in zip(self.folds, candidate.points):
            likelihood = train.with_contexts(self.least + k)
            likelihood = likelihood.with_pseudo_counts(candidate.strengths)
            scores += likelihood.held_out_actions(point, test)
            counts += [group.counts for group in test.groups]
        return np.concatenate(scores)[np.concatenate(counts) > 0.0]

    def try_next(self) -> None:
        """Fit one context more than the last candidate has."""
        M = self.least + len(self.found)
        if M == 1:
            self.found.append(self._one_context())
            return
        if not self.found or M == 2:
            views = views_of(self.problem.own_parts, self.problem.open_parts)
            few = max(2, self.restarts // 2)
            starts = [
                {view: self._fitted(train.with_pseudo_counts(view), few) for view in views}
                for train in self._trains(M)
            ]
            scores = self._held_out(M, starts)
            strengths = scores.best()
            self.decisions = tuple(scores.decisions(strengths))
            scores = self._held_out(M, self._starts(M, strengths, scores.fits[strengths]))
            strengths = scores.near(strengths)
        else:
            last = self.found[-1]
            scores = self._held_out(M, self._starts(M, last.strengths, last.points))
            strengths = scores.near(last.strengths)
        by_individual, _ = scores.by_individual(strengths)
        self.found.append(_Candidate(strengths, scores.fits[strengths], by_individual))

    def _one_context(self) -> _Candidate:
        """The pooled model of every fold."""
        shared, points, scores = PseudoCounts(*(np.inf,) * len(PseudoCounts._fields)), [], []
        for train, (_, test) in zip(self._trains(1), self.folds):
            pooled = train.with_pseudo_counts(shared)
            points.append(pooled.mixed(starting_points(pooled, 1, self.rng)[0]))
            scores += pooled.held_out_by_episode(points[-1], test)
        counts = [group.counts for _, test in self.folds for group in test.groups]
        kept = np.concatenate(counts) > 0.0
        return _Candidate(shared, points, np.concatenate(scores)[kept])

    def _trains(self, n_contexts: int) -> list[MixtureLikelihood]:
        return [train.with_contexts(n_contexts) for train, _ in self.folds]

    def _held_out(self, n_contexts: int, starts: list[dict[PseudoCounts, Parameters]]) -> HeldOut:
        tests = (test for _, test in self.folds)
        folds = [Fold(*each) for each in zip(self._trains(n_contexts), tests, starts)]
        return HeldOut(folds, _climbed, self.problem.open_parts)

    def _starts(
        self, n_contexts: int, strengths: PseudoCounts, points: list[Parameters]
    ) -> list[dict[PseudoCounts, Parameters]]:
        """The folds' best estimates at some strengths, from those of this or the last candidate."""
        trains = [train.with_pseudo_counts(strengths) for train in self._trains(n_contexts)]
        return [
            {strengths: self._fitted(train, self.restarts, point)}
            for train, point in zip(trains, points)
        ]

    def _fitted(
        self, likelihood: MixtureLikelihood, restarts: int, before: Parameters | None = None
    ) -> Parameters:
        """The best estimate from fresh starts and, if there is one, from an estimate before."""
        points = starting_points(likelihood, restarts, self.rng)
        M = likelihood.structure.n_contexts
        if before is not None and before[-1].shape[-1] == M:
            points.append(before)
        elif before is not None:
            points += starts_by_split(likelihood, before, self.rng)
        runs = [climb(likelihood, point, _SHORT_TOLERANCE, _SHORT_MAPS) for point in points]
        runs.sort(key=lambda run: -run.objective)
        ends = [climb(likelihood, run.point, _TOLERANCE, _MAPS) for run in runs[:_FINALISTS]]
        return max(ends, key=lambda run: run.objective).point

    def loss(self, best: int, other: int) -> tuple[float, float]:
        """What one candidate loses against another, in nats, and its standard error."""
        return paired(self.found[best].scores - self.found[other].scores, self.weights)

    @property
    def best(self) -> int:
        """The candidate that predicts best; 0 where there is none yet."""
        scores = [float(c.scores @ self.weights) for c in self.found]
        return int(np.argmax(scores)) if scores else 0

    def choice(self) -> int:
        """The smallest candidate that loses next to nothing against the best."""
        for k in range(self.best):
            total, error = self.loss(self.best, k)
            if total <= max(_STANDARD_ERRORS * error, _LEAST_GAIN):
                return k
        return self.best

    def outcome(
        self, report: Callable[[str], None], logger: _LoggerDecision | None = None
    ) -> ChosenContexts:
        """The evidence of all candidates, and what goes with the choice."""
        chosen, best = self.choice(), self.best
        losses = np.array([self.loss(best, k) for k in range(len(self.found))])
        total = float(self.weights.sum())
        models, log_likelihood, n_parameters = [], [], []
        shares = np.broadcast_to(1.0, (sum(map(len, self.problem.logs)), 1))
        for k, candidate in enumerate(self.found):
            likelihood = self.problem.likelihood.with_contexts(self.least + k)
            likelihood = likelihood.with_pseudo_counts(candidate.strengths)
            points = sorted(candidate.points, key=lambda p: -likelihood.log_likelihood(p))
            point = _climbed(likelihood, likelihood.mixed(points[0]))
            model = self._model(likelihood, point)
            models.append(model)
            log_likelihood.append(likelihood.log_likelihood(point))
            n_parameters.append(likelihood.n_parameters)
            if k == chosen and self.least + k > 1:
                own = "behaviour" in likelihood.own_parts
                acted = behaviour_from_parameters(likelihood, point) if own else None
                shares = shares_of(
                    model,
                    self.problem.logs,
                    acted,
                    weight_model_from_parameters(likelihood, point),
                    likelihood.engine,
                )
        statement = _statement(self, chosen, best, losses)
        report(statement)
        if statement.startswith("Not sure"):
            warnings.warn(statement, FitWarning, stacklevel=3)
        selection = ContextSelection(
            n_contexts=self.least + chosen,
            candidates=tuple(range(self.least, self.least + len(self.found))),
            log_likelihood=np.array(log_likelihood),
            n_parameters=np.array(n_parameters),
            held_out=np.array([c.scores @ self.weights for c in self.found]) / total,
            held_out_loss=losses[:, 0],
            held_out_error=losses[:, 1],
            statement=statement,
            models=tuple(models),
        )
        said = [str(decision) for decision in (self.decisions if self.least + chosen > 1 else ())]
        said += [] if logger is None else [str(logger)]
        return ChosenContexts(selection, self.found[chosen].strengths, tuple(said), shares)

    def _model(self, likelihood: MixtureLikelihood, point: Parameters) -> LatentMDP:
        return model_from_parameters(
            likelihood, point, self.problem.reward_values, self.problem.shared
        )


def _climbed(likelihood: MixtureLikelihood, start: Parameters) -> Parameters:
    return climb(likelihood, start, _TOLERANCE, _MAPS).point


def _statement(search: _ContextSearch, chosen: int, best: int, losses: Floats) -> str:
    """How sure the choice is, in words."""
    least, tried = search.least, len(search.found)
    what = plural(least + chosen, "context")
    if chosen == tried - 1 and tried > 1:
        return (
            f"Not sure: {what}, the most that were tried, still predict better; there may be more."
        )
    others = [k for k in (chosen - 1, chosen + 1) if 0 <= k < tried]
    said = ", ".join(
        f"{least + k} lose {losses[k, 0]:.1f} ± {losses[k, 1]:.1f} nats" for k in others
    )
    if chosen != best and losses[chosen, 0] > _LEAST_GAIN:
        few = f"{losses[chosen, 0]:.1f} ± {losses[chosen, 1]:.1f} nats"
        return f"Not sure: {what}, within half a standard error of {least + best}; they lose {few}."
    below = [k for k in range(chosen) if losses[k, 0] <= _SURE_ERRORS * losses[k, 1]]
    above = [k for k in range(chosen + 1, tried) if losses[k, 0] <= losses[k, 1]]
    word = "Fairly sure" if below or above else "Sure"
    how = "best" if chosen == best else f"as well as {least + best}"
    predict = f"{'predict' if least + chosen > 1 else 'predicts'} unseen individuals {how}"
    return f"{word}: {what} {predict}; {said}." if said else f"{word}: {what} {predict}."
