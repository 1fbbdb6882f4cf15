"""Embed trajectories, cluster them by k-means, reassign by likelihood, then EM.

Trajectory n is embedded by its standardised innovations

    u_n(x) = (N_n(x) - N_n(s, a) P(x)) / sqrt(N_n P(x)),    x = (s, a, s'),

where P is the pooled model, projected on the leading singular vectors of all trajectories
together. k-means groups the projections. Then models are estimated from the groups and every
trajectory moves to the group under which it is likeliest, until nothing moves (classification EM,
[celeux1992]); EM from those labels finishes.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.estimation.clustering import ClusterThenEM, Labels
from latentmdp.estimation.profiles import Profiles, profiles
from latentmdp.trajectories import Trajectories

__all__ = ["TrajectoryKMeans"]


_DIMENSIONS = 8
_BEGINNINGS = 10
_ROUNDS = 100
_PSEUDO_COUNTS = 1.0


class TrajectoryKMeans(ClusterThenEM):
    """k-means on embedded trajectories and likelihood reassignment, with the interface of `EM`.

    Parameters are those of `ClusterThenEM`.
    """

    def cluster(self, logs: Trajectories, rng: RNGLike = None) -> Labels:
        """Labels of the trajectories before EM."""
        generator = as_generator(rng)
        seen = profiles(logs)
        counts = (seen.halves[0] + seen.halves[1]).tocsr()
        pooled = _rows_normalised(np.asarray(counts.sum(axis=0), dtype=np.float64), seen)[0]
        labels = _k_means(_embedded(counts, pooled, seen), self.n_contexts, generator)
        return _reassigned(labels, counts, pooled, seen, self.n_contexts)


def _rows_normalised(counts: Floats, seen: Profiles) -> Floats:
    """Each row of (K, X) counts divided by its totals over s'."""
    member = sp.csr_matrix((np.ones(seen.row.size), (np.arange(seen.row.size), seen.row)))
    totals = np.asarray(counts @ member)[:, seen.row]
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0.0)


def _embedded(counts: sp.csr_matrix, pooled: Floats, seen: Profiles) -> Floats:
    member = sp.csr_matrix((np.ones(seen.row.size), (np.arange(seen.row.size), seen.row)))
    expected = (counts @ member).toarray()[:, seen.row] * pooled
    lengths = np.maximum(np.asarray(counts.sum(axis=1)), 1.0).reshape(-1, 1)
    innovations = (counts.toarray() - expected) / np.sqrt(lengths * pooled)
    _, _, axes = np.linalg.svd(innovations.T @ innovations, hermitian=True)
    return np.asarray(innovations @ axes[:_DIMENSIONS].T)


def _k_means(points: Floats, number: int, rng: np.random.Generator) -> Labels:
    """The best of several k-means runs."""
    from scipy.cluster.vq import kmeans2

    best, least = np.zeros(len(points), dtype=np.int64), np.inf
    for _ in range(_BEGINNINGS):
        centres, labels = kmeans2(points, number, minit="++", rng=rng, iter=50)
        inertia = float(np.sum((points - centres[labels]) ** 2))
        if inertia < least:
            best, least = np.asarray(labels, dtype=np.int64), inertia
    return best


def _reassigned(
    labels: Labels, counts: sp.csr_matrix, pooled: Floats, seen: Profiles, number: int
) -> Labels:
    """Move trajectories to the likeliest group until nothing moves."""
    for _ in range(_ROUNDS):
        group = sp.csr_matrix(
            (np.ones(labels.size), (labels, np.arange(labels.size))), shape=(number, labels.size)
        )
        models = _rows_normalised((group @ counts).toarray() + _PSEUDO_COUNTS * pooled, seen)
        moved = np.asarray((counts @ np.log(models).T).argmax(axis=1)).ravel()
        if np.array_equal(moved, labels):
            break
        labels = moved
    return labels
