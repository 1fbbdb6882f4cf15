"""Gymnasium's tabular environments (FrozenLake, CliffWalking, Taxi, ...) as models.

Their attribute `P[s][a]` lists (probability, next state, reward, terminated). A state that some
transition reaches with `terminated` is absorbing and pays 0 from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util.arrays import normalised
from latentmdp.model import LatentMDP
from latentmdp.worlds import table_of, table_rewards

__all__ = ["tabular_model"]


def tabular_model(
    envs: Sequence[Any], horizon: int, weights: ArrayLike | None = None, discount: float = 1.0
) -> LatentMDP:
    """The latent MDP whose context m is the tabular environment `envs[m]`.

    Parameters
    ----------
    envs
        Environments with a table `P` and the distribution `initial_state_distrib` of the first
        state, as Gymnasium's toy-text environments have.
    """
    values = table_rewards(envs)
    if values is None:
        raise ValueError("every environment needs a table P of its transitions")
    joint = np.stack([_joint(env, values) for env in envs])
    T = joint.sum(axis=-1)
    rewards = normalised(joint)
    initial = np.stack([np.asarray(env.unwrapped.initial_state_distrib) for env in envs])
    return LatentMDP(
        T,
        rewards,
        initial=initial,
        weights=weights,
        horizon=horizon,
        discount=discount,
        reward_values=values,
    )


def _joint(env: Any, values: tuple[float, ...]) -> NDArray[np.float64]:
    table = table_of(env)
    assert table is not None
    S, A = len(table), len(table[0])
    index = {value: z for z, value in enumerate(values)}
    joint, terminal = np.zeros((S, A, S, len(values))), np.zeros(S, np.bool_)
    for s, actions in table.items():
        for a, outcomes in actions.items():
            for probability, next_state, reward, terminated in outcomes:
                joint[s, a, next_state, index[float(reward)]] += probability
                terminal[next_state] |= terminated and probability > 0.0
    for end in np.flatnonzero(terminal):
        joint[end] = 0.0
        joint[end, :, end, index[0.0]] = 1.0
    return joint
