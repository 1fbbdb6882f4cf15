"""Episodes in plain Python: any policy in any world, one step at a time.

The compiled loop of L-UCRL does the same for Q-MDP in a latent MDP; a test holds them to the same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.online.empirical_model import LearnerState
from latentmdp.online.session import Session
from latentmdp.policies import History, Policy

__all__ = ["Agent", "Played", "absorb", "play_episode"]


class Path(NamedTuple):
    """A history under way: as `History`, but growing."""

    states: list[int]
    actions: list[int]
    rewards: list[int]


class Agent:
    """Executes a policy: with the learner's filter, or (`own_filter`) with the policy's own."""

    def __init__(self, policy: Any, model: LatentMDP, own_filter: bool = False) -> None:
        self.policy = policy
        self.own_filter = own_filter
        self._acting = policy.acting(model) if isinstance(policy, Policy) else None
        self._sizes = (model.n_states, model.n_actions, model.n_rewards)
        self._filter = None
        if self._acting is not None:
            self._belief = np.empty((3, self._acting.prior.size))
            if own_filter and self._acting.filters:
                self._filter = self._acting

    def begin(self, state: int) -> None:
        """See the first state."""
        from latentmdp._kernels.belief import reset_belief

        if self._filter is not None:
            reset_belief(self._belief, self._filter.prior, self._filter.initial, state)

    def act(self, t: int, path: Path, belief: Floats, draw: Callable[[int], float]) -> int:
        """The action at time t; `draw(t)` is the chance of policies that need it."""
        from latentmdp._kernels.alias import alias_draw
        from latentmdp._kernels.rollout import best_action

        acting = self._acting
        if acting is None:
            return int(self.policy(History(*(tuple(part) for part in path))))
        group = path.states[-1] + (t * self._sizes[0] if acting.n_layers > 1 else 0)
        if acting.stochastic:
            return int(alias_draw(draw(t), acting.action_threshold, acting.action_alias, group))
        begin, end = acting.offsets[group], acting.offsets[group + 1]
        held = self._belief if self.own_filter else belief
        return int(best_action(acting.vectors, acting.labels, begin, end, held))

    def observe(self, s: int, a: int, following: int, z: int) -> None:
        """See what followed."""
        from latentmdp._kernels.belief import cell, update_belief

        if self._filter is not None:
            row = cell(s, a, following, z, self._sizes)
            update_belief(self._belief, self._filter.likelihood, row)

    def posterior(self) -> Floats:
        """The belief of the policy's own filter."""
        from latentmdp._kernels.belief import AWAKE

        return self._belief[AWAKE].copy()


class Played(NamedTuple):
    """An episode and what the learner's filter believed at its end, a (3, M) belief."""

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.int64]
    belief: Floats
    context: int


def play_episode(session: Session, agent: Agent) -> Played:
    """Play the next episode, filtering with the learner's current estimate."""
    from latentmdp._kernels.belief import reset_belief
    from latentmdp._kernels.empirical import observe
    from latentmdp._kernels.philox import uniform_pair

    estimate, world = session.state.estimate, session.world
    belief = np.empty((3, session.state.space.n_contexts))
    key, k = np.uint64(session.key), np.uint64(session.done)
    s = world.begin(session.key, session.done)
    path = Path([s], [], [])

    def draw(t: int) -> float:
        return float(uniform_pair(key, np.uint64(0), k, np.uint64(t + 1))[0])

    reset_belief(belief, estimate.prior, estimate.initial, s)
    agent.begin(s)
    for t in range(session.state.space.horizon):
        a = agent.act(t, path, belief, draw)
        following, z, cut = world.step(a)
        observe(estimate, belief, s, a, following, z)
        agent.observe(s, a, following, z)
        path.actions.append(a)
        path.rewards.append(z)
        path.states.append(following)
        s = following
        if cut:
            break
    states, actions, rewards = (np.array(part, np.int64) for part in path)
    return Played(states, actions, rewards, belief, world.context())


def absorb(session: Session, played: Played, weights: Floats) -> None:
    """Add the episode to the counts, weighted by context, and to the record."""
    from latentmdp._kernels.belief import AWAKE
    from latentmdp._kernels.lucrl import absorb_episode, discounted_return

    state: LearnerState = session.state
    length = played.actions.size
    steps = (played.states, played.actions, played.rewards)
    absorb_episode(state.estimate, state.plans, weights, *steps, length)
    k, m = session.done, played.context
    session.returns[k] = discounted_return(
        played.rewards, length, state.estimate.reward_values, state.plans.discount
    )
    session.contexts[k] = m
    if 0 <= m < weights.size:
        session.beliefs[k] = played.belief[AWAKE, m]
    session.done = k + 1
