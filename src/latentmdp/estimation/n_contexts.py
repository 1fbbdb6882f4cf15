"""The number of contexts in logs: as many as predict unseen individuals best.

Mixtures with M = 1, 2, ... contexts are compared on the same folds of individuals (`held_out`),
until two candidates in a row bring nothing. The smallest M is taken that does not lose clearly, by
half a standard error, against the best: a group must predict, and one that brings no more than
noise is not worth having.

Every candidate is fitted as well as the final fit: from each context of the candidate before it cut
in two, from pair moments and at random (`starts`), fold by fold, with what contexts share and the
pseudo-counts chosen by the same held-out individuals.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import entr

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.words import plural
from latentmdp.engines import Engine, as_engine
from latentmdp.estimation.em import (
    EM,
    STABLE,
    Ascent,
    FitProblem,
    climb,
    problem_of,
    starting_points,
    starts_by_split,
)
from latentmdp.estimation.episodes import checked_logs
from latentmdp.estimation.held_out import (
    CLEAR_ERRORS,
    NOISE,
    Candidate,
    Decision,
    Folds,
    Gain,
    HeldOut,
    sharing_hypotheses,
)
from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters, PseudoCounts
from latentmdp.estimation.reward_model import choose_reward_model, require_reward_model
from latentmdp.fit import ContextSelection, FitWarning
from latentmdp.logs import Logs
from latentmdp.metrics import adjusted_rand_index
from latentmdp.model import RewardModel

MAX_CONTEXTS = 10
"""The largest number tried by default. The search ends by itself after two numbers that gain
nothing, so the limit only bounds the time where every further context helps a little."""

FEW_CONTEXTS = 2
"""What contexts share is decided before their number is known, by fits with so many: enough to see
what differs between contexts."""

_UNSTABLE = 0.5
"""Adjusted Rand index below which groups are called not sure."""


def may_show_contexts(logs: Sequence[Logs]) -> bool:
    """Whether there are two episodes, one of them of two steps: with less, all look alike."""
    episodes = sum(part.n_episodes for part in logs)
    return episodes > 1 and any(part.longest > 1 for part in logs)


def choose_contexts(
    logs: Logs | Sequence[Logs],
    *,
    max_contexts: int = MAX_CONTEXTS,
    reward_model: RewardModel | Literal["auto"] = "auto",
    restarts: int = 4,
    rng: RNGLike = None,
    report: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> ContextSelection:
    """Try 1, 2, ... contexts until two in a row predict no better, and choose.

    Parameters
    ----------
    max_contexts
        The largest number that is tried.
    reward_model
        What rewards depend on; "auto" decides by BIC.
    restarts
        Fresh starts of every fit, beside those from the candidate before it.
    report
        Called with a line for every decision.
    **settings
        Those of `EM`, such as what contexts share, which by default is decided by held-out
        likelihood (`behaviour`, `shared_rewards`, `shared_transitions`, `shared_initial`), and
        `folds`, parts into which individuals are divided: each is predicted by a fit to the
        others. By default five, or three where there are more than 20,000 individuals.

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
    arrays.positive_integer("max_contexts", max_contexts)
    is_open = dict.fromkeys(("behaviour", "shared_rewards", "shared_transitions"), "auto")
    em = EM(FEW_CONTEXTS, **{**is_open, **settings})
    engine = as_engine(None, em.threads)
    form = choose_reward_model(parts, FEW_CONTEXTS, reward_model, generator, engine, report)
    em = replace(em, reward_model=form)
    search = ContextSearch.of(parts, em, generator, restarts, engine=engine)
    search.run(max_contexts, report)
    return search.outcome(report).selection


class ChosenContexts(NamedTuple):
    """The evidence, the strengths and decisions that go with the choice, and where EM may start.

    `shares` (N, M) are p(m | episode) of all episodes.
    """

    selection: ContextSelection
    strengths: PseudoCounts
    decisions: tuple[str, ...]
    shares: Floats


