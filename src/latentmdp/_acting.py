"""Policies as arrays for compiled loops, and the checks that they fit a world."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats

if TYPE_CHECKING:
    from latentmdp._kernels.rollout import Acting
    from latentmdp.model import LatentMDP

__all__ = [
    "deterministic",
    "one_vector_per_action",
    "require_actions",
    "require_fit",
    "stochastic",
]


def stochastic(probabilities: Floats) -> Acting:
    """A table pi_t(a | s), shape (H or 1, S, A)."""
    from latentmdp._kernels.alias import alias_tables

    threshold, alias = alias_tables(probabilities)
    blank = deterministic(len(probabilities), np.zeros((1, 1)), np.zeros(1, np.int32), np.arange(2))
    return blank._replace(stochastic=True, action_threshold=threshold, action_alias=alias)


def deterministic(
    n_layers: int,
    vectors: Floats,
    labels: NDArray[np.int32],
    offsets: NDArray[np.int64],
) -> Acting:
    """Labelled vectors grouped by (t, s), which need no belief unless that is filled in."""
    from latentmdp._kernels.rollout import Acting

    return Acting(
        stochastic=False,
        filters=False,
        n_layers=n_layers,
        action_threshold=np.zeros((1, 1)),
        action_alias=np.zeros((1, 1), np.int32),
        vectors=vectors,
        labels=labels,
        offsets=offsets,
        likelihood=np.zeros((1, 1)),
        prior=np.ones(1),
        initial=np.ones((1, 1)),
    )


@lru_cache(maxsize=64)
def one_vector_per_action(
    groups: int, n_actions: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Labels and offsets of groups that hold each action once, in order."""
    labels = np.tile(np.arange(n_actions, dtype=np.int32), groups)
    offsets = np.arange(0, groups * n_actions + 1, n_actions, dtype=np.int64)
    return arrays.frozen(labels), arrays.frozen(offsets)


def require_fit(n_layers: int, n_states: int, model: LatentMDP) -> None:
    """Raise unless a policy covers the states and the horizon of a model."""
    if n_states != model.n_states:
        raise ValueError(f"the policy has {n_states} states, the model {model.n_states}")
    if n_layers != 1 and n_layers < model.horizon:
        raise ValueError(
            f"the policy covers {n_layers} steps, the model's horizon is {model.horizon}"
        )


def require_actions(labels: NDArray[np.int32], n_actions: int) -> None:
    """Raise unless every label is an action, naming the largest."""
    if int(labels.max()) >= n_actions:
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(labels)), labels.shape))
        raise ValueError(
            f"actions{list(where)} is {labels[where]}: must be below n_actions={n_actions}"
        )
