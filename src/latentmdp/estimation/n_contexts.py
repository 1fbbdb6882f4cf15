"""The number of contexts in logs: four criteria side by side, and how far they agree.

held-out   the mixture with M contexts is fitted to four fifths of the episodes; M grows as long as
           the log-likelihood of the last fifth grows by more than three standard errors of the
           gain (and five nats);
BIC        -2 log L + (number of parameters) log N is smallest;
ICL        BIC + 2 (entropy of the responsibilities) is smallest: contexts that episodes can be
           assigned to;
spectrum   one more than the number of pair-moment eigenvalues that stand out of the noise.

The held-out answer is taken. The others say how sure it is: BIC asks for more evidence, ICL for
contexts that do not overlap, the spectrum sees only the differences' span (M - 1 directions unless
the contexts are affinely dependent).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.engines.threads import Team
from latentmdp.estimation.em import climb, starting_points
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import (
    MixtureLikelihood,
    Parameters,
    PseudoCounts,
    SharedRewards,
    Structure,
    model_from_parameters,
    reward_values_of,
)
from latentmdp.estimation.pseudo_counts import Fold, HeldOut
from latentmdp.estimation.reward_model import RewardStructure, require_reward_model, settle_rewards
from latentmdp.estimation.starts import MAX_CELLS, PairMoments
from latentmdp.fit import ContextSelection, FitWarning, shares_of
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.trajectories import Trajectories, sizes_of

__all__ = ["FEW_CONTEXTS", "MAX_CONTEXTS", "choose_contexts", "may_show_contexts"]

MAX_CONTEXTS = 10
"""The largest number tried by default. The search ends by itself after two numbers that gain
nothing, so the limit only bounds the time where every further context helps a little."""

FEW_CONTEXTS = 2
"""What rewards depend on is settled before the number of contexts is known, by fits with so many:
enough to see whether rewards differ between contexts."""

_FOLDS = 5
"""One of so many folds is held out: less would be scored by too few episodes, more would leave too
few to fit."""

_STARTS, _TOLERANCE, _MAPS = 3, 0.05, 150
"""Starts, tolerance in nats and cap on the maps of each fit. Numbers of contexts are told apart by
`_LEAST_GAIN` nats or more, so fits need not be exact; every candidate costs one such fit for each
strength of the pseudo-counts."""

_STANDARD_ERRORS = 3.0
"""A gain of one more context must exceed so many of its standard errors: chance alone does that
once in about 700 candidates."""

_LEAST_GAIN = 5.0
"""And so many nats, because the pseudo-counts were chosen by the same held-out episodes."""

_PATIENCE = 2
"""The search ends after so many candidates in a row without a clear gain: two contexts may only
show together."""

_STANDS_OUT = 1.5
"""An eigenvalue counts if it exceeds the edge of the noise this many times; without contexts the
largest of a few dozen does so with probability below 1e-6."""


def may_show_contexts(logs: Sequence[Trajectories]) -> bool:
    """Whether there are two episodes, one of them of two steps: with less, all look alike."""
    episodes = sum(part.n_episodes for part in logs)
    return episodes > 1 and any(part.lengths.max(initial=0) > 1 for part in logs)


def choose_contexts(
    logs: Trajectories | Sequence[Trajectories],
    *,
    max_contexts: int = MAX_CONTEXTS,
    reward_model: RewardModel | Literal["auto"] = "auto",
    shared_rewards: bool | Literal["auto"] = "auto",
    assigned: Trajectories | None = None,
    rng: RNGLike = None,
    threads: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> ContextSelection:
    """Try 1, 2, ... contexts until two in a row gain nothing, and choose.

    Parameters
    ----------
    reward_model, shared_rewards
        What rewards depend on, and whether all contexts share them; "auto" decides by BIC.
    assigned
        The episodes whose assignment to contexts ICL judges; all of them by default.
    report
        Called with a line for every decision.

    Returns
    -------
    ContextSelection
        The evidence, and the models fitted on the way.

    Warns
    -----
    FitWarning
        The criteria do not agree, or more contexts than were tried may be there.
    """
    most = arrays.positive_integer("max_contexts", max_contexts)
    require_reward_model(reward_model)
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    generator = as_generator(rng)
    asked = (FEW_CONTEXTS, reward_model, shared_rewards)
    rewards = settle_rewards(parts, *asked, generator, threads=threads, report=report)
    with Team(threads) as team:
        judged = parts if assigned is None else [assigned]
        search = _ContextSearch(parts, judged, rewards, generator, team)
        gains, errors, idle = [0.0], [0.0], 0
        while len(search.found) < most and idle < _PATIENCE:
            search.try_next()
            if len(search.found) > 1:
                gain, error = search.gain(-2, -1)
                gains.append(gain)
                errors.append(error)
                idle = 0 if _clear(gain, error) else idle + 1
                report(f"{len(search.found)} contexts: held-out gain {gain:.1f} ± {error:.1f}")
        selection = _selection(search, np.array(gains), np.array(errors))
    report(selection.statement)
    if selection.statement.startswith("Not sure"):
        warnings.warn(selection.statement, FitWarning, stacklevel=2)
    return selection


class _Candidate(NamedTuple):
    """A number of contexts: scores of the test episodes, and its estimate on all of them."""

    scores: Floats
    log_likelihood: float
    n_parameters: int
    entropy: float
    model: LatentMDP


class _ContextSearch:
    """The candidates found so far, and what all of them are fitted to."""

    def __init__(
        self,
        logs: list[Trajectories],
        judged: list[Trajectories],
        rewards: RewardStructure,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self.logs, self.judged, self.rewards = logs, judged, rewards
        self.rng, self.team = rng, team
        self.shared = None
        if rewards.shared:
            self.shared = SharedRewards(logs, sizes_of(logs), rewards.reward_model)
        self.episodes = Episodes(logs, use_rewards=not rewards.shared)
        self.train, self.test = self.episodes.folds(_FOLDS, rng)[0]
        self.found: list[_Candidate] = []

    def try_next(self) -> None:
        """Fit one context more than the last candidate has."""
        structure = Structure(
            len(self.found) + 1, reward_model=self.rewards.reward_model, shared_initial=True
        )
        likelihood = MixtureLikelihood(self.train, structure, PseudoCounts(1.0, 1.0), self.team)
        pseudo_counts, point = self._predictive(likelihood)
        likelihood = likelihood.with_pseudo_counts(pseudo_counts)
        scores = np.concatenate(likelihood.held_out_by_episode(point, self.test))
        full = MixtureLikelihood(self.episodes, structure, pseudo_counts, self.team)
        point = _fitted(full, full.mixed(point))
        model = model_from_parameters(full, point, reward_values_of(self.logs), self.shared)
        shares = shares_of(model, self.judged)
        shares = shares[shares > 0.0]
        entropy = -float(shares @ np.log(shares))
        log_likelihood = full.log_likelihood(point)
        self.found.append(_Candidate(scores, log_likelihood, full.n_parameters, entropy, model))

    def _predictive(self, likelihood: MixtureLikelihood) -> tuple[PseudoCounts, Parameters]:
        """Fit the training episodes, with the pseudo-counts that predict the others best."""
        starts = starting_points(likelihood, _STARTS, self.rng)
        if likelihood.structure.n_contexts == 1:
            return PseudoCounts(0.0, 0.0), starts[0]
        climbs = [climb(likelihood, start, _TOLERANCE, _MAPS) for start in starts]
        start = max(climbs, key=lambda run: run.objective).point
        chosen, points = HeldOut([Fold(likelihood, self.test, start)], _fitted).best()
        return chosen, points[0]

    def gain(self, less: int, more: int) -> tuple[float, float]:
        """What one candidate gains over another on the test episodes, and its standard error.

        None without test episodes.
        """
        counts = np.concatenate([group.counts for group in self.test.groups])
        kept = counts > 0.0
        if not kept.any():
            return 0.0, 0.0
        weights = counts[kept]
        difference = (self.found[more].scores - self.found[less].scores)[kept]
        mean = float(weights @ difference / weights.sum())
        return mean * float(weights.sum()), float(np.sqrt(weights @ (difference - mean) ** 2))

    def choice(self) -> int:
        """The last candidate that clearly beats the best one before it, as a number of contexts."""
        best = 0
        for k in range(1, len(self.found)):
            if _clear(*self.gain(best, k)):
                best = k
        return best + 1


def _fitted(likelihood: MixtureLikelihood, start: Parameters) -> Parameters:
    return climb(likelihood, start, _TOLERANCE, _MAPS).point


def _clear(gain: float, error: float) -> bool:
    """A gain that neither chance nor the choice of the pseudo-counts explains."""
    return gain > max(_STANDARD_ERRORS * error, _LEAST_GAIN)


def _selection(search: _ContextSearch, gains: Floats, errors: Floats) -> ContextSelection:
    """The evidence of all candidates, the choice, and how sure it is."""
    found, episodes = search.found, search.episodes
    log_likelihood = np.array([c.log_likelihood for c in found])
    n_parameters = np.array([c.n_parameters for c in found])
    bic = -2.0 * log_likelihood + n_parameters * np.log(episodes.n_episodes)
    icl = bic + 2.0 * np.array([c.entropy for c in found])
    chosen = search.choice()
    votes = {"held-out": chosen, "BIC": int(bic.argmin()) + 1, "ICL": int(icl.argmin()) + 1}
    eigenvalues, edge = np.zeros(0), 0.0
    if episodes.cells.size <= MAX_CELLS:
        eigenvalues, edge = PairMoments(episodes).spectrum()
        votes["spectrum"] = int(np.count_nonzero(eigenvalues > _STANDS_OUT * edge)) + 1
    return ContextSelection(
        n_contexts=chosen,
        candidates=tuple(range(1, len(found) + 1)),
        log_likelihood=log_likelihood,
        n_parameters=n_parameters,
        bic=bic,
        icl=icl,
        held_out_gain=gains,
        held_out_error=errors,
        eigenvalues=eigenvalues,
        noise_edge=edge,
        votes=votes,
        statement=_statement(chosen, votes, len(found)),
        models=tuple(c.model for c in found),
    )


def _statement(chosen: int, votes: dict[str, int], tried: int) -> str:
    agree = [name for name, vote in votes.items() if vote == chosen]
    other = [f"{name} says {vote}" for name, vote in votes.items() if vote != chosen]
    what = f"{chosen} context{'s' if chosen > 1 else ''}"
    if chosen == tried > 1:
        return (
            f"Not sure: {what}, the most that were tried, still predict better; there may be more."
        )
    if not other:
        return f"Sure: every criterion says {what}."
    if len(agree) > len(other):
        return f"Fairly sure: {', '.join(agree)} say {what}; {', '.join(other)}."
    return f"Not sure: held-out likelihood says {what}, but {', '.join(other)}."
