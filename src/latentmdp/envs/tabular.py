"""Gymnasium's tabular environments (FrozenLake, CliffWalking, Taxi, ...) as models.

Their attribute `P[s][a]` lists (probability, next state, reward, terminated). The model is an
outcome table of the same entries. A state in which episodes always end is terminal. Where a state
is reached with and without an end, in one environment or in two, it goes on in the model, and the
arrivals that end an episode lead to one further state, the last one, which is terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import validation
from latentmdp.model import LatentMDP
from latentmdp.outcomes import outcomes_from_entries
from latentmdp.worlds import ending_states, table_entries, table_of, table_rewards


def tabular_model(
    envs: Sequence[Any],
    horizon: int | None,
    weights: ArrayLike | None = None,
    discount: float = 1.0,
    initial: ArrayLike | None = None,
) -> LatentMDP:
    """The latent MDP whose context m is the tabular environment, or the table, `envs[m]`.

    Parameters
    ----------
    envs
        Environments with a table `P` and the distribution `initial_state_distrib` of the first
        state, as Gymnasium's toy-text environments have; or tables `P[s][a]` themselves, dicts of
        dicts of lists of (probability, next state, reward, terminated), with states and actions
        numbered from 0.
    horizon
        H, or None for no end but that of the environments, with a discount below 1.
    initial : None, int, (S,) or (M, S)
        Where episodes begin; by default as the environments say. Tables do not say it.

    Notes
    -----
    States keep their numbers. There is one more if a state is reached both with and without an end.
    """
    values = table_rewards(envs)
    if values is None:
        raise ValueError("every environment needs a table P of its transitions")
    tables: list[Any] = [table_of(env) for env in envs]
    sizes = {(len(table), len(table[0])) for table in tables}
    if len(sizes) > 1:
        raise ValueError(f"the environments must have the same states and actions, got {sizes}")
    (S, A), M = sizes.pop(), len(envs)
    if initial is None and any(isinstance(env, dict) for env in envs):
        raise ValueError("initial: tables do not say where episodes begin, give initial=")
    if initial is None:
        initial = [np.asarray(env.unwrapped.initial_state_distrib, np.float64) for env in envs]
    initial = validation.initial(initial, M, np.ones((S, 1), np.bool_), False)
    entries = table_entries(envs)
    ends = ending_states(entries, initial.sum(axis=0) > 0.0)
    # What ends an episode in a state that goes on leads to the further state S.
    aside = entries.terminated & ~ends[entries.next_state]
    target = np.where(aside, S, entries.next_state)
    n_states = S + int(aside.any())
    goes_on = ~ends[entries.state]
    outcomes = outcomes_from_entries(
        (entries.state * A + entries.action)[goes_on],
        target[goes_on],
        np.searchsorted(values, entries.reward)[goes_on],
        entries.context[goes_on],
        entries.probability[goes_on],
        (M, n_states, A, len(values)),
    )
    return LatentMDP.from_outcomes(
        *outcomes,
        n_states=n_states,
        initial=np.pad(initial, ((0, 0), (0, n_states - S))),
        weights=weights,
        horizon=horizon,
        discount=discount,
        reward_values=values,
    )
