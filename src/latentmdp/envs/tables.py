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

__all__ = ["table_rewards", "tabular_model"]

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


def table_of(env: Any) -> Table | None:
    """The table `P` of an environment, if it has one."""
    return getattr(env.unwrapped, "P", None)


def table_rewards(envs: Sequence[Any]) -> tuple[float, ...] | None:
    """The rewards that occur in the tables of all environments, and 0; None without tables."""
    tables = [table_of(env) for env in envs]
    if any(table is None for table in tables):
        return None
    found = {0.0}
    for table in tables:
        for actions in (table or {}).values():
            for outcomes in actions.values():
                found |= {float(reward) for p, _, reward, _ in outcomes if p > 0.0}
    return tuple(sorted(found))


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
            for probability, following, reward, terminated in outcomes:
                joint[s, a, following, index[float(reward)]] += probability
                terminal[following] |= terminated and probability > 0.0
    for end in np.flatnonzero(terminal):
        joint[end] = 0.0
        joint[end, :, end, index[0.0]] = 1.0
    return joint
