"""Acting in production: a policy that follows individuals as their observations arrive.

    session = policy.session()
    session.observe(state)
    while not done:
        action = session.act()
        ...
        session.observe(next_state, reward)

A `Session` follows one individual; a `BatchSession` follows many, all at the same time step, in
compiled loops: arrays in, arrays out. States and actions go in by index or, where the model has
names for them, by name; `act` answers with names where there are names. Rewards go in as they are
measured: a model with `reward_edges` knows their levels, one that never sees rewards takes no
notice of them, and NaN is a reward that is missing. What is known of an individual before its first
step (`covariates`) sets the belief it begins with.

A session can be put aside and taken up again, also by another process:

    session.save("one.json")
    session = lm.load("one.json")

The file is small: it says where the episode is and names the file of the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp import _kernels
from latentmdp._util import arrays, names
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp._util.fields import Fielded
from latentmdp._util.random import RNGLike, drawn, philox_key
from latentmdp._util.registration import saver
from latentmdp._util.results import Factual
from latentmdp._util.spaces import known_as
from latentmdp.errors import LatentMDPError
from latentmdp.logs import History
from latentmdp.model import LatentMDP

if TYPE_CHECKING:
    from latentmdp.policies import HistoryPolicy, Policy

__all__ = ["BatchSession", "SavedSession", "Session", "SessionError"]


class SessionError(LatentMDPError):
    """A session was used out of order: acted before observing, or after the episode's end."""


