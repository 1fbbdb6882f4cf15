"""What is not known made attractive.

EM fills the rows of a context with k_T pseudo-counts of the pooled transitions and k_R of the
pooled rewards, as many as the likeness of the contexts supports. A row then rests on

    N_T = N_m(s, a) + min(k_T, sum_m N_m(s, a)),    N_R likewise with k_R,

observations: what other contexts showed of it counts as far as it carries over. The bonus is

    range of the rewards * bonus * (1 / sqrt(N_T) + 1 / sqrt(N_R)),

and where N_T < 1 the row has no future but the most that an episode can earn.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.fit import Fit
from latentmdp.model import LatentMDP

__all__ = ["optimistic_model"]


def optimistic_model(
    model: LatentMDP, visits: Floats, fit: Fit, bonus: float, largest_return: float
) -> LatentMDP:
    """The model with bonuses for rows that few observations support.

    Parameters
    ----------
    visits : (M, S, A)
        N_m(s, a), each episode shared among the contexts.
    fit
        The fit behind the model, with its pseudo-counts.
    """
    pooled = visits.sum(axis=0)
    of_moves = visits + np.minimum(fit.pseudo_counts, pooled)
    of_rewards = visits + np.minimum(fit.reward_pseudo_counts, pooled)
    unseen = of_moves < 1.0
    scale = bonus * float(np.ptp(model.reward_values))
    widths = 1.0 / np.sqrt(np.maximum(of_moves, 1.0)) + 1.0 / np.sqrt(np.maximum(of_rewards, 0.01))
    rewards_axes = unseen.shape + (1,) * (model.reward_probs.ndim - 3)
    return model.replace(
        transitions=np.where(unseen[..., None], 0.0, model.transitions),
        rewards=np.where(unseen.reshape(rewards_axes), 0.0, model.reward_probs),
        bonus=np.where(unseen, largest_return, np.minimum(largest_return, scale * widths)),
        allow_unvisited=True,
    )
