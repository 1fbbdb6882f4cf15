"""What `diagnose` measures on a model: NaN where the measure would take too long.

The measures themselves, which refuse or take their time instead, are in `theory.rank`,
`theory.reachability` and `theory.information`.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy
from latentmdp.theory.information import kl_rate
from latentmdp.theory.occupancy import MAX_ENTRIES, table_entries
from latentmdp.theory.rank import end_state_probs, joint_sigma, sigma_h, sigma_tau
from latentmdp.theory.reachability import diameter, reach_probs

__all__ = ["diameters", "follow", "hardest", "ranks", "smallest"]


MOST_DIAMETER_WORK = 2e10
"""M S^4 up to which diameters are computed, some ten seconds."""

ROUNDING = 1e-12
"""Singular values up to this are taken for zero."""


def follow(model: LatentMDP, policy: Policy | HistoryPolicy) -> tuple[Floats, Floats]:
    """Reach probabilities and KL rates; NaN where the policy cannot be followed exactly."""
    from latentmdp.planning import TooManyHistoriesError

    M, S = model.n_contexts, model.n_states
    try:
        return reach_probs(model, policy), kl_rate(model, policy)
    except TooManyHistoriesError:
        return np.full((M, S), np.nan), np.full((M, M), np.nan)


def hardest(reach: Floats) -> tuple[int, int] | None:
    """The (context, state) that is reached with the smallest probability."""
    if np.isnan(reach).any():
        return None
    m, s = np.unravel_index(int(np.argmin(reach)), reach.shape)
    return int(m), int(s)


def ranks(model: LatentMDP, policy: Policy | HistoryPolicy, length: int) -> tuple[Floats, ...]:
    """sigma_tau, sigma_h, sigma_joint and end state probabilities; NaN if they are too many."""
    if table_entries(model, length) > MAX_ENTRIES:
        return tuple(np.full(model.n_states, np.nan) for _ in range(4))
    return (
        sigma_tau(model, length),
        sigma_h(model, policy, length),
        joint_sigma(model, policy, length),
        end_state_probs(model, policy, length),
    )


def smallest(values: Floats) -> float:
    """The smallest over states; 0 where some state has none or it is zero up to rounding."""
    least = float(np.nan_to_num(values, nan=0.0).min())
    return least if least > ROUNDING else 0.0


def diameters(model: LatentMDP) -> Floats:
    """The diameter of each context; NaN for a very large model."""
    M, S = model.n_contexts, model.n_states
    return diameter(model) if M * S**4 <= MOST_DIAMETER_WORK else np.full(M, np.nan)