class BatchSession:
    """Many individuals followed side by side.

    Parameters
    ----------
    policy
        The policy all of them are served by: a `Policy` or a callable of a `History`.
    model
        The world's sizes, names, reward values, allowed actions and horizon.
    individuals
        How many.
    rng
        Chance of a stochastic policy; every individual has its own stream.
    covariates
        What is known of the individuals: a mapping of columns, a list of mappings, a frame or
        `Covariates`. Each belief begins at w(x), by the policy's `weight_model`.

    Notes
    -----
    An individual whose state is terminal is done: it is given no more actions, and what is
    observed of it is ignored, while the others go on. A model without a horizon has no clock.
    """

    def __init__(
        self,
        policy: Policy | HistoryPolicy,
        model: LatentMDP,
        individuals: int,
        rng: RNGLike = None,
        covariates: Any = None,
    ) -> None:
        self.policy, self.model = policy, model
        self.individuals = arrays.positive_integer("individuals", individuals)
        self.t = 0
        # A callable has no filter of its own: it is given the history of each individual.
        self._acting = None if callable(policy) else policy.acting(model)
        self._histories: list[History] = []
        self._key = np.uint64(philox_key(rng))
        prior = np.ones(1) if self._acting is None else self._acting.filter.prior
        self._beliefs = np.zeros((self.individuals, 3, prior.size))
        self._beliefs[:, 0] = prior if covariates is None else self._priors(covariates)
        self._nodes = np.full(self.individuals, -1, np.int64)  # of a policy graph
        self._states: Indices | None = None
        self._actions: Indices | None = None
        self._order = np.argsort(model.reward_values)
        self._sorted_values = model.reward_values[self._order]

    def _priors(self, covariates: Any) -> Floats:
        """w(x) of every individual, (n, M)."""
        weight_model = getattr(self.policy, "weight_model", None)
        if weight_model is None:
            raise ValueError("the policy has no weight model, so covariates say nothing to it")
        priors: Floats = np.atleast_2d(weight_model.of(covariates))
        if len(priors) != self.individuals:
            raise ValueError(
                f"covariates must be those of {self.individuals} individuals, got {len(priors)}"
            )
        return priors

    @property
    def beliefs(self) -> Floats:
        """The belief of every individual over the contexts of the policy's model, (n, M)."""
        return self._beliefs[:, 0].copy()

    @property
    def over(self) -> Flags:
        """Whether the episode of each individual has ended, (n,): by its state or by the clock."""
        return ~self._running() | self._out_of_time()

    def _current(self) -> Indices:
        """The state of every individual; raises before the first observation."""
        if self._states is None:
            raise SessionError("observe() the first states before acting")
        return self._states

    def _running(self) -> Flags:
        """Who is not in a terminal state, (n,)."""
        if self._states is None:
            return np.ones(self.individuals, np.bool_)
        return ~self.model.terminal[self._states]

    def _out_of_time(self) -> bool:
        return self.model.duration.is_over(self.t)

    def observe(
        self, states: ArrayLike, rewards: ArrayLike | None = None, actions: ArrayLike | None = None
    ) -> None:
        """Take in the first states, or the next states with the rewards (values) on the way.

        States and actions are indices or names. `actions` are those taken in between, where they
        were not the ones `act` gave. Rewards may be left out where the model has one value only; a
        reward that is missing is NaN.
        """
        running = self._running()
        arrived = self._checked("states", states, running)
        if self._states is None:
            if rewards is not None:
                raise SessionError("the first observation is a state alone: no reward came before")
            if self._acting is None:
                self._histories = [History((s,), (), ()) for s in arrived.tolist()]
            else:
                _kernels.rollout.observe_first(
                    self._acting, self._key, self._beliefs, self._nodes, arrived
                )
        else:
            self._require_time_left()
            previous = self._taken(actions, running)
            indices = self._reward_indices(rewards, running)
            if self._acting is None:
                steps = zip(self._histories, arrived.tolist(), previous.tolist(), indices.tolist())
                self._histories = [history.then(a, n, z) for history, n, a, z in steps]
            else:
                memory = (self.t + 1, self._beliefs, self._nodes)
                step = (running, self._states, previous, arrived, indices)
                _kernels.rollout.observe_next(self._acting, *memory, *step)
            self._actions = None
            self.t += 1
            arrived = np.where(running, arrived, self._states)
        self._states = arrived

    def act(self) -> NDArray[Any]:
        """The action for every individual in its current state: names if there are any.

        For an individual that is done it is -1, or None in place of a name.
        """
        actions, labels = self.act_indices(), self.model.action_names
        return actions if labels is None else np.array([*labels, None], dtype=object)[actions]

    def act_indices(self) -> Indices:
        """The action for every individual by its index, whether it has a name or not."""
        states = self._current()
        self._require_time_left()
        if self._actions is None:
            actions, running = np.full(self.individuals, -1, np.int32), self._running()
            if self._acting is None:  # a stochastic function draws from each one's own stream
                for i in np.flatnonzero(running).tolist():
                    actions[i] = drawn(
                        self._ask(i), _kernels.rollout.decision_uniform(self._key, i, self.t)
                    )
            else:
                where = (self._acting, self.t, self._key, running)
                _kernels.rollout.decide(*where, self._beliefs, self._nodes, states, actions)
            self._actions = arrays.frozen(actions)
        return self._actions

    def action_probabilities(self) -> Floats:
        """The probability of each action now, (n, A), given all that was seen; zero when over.

        A policy with chance of its own that is no function of the history acts as it drew.
        """
        states = self._current()
        running, rows = ~self.over, np.zeros((self.individuals, self.model.n_actions))
        if not running.any():
            return rows
        if self._acting is not None and self._acting.stochastic:
            table = cast(Any, self.policy).action_probabilities(self.model)
            rows[running] = table[self.t if len(table) > 1 else 0, states[running]]
        elif self._acting is None:
            for i in np.flatnonzero(running).tolist():
                rows[i] = self._ask(i)
        else:
            rows[running, self.act_indices()[running]] = 1.0
        return rows

    def _ask(self, i: int) -> Floats:
        """The probability of each action, from a function of the history of individual i."""
        assert callable(self.policy)
        allowed = self.model.allowed[self._current()[i]]
        return self._histories[i].ask(self.policy, self.model.n_actions, allowed)

    def _require_time_left(self) -> None:
        if self._out_of_time():
            raise SessionError(f"the episode is over: the horizon is {self.model.horizon} steps")
        if not self._running().any():
            where = names.called("state", int(self._current()[0]), self.model.state_names)
            raise SessionError(f"the episode is over: {where} is terminal")

    def _checked(self, name: str, values: ArrayLike, running: Flags) -> Indices:
        """`states` or `actions`, one for every individual; of those that are done, anything."""
        listing = names.listing(name, values)
        if listing.shape == (self.individuals,) and not running.all():
            listing = np.where(
                running, listing if listing.dtype.kind in "iu" else listing.astype(object), 0
            )
        labels = self.model.state_names if name == "states" else self.model.action_names
        checked = names.to_indices(name, listing, labels, getattr(self.model, f"n_{name}"))
        if checked.size != self.individuals:
            raise ValueError(f"{name} must have {self.individuals} entries, got {checked.size}")
        return checked

    def _taken(self, actions: ArrayLike | None, running: Flags) -> Indices:
        """The actions taken before an observation, allowed where they were taken."""
        if actions is None:
            if self._actions is None:
                raise SessionError("act() before the next observation, or say which actions=")
            return self._actions
        indices = self._checked("actions", actions, running)
        states = self._current()
        wrong = running & ~self.model.allowed[states, indices]
        if wrong.any():
            i = int(np.argmax(wrong))
            reason = names.forbidden(int(states[i]), int(indices[i]), self.model)
            raise ValueError(f"actions[{i}]: {reason}")
        return indices

    def _reward_indices(self, rewards: ArrayLike | None, running: Flags) -> Integers:
        if rewards is None:
            if self.model.n_rewards == 1:
                return np.zeros(self.individuals, np.int64)
            raise SessionError("rewards are missing: the actions taken must have earned some")
        values = np.asarray(rewards, dtype=np.float64)
        if values.shape != (self.individuals,):
            raise ValueError(f"rewards must have shape {(self.individuals,)}, got {values.shape}")
        if np.isinf(values[running]).any():
            raise ValueError(f"rewards[{int(np.argmax(np.isinf(values)))}] is infinite")
        missing, edges = np.isnan(values), self.model.reward_edges
        if missing.any() and self._acting is None:
            raise SessionError("a reward is missing, and a function of the history needs them all")
        if edges is not None:
            levels = np.searchsorted(edges, values, side="right")
            return np.where(missing, -1, levels)
        if self.model.n_rewards == 1 and self.model.has_bonus:
            return np.zeros(self.individuals, np.int64)
        places, equal = arrays.nearest(self._sorted_values, values)
        unknown = ~equal & running & ~missing
        if unknown.any():
            worst = int(np.argmax(unknown))
            raise ValueError(
                f"rewards[{worst}] is {values[worst]}: not one of the reward values "
                f"{_shown(self.model.reward_values)}"
            )
        return np.where(missing, -1, self._order[places])


