"""Clusters of one-step predictions, state by state [kwon2021, Alg. 6, lines 4-13].

A point is the prediction P(s', r | history || do a) of all actions at once, at the last states of
an episode. The points of one state fall into M clusters, one per context, in no particular order:
`labels` number the clusters of each state on its own.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import ClusterError, kmeans2

from latentmdp._util.arrays import Floats, Integers
from latentmdp.errors import RecoveryError
from latentmdp.fit import FitWarning
from latentmdp.spectral.psr import PSR
from latentmdp.trajectories import Trajectories

__all__ = ["Points", "find_centres", "last_points", "nearest_centres", "points_at"]


LAST_STATES = 8
"""How many of the last states of an episode `last_points` begins with."""
POINTS_PER_CONTEXT = 10
"""It looks further back, to the middle, until every state has as many predictions per context."""
RESTARTS = 5
ITERATIONS = 20


class Points(NamedTuple):
    """Predictions (n, A S Z) at the states `ends` (n,) of episodes `episodes` (n,)."""

    episodes: Integers
    ends: NDArray[np.int32]
    predictions: Floats


def points_at(
    psr: PSR,
    logs: Trajectories,
    psr_states: Floats,
    episodes: NDArray[np.int64],
    back: tuple[int, ...] | range,
) -> Points:
    """Predictions at the states `back` places before the last one of each episode."""
    which = np.repeat(episodes, len(back))
    places = np.tile(np.asarray(back), len(episodes))
    reached = places <= logs.lengths[which]
    which, places = which[reached], places[reached]
    flat = logs.offsets[which + 1] + which - places
    return _predict(psr, psr_states[flat], logs.states[flat], which)


def last_points(psr: PSR, logs: Trajectories, psr_states: Floats, M: int) -> Points:
    """Predictions at the last states, as many of them as give every state enough points."""
    everyone = np.arange(len(logs))
    occurs = np.bincount(logs.states, minlength=psr.sizes[0])
    wanted = np.minimum(POINTS_PER_CONTEXT * M, occurs)
    depth, deepest = LAST_STATES, int(logs.lengths.max()) // 2
    while True:
        points = points_at(psr, logs, psr_states, everyone, range(depth))
        found = np.bincount(points.ends, minlength=psr.sizes[0])
        if (found >= wanted).all() or depth > deepest:
            break
        depth *= 2
    usable = (found >= M) & psr.visited
    if not usable.all():
        states = ", ".join(map(str, np.flatnonzero(~usable)))
        warnings.warn(
            f"state {states} has fewer than {M} predictions in the second half of episodes and is "
            "left out of the clustering",
            FitWarning,
            stacklevel=6,
        )
    kept = usable[points.ends]
    return Points(points.episodes[kept], points.ends[kept], points.predictions[kept])


def _predict(psr: PSR, psr_states: Floats, ends: NDArray[np.int32], episodes: Integers) -> Points:
    """One-step predictions of all actions from each PSR state."""
    S, A, Z = psr.sizes
    predictions = np.zeros((ends.size, A * S * Z))
    for s in range(S):
        here = ends == s
        predictions[here] = psr.predictions(s, psr_states[here]).reshape(-1, A * S * Z)
    return Points(episodes, ends, predictions)


def find_centres(
    points: Points, n_states: int, n_contexts: int, rng: np.random.Generator
) -> Floats:
    """M centres for each state by k-means++, shape (S, M, A S Z); zero where no point lies.

    Raises
    ------
    RecoveryError
        A state has points, but fewer than M distinct ones.
    """
    centres = np.zeros((n_states, n_contexts, points.predictions.shape[1]))
    for s in range(n_states):
        here = points.predictions[points.ends == s]
        if here.shape[0]:
            centres[s] = _best_of(here, n_contexts, rng, s)
    return centres


def _best_of(data: Floats, n_contexts: int, rng: np.random.Generator, s: int) -> Floats:
    """The centres with the least sum of squares among several k-means++ starts."""
    best, least = None, np.inf
    if data.shape[0] >= n_contexts:
        for _ in range(RESTARTS):
            try:
                centres, labels = kmeans2(
                    data, n_contexts, iter=ITERATIONS, minit="++", missing="raise", rng=rng
                )
            except ClusterError:
                continue
            spread = float(((data - centres[labels]) ** 2).sum())
            if spread < least:
                best, least = centres, spread
    if best is None:
        raise RecoveryError(
            "clustering",
            f"the {data.shape[0]} predictions at state {s} do not make {n_contexts} clusters",
        )
    return np.asarray(best)


def nearest_centres(points: Points, centres: Floats) -> Integers:
    """Label of each point: the nearest centre of its state."""
    labels = np.zeros(points.ends.size, dtype=np.int64)
    for s in range(centres.shape[0]):
        here = points.ends == s
        data = points.predictions[here]
        products = data @ centres[s].T
        labels[here] = np.argmin((centres[s] ** 2).sum(axis=1) - 2.0 * products, axis=1)
    return labels
