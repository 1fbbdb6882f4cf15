"""How far apart the contexts are [kwon2021, Assumption 1].

An LMDP is delta-separated if, for all contexts m1 != m2 and all (s, a), the joint distributions of
the next state and the reward differ by at least delta,

    ||P_m1(. | s, a) - P_m2(. | s, a)||_1 >= delta.

`separation` is the largest such delta. Episodes of about delta^-4 steps (up to logarithms) then
reveal their context, whatever the policy.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp.model import LatentMDP, require_model

__all__ = ["Closest", "closest_contexts", "separation"]


class Closest(NamedTuple):
    """Where two contexts are hardest to tell apart: distance, pair, state and action."""

    distance: float
    contexts: tuple[int, int]
    state: int
    action: int


def separation(model: LatentMDP) -> float:
    """The delta of Assumption 1: the smallest L1 distance of two contexts in any (s, a).

    With a single context there is nothing to tell apart and the value is infinity.
    """
    require_model(model)
    return min((float(d.min()) for _, _, d in _distances(model)), default=float("inf"))


def closest_contexts(model: LatentMDP) -> Closest:
    """Where `separation` is attained (the first place, in the order of contexts, state, action).

    Raises
    ------
    ValueError
        If the model has a single context.
    """
    if model.n_contexts < 2:
        raise ValueError("closest_contexts needs at least two contexts, the model has one")
    first, second, distances = min(_distances(model), key=lambda entry: float(entry[2].min()))
    s, a = np.unravel_index(int(np.argmin(distances)), distances.shape)
    return Closest(float(distances[s, a]), (first, second), int(s), int(a))


def _distances(model: LatentMDP) -> list[tuple[int, int, NDArray[np.float64]]]:
    """For each pair of contexts, the L1 distances of their observations at every (s, a)."""
    P = model.observation_probs()
    M = model.n_contexts
    return [
        (m, n, np.abs(P[m] - P[n]).sum(axis=(-2, -1))) for m in range(M) for n in range(m + 1, M)
    ]
