"""Batch rollouts of any policy.

Chance is counter-based (`latentmdp._kernels.philox`): what happens in episode i depends on the
seed and on i alone. So a batch is bit-identical for any number of threads, and equal to the
concatenation of shards cut with `first_episode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.engines.threads import blocks, run_blocks
from latentmdp.model import LatentMDP, require_model
from latentmdp.policies import History, HistoryPolicy, Policy
from latentmdp.trajectories import Trajectories

if TYPE_CHECKING:
    from latentmdp._kernels.rollout import World

__all__ = ["simulate"]

_BLOCK_STEPS = 1 << 19


def simulate(
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    episodes: int,
    rng: RNGLike = None,
    first_episode: int = 0,
    threads: int | None = None,
) -> Trajectories:
    """Play `episodes` episodes of the model's horizon.

    Parameters
    ----------
    policy
        A `Policy`, or any callable that maps a `History` to an action (a slow path).
    rng
        A seed stands for one fixed infinite sequence of episodes.
    first_episode
        Where in that sequence to begin.
    threads
        Threads to use; None takes all cores. The result does not depend on it.

    Returns
    -------
    Trajectories
        With the true contexts.
    """
    require_model(model)
    episodes = arrays.positive_integer("episodes", episodes)
    if first_episode < 0:
        raise ValueError(f"first_episode must not be negative, got {first_episode}")
    key = np.uint64(philox_key(rng))
    H = model.horizon
    states = np.empty((episodes, H + 1), np.int32)
    actions = np.empty((episodes, H), np.int32)
    rewards = np.empty((episodes, H), np.int32)
    contexts = np.empty(episodes, np.int32)
    world = world_tables(model)
    if isinstance(policy, Policy):
        _play_compiled(
            model, policy, world, key, first_episode, (states, actions, rewards, contexts), threads
        )
    elif callable(policy):
        for i in range(episodes):
            contexts[i] = _play_callable(
                model, policy, world, key, first_episode + i, states[i], actions[i], rewards[i]
            )
    else:
        raise TypeError(
            f"policy must be a Policy or a callable of a history, got {type(policy).__name__}"
        )
    return Trajectories._trusted(
        model.n_states,
        model.n_actions,
        states=states.ravel(),
        actions=actions.ravel(),
        rewards=rewards.ravel(),
        offsets=np.arange(episodes + 1, dtype=np.int64) * H,
        contexts=contexts,
        reward_values=model.reward_values,
    )


def _play_compiled(
    model: LatentMDP,
    policy: Policy,
    world: World,
    key: np.uint64,
    first_episode: int,
    out: tuple[NDArray[np.int32], ...],
    threads: int | None,
) -> None:
    from latentmdp._kernels.rollout import rollout

    acting = policy.acting(model)

    def work(start: int, stop: int) -> None:
        parts = (array[start:stop] for array in out)
        rollout(world, acting, key, first_episode + start, *parts)

    block = max(1, _BLOCK_STEPS // model.horizon)
    run_blocks(work, blocks(len(out[0]), block), threads)


def _play_callable(
    model: LatentMDP,
    policy: HistoryPolicy,
    world: World,
    key: np.uint64,
    episode: int,
    states: NDArray[np.int32],
    actions: NDArray[np.int32],
    rewards: NDArray[np.int32],
) -> int:
    from latentmdp._kernels.rollout import begin_episode, world_step

    m, s = begin_episode(world, key, np.uint64(episode))
    states[0] = s
    for t in range(model.horizon):
        history = History(
            tuple(states[: t + 1].tolist()),
            tuple(actions[:t].tolist()),
            tuple(rewards[:t].tolist()),
        )
        a = policy(history)
        if not isinstance(a, int | np.integer) or not 0 <= a < model.n_actions:
            raise ValueError(
                f"episode {episode}, step {t}: the policy returned {a!r}, not an action in "
                f"[0, {model.n_actions})"
            )
        actions[t] = a
        states[t + 1], rewards[t] = world_step(world, key, np.uint64(episode), t, m, states[t], a)
    return int(m)


def world_tables(model: LatentMDP) -> World:
    """Alias tables of the model's distributions, as compiled loops read them."""
    from latentmdp._kernels.alias import alias_tables
    from latentmdp._kernels.rollout import World

    M, S, A, Z = model.n_contexts, model.n_states, model.n_actions, model.n_rewards
    outcomes = model.observation_probs().reshape(M, S, A, S * Z)
    empty = outcomes.sum(axis=-1) == 0.0
    if empty.any():
        m, s, a = arrays.first_index(empty)
        raise ValueError(
            f"cannot simulate: context {m}, state {s}, action {a} was never visited, so what "
            "follows it is unknown"
        )
    return World(
        (S, A, Z),
        *alias_tables(model.weights),
        *alias_tables(model.initial),
        *alias_tables(outcomes),
    )
