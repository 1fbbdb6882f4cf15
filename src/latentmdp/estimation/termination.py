"""States in which logged episodes end for good, and actions that were never logged.

A state s is **final** if no action was ever logged in it and some episode ended there before the
longest one did: whoever reached it left. It is treated as the Gymnasium adapter treats
`terminated`: absorbing, with reward 0 from then on. Every other episode that is shorter than the
longest was cut short: what was seen counts, nothing is assumed of the rest.

An action that was never tried in a state has no data behind it, in any context, and a fitted row
for it is made up. A planner must not be drawn to it, so it is forbidden by a hidden reward lower
than anything it could lead to; where a state has no tried action there is nothing to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentmdp._util.arrays import Flags, Integers
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories, cell_counts

__all__ = ["continued", "cut_short", "final_states", "forbidding", "tried_pairs"]


def tried_pairs(logs: Trajectories) -> Flags:
    """Which actions were tried in which states, shape (S, A)."""
    return cell_counts(logs, ("state", "action")) > 0.0


def final_states(logs: Trajectories | Sequence[Trajectories]) -> Flags:
    """Which states are final, shape (S,), in one log or in several of the same world."""
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    final = np.zeros(max(part.n_states for part in parts), dtype=np.bool_)
    acted_in = np.zeros_like(final)
    for part in parts:
        early = part.lengths < part.lengths.max(initial=0)
        final[part.last_states[early]] = True
        acted_in[: part.n_states] |= tried_pairs(part).any(axis=1)
    return final & ~acted_in


def continued(logs: Trajectories, final: Flags) -> Trajectories:
    """Episodes that ended in a final state go on there, for one step of each action at most.

    More would tell nothing new. The actions take turns, so that all are seen as early as can be.
    0 joins the reward values if it is not among them.
    """
    if not final.any() or len(logs) == 0:
        return logs
    known = values = logs.reward_values
    rewards, nothing = logs.rewards, 0
    if known is not None:
        values = np.union1d(known, [0.0])
        rewards = np.searchsorted(values, known).astype(np.int32)[rewards]
        nothing = int(np.flatnonzero(values == 0.0)[0])
    last = logs.last_states
    left = np.minimum(int(logs.lengths.max()) - logs.lengths, logs.n_actions)
    more = np.where(final[last], left, 0)
    ends = np.repeat(logs.offsets[1:], more)
    turns = np.arange(more.sum()) % logs.n_actions
    return logs._with(
        states=np.insert(
            logs.states,
            np.repeat(logs.offsets[1:] + np.arange(1, len(logs) + 1), more),
            np.repeat(last, more),
        ),
        actions=np.insert(logs.actions, ends, turns),
        rewards=np.insert(rewards, ends, nothing),
        offsets=np.concatenate([[0], np.cumsum(logs.lengths + more)]),
        reward_values=values,
    )


def cut_short(logs: Trajectories, lengths: Integers) -> Trajectories:
    """The first lengths[i] steps of episode i."""
    if (lengths >= logs.lengths).all():
        return logs
    step = np.arange(logs.n_steps) - np.repeat(logs.offsets[:-1], logs.lengths)
    kept = step < np.repeat(lengths, logs.lengths)
    first = np.repeat(logs.offsets[:-1] + np.arange(len(logs)), logs.lengths + 1)
    seen = np.arange(logs.states.size) - first <= np.repeat(lengths, logs.lengths + 1)
    offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, logs.lengths))])
    return logs._taken(seen, kept, offsets, slice(None))


def forbidding(model: LatentMDP, logs: Trajectories) -> LatentMDP:
    """The model with a hidden reward that no planner takes for an action that was never tried."""
    tried = tried_pairs(logs)
    untried = ~tried & tried.any(axis=1, keepdims=True)
    if not untried.any():
        return model
    most = model.horizon * float(np.ptp(model.reward_values)) + 1.0
    bonus = np.where(untried, -most, 0.0)
    return model.replace(bonus=np.tile(bonus, (model.n_contexts, 1, 1)))
