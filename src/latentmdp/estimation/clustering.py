"""The frame of pipelines that cluster whole trajectories and refine the clusters by EM."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.estimation.em import EM
from latentmdp.fit import Fit
from latentmdp.trajectories import Trajectories

__all__ = ["ClusterThenEM", "Labels"]

Labels = NDArray[np.int64]


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

    def cluster(self, logs: Trajectories, rng: RNGLike = None) -> Labels:
        """Labels of the trajectories before EM."""
        raise NotImplementedError

    def fit(self, logs: Trajectories, *, rng: RNGLike = None) -> Fit:
        """Cluster, then EM from the clusters."""
        generator = as_generator(rng)
        return self.em.fit(logs, start=self.cluster(logs, generator), rng=generator)