@dataclass
class ContextSearch:
    """The candidates so far, and what all of them are fitted to; the first has `least` contexts."""

    problem: FitProblem
    folds: Folds
    restarts: int
    rng: np.random.Generator
    least: int = 1
    candidates: list[Candidate] = field(default_factory=list)
    decisions: tuple[Decision, ...] = ()

    @classmethod
    def of(
        cls,
        logs: list[Logs],
        settings: EM,
        rng: np.random.Generator,
        restarts: int = 4,
        least: int = 1,
        engine: Engine | None = None,
    ) -> ContextSearch:
        """A search in logs with the settings of an EM of `FEW_CONTEXTS` contexts."""
        restarts = arrays.positive_integer("restarts", restarts)
        problem = problem_of(settings, logs, [], as_engine(engine, settings.threads))
        folds = Folds(problem.likelihood, settings.folds, rng, few=3)
        return cls(problem, folds, restarts, rng, least)

    def run(
        self, most: int, report: Callable[[str], None] = lambda _: None, patience: int = 2
    ) -> None:
        """Try one context more, each fold fitted by itself, until `patience` gain nothing.

        By default two in a row: two contexts may only show together.
        """
        idle = 0
        while (M := self.least + len(self.candidates)) <= most and idle < patience:
            best = self.best() if self.candidates else None
            if M == 1:
                strengths = PseudoCounts(*(np.inf,) * len(PseudoCounts._fields))
                held_out = self._held_out(1, [strengths], 1)
            else:
                before = self.candidates[-1] if self.candidates and M > 2 else self._first(M)
                held_out = self._held_out(M, [before.strengths], self.restarts, before.points)
                strengths = held_out.near(before.strengths)
            last = held_out.candidate(strengths)
            self.candidates.append(last)
            better = best is None or self.folds.gain(last.scores, best.scores).nats > NOISE
            idle = 0 if better else idle + 1
            if max(self.least, 2) == M:
                for decision in self.decisions:
                    report(str(decision))
            score = last.scores @ self.folds.weights / self.folds.weights.sum()
            report(f"{plural(M, 'context')}: {score:.4f} nats an unseen individual")

    def _first(self, n_contexts: int) -> Candidate:
        """The first candidate with several contexts: decides what they share, and the strengths."""
        hypotheses = sharing_hypotheses(self.problem.own_parts, self.problem.open_parts)
        held_out = self._held_out(n_contexts, hypotheses, max(2, self.restarts // 2))
        strengths, self.decisions = held_out.choice()
        return held_out.candidate(strengths)

    def _held_out(
        self,
        n_contexts: int,
        strengths: list[PseudoCounts],
        restarts: int,
        points: Sequence[Parameters | None] = (),
    ) -> HeldOut:
        """The comparison of strengths, from the folds' best estimates at some of them.

        A fold is fitted from fresh starts and, if there is one, from an estimate in `points`, whose
        contexts are cut in two where they are fewer. Starts climb a short way before the best two
        go on to the end: a start that will win is seldom third by then, and a full climb costs ten
        times as much.
        """
        trains = [train.with_contexts(n_contexts) for train in self.folds.trains]
        estimates: list[dict[PseudoCounts, Parameters]] = [{} for _ in trains]
        # one kind of logger after the other: the second leaves the chance of the first as it is
        kinds = [[k for k in strengths if np.isinf(k.behaviour) == one] for one in (True, False)]
        for kind, fold in product(kinds, range(len(trains))):
            before = points[fold] if points else None
            for k in kind:
                likelihood = trains[fold].with_pseudo_counts(k)
                starts = starting_points(likelihood, restarts, self.rng)
                if before is not None and before[-1].shape[-1] == n_contexts:
                    starts.append(before)
                elif before is not None:
                    starts += starts_by_split(likelihood, before, self.rng)
                runs = [climb(likelihood, start, tolerance=0.5, max_maps=25) for start in starts]
                runs.sort(key=lambda run: -run.objective)
                ends = [_ascent(likelihood, run.point) for run in runs[:2]]
                estimates[fold][k] = max(ends, key=lambda run: run.objective).point
        open_parts = self.problem.open_parts if n_contexts > 1 else ()
        return HeldOut(self.folds, n_contexts, estimates, _climbed, open_parts)

    def best(self) -> Candidate:
        """The candidate that predicts best."""
        return max(self.candidates, key=lambda one: float(one.scores @ self.folds.weights))

    def losses(self) -> list[Gain]:
        """What every candidate loses against the best."""
        best = self.best()
        return [self.folds.gain(best.scores, one.scores) for one in self.candidates]

    def choice(self) -> Candidate:
        """The smallest candidate that does not lose clearly against the best."""
        losses = zip(self.candidates, self.losses())
        return next(one for one, loss in losses if not loss.clear(CLEAR_ERRORS["contexts"]))

    def outcome(self, report: Callable[[str], None]) -> ChosenContexts:
        """The evidence of all candidates, and what goes with the choice."""
        choice, losses = self.choice(), self.losses()
        models, log_likelihood, n_parameters = [], [], []
        certainty, stability = np.ones(len(self.candidates)), np.ones(len(self.candidates))
        shares = np.broadcast_to(1.0, (sum(map(len, self.problem.logs)), 1))
        for k, candidate in enumerate(self.candidates):
            likelihood = _at(self.problem.likelihood, candidate)
            if candidate.n_contexts > 1:
                certainty[k], stability[k] = self._groups(candidate, likelihood)
            point = max(candidate.points, key=likelihood.log_likelihood)
            point = _climbed(likelihood, likelihood.mixed(point))
            estimate = self.problem.estimate(likelihood, point)
            models.append(estimate.model)
            log_likelihood.append(likelihood.log_likelihood(point))
            n_parameters.append(likelihood.n_parameters)
            if candidate is choice and candidate.n_contexts > 1:
                shares = estimate.shares(self.problem.logs, likelihood.engine)
        statement = self._statement(losses, stability)
        report(statement)
        if statement.startswith("Not sure"):
            warnings.warn(statement, FitWarning, stacklevel=3)
        sizes = np.zeros((len(models), models[-1].n_contexts))
        for row, model in zip(sizes, models):
            row[: model.n_contexts] = np.sort(model.weights)[::-1]
        totals = np.array([one.scores @ self.folds.weights for one in self.candidates])
        selection = ContextSelection(
            n_contexts=choice.n_contexts,
            candidates=tuple(one.n_contexts for one in self.candidates),
            log_likelihood=np.array(log_likelihood),
            n_parameters=np.array(n_parameters),
            held_out=totals / float(self.folds.weights.sum()),
            held_out_loss=np.array([loss.nats for loss in losses]),
            held_out_error=np.array([loss.error for loss in losses]),
            statement=statement,
            individuals=sum(part.n_individuals for part in self.problem.logs),
            sizes=sizes,
            entropy=certainty,
            stability=stability,
            models=tuple(models),
        )
        several = choice.n_contexts > 1
        words = tuple(str(one) for one in self.decisions if several or one.part == "behaviour")
        return ChosenContexts(selection, choice.strengths, words, shares)

    def _groups(self, candidate: Candidate, likelihood: MixtureLikelihood) -> tuple[float, float]:
        """How surely individuals belong to one context, and how alike the groups of folds are.

        Every fold has a fit of its own, from starts of its own, that did not see a part of the
        individuals: labels that depend on either differ between them.
        """
        logs: list[Logs] = [part.held() for part in self.problem.logs]
        held = [part.read() for part in logs]
        counts = np.concatenate([one.multiplicities() for one in held])
        goes_on = [one.continues for one in held if one.continues is not None]
        if goes_on:  # an individual counts once, whatever its segments
            counts = counts * ~np.concatenate(goes_on)
        shares = [
            self.problem.estimate(likelihood, likelihood.mixed(point)).shares(logs, None)
            for point in candidate.points
        ]
        unsure = counts @ np.mean([entr(one).sum(axis=1) for one in shares], axis=0)
        labels = [one.argmax(axis=1) for one in shares]
        agreement = [adjusted_rand_index(a, b, counts) for a, b in combinations(labels, 2)]
        most = np.log(candidate.n_contexts) * max(counts.sum(), 1)
        certainty = max(0.0, 1.0 - float(unsure / most))
        alike = certainty < 1e-6  # contexts that are the same have no members to compare
        return certainty, float("nan") if alike else float(np.mean(agreement))

    def _statement(self, losses: list[Gain], stability: Floats) -> str:
        """How sure the choice is, in words."""
        best, tried = self.best(), len(losses)
        choice = self.choice().n_contexts - self.least
        what = plural(self.least + choice, "context")
        if stability[choice] < _UNSTABLE:
            return (
                f"Not sure: {what}, but who belongs to which changes with the data: fits to other "
                f"parts of the individuals agree to {stability[choice]:.2f} (adjusted Rand index)."
            )
        if choice == tried - 1 and tried > 1:
            return (
                f"Not sure: {what}, the most that were tried, still predict better; there may be "
                "more."
            )
        if self.candidates[choice] is not best and losses[choice].nats > NOISE:
            return (
                f"Not sure: {what}, within half a standard error of {best.n_contexts}; they lose "
                f"{losses[choice]}."
            )
        if choice == 0 and np.isnan(stability[1:]).all() and tried > 1:
            return f"Fairly sure: {what}; nothing was found that tells individuals apart."
        neighbours = [k for k in (choice - 1, choice + 1) if 0 <= k < tried]
        numbers = [(self.least + k, losses[k]) for k in neighbours]
        losers = ", ".join(f"{M} lose{'s' if M == 1 else ''} {loss}" for M, loss in numbers)
        below = [loss for loss in losses[:choice] if loss.nats <= 2.0 * loss.error]
        above = [loss for loss in losses[choice + 1 :] if loss.nats <= loss.error]
        clear = not below and not above and not stability[choice] < STABLE
        word = "Sure" if clear else "Fairly sure"
        how = "best" if self.candidates[choice] is best else f"as well as {best.n_contexts}"
        predict = f"{'predict' if self.least + choice > 1 else 'predicts'} unseen individuals {how}"
        return f"{word}: {what} {predict}; {losers}." if losers else f"{word}: {what} {predict}."


def _at(likelihood: MixtureLikelihood, candidate: Candidate) -> MixtureLikelihood:
    """The likelihood for the contexts and the strengths of a candidate."""
    return likelihood.with_contexts(candidate.n_contexts).with_pseudo_counts(candidate.strengths)


def _ascent(likelihood: MixtureLikelihood, start: Parameters) -> Ascent:
    """EM as exact as numbers of contexts need, which are told apart by nats."""
    return climb(likelihood, start, tolerance=0.02, max_maps=300)


def _climbed(likelihood: MixtureLikelihood, start: Parameters) -> Parameters:
    return _ascent(likelihood, start).point
