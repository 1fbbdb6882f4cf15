"""Published methods that cluster whole trajectories and refine the clusters by EM.

For comparison, with the interface of `EM`.

`SubspaceClustering` [kausik2023]:

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

`TrajectoryKMeans`: trajectory n is embedded by its standardised innovations

    u_n(x) = (N_n(x) - N_n(s, a) P(x)) / sqrt(N_n P(x)),    x = (s, a, s'),

where P is the pooled model, projected on the leading singular vectors of all trajectories
together. k-means groups the projections, and EM from those labels finishes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from latentmdp._util import arrays
from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.errors import TrajectoryError
from latentmdp.estimation.em import EM
from latentmdp.estimation.starts import leading_eigenvectors
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories, require_trajectories
from latentmdp.spectral import k_means


class ClusterThenEM:
    """Clusters of trajectories, then EM from them, with the interface of `EM`.

    Parameters
    ----------
    n_contexts
        M.
    em
        The EM that refines the clusters; by default `EM(n_contexts)`.
    """

    def __init__(self, n_contexts: int, *, em: EM | None = None) -> None:
        self.n_contexts = arrays.positive_integer("n_contexts", n_contexts)
        self.em = EM(self.n_contexts) if em is None else em

    def cluster(self, logs: Trajectories, rng: RNGLike = None) -> Integers:
        """Labels of the trajectories before EM; -1 for one that begins without."""
        raise NotImplementedError

    def fit(self, logs: Trajectories, *, rng: RNGLike = None) -> Fit:
        """Cluster, then EM from the clusters."""
        generator = as_generator(rng)
        return self.em.fit(logs, start=self.cluster(logs, generator), rng=generator)


class Profiles(NamedTuple):
    """Counts of the transitions x = (s, a, s') that occur, per episode and half of it.

    `halves` are two (N, X) matrices, and `row` (X,) numbers the (s, a) of each transition.
    """

    halves: tuple[sp.csr_matrix, sp.csr_matrix]
    row: Integers


def profiles(logs: Trajectories) -> Profiles:
    """Count transitions in the first and the second half of every episode."""
    require_trajectories("logs", logs)
    if logs.n_steps == 0:
        raise TrajectoryError("the logs hold no step to cluster episodes by")
    episode, codes = logs.steps().episode, logs.cells(("state", "action", "next_state"))
    cells, column = np.unique(codes, return_inverse=True)
    late = np.arange(logs.n_steps) - logs.offsets[episode] >= (logs.lengths // 2)[episode]
    shape = (len(logs), cells.size)
    first, second = (
        sp.csr_matrix((np.ones(half.sum()), (episode[half], column[half])), shape=shape)
        for half in (~late, late)
    )
    _, row = np.unique(cells // logs.n_states, return_inverse=True)
    return Profiles((first, second), row)


class SubspaceClustering(ClusterThenEM):
    """The method of Kausik, Tan and Tewari; parameters are those of `ClusterThenEM`.

    Distances are needed between all pairs: at most `most` trajectories are clustered.
    """

    most = 2_000

    def cluster(self, logs: Trajectories, rng: RNGLike = None) -> Integers:
        """Labels of the trajectories before EM; -1 for those beyond the number clustered."""
        require_trajectories("logs", logs)
        generator = as_generator(rng)
        sample = np.arange(len(logs))
        if len(logs) > self.most:
            sample = np.sort(generator.choice(len(logs), self.most, replace=False))
        distances, compared = _distances(profiles(logs[sample]), self.n_contexts)
        if not compared.any():
            raise TrajectoryError(
                "no two episodes visit a common (state, action) in both of their halves: "
                "the episodes are too short for subspace clustering"
            )
        labels = np.full(len(logs), -1, dtype=np.int64)
        labels[sample] = _spectral_clusters(distances, compared, self.n_contexts, generator)
        return labels


def _distances(counts: Profiles, rank: int) -> tuple[Floats, Flags]:
    """Standardised distances (N, N), and which pairs of trajectories have a common (s, a)."""
    N = counts.halves[0].shape[0]
    total, number = np.zeros((N, N)), np.zeros((N, N))
    first, second = (half.tocsc() for half in counts.halves)
    for row in range(int(counts.row[-1]) + 1):
        columns = np.flatnonzero(counts.row == row)
        one, two = first[:, columns].toarray(), second[:, columns].toarray()
        both = np.flatnonzero((one.sum(axis=1) > 0) & (two.sum(axis=1) > 0))
        if both.size < 2:
            continue
        P1, P2 = arrays.normalised(one[both]), arrays.normalised(two[both])
        moment = P1.T @ P2
        V = leading_eigenvectors(moment + moment.T, rank)[1]
        inner = (P1 @ V) @ (P2 @ V).T
        squares = np.diag(inner)
        pairs = np.ix_(both, both)
        visits = np.sqrt(one[both].sum(axis=1) * two[both].sum(axis=1))
        weight = np.minimum.outer(visits, visits)
        total[pairs] += weight * (squares[:, None] + squares[None, :] - inner - inner.T)
        number[pairs] += 1.0
    np.fill_diagonal(number, 0.0)
    compared = number > 0.0
    return np.divide(total, np.sqrt(number), out=np.zeros((N, N)), where=compared), compared


def _spectral_clusters(
    distances: Floats, pairs: Flags, number: int, rng: np.random.Generator
) -> Integers:
    """k-means on the leading M - 1 coordinates of classical scaling.

    Double centring removes each trajectory's own noise, the same in a whole row of distances,
    which would otherwise lead the spectrum. Pairs never compared are taken as average; rows and
    columns are then centred in turn, while one round is exact where all pairs are known.
    """
    shares = pairs.sum(axis=1, keepdims=True)
    centred = np.where(pairs, distances, 0.0)
    for _ in range(20):
        centred -= np.where(pairs, centred.sum(axis=1, keepdims=True) / np.maximum(shares, 1), 0.0)
        centred = centred.T
    values, vectors = leading_eigenvectors(-0.5 * (centred + centred.T), max(number - 1, 1))
    return _grouped(vectors * np.sqrt(np.maximum(values, 0.0)), number, rng)


def _grouped(points: Floats, number: int, rng: np.random.Generator) -> Integers:
    """Labels of points by k-means; all the same where there are too few points."""
    groups = k_means(points, number, rng, starts=10, iterations=50)
    return np.zeros(len(points), np.int64) if groups is None else groups[1]


class TrajectoryKMeans(ClusterThenEM):
    """k-means of innovations; parameters are those of `ClusterThenEM`."""

    def cluster(self, logs: Trajectories, rng: RNGLike = None) -> Integers:
        """Labels of the trajectories before EM."""
        return _grouped(_embedded(profiles(logs)), self.n_contexts, as_generator(rng))


def _embedded(split: Profiles, dimensions: int = 8) -> Floats:
    """Projections (N, dimensions): M contexts differ in M - 1, and each further one adds noise."""
    counts = (split.halves[0] + split.halves[1]).tocsr()
    by_row = sp.csr_matrix((np.ones(split.row.size), (np.arange(split.row.size), split.row)))
    visits = (counts @ by_row).toarray()[:, split.row]
    pooled = np.asarray(counts.sum(axis=0) / visits.sum(axis=0)).ravel()
    lengths = np.maximum(np.asarray(counts.sum(axis=1)), 1.0).reshape(-1, 1)
    innovations = (counts.toarray() - visits * pooled) / np.sqrt(lengths * pooled)
    _, _, axes = np.linalg.svd(innovations.T @ innovations, hermitian=True)
    return np.asarray(innovations @ axes[:dimensions].T)
