"""Subspace estimation, clustering of trajectories and EM [kausik2023].

1. Split every trajectory in two, so that its two halves are nearly independent given the context,
   and estimate P_{n,i}(. | s, a), i = 1, 2, from each half of trajectory n.
2. For each (s, a) take the span V of the top M eigenvectors of the symmetrised average over n of
   P_{n,1} P_{n,2}^T, whose mean is sum_m w_m T_m T_m^T.
3. dist(n, k) = sum over the (s, a) seen in all four halves of
   <V^T (P_{n,1} - P_{k,1}), V^T (P_{n,2} - P_{k,2})>, an unbiased estimate of a squared distance,
   weighted by visits, over the square root of their number: all pairs are about equally noisy.
4. Spectral clustering of the trajectories by that distance.
5. EM from the clusters' models; trajectories beyond those that were clustered are classified by it.

The original leaves a quarter of a trajectory unused before each half to let the chain mix, and
takes the largest distance over (s, a) in its proofs; halves and sums use all of the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.errors import TrajectoryError
from latentmdp.estimation.clustering import ClusterThenEM, Labels
from latentmdp.estimation.pairs import leading_eigenvectors
from latentmdp.estimation.profiles import Profiles, profiles
from latentmdp.fit import Fit
from latentmdp.trajectories import Trajectories

__all__ = ["SubspaceClustering"]


_MOST = 2000
"""Distances are needed between all pairs: at most this many trajectories are clustered."""

_CENTRINGS = 20


class SubspaceClustering(ClusterThenEM):
    """The pipeline of Kausik, Tan and Tewari, with the interface of `EM`.

    Parameters are those of `ClusterThenEM`.
    """

    def cluster(self, logs: Trajectories, rng: RNGLike = None) -> Labels:
        """Labels of the trajectories before EM; -1 for those beyond the number clustered."""
        generator = as_generator(rng)
        chosen = np.arange(len(logs))
        if len(logs) > _MOST:
            chosen = np.sort(generator.choice(len(logs), _MOST, replace=False))
        distances, known = _distances(profiles(logs[chosen]), self.n_contexts)
        if not known.any():
            raise TrajectoryError(
                "no two episodes visit a common (state, action) in both of their halves: "
                "the episodes are too short for subspace clustering"
            )
        labels = np.full(len(logs), -1, dtype=np.int64)
        labels[chosen] = _spectral_clusters(distances, known, self.n_contexts, generator)
        return labels

    def fit(self, logs: Trajectories, *, rng: RNGLike = None) -> Fit:
        """Cluster, then EM from the clusters; the rest begins without a label."""
        generator = as_generator(rng)
        labels = self.cluster(logs, generator)
        shares = np.zeros((len(logs), self.n_contexts))
        shares[labels >= 0, labels[labels >= 0]] = 1.0
        return self.em.fit(logs, start=shares, rng=generator)


def _distances(seen: Profiles, rank: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Standardised distances (N, N), and which pairs of trajectories have a common (s, a)."""
    N = seen.halves[0].shape[0]
    total, number = np.zeros((N, N)), np.zeros((N, N))
    first, second = (half.tocsc() for half in seen.halves)
    for row in range(int(seen.row[-1]) + 1):
        columns = np.flatnonzero(seen.row == row)
        one, two = first[:, columns].toarray(), second[:, columns].toarray()
        both = np.flatnonzero((one.sum(axis=1) > 0) & (two.sum(axis=1) > 0))
        if both.size < 2:
            continue
        P1 = one[both] / one[both].sum(axis=1, keepdims=True)
        P2 = two[both] / two[both].sum(axis=1, keepdims=True)
        moment = P1.T @ P2
        V = leading_eigenvectors(moment + moment.T, rank)[1]
        inner = (P1 @ V) @ (P2 @ V).T
        own = np.diag(inner)
        pairs = np.ix_(both, both)
        visits = np.sqrt(one[both].sum(axis=1) * two[both].sum(axis=1))
        weight = np.minimum.outer(visits, visits)
        total[pairs] += weight * (own[:, None] + own[None, :] - inner - inner.T)
        number[pairs] += 1.0
    np.fill_diagonal(number, 0.0)
    known = number > 0.0
    return np.divide(total, np.sqrt(number), out=np.zeros((N, N)), where=known), known


def _spectral_clusters(
    distances: Floats, known: NDArray[np.bool_], number: int, rng: np.random.Generator
) -> Labels:
    """k-means on the leading M - 1 coordinates of classical scaling.

    Double centring removes each trajectory's own noise, the same in a whole row of distances,
    which would otherwise lead the spectrum. Pairs never compared are taken as average.
    """
    from scipy.cluster.vq import kmeans2

    shares = known.sum(axis=1, keepdims=True)
    centred = np.where(known, distances, 0.0)
    for _ in range(_CENTRINGS):
        centred -= np.where(known, centred.sum(axis=1, keepdims=True) / np.maximum(shares, 1), 0.0)
        centred = centred.T
    values, vectors = leading_eigenvectors(-0.5 * (centred + centred.T), max(number - 1, 1))
    points = vectors * np.sqrt(np.maximum(values, 0.0))
    _, labels = kmeans2(points, number, minit="++", rng=rng, iter=50)
    return np.asarray(labels, dtype=np.int64)
