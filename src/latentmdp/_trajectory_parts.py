"""Batches of episodes cut out of, gathered from and joined into flat arrays.

Functions return the fields of the new batch; fields not named stay as they are. All of them are
valid by construction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latentmdp import _arrays
from latentmdp.errors import TrajectoryError

if TYPE_CHECKING:
    from latentmdp.trajectories import Trajectories

__all__ = ["cut", "gathered", "joined"]


def cut(logs: Trajectories, first: int, last: int) -> dict[str, Any]:
    """Episodes first .. last - 1, as views."""
    last = max(first, last)
    start, stop = int(logs.offsets[first]), int(logs.offsets[last])
    return {
        "states": logs.states[start + first : stop + last],
        "actions": logs.actions[start:stop],
        "rewards": logs.rewards[start:stop],
        "offsets": logs.offsets[first : last + 1] - start,
        "contexts": None if logs.contexts is None else logs.contexts[first:last],
        "counts": None if logs.counts is None else logs.counts[first:last],
    }


def gathered(logs: Trajectories, index: NDArray[np.int64]) -> dict[str, Any]:
    """The episodes of an index array, in its order."""
    lengths = logs.lengths[index]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    shift = np.repeat(logs.offsets[index] - offsets[:-1], lengths)
    steps = np.arange(offsets[-1]) + shift
    first_state = logs.offsets[index] + index - offsets[:-1] - np.arange(index.size)
    places = np.arange(offsets[-1] + index.size) + np.repeat(first_state, lengths + 1)
    return {
        "states": logs.states[places],
        "actions": logs.actions[steps],
        "rewards": logs.rewards[steps],
        "offsets": offsets,
        "contexts": None if logs.contexts is None else logs.contexts[index],
        "counts": None if logs.counts is None else logs.counts[index],
    }


def joined(batches: list[Trajectories]) -> dict[str, Any]:
    """All fields and sizes of one batch after the other, which must agree in their values."""
    if not batches:
        raise ValueError("concat needs at least one batch")
    values = batches[0].reward_values
    for i, batch in enumerate(batches):
        if not _arrays.same(values, batch.reward_values):
            raise TrajectoryError(f"batch {i} has other reward_values than batch 0")
        if (batch.contexts is None) != (batches[0].contexts is None):
            raise TrajectoryError(f"batch {i} and batch 0: only one of them knows its contexts")
    shifts = np.cumsum([0, *(b.n_steps for b in batches)])
    offsets = [b.offsets[:-1] + shift for b, shift in zip(batches, shifts)]
    weighted = any(b.counts is not None for b in batches)
    contexts = [b.contexts for b in batches if b.contexts is not None]
    return {
        "n_states": max(b.n_states for b in batches),
        "n_actions": max(b.n_actions for b in batches),
        "states": np.concatenate([b.states for b in batches]),
        "actions": np.concatenate([b.actions for b in batches]),
        "rewards": np.concatenate([b.rewards for b in batches]),
        "offsets": np.concatenate([*offsets, shifts[-1:]]),
        "contexts": np.concatenate(contexts) if contexts else None,
        "counts": np.concatenate([b.multiplicities() for b in batches]) if weighted else None,
        "reward_values": values,
    }
