"""Whether rewards depend on the next state: R_m(z | s, a) or R_m(z | s, a, s').

Given p(m | episode), with N_m the counts it shares out, letting rewards depend on the next state
gains

    sum_m sum_(s,a,s',z) N_m(s,a,s',z) log( N_m(s,a,s',z) N_m(s,a) / (N_m(s,a,s') N_m(s,a,z)) )

nats. BIC asks half the logarithm of the number of steps for each further parameter, counted on
what the logs show: where a reward is a function of the next state there is none to pay for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp.trajectories import Trajectories, occurring_cells, sizes_of

__all__ = ["RewardForm", "preferred_reward_form", "require_reward_form"]

RewardForm = Literal["state-action", "transition"]

_FORMS = ("state-action", "transition", "auto")


def require_reward_form(given: str) -> None:
    """Refuse what is not the name of a form."""
    if given not in _FORMS:
        known = " or ".join(f'"{form}"' for form in _FORMS)
        raise ValueError(f"reward_model must be {known}, got {given!r}")


def preferred_reward_form(
    logs: Trajectories | Sequence[Trajectories], responsibilities: Floats
) -> RewardForm:
    """The form that BIC prefers, given p(m | episode) of all episodes (N, M)."""
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    S, A, Z = sizes_of(parts)
    by = ("state", "action", "next_state", "reward")
    cells, counts = occurring_cells(parts, by, (S, A, Z), responsibilities)
    following, pairs, rewards = cells // Z, cells // (S * Z), cells // (S * Z) * Z + cells % Z
    seen = counts > 0.0
    logarithms = [np.log(_totals(key, counts)[seen]) for key in (cells, pairs, following, rewards)]
    gain = float(counts[seen] @ (logarithms[0] + logarithms[1] - logarithms[2] - logarithms[3]))
    n_next, n_pairs, n_rewards = (np.unique(key).size for key in (following, pairs, rewards))
    further = counts.shape[1] * (cells.size - n_next - n_rewards + n_pairs)
    return "transition" if gain > 0.5 * further * np.log(counts.sum()) else "state-action"


def _totals(keys: Integers, counts: Floats) -> Floats:
    """For each cell the counts of all cells with the same key."""
    _, index = np.unique(keys, return_inverse=True)
    totals = np.zeros((int(index.max(initial=0)) + 1, counts.shape[1]))
    np.add.at(totals, index, counts)
    return np.asarray(totals[index])
