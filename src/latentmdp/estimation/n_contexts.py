"""How many contexts: four answers side by side, and how far they agree.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp.engines.threads import Team
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import MixtureLikelihood, Smoothing, Structure
from latentmdp.estimation.pairs import MAX_CELLS, PairMoments
from latentmdp.estimation.parameters import SharedRewards, reward_values_of, to_model
from latentmdp.estimation.pseudo_counts import Fold, HeldOut
from latentmdp.estimation.squarem import squarem
from latentmdp.estimation.starts import own_starts
from latentmdp.fit import shares_of
from latentmdp.trajectories import Trajectories

__all__ = ["ContextSelection", "select_contexts"]


_FOLDS = 5
_STARTS = 3
_TOLERANCE = 0.05
_MAPS = 150
_STANDARD_ERRORS = 3.0
_LEAST_GAIN = 5.0
_PATIENCE = 2
_STANDS_OUT = 1.5


@dataclass(frozen=True)
class ContextSelection:
    """The evidence on the number of contexts; arrays are indexed like `candidates`.

    Attributes
    ----------
    n_contexts
        The number chosen.
    candidates
        The numbers tried.
    log_likelihood, n_parameters, bic, icl
        Of the mixtures fitted to all episodes; constants that all of them share are left out.
    held_out_gain, held_out_error
        Held-out log-likelihood gained over one context less, and its standard error (0 for the
        first candidate).
    eigenvalues, noise_edge
        Of the pair moments; empty and 0 where there are too many cells.
    votes
        What each criterion says.
    statement
        In words, how sure the choice is.
    """

    n_contexts: int
    candidates: tuple[int, ...]
    log_likelihood: Floats
    n_parameters: NDArray[np.int64]
    bic: Floats
    icl: Floats
    held_out_gain: Floats
    held_out_error: Floats
    eigenvalues: Floats
    noise_edge: float
    votes: dict[str, int]
    statement: str

    def table(self) -> str:
        """The criteria as plain text, one candidate per line."""
        lines = ["contexts  held-out gain      BIC - best      ICL - best"]
        for k, M in enumerate(self.candidates):
            gain = (
                f"{self.held_out_gain[k]:9.1f} ± {self.held_out_error[k]:<6.1f}" if k else " " * 18
            )
            bic, icl = self.bic[k] - self.bic.min(), self.icl[k] - self.icl.min()
            lines.append(f"{M:8d} {gain} {bic:14.1f}  {icl:14.1f}")
        return "\n".join([*lines, self.statement])


class _Candidate(NamedTuple):
    """A number of contexts: scores of the test episodes, and its estimate on all of them."""

    scores: Floats
    log_likelihood: float
    n_parameters: int
    entropy: float


def select_contexts(
    logs: Sequence[Trajectories],
    assigned: Trajectories,
    rng: np.random.Generator,
    *,
    max_contexts: int,
    shared: SharedRewards | None,
    joint: bool = False,
    team: Team | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> ContextSelection:
    """Try 1, 2, ... contexts until two in a row gain nothing, and choose.

    Parameters
    ----------
    logs
        All episodes.
    assigned
        The episodes whose assignment to contexts ICL judges.
    shared
        The rewards, where all contexts share them.
    joint
        Whether rewards depend on the next state.
    report
        Called with a line for every number tried.
    """
    episodes = Episodes(logs, use_rewards=shared is None)
    train, test = episodes.folds(_FOLDS, rng)[0]
    counts = np.concatenate([group.counts for group in test.groups])
    found: list[_Candidate] = []
    gains, errors, idle = [0.0], [0.0], 0
    while len(found) < max_contexts and idle < _PATIENCE:
        structure = Structure(len(found) + 1, joint=joint, shared_initial=True)
        found.append(_candidate(structure, (train, test, episodes), assigned, shared, rng, team))
        if len(found) > 1:
            gain, error = _gain(found[-2].scores, found[-1].scores, counts)
            gains.append(gain)
            errors.append(error)
            idle = 0 if _clear(gain, error) else idle + 1
            report(f"{len(found)} contexts: held-out gain {gain:.1f} ± {error:.1f}")
    return _summary(episodes, found, np.array(gains), np.array(errors), counts)


def _candidate(
    structure: Structure,
    data: tuple[Episodes, Episodes, Episodes],
    assigned: Trajectories,
    shared: SharedRewards | None,
    rng: np.random.Generator,
    team: Team | None,
) -> _Candidate:
    """Fit the training episodes, with the smoothing that predicts the test episodes best."""
    train, test, everything = data
    likelihood = MixtureLikelihood(train, structure, Smoothing(1.0, 1.0), team)
    if structure.n_contexts == 1:
        smoothing, point = Smoothing(0.0, 0.0), likelihood.pooled()
    else:
        climbs = [
            squarem(likelihood.step, likelihood.repair, start, _TOLERANCE, _MAPS)
            for start in own_starts(likelihood, _STARTS, rng)
        ]
        start = max(climbs, key=lambda climb: climb.objective).point
        smoothing, points = HeldOut([Fold(likelihood, test, start)], _TOLERANCE, _MAPS).best()
        point = points[0]
    scores = np.concatenate(likelihood.smoothed(smoothing).held_out_by_episode(point, test))
    full = MixtureLikelihood(everything, structure, smoothing, team)
    last = squarem(full.step, full.repair, full.mixed(point), _TOLERANCE, _MAPS)
    model = to_model(full, last.point, reward_values_of([assigned]), shared)
    log_likelihood = full.expected_counts(last.point).log_likelihood
    entropy = _entropy(shares_of(model, assigned))
    return _Candidate(scores, log_likelihood, full.n_parameters, entropy)


def _gain(less: Floats, more: Floats, counts: Floats) -> tuple[float, float]:
    """Total gain over the test episodes and its standard error; none without test episodes."""
    kept = counts > 0.0
    if not kept.any():
        return 0.0, 0.0
    weights, difference = counts[kept], (more - less)[kept]
    mean = float(weights @ difference / weights.sum())
    return mean * float(weights.sum()), float(np.sqrt(weights @ (difference - mean) ** 2))


def _clear(gain: float, error: float) -> bool:
    """A gain that chance, or the choice of the smoothing by the same episodes, does not explain."""
    return gain > max(_STANDARD_ERRORS * error, _LEAST_GAIN)


def _held_out_choice(found: list[_Candidate], counts: Floats) -> int:
    """The last candidate that clearly beats the best one before it."""
    best = 0
    for k in range(1, len(found)):
        if _clear(*_gain(found[best].scores, found[k].scores, counts)):
            best = k
    return best + 1


def _summary(
    episodes: Episodes,
    found: list[_Candidate],
    gains: Floats,
    errors: Floats,
    counts: Floats,
) -> ContextSelection:
    log_likelihood = np.array([c.log_likelihood for c in found])
    n_parameters = np.array([c.n_parameters for c in found])
    bic = -2.0 * log_likelihood + n_parameters * np.log(episodes.n_episodes)
    icl = bic + 2.0 * np.array([c.entropy for c in found])
    chosen = _held_out_choice(found, counts)
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
    )


def _entropy(shares: Floats) -> float:
    positive = shares[shares > 0.0]
    return -float(positive @ np.log(positive))


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
