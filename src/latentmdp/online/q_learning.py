"""Tabular Q-learning [watkins1992], told the context or blind to it: a baseline without a model.

    in state s of context m:
        with probability n0 / (n0 + N_m(s)) act at random, else take a best action, ties at random
    after an episode, from its last step to its first:
        Q_m(s, a) += N_m(s, a)^-w (r + discount max_b Q_m(s', b) - Q_m(s, a))

Told the context before it acts, it learns M separate MDPs: what it can reach is the informed
optimum, sum_m w_m V*_m, which no learner that must infer the context can. Blind, it has one table
for all contexts, and what it can reach is no more than the best memoryless policy.

Values do not depend on the time, so that every visit of (s, a) counts. They are discounted by
1 - 1/H or the world's discount, whichever is less. They begin at the largest reward, or at 0 where
there are only costs: optimistic enough to explore river-swim, where a start at 0 stays on the
shore, and little enough that lakes with a single reward are solved, where a start at three times
as much fails. The backward sweep carries a reward along the whole episode at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentmdp._util import validation
from latentmdp._util.arrays import Arrays, Floats
from latentmdp.logs import Episode, Trajectories
from latentmdp.online.base import CountingLearning, Learner
from latentmdp.online.empirical_model import Counts, EmpiricalModel
from latentmdp.online.run import Run
from latentmdp.planning import acting_smoothing
from latentmdp.policies import AlphaVectorPolicy, MarkovPolicy, Policy
from latentmdp.simulation import gathered
from latentmdp.worlds import Transition, World, play_episode


@dataclass(frozen=True, eq=False)
class QLearning(Learner):
    """Q-learning with one table for each context that is told, or with a single one.

    Parameters
    ----------
    informed
        Whether the context of an episode is told before it begins. A latent MDP tells it; the
        info of an environment's `reset` must hold it.
    random_until
        n0: visits of a state after which half of the actions there are no longer random.
    rate
        w in (1/2, 1], the power of the number of visits by which steps fall.
    optimism
        What values begin at, in units of the largest reward.
    """

    informed: bool = True
    random_until: float = 10.0
    rate: float = 0.7
    optimism: float = 1.0

    def __post_init__(self) -> None:
        validation.require_non_negative("random_until", self.random_until)
        if not 0.5 < self.rate <= 1.0:
            raise ValueError(f"rate must lie in (1/2, 1], got {self.rate}")
        if not np.isfinite(self.optimism):
            raise ValueError(f"optimism must be finite, got {self.optimism}")

    def begin(self, world: World, episodes: int, key: int) -> CountingLearning[Trajectories]:
        """See `Learner`."""
        if self.informed and not world.knows_contexts:
            raise ValueError("n_contexts: the environment does not tell it, give n_contexts=")
        space = world.space if self.informed else replace(world.space, n_contexts=1)
        empirical = EmpiricalModel.begin(space, Counts.zero(space))
        return _QLearning(self, world, empirical, episodes, key)


class _QLearning(CountingLearning[Trajectories]):
    """One run: the tables, by which it acts, and the counts of what was seen."""

    learner: QLearning

    def __init__(
        self, learner: QLearning, world: World, empirical: EmpiricalModel, episodes: int, key: int
    ) -> None:
        super().__init__(learner, world, empirical, episodes, key)
        M, S, A, _ = self.space.dimensions
        first = learner.optimism * max(0.0, *self.space.reward_values)
        self.values, self.q_visits = np.full((M, S, A), first), np.zeros((M, S, A))
        self.allowed = self.space.allowed_actions()
        self.q_discount = min(self.space.discount, 1.0 - 1.0 / self.space.required_horizon())

    def plan(self) -> None:
        """There is nothing to plan."""

    def play(self, most: int) -> Trajectories:
        """Play episodes; the tables change after each."""
        played = []
        for i in range(most):
            played.append(play_episode(self.world, self, self.key, self.done + i))
            self._learn(played[-1])
        return gathered(played, self.space)

    def begin(self, episode: int, state: int) -> None:
        """See the first state and, if it is told, the context."""
        self._episode, self._m, self._state = np.uint64(episode), 0, state
        if self.learner.informed:
            context = self.world.context()
            if context is None or not 0 <= context < self.space.n_contexts:
                raise ValueError(
                    f"informed=True: the world gave context {context} at the start of an episode, "
                    f"expected one in [0, {self.space.n_contexts}); in an environment, info of "
                    "reset must hold it, as that of MixtureEnv(..., tell_context=True) does"
                )
            self._m = context

    def act(self, t: int) -> int:
        """A best action, or any."""
        from latentmdp._kernels.philox import uniform_pair

        block = (np.uint64(self.key), np.uint64(0), self._episode, np.uint64(t + 1))
        uniform, n0 = float(uniform_pair(*block)[0]), self.learner.random_until
        choices, table = np.flatnonzero(self.allowed[self._state]), (self._m, self._state)
        values, seen = self.values[table][choices], self.q_visits[table][choices].sum()
        # One number decides whether the choice is random and, stretched to [0, 1) again, which.
        share = n0 / (n0 + seen) if n0 > 0.0 else 0.0
        if uniform >= share:
            choices, uniform = choices[values == values.max()], (uniform - share) / (1.0 - share)
        else:
            uniform /= share
        return int(choices[min(int(uniform * choices.size), choices.size - 1)])

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""
        self._state = transition.next_state

    def _learn(self, played: Episode) -> None:
        """Sweep over an episode that is over; a state without any allowed action is worth 0."""
        values, visits, rate = self.values[self._m], self.q_visits[self._m], self.learner.rate
        earned = self.space.reward_array[played.rewards]
        for t in range(earned.size - 1, -1, -1):
            s, a, n = played.states[t], played.actions[t], played.states[t + 1]
            rest = 0.0 if self.space.terminal[n] else values[n, self.allowed[n]].max()
            visits[s, a] += 1.0
            step = visits[s, a] ** -rate
            values[s, a] += step * (earned[t] + self.q_discount * rest - values[s, a])

    def absorb(self, batch: Trajectories) -> None:
        """Record what was played, and count it for its context, or for the only one."""
        self.record(batch)
        if not self.learner.informed:
            batch = batch.with_contexts(np.zeros(len(batch), np.int64))
        self.count_all(batch)

    def fixed_arrays(self) -> Arrays:
        """See `Learning`."""
        return {**super().fixed_arrays(), "q_values": self.values, "q_visits": self.q_visits}

    def policy(self) -> Policy:
        """The greedy policy; told no context, it weighs the tables with its belief (Q-MDP)."""
        if not self.learner.informed:
            best = np.where(self.allowed, self.values[0], -np.inf).argmax(axis=1)
            return MarkovPolicy(np.where(self.allowed.any(axis=1), best, 0))
        states, actions = np.nonzero(self.allowed)
        offsets = np.concatenate([[0], np.cumsum(self.allowed.sum(axis=1))])
        vectors: Floats = self.values[:, states, actions].T
        smoothing = acting_smoothing(self.space.n_states, self.space.n_rewards)
        model = self.empirical.acting_model()
        return AlphaVectorPolicy(vectors, actions, offsets, model, smoothing)

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`."""
        return self.counted(self.policy(), None, settings)
