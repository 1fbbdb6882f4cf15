"""What rewards depend on: R_m(z | s, a) or R_m(z | s, a, s'), and whether all contexts share them.

Given p(m | episode), with N_m the counts it shares out, letting rewards depend on the next state
gains

    sum_m sum_(s,a,s',z) N_m(s,a,s',z) log( N_m(s,a,s',z) N_m(s,a) / (N_m(s,a,s') N_m(s,a,z)) )

nats. BIC asks half the logarithm of the number of steps for each further parameter, counted on
what the logs show: where a reward is a function of the next state there is none to pay for.

Whether contexts have rewards of their own is BIC's choice between two fits by EM, with half the
logarithm of the number of episodes for each further parameter. If they do not, rewards are
estimated once and carry no information on the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.validation import require_choice
from latentmdp.estimation.em import EM
from latentmdp.fit import without_fit_warnings
from latentmdp.model import RewardModel
from latentmdp.trajectories import Trajectories, occurring_cells, sizes_of

__all__ = ["RewardStructure", "preferred_reward_model", "require_reward_model", "settle_rewards"]

_QUICK_STARTS, _QUICK_PSEUDO_COUNTS, _QUICK_TOLERANCE = 2, 1.0, 0.1
"""Settings of the fits that only decide between structures. Their gains are compared with a price
of several nats for each parameter, so a tenth of a nat is exact enough."""


@dataclass(frozen=True)
class RewardStructure:
    """What rewards depend on, and whether all contexts share them."""

    reward_model: RewardModel
    shared: bool


def require_reward_model(given: str) -> None:
    """Refuse what is neither a reward model nor "auto"."""
    require_choice("reward_model", given, ("state-action", "transition", "auto"))


def preferred_reward_model(
    logs: Trajectories | Sequence[Trajectories], responsibilities: Floats
) -> RewardModel:
    """The reward model that BIC prefers, given p(m | episode) of all episodes (N, M)."""
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    S, A, Z = sizes_of(parts)
    by = ("state", "action", "next_state", "reward")
    cells, counts = occurring_cells(parts, by, (S, A, Z), responsibilities)
    transitions, pairs = cells // Z, cells // (S * Z)
    rewards = pairs * Z + cells % Z
    seen = counts > 0.0
    keys = (cells, pairs, transitions, rewards)
    whole, by_pair, by_transition, by_reward = (np.log(_totals(k, counts)[seen]) for k in keys)
    gain = float(counts[seen] @ (whole + by_pair - by_transition - by_reward))
    n_cells, n_pairs, n_transitions, n_rewards = (np.unique(key).size for key in keys)
    further = counts.shape[1] * (n_cells - n_transitions - n_rewards + n_pairs)
    return "transition" if gain > 0.5 * further * np.log(counts.sum()) else "state-action"


def _totals(keys: Integers, counts: Floats) -> Floats:
    """For each cell the counts of all cells with the same key."""
    _, index = np.unique(keys, return_inverse=True)
    totals = np.zeros((int(index.max(initial=0)) + 1, counts.shape[1]))
    np.add.at(totals, index, counts)
    return np.asarray(totals[index])


def settle_rewards(
    logs: Sequence[Trajectories],
    n_contexts: int,
    reward_model: RewardModel | Literal["auto"],
    shared: bool | Literal["auto"],
    rng: np.random.Generator,
    *,
    threads: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> RewardStructure:
    """Settle what was left open about the rewards; what is given stays.

    `n_contexts` is M of the fits that decide; `report` is called with a line for every decision.
    """
    quick = partial(
        EM,
        n_contexts,
        restarts=_QUICK_STARTS,
        pseudo_counts=_QUICK_PSEUDO_COUNTS,
        tolerance=_QUICK_TOLERANCE,
        threads=threads,
    )
    chosen: RewardModel = "state-action" if reward_model == "auto" else reward_model
    if max(part.n_rewards for part in logs) == 1:
        return RewardStructure(chosen, True)
    own = None
    if reward_model == "auto":
        with without_fit_warnings():
            own = quick().fit(logs, rng=rng)
        chosen = preferred_reward_model(logs, own.responsibilities)
        report(f"rewards depend on the {chosen.replace('-', ' and ')}")
    if shared != "auto":
        return RewardStructure(chosen, shared)
    if n_contexts == 1:
        return RewardStructure(chosen, True)
    with without_fit_warnings():
        if own is None or chosen == "transition":
            own = quick(reward_model=chosen).fit(logs, rng=rng, start=own)
        one = quick(reward_model=chosen, shared_rewards=True).fit(logs, rng=rng, start=own)
    price = 0.5 * np.log(sum(part.n_episodes for part in logs))
    gain = own.log_likelihood - one.log_likelihood
    same = bool(gain <= price * (own.n_parameters - one.n_parameters))
    report(f"rewards {'are shared' if same else 'differ'}: own ones gain {gain:.1f} nats")
    return RewardStructure(chosen, same)
