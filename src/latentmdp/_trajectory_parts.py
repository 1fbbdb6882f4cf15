"""Batches of episodes cut out of, gathered from, joined into and stacked from flat arrays.

`cut`, `gathered` and `joined` return the fields of the new batch, valid by construction; fields
they do not name stay as they are. `steps_of` lists all steps of all episodes one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp.errors import TrajectoryError

if TYPE_CHECKING:
    from latentmdp.trajectories import Trajectories

__all__ = ["Steps", "cut", "gathered", "joined", "stacked", "steps_of"]


class Steps(NamedTuple):
    """The episode of each step, and the states before and after it, in the order of `actions`."""

    episode: NDArray[np.int64]
    before: NDArray[np.int32]
    after: NDArray[np.int32]


def steps_of(logs: Trajectories) -> Steps:
    """All steps of all episodes."""
    episode = np.repeat(np.arange(len(logs)), logs.lengths)
    place = np.arange(logs.n_steps) + episode
    return Steps(episode, logs.states[place], logs.states[place + 1])


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
        if not arrays.same(values, batch.reward_values):
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


def stacked(logs: Trajectories) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """States (N, L+1), actions (N, L) and rewards (N, L) when all lengths are equal."""
    lengths = logs.lengths
    if lengths.size and (lengths != lengths[0]).any():
        odd = int(np.argmax(lengths != lengths[0]))
        raise TrajectoryError(
            f"as_arrays needs equal lengths: episode 0 has {lengths[0]} steps, "
            f"episode {odd} has {lengths[odd]}"
        )
    N, L = len(logs), int(lengths[0]) if lengths.size else 0
    return logs.states.reshape(N, L + 1), logs.actions.reshape(N, L), logs.rewards.reshape(N, L)
