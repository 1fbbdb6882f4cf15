"""What tells the contexts of a model apart, and how surely episodes are assigned to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP

__all__ = ["Assignment", "Difference", "assignment", "largest_differences"]


class Difference(NamedTuple):
    """A state and action at which two contexts differ: ||P_m - P_n||_1 of what follows."""

    state: int
    action: int
    contexts: tuple[int, int]
    distance: float


class Assignment(NamedTuple):
    """How surely episodes belong to their most likely context.

    Attributes
    ----------
    share_sure
        Share of episodes whose most likely context has a probability of at least 0.95.
    expected_accuracy
        Mean probability of the most likely context.
    sizes
        Expected number of episodes in each context.
    """

    share_sure: float
    expected_accuracy: float
    sizes: Floats


def largest_differences(model: LatentMDP, count: int = 5) -> list[Difference]:
    """The state-action pairs that separate some two contexts most, farthest first."""
    M, S, A = model.n_contexts, model.n_states, model.n_actions
    P = model.observation_probs().reshape(M, S * A, -1)
    farthest = np.zeros(S * A)
    who = np.zeros((S * A, 2), dtype=np.int64)
    for m in range(M):
        for n in range(m + 1, M):
            distance = np.abs(P[m] - P[n]).sum(axis=1)
            better = distance > farthest
            farthest[better] = distance[better]
            who[better] = m, n
    order = np.argsort(-farthest, kind="stable")[:count]
    return [
        Difference(int(k) // A, int(k) % A, (int(who[k, 0]), int(who[k, 1])), float(farthest[k]))
        for k in order
        if farthest[k] > 0.0
    ]


def assignment(responsibilities: Floats, counts: NDArray[np.int64] | None = None) -> Assignment:
    """Summary of p(m | episode), shape (N, M), episodes counted with their multiplicities."""
    weights = np.ones(len(responsibilities)) if counts is None else counts.astype(np.float64)
    top = responsibilities.max(axis=1)
    return Assignment(
        float(np.average(top >= 0.95, weights=weights)),
        float(np.average(top, weights=weights)),
        weights @ responsibilities,
    )
