"""From a PSR to a latent MDP, by clustering long episodes [kwon2021, Alg. 4, in full Alg. 6].

Near its end, an episode's history has revealed its context m, so the PSR's prediction at the state
s it is in is close to P_m(s', r | s, a): the predictions at s fall into M clusters, whose centres
are the rows of the M models at s. The centres of different states are put together by the episodes
that pass from one state to another.

`variant="paper"` is Algorithm 6 as printed: a third of the episodes to find the centres at time
H-1, a third to link the labels at times H-1 and H, a third to count first states by the label at
time H. `variant="practical"` uses every episode in each step and its last states, not only two;
links the labels of all states at once by spectral synchronisation; and counts the model anew, from
the posterior of every episode under the centres, with the centres as a prior whose strength is
chosen by held-out likelihood.

Repetitions boost the probability of success as after [kwon2021, Thm. 3.5]: the model chosen is the
one that is close to most of the others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.errors import RecoveryError, TrajectoryError
from latentmdp.fit import Fit, FitWarning
from latentmdp.metrics import model_error
from latentmdp.model import LatentMDP
from latentmdp.spectral.assembly import (
    count_model,
    log_likelihoods,
    model_from_centres,
    responsibilities_of,
)
from latentmdp.spectral.clusters import (
    find_centres,
    last_points,
    nearest_centres,
    points_at,
)
from latentmdp.spectral.linking import (
    count_links,
    link_by_tree,
    overall_agreement,
    require_consistent,
    synchronise,
)
from latentmdp.spectral.psr import PSR
from latentmdp.trajectories import Trajectories

__all__ = ["recover"]


AVERAGE_SHARE = 0.01
"""Share of the average over contexts that the practical variant mixes into the centres of each: a
probability which noise made zero must not rule a context out."""

STRENGTHS = (0.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 100_000.0)
"""How many transitions a row of the centres may be worth in the practical variant."""


def recover(
    psr: PSR,
    logs: Trajectories,
    n_contexts: int | None = None,
    variant: str = "practical",
    rng: RNGLike = None,
    repeats: int = 1,
) -> Fit:
    """Recover the latent MDP behind long episodes with the help of a PSR.

    Parameters
    ----------
    psr
        Learned from short episodes of the same latent MDP, of rank at least `n_contexts`.
    logs
        Long episodes of an exploring policy that reaches every state.
    n_contexts
        M; the rank of the PSR by default.
    variant
        "paper" (Algorithm 6) or "practical".
    rng
        Decides the thirds and the starts of k-means++.
    repeats
        Run as many times and choose by majority.

    Returns
    -------
    Fit
        `converged` says whether the PSR's rank stands out of the noise and the labels of different
        states agree.

    Raises
    ------
    RecoveryError
        Algorithm 6's FAIL, with the step and the evidence.

    Warns
    -----
    FitWarning
        The singular values say that the PSR is not to be trusted, or a state could not be
        estimated.
    """
    started = time.perf_counter()
    M = _check(psr, logs, n_contexts, variant, repeats)
    if not psr.sufficient:
        warnings.warn(f"recovery is unreliable: {psr.verdict()}", FitWarning, stacklevel=2)
    generator = as_generator(rng)
    attempt = _paper if variant == "paper" else _practical
    expanded = _one_by_one(logs)
    psr_states, _ = psr.filter(expanded)
    model, consistent = _majority(lambda: attempt(psr, expanded, psr_states, M, generator), repeats)
    per_context = log_likelihoods(model, logs)
    shares, totals = responsibilities_of(per_context)
    return Fit(
        model=model,
        responsibilities=shares,
        log_likelihood=float(logs.multiplicities() @ totals),
        converged=consistent and psr.sufficient,
        seconds=time.perf_counter() - started,
    )


def _paper(
    psr: PSR, logs: Trajectories, psr_states: Floats, M: int, rng: np.random.Generator
) -> tuple[LatentMDP, bool]:
    """Algorithm 6 as printed."""
    S = psr.sizes[0]
    first, second, third = np.array_split(rng.permutation(len(logs)), 3)
    # States are s_1 .. s_{H+1}, so that s_H is the last but one of the L + 1 states.
    centres = find_centres(points_at(psr, logs, psr_states, first, (2,)), S, M, rng)
    present = _require_present(centres, logs, second, third)

    pairs = points_at(psr, logs, psr_states, second, (2, 1))
    links = count_links(pairs.episodes, pairs.ends, nearest_centres(pairs, centres), S, M)
    contexts = link_by_tree(links, present)
    require_consistent(links, contexts, present)

    last = points_at(psr, logs, psr_states, third, (1,))
    labels = contexts[last.ends, nearest_centres(last, centres)]
    shares = np.zeros((len(logs), M))
    shares[last.episodes, labels] = 1.0
    return model_from_centres(psr, logs, centres, contexts, present, shares), True


def _practical(
    psr: PSR, logs: Trajectories, psr_states: Floats, M: int, rng: np.random.Generator
) -> tuple[LatentMDP, bool]:
    """All episodes in every step, more than two states of each, one synchronisation."""
    S = psr.sizes[0]
    points = last_points(psr, logs, psr_states, M)
    centres = find_centres(points, S, M, rng)
    present = _has_centres(centres)
    links = count_links(points.episodes, points.ends, nearest_centres(points, centres), S, M)
    contexts = synchronise(links, present)
    consistent = overall_agreement(links, contexts) > 0.5
    if not consistent:
        warnings.warn(
            "the labels of different states hardly agree: "
            f"{overall_agreement(links, contexts):.0%} of the links are consistent",
            FitWarning,
            stacklevel=4,
        )
    shares = np.full((len(logs), M), 1.0 / M)
    rough = model_from_centres(psr, logs, centres, contexts, present, shares)
    shares, _ = responsibilities_of(log_likelihoods(rough, logs, mixed=AVERAGE_SHARE))
    return _count_towards(psr, logs, shares, rough, present), consistent


def _count_towards(
    psr: PSR,
    logs: Trajectories,
    shares: Floats,
    centres: LatentMDP,
    present: NDArray[np.bool_],
) -> LatentMDP:
    """Counts shrunk towards the centres as much as predicts held-out episodes best.

    The centres carry what the short episodes say; how much they are worth depends on the PSR.
    """
    held = np.arange(len(logs)) >= len(logs) // 2  # copies of an episode lie side by side
    scores = []
    for strength in STRENGTHS:
        model = count_model(psr, logs[~held], shares[~held], centres, strength, present)
        per_context = log_likelihoods(model, logs[held], mixed=AVERAGE_SHARE)
        scores.append(responsibilities_of(per_context)[1].sum())
    best = STRENGTHS[int(np.argmax(scores))]
    return count_model(psr, logs, shares, centres, best, present)


def _majority(
    attempt: Callable[[], tuple[LatentMDP, bool]], repeats: int
) -> tuple[LatentMDP, bool]:
    """The attempt that is close to most of the others; fails if most attempts fail."""
    results: list[tuple[LatentMDP, bool]] = []
    failures: list[RecoveryError] = []
    for _ in range(repeats):
        try:
            results.append(attempt())
        except RecoveryError as error:
            failures.append(error)
    if repeats == 1 and failures:
        raise failures[0]
    if 2 * len(failures) >= repeats:
        raise RecoveryError(
            "majority vote",
            f"{len(failures)} of {repeats} repetitions failed, the last because {failures[-1]}",
        )
    models = [model for model, _ in results]
    distances = [[model_error(first, second) for second in models] for first in models]
    return results[int(np.argmin(np.median(distances, axis=1)))]


def _has_centres(centres: Floats) -> NDArray[np.bool_]:
    return np.asarray(centres.any(axis=(1, 2)))


def _require_present(
    centres: Floats, logs: Trajectories, *later: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """States that have centres; the others must not occur where labels are needed."""
    present = _has_centres(centres)
    needed = np.concatenate([logs.offsets[part + 1] + part - 1 for part in later])
    needed = np.concatenate([needed, logs.offsets[later[0] + 1] + later[0] - 2])
    missing = ~present[logs.states[needed]]
    if missing.any():
        s = int(logs.states[needed][missing][0])
        raise RecoveryError(
            "clustering",
            f"no episode of the first third is in state {s} at time H-1, but {int(missing.sum())} "
            "labels are needed there",
        )
    if not present.all():
        states = ", ".join(map(str, np.flatnonzero(~present)))
        warnings.warn(
            f"state {states} never occurs near the end of an episode: its rows are the same in all "
            "contexts",
            FitWarning,
            stacklevel=6,
        )
    return present


def _one_by_one(logs: Trajectories) -> Trajectories:
    """The episodes with multiplicities written out."""
    if logs.counts is None:
        return logs
    return logs[np.repeat(np.arange(len(logs)), logs.counts)]


def _check(psr: PSR, logs: Trajectories, n_contexts: int | None, variant: str, repeats: int) -> int:
    arrays.require_instance("psr", psr, PSR)
    arrays.require_instance("logs", logs, Trajectories)
    M = psr.rank if n_contexts is None else arrays.positive_integer("n_contexts", n_contexts)
    arrays.positive_integer("repeats", repeats)
    if variant not in ("paper", "practical"):
        raise ValueError(f"variant must be 'paper' or 'practical', got {variant!r}")
    if psr.rank < M:
        raise ValueError(
            f"n_contexts={M} needs a PSR of at least that rank, this one has rank {psr.rank}"
        )
    logs.require_sizes(*psr.sizes)
    if len(logs) == 0:
        raise TrajectoryError("the logs hold no episodes")
    short = int(logs.lengths.min())
    if short < 2 and variant == "paper":
        raise TrajectoryError(
            f"Algorithm 6 labels the last two steps: episode {int(logs.lengths.argmin())} has "
            f"{short} steps, at least 2 are needed"
        )
    if logs.n_episodes < 3 * M:
        raise TrajectoryError(
            f"{logs.n_episodes} episodes cannot show {M} contexts: at least {3 * M} are needed"
        )
    return M
