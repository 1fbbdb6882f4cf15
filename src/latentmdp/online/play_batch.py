"""Batches of episodes of a fixed policy in any world."""

from __future__ import annotations

import numpy as np

from latentmdp.model import LatentMDP
from latentmdp.online.worlds import ModelWorld, World
from latentmdp.policies import History, Policy
from latentmdp.simulation import simulate
from latentmdp.trajectories import Trajectories

__all__ = ["play_batch"]


def play_batch(
    world: World, policy: Policy, believed: LatentMDP, episodes: int, seed: int, first: int
) -> Trajectories:
    """Episodes first, first + 1, ... of the world under a policy, contexts unknown.

    Parameters
    ----------
    believed
        A model of the world's sizes. Episodes end at its horizon, by which the policy acts.
    seed
        What happens in an episode depends on the seed, its number and the policy alone.
    """
    if isinstance(world, ModelWorld) and world.model is not None:
        timed = world.model.replace(horizon=believed.horizon)
        return simulate(timed, policy, episodes, seed, first).without_contexts()
    played = [_play_one(world, policy, believed, seed, first + k) for k in range(episodes)]
    return Trajectories.from_lists(
        [p.states for p in played],
        [p.actions for p in played],
        [p.rewards for p in played],
        n_states=world.space.n_states,
        n_actions=world.space.n_actions,
        reward_values=world.space.rewards,
    )


def _play_one(
    world: World, policy: Policy, believed: LatentMDP, seed: int, episode: int
) -> History:
    session = policy.session(believed, np.random.SeedSequence((seed, episode)))
    states, actions, rewards = [world.begin(seed, episode)], list[int](), list[int]()
    session.observe(states[0])
    for _ in range(believed.horizon):
        actions.append(session.act())
        following, z, cut = world.step(actions[-1])
        session.observe(following, world.space.reward_values[z])
        states.append(following)
        rewards.append(z)
        if cut:
            break
    return History(tuple(states), tuple(actions), tuple(rewards))