def _shown(values: Floats) -> str:
    """Reward values in a message: all, or the nearest few of many."""
    few = values.tolist() if values.size <= 10 else [*values[:5].tolist(), "...", values[-1].item()]
    return "[" + ", ".join(map(str, few)) + "]"


@dataclass(frozen=True, eq=False)
class SavedSession(Fielded):
    """Where a session is, and of which policy: what a file of a session holds.

    Attributes
    ----------
    policy_file, policy_digest
        Where the policy is, seen from the file of the session, and the policy's fingerprint.
    model_file, model_digest
        The same for the model of the world, where that is not the policy's own.
    t, state, action
        The step, the state that was seen last, and the action that was chosen there.
    belief, asleep
        The belief, and contexts too unlikely for a plain number (`latentmdp._kernels.belief`).
    key
        Key of the random numbers, in hexadecimal digits.
    node
        The node where a policy graph is.
    history
        States, actions and rewards so far, where the policy is a function of the history.
    """

    policy_file: str
    policy_digest: str
    t: int
    belief: list[float]
    key: str
    model_file: str | None = None
    model_digest: str | None = None
    state: int | None = None
    action: int | None = None
    asleep: list[float] | None = None
    node: int | None = None
    history: dict[str, Any] | None = None


class Session(Factual):
    """One individual; see `BatchSession` for many.

    Attributes
    ----------
    policy
        The policy that serves the individual.
    model
        The world's sizes, names, reward values, allowed actions and horizon.
    """

    def __init__(
        self,
        policy: Policy | HistoryPolicy,
        model: LatentMDP,
        rng: RNGLike = None,
        covariates: Mapping[str, Any] | None = None,
    ) -> None:
        self.policy, self.model = policy, model
        self._batch = BatchSession(policy, model, 1, rng, covariates)
        self._path = [self.belief]

    @property
    def t(self) -> int:
        """Steps taken so far."""
        return self._batch.t

    @property
    def belief(self) -> Floats:
        """The belief over the contexts of the policy's model, (M,)."""
        return self._batch.beliefs[0]

    @property
    def beliefs(self) -> Floats:
        """The belief before the first observation and after each, (n, M).

        Of a session that was taken up again, those since then.
        """
        return np.array(self._path)

    @property
    def over(self) -> bool:
        """Whether the episode has ended: its state is terminal, or the horizon is reached."""
        return bool(self._batch.over[0])

    def facts(self) -> dict[str, Any]:
        """Where the individual is, and what is believed of it."""
        model, at = self.model, self._batch._states
        state = None if at is None else names.label("state", int(at[0]), model.state_names)
        acted_in = getattr(self.policy, "model", model)
        contexts = names.labels("context", acted_in.context_names, self.belief.size)
        shares = (f"{name} {share:.1%}" for name, share in zip(contexts, self.belief))
        return {"steps": self.t, "state": state, "over": self.over, "belief": ", ".join(shares)}

    def __repr__(self) -> str:
        return f"Session({', '.join(f'{name}={fact!r}' for name, fact in self.facts().items())})"

    def observe(self, state: Any, reward: float | None = None, action: Any = None) -> None:
        """Take in the first state, or the next state and the reward that came with it.

        The state and the action are indices or names, or an environment's own observation of
        several parts (a dict, a tuple or an array) where the policy was learned in it. Where the
        names are numbers, as in logs with codes such as 10 and 20, a number is a name. `action` is
        the one taken in between, where it was not the one `act` gave. The reward may be left out
        where the model has one value; one that is missing is NaN.
        """
        rewards = None if reward is None else [reward]
        actions = None if action is None else [known_as(action, self.model.action_names)]
        self._batch.observe([known_as(state, self.model.state_names)], rewards, actions)
        self._path.append(self.belief)

    def act(self) -> Any:
        """The action to take now: its name if it has one, otherwise its index."""
        index, labels = self.act_index(), self._batch.model.action_names
        return index if labels is None else labels[index]

    def act_index(self) -> int:
        """The action to take now by its index, whether it has a name or not."""
        return int(self._batch.act_indices()[0])

    def save(self, path: Any) -> None:
        """Write the session to a small .json file; `lm.load` takes it up again.

        The file names that of the policy. A policy that comes from no file, and was saved to none,
        is saved beside it, once for all sessions of the folder.
        """
        saver()(self, path)

    def put_aside(self, policy: tuple[str, str], model: tuple[str, str] | None) -> SavedSession:
        """What a file of this session holds, given the files and digests of policy and model."""
        batch = self._batch
        belief, asleep = batch._beliefs[0, 0], batch._beliefs[0, 1:]
        history = batch._histories[0]._asdict() if batch._histories else None
        return SavedSession(
            policy_file=policy[0],
            policy_digest=policy[1],
            model_file=None if model is None else model[0],
            model_digest=None if model is None else model[1],
            t=batch.t,
            state=None if batch._states is None else int(batch._states[0]),
            action=None if batch._actions is None else int(batch._actions[0]),
            belief=belief.tolist(),
            asleep=asleep.ravel().tolist() if asleep.any() else None,
            key=f"{int(batch._key):x}",
            node=int(batch._nodes[0]) if batch._nodes[0] >= 0 else None,
            history=None if history is None else {n: list(v) for n, v in history.items()},
        )

    @classmethod
    def resume(
        cls, stored: SavedSession, policy: Policy | HistoryPolicy, model: LatentMDP
    ) -> Session:
        """The session that was put aside.

        Raises
        ------
        ValueError
            What was saved does not fit the policy or the model.
        """
        self = cls(policy, model, rng=0)
        batch = self._batch
        M = batch._beliefs.shape[2]
        belief = np.array(stored.belief, np.float64)
        asleep = np.array(stored.asleep or [0.0] * (2 * M), np.float64)
        if belief.shape != (M,) or asleep.shape != (2 * M,):
            raise ValueError(f"the belief must have {M} entries, got {belief.size}")
        if not np.isfinite(belief).all() or (belief < 0.0).any() or (asleep < 0.0).any():
            raise ValueError("the belief must hold probabilities")
        if abs(float(belief.sum()) - 1.0) > 1e-6:
            raise ValueError(f"the belief sums to {belief.sum():g}: must sum to 1")
        for name, index, size in (
            ("state", stored.state, model.n_states),
            ("action", stored.action, model.n_actions),
        ):
            if index is not None and not 0 <= index < size:
                raise ValueError(f"{name} is {index}: must lie in [0, {size})")
        if stored.t < 0 or (stored.state is None and (stored.t or stored.action is not None)):
            raise ValueError(f"t is {stored.t}, but no state was seen")
        batch.t = stored.t
        batch._beliefs[0, 0], batch._beliefs[0, 1:] = belief, asleep.reshape(2, M)
        batch._key = np.uint64(int(stored.key, 16))
        if stored.state is not None:
            batch._states = np.array([stored.state], np.int32)
            batch._nodes[0] = _resumed_node(policy, model, stored)
        if stored.action is not None:
            batch._actions = arrays.frozen(np.array([stored.action], np.int32))
        if stored.history is not None:
            parts = (tuple(map(int, stored.history[name])) for name in History._fields)
            batch._histories = [History(*parts)]
        self._path = [self.belief]
        return self


def _resumed_node(policy: Policy | HistoryPolicy, model: LatentMDP, stored: SavedSession) -> int:
    """The node of a policy graph at which a session was put aside; -1 of other policies."""
    nodes = getattr(policy, "nodes", None)
    out_of_time = model.duration.is_over(stored.t)
    if nodes is None or stored.state is None or out_of_time or model.terminal[stored.state]:
        return -1
    begin, end = nodes.group(stored.t, stored.state)
    if stored.node is None or not begin <= stored.node < end:
        raise ValueError(
            f"node is {stored.node}: must be one of the policy graph at t={stored.t} in state "
            f"{stored.state}, in [{begin}, {end})"
        )
    return stored.node
