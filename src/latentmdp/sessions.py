"""Acting in production: a policy that follows individuals as their observations arrive.

    session = policy.session()
    session.observe(state)
    while not done:
        action = session.act()
        ...
        session.observe(next_state, reward)

A `Session` follows one individual; a `BatchSession` follows many, all at the same time step, in
compiled loops: arrays in, arrays out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp._util.random import RNGLike, drawn, philox_key
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.trajectories import History

if TYPE_CHECKING:
    from latentmdp.policies import HistoryPolicy, Policy

__all__ = ["BatchSession", "Session", "SessionError"]


class SessionError(LatentMDPError):
    """A session was used out of order: acted before observing, or beyond its horizon."""


class BatchSession:
    """Many individuals followed side by side.

    Parameters
    ----------
    policy
        The policy all of them are served by: a `Policy` or a callable of a `History`.
    model
        The world's sizes, reward values and horizon.
    individuals
        How many.
    rng
        Chance of a stochastic policy; every individual has its own stream.
    """

    def __init__(
        self,
        policy: Policy | HistoryPolicy,
        model: LatentMDP,
        individuals: int,
        rng: RNGLike = None,
    ) -> None:
        self.policy, self.model = policy, model
        self.individuals = arrays.positive_integer("individuals", individuals)
        self.t = 0
        # A callable has no filter of its own: it is given the history of each individual.
        self._acting = None if callable(policy) else policy.acting(model)
        self._histories: list[History] = []
        self._sizes = (model.n_states, model.n_actions, model.n_rewards)
        self._key = np.uint64(philox_key(rng))
        prior = np.ones(1) if self._acting is None else self._acting.prior
        self._beliefs = np.zeros((self.individuals, 3, prior.size))
        self._beliefs[:, 0] = prior
        self._states: Indices | None = None
        self._actions: Indices | None = None
        self._order = np.argsort(model.reward_values)
        self._sorted_values = model.reward_values[self._order]

    @property
    def beliefs(self) -> Floats:
        """The belief of every individual over the contexts of the policy's model, (n, M)."""
        return self._beliefs[:, 0].copy()

    def observe(
        self,
        states: ArrayLike,
        rewards: ArrayLike | None = None,
        actions: ArrayLike | None = None,
    ) -> None:
        """Take in the first states, or the next states with the rewards (values) on the way.

        `actions` are those taken in between, where they were not the ones `act` gave.
        """
        from latentmdp._kernels.rollout import observe_first, observe_next

        seen = self._checked("states", states)
        if self._states is None:
            if rewards is not None:
                raise SessionError("the first observation is a state alone: no reward came before")
            if self._acting is None:
                self._histories = [History((s,), (), ()) for s in seen.tolist()]
            else:
                observe_first(self._acting, self._beliefs, seen)
        else:
            self._require_time_left()
            taken = self._actions if actions is None else self._checked("actions", actions)
            if taken is None:
                raise SessionError("act() before the next observation, or say which actions=")
            if rewards is None:
                raise SessionError("rewards are missing: the actions taken must have earned some")
            indices = self._reward_indices(rewards)
            if self._acting is None:
                steps = zip(self._histories, seen.tolist(), taken.tolist(), indices.tolist())
                self._histories = [history.then(a, n, z) for history, n, a, z in steps]
            else:
                observe_next(
                    self._acting, self._sizes, self._beliefs, self._states, taken, seen, indices
                )
            self._actions = None
            self.t += 1
        self._states = seen

    def act(self) -> Indices:
        """The action for every individual in its current state."""
        from latentmdp._kernels.rollout import decide

        if self._states is None:
            raise SessionError("observe() the first states before acting")
        self._require_time_left()
        if self._actions is None:
            actions = np.empty(self.individuals, np.int32)
            if self._acting is None:
                self._decide(actions)
            else:
                where = (self._acting, self.model.n_states, self.t, self._key)
                decide(*where, self._beliefs, self._states, actions)
            self._actions = arrays.frozen(actions)
        return self._actions

    def _decide(self, actions: Indices) -> None:
        """Ask a callable for every individual; a stochastic one draws from its own stream."""
        from latentmdp._kernels.rollout import decision_uniform

        assert callable(self.policy)
        for i, history in enumerate(self._histories):
            chances = history.ask(self.policy, self.model.n_actions)
            actions[i] = drawn(chances, decision_uniform(self._key, i, self.t))

    def _require_time_left(self) -> None:
        if self.t >= self.model.horizon:
            raise SessionError(f"the episode is over: the horizon is {self.model.horizon} steps")

    def _checked(self, name: str, values: ArrayLike) -> Indices:
        """`states` or `actions`, one for every individual and within the model's range."""
        checked = arrays.as_integers(name, values, np.int32)
        if checked.size != self.individuals:
            raise ValueError(f"{name} must have {self.individuals} entries, got {checked.size}")
        limit = getattr(self.model, f"n_{name}")
        if int(checked.max()) >= limit:
            worst = int(np.argmax(checked))
            raise ValueError(f"{name}[{worst}] is {checked[worst]}: must be below n_{name}={limit}")
        return checked

    def _reward_indices(self, rewards: ArrayLike) -> Integers:
        values = np.asarray(rewards, dtype=np.float64)
        if values.shape != (self.individuals,):
            raise ValueError(f"rewards must have shape {(self.individuals,)}, got {values.shape}")
        places = np.searchsorted(self._sorted_values, values)
        places = np.minimum(places, self._sorted_values.size - 1)
        unknown = self._sorted_values[places] != values
        if unknown.any():
            worst = int(np.argmax(unknown))
            raise ValueError(
                f"rewards[{worst}] is {values[worst]}: not one of the reward values "
                f"{self.model.reward_values.tolist()}"
            )
        return self._order[places]


class Session:
    """One individual; see `BatchSession` for many."""

    def __init__(
        self, policy: Policy | HistoryPolicy, model: LatentMDP, rng: RNGLike = None
    ) -> None:
        self._batch = BatchSession(policy, model, 1, rng)

    @property
    def t(self) -> int:
        """Steps taken so far."""
        return self._batch.t

    @property
    def belief(self) -> Floats:
        """The belief over the contexts of the policy's model, (M,)."""
        return self._batch.beliefs[0]

    def observe(self, state: int, reward: float | None = None, action: int | None = None) -> None:
        """Take in the first state, or the next state and the reward that came with it.

        `action` is the one taken in between, where it was not the one `act` gave.
        """
        rewards = None if reward is None else [reward]
        self._batch.observe([state], rewards, None if action is None else [action])

    def act(self) -> int:
        """The action to take now."""
        return int(self._batch.act()[0])
