"""States in which logged episodes end for good, and actions that were never logged.

A state s is **final** if no action was ever logged in it and some episode ended there before the
longest one did: whoever reached it left. In a fitted model it is terminal: nothing is earned from
then on. Every other episode that is shorter than the longest was cut short: what was seen counts,
nothing is assumed of the rest.

An action that was never tried in a state has no data behind it, in any context, and a fitted row
for it is made up. A planner must not be drawn to it, so it is not allowed; where a state has no
tried action there is nothing to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentmdp._util.arrays import Flags, Integers
from latentmdp.logs import Logs, Trajectories, cell_counts, listed_logs
from latentmdp.model import LatentMDP


def tried_pairs(logs: Logs) -> Flags:
    """Which actions were tried in which states, shape (S, A)."""
    return cell_counts(logs, ("state", "action")) > 0.0


def final_states(logs: Logs | Sequence[Logs]) -> Flags:
    """Which states are final, shape (S,), in one log or in several of the same world."""
    parts = listed_logs(logs)
    final = np.zeros(max(one.n_states for one in parts), dtype=np.bool_)
    acted_in = np.zeros_like(final)
    for one in parts:
        endings = one.endings()
        final[: one.n_states] |= endings.shortest < one.longest
        acted_in[: one.n_states] |= endings.acted_in
    return final & ~acted_in


def cut_short(logs: Trajectories, lengths: Integers) -> Trajectories:
    """The first lengths[i] steps of episode i."""
    if (lengths >= logs.lengths).all():
        return logs
    step = np.arange(logs.n_steps) - np.repeat(logs.offsets[:-1], logs.lengths)
    steps = step < np.repeat(lengths, logs.lengths)
    first = np.repeat(logs.offsets[:-1] + np.arange(len(logs)), logs.lengths + 1)
    states = np.arange(logs.states.size) - first <= np.repeat(lengths, logs.lengths + 1)
    offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, logs.lengths))])
    return logs._taken(states, steps, offsets, slice(None))


def restricted(model: LatentMDP, allowed: Flags) -> LatentMDP:
    """The model with those of its actions alone that are also `allowed` (S, A)."""
    fewer = model.allowed & allowed
    return model if (fewer == model.allowed).all() else model.replace(allowed=fewer)


def only_tried(model: LatentMDP, logs: Logs) -> LatentMDP:
    """The model without the actions that were never tried, in states where some were."""
    tried = tried_pairs(logs)
    return restricted(model, tried | ~tried.any(axis=1, keepdims=True))
