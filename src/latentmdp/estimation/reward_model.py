"""What rewards depend on: R_m(z | s, a) or R_m(z | s, a, s').

Given p(m | episode), with N_m the counts it shares out, letting rewards depend on the next state
gains

    sum_m sum_(s,a,s',z) N_m(s,a,s',z) log( N_m(s,a,s',z) N_m(s,a) / (N_m(s,a,s') N_m(s,a,z)) )

nats. BIC asks half the logarithm of the number of steps for each further parameter, counted on
what the logs show: where a reward is a function of the next state there is none to pay for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.validation import require_choice
from latentmdp.engines import Engine
from latentmdp.estimation.em import EM
from latentmdp.fit import FitWarning, without_fit_warnings
from latentmdp.logs import Logs, listed_logs, occurring_cells, sizes_of
from latentmdp.model import RewardModel


def require_reward_model(given: str) -> None:
    """Refuse what is neither a reward model nor "auto"."""
    require_choice("reward_model", given, ("state-action", "transition", "auto"))


def preferred_reward_model(logs: Logs | Sequence[Logs], responsibilities: Floats) -> RewardModel:
    """The reward model that BIC prefers, given p(m | episode) of all episodes (N, M)."""
    parts = listed_logs(logs)
    S, A, Z = sizes_of(parts)
    by = ("state", "action", "next_state", "reward")
    cells, counts = occurring_cells(parts, by, (S, A, Z), responsibilities)
    transitions, pairs = cells // Z, cells // (S * Z)
    rewards = pairs * Z + cells % Z
    occurs = counts > 0.0
    keys = (cells, pairs, transitions, rewards)
    whole, by_pair, by_transition, by_reward = (np.log(_totals(k, counts)[occurs]) for k in keys)
    gain = float(counts[occurs] @ (whole + by_pair - by_transition - by_reward))
    n_cells, n_pairs, n_transitions, n_rewards = (np.unique(key).size for key in keys)
    further = counts.shape[1] * (n_cells - n_transitions - n_rewards + n_pairs)
    price = 0.5 * further * np.log(counts.sum())
    rounding = 1e-9 * counts.sum()  # where nothing differs the gain is 0 up to this
    return "transition" if gain > price + rounding else "state-action"


def _totals(keys: Integers, counts: Floats) -> Floats:
    """For each cell the counts of all cells with the same key."""
    _, index = np.unique(keys, return_inverse=True)
    totals = np.zeros((int(index.max(initial=0)) + 1, counts.shape[1]))
    np.add.at(totals, index, counts)
    return np.asarray(totals[index])


def choose_reward_model(
    logs: Sequence[Logs],
    n_contexts: int,
    reward_model: RewardModel | Literal["auto"],
    rng: np.random.Generator,
    engine: Engine | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> RewardModel:
    """Decide what rewards depend on, by a quick fit with `n_contexts`; what is given stays.

    `report` is called with a line for the decision.
    """
    if reward_model == "transition" and any(part.lacks.ends for part in logs):
        warnings.warn(
            "rewards of last steps whose next state is missing say nothing, as rewards depend "
            'on it here: give next_state, or reward_model="state-action"',
            FitWarning,
            stacklevel=3,
        )
    if reward_model != "auto":
        return reward_model
    if max(part.n_rewards for part in logs) == 1:
        return "state-action"
    # It only shares episodes out: gains are compared with a price of several nats a parameter.
    quick = EM(n_contexts, restarts=2, pseudo_counts=1.0, shared_initial=True, tolerance=0.1)
    with without_fit_warnings():
        shares = quick.fit(logs, rng=rng, engine=engine).responsibilities
    preferred = preferred_reward_model(logs, shares)
    report(f"rewards depend on the {preferred.replace('-', ' and ')}")
    return preferred
