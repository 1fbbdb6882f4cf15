"""Episodes of a policy in a world: compiled rollouts of a model, step by step in any other.

Chance is counter-based (`latentmdp._kernels.philox`): what happens in episode i depends on the
seed and on i alone. So a batch is bit-identical for any number of threads, and equal to the
concatenation of shards cut with `first_episode`. A stochastic policy draws from the same counters,
compiled or not.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, drawn, philox_key
from latentmdp.engines.threads import blocks, run_blocks
from latentmdp.model import LatentMDP, require_model
from latentmdp.policies import HistoryPolicy, Policy, Sized
from latentmdp.trajectories import History, Trajectories
from latentmdp.worlds import ModelWorld, Transition, World, play_episode

__all__ = ["PolicyAgent", "play", "simulate"]

_BLOCK_STEPS = 1 << 19
"""Steps that one thread plays at a time: enough to outweigh the cost of handing them out."""


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
        A `Policy`, or any callable that maps a `History` to an action or to a probability for
        each action (a slow path).
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
    return play(
        ModelWorld(model), policy, episodes, philox_key(rng), first_episode, threads=threads
    )


def play(
    world: World,
    policy: Policy | HistoryPolicy,
    episodes: int,
    key: int,
    first_episode: int = 0,
    *,
    horizon: int | None = None,
    threads: int | None = None,
) -> Trajectories:
    """Episodes first_episode, first_episode + 1, ... of a world under one policy.

    Parameters
    ----------
    key
        What happens in an episode depends on the key, its number and the policy alone.
    horizon
        Stop episodes after so many steps; the world's horizon by default.

    Returns
    -------
    Trajectories
        With the true contexts where the world reveals all of them.
    """
    H = world.space.horizon if horizon is None else horizon
    if isinstance(world, ModelWorld) and isinstance(policy, Policy):
        return _rolled_out(world, policy, episodes, key, first_episode, H, threads)
    agent = PolicyAgent(policy, world.space, key)
    played = [play_episode(world, agent, key, first_episode + i, H) for i in range(episodes)]
    contexts = [episode.context for episode in played if episode.context is not None]
    return Trajectories.from_lists(
        [episode.states.tolist() for episode in played],
        [episode.actions.tolist() for episode in played],
        [episode.rewards.tolist() for episode in played],
        contexts if len(contexts) == len(played) else None,
        n_states=world.space.n_states,
        n_actions=world.space.n_actions,
        reward_values=world.space.reward_array,
    )


def _rolled_out(
    world: ModelWorld,
    policy: Policy,
    episodes: int,
    key: int,
    first_episode: int,
    horizon: int,
    threads: int | None,
) -> Trajectories:
    from latentmdp._kernels.rollout import rollout

    states = np.empty((episodes, horizon + 1), np.int32)
    actions, rewards = (np.empty((episodes, horizon), np.int32) for _ in range(2))
    contexts = np.empty(episodes, np.int32)
    acting = policy.acting(world.space)

    def work(start: int, stop: int) -> None:
        parts = (part[start:stop] for part in (states, actions, rewards, contexts))
        rollout(world.chances, acting, np.uint64(key), first_episode + start, *parts)

    run_blocks(work, blocks(episodes, max(1, _BLOCK_STEPS // horizon)), threads)
    return Trajectories._trusted(
        world.space.n_states,
        world.space.n_actions,
        states=states.ravel(),
        actions=actions.ravel(),
        rewards=rewards.ravel(),
        offsets=np.arange(episodes + 1, dtype=np.int64) * horizon,
        contexts=contexts,
        reward_values=world.space.reward_array,
    )


class PolicyAgent:
    """An agent that follows a policy, by the policy's own filter, one step at a time.

    Parameters
    ----------
    world
        A model or a space of the world's sizes.
    key
        Of the chance of a stochastic policy: that of `play`.
    """

    def __init__(self, policy: Policy | HistoryPolicy, world: Sized, key: int) -> None:
        if not isinstance(policy, Policy) and not callable(policy):
            raise TypeError(
                f"policy must be a Policy or a callable of a history, got {type(policy).__name__}"
            )
        self.policy, self.world = policy, world
        self._key, self._episode = np.uint64(key), np.uint64(0)
        self._acting = policy.acting(world) if isinstance(policy, Policy) else None
        self._belief = np.ones((3, 1 if self._acting is None else self._acting.prior.size))
        self._history = History((), (), ())

    def begin(self, episode: int, state: int) -> None:
        """See the first state."""
        from latentmdp._kernels.belief import reset_belief

        self._episode, self._state = np.uint64(episode), state
        if self._acting is None:
            self._history = History((state,), (), ())
        elif self._acting.filters:
            reset_belief(self._belief, self._acting.prior, self._acting.initial, state)

    def act(self, t: int) -> int:
        """The policy's action; a stochastic one draws it."""
        from latentmdp._kernels.alias import alias_draw
        from latentmdp._kernels.rollout import best_action

        acting = self._acting
        if acting is None:
            assert not isinstance(self.policy, Policy)
            return drawn(self._history.ask(self.policy, self.world.n_actions), self._uniform(t))
        group = self._state + (t * self.world.n_states if acting.n_layers > 1 else 0)
        if acting.stochastic:
            chance = self._uniform(t)
            return int(alias_draw(chance, acting.action_threshold, acting.action_alias, group))
        begin, end = acting.offsets[group], acting.offsets[group + 1]
        return int(best_action(acting.vectors, acting.labels, begin, end, self._belief))

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""
        from latentmdp._kernels.belief import cell, update_belief

        n, z = transition.next_state, transition.reward
        if self._acting is None:
            self._history = self._history.then(action, n, z)
        elif self._acting.filters:
            sizes = (self.world.n_states, self.world.n_actions, self.world.n_rewards)
            row = cell(self._state, action, n, z, sizes)
            update_belief(self._belief, self._acting.likelihood, row)
        self._state = n

    def belief(self) -> Floats:
        """The belief of the policy's filter, (M,)."""
        from latentmdp._kernels.belief import AWAKE

        return self._belief[AWAKE].copy()

    def _uniform(self, t: int) -> float:
        from latentmdp._kernels.philox import uniform_pair

        return float(uniform_pair(self._key, np.uint64(0), self._episode, np.uint64(t + 1))[0])
