"""Policies: what an agent does with the state it sees and the belief it holds.

The common form is **alpha vectors with action labels**, grouped by (t, s): the action is the label
of the vector with the largest product with the belief [kwon2021, App. B.1]. Q-MDP has one vector
per action, point-based planners have sets of them, and a deterministic Markov policy has one
vector per (t, s). Stochastic Markov policies are tables of probabilities. Any Python callable
`f(history)` that returns an action, or a probability for each action, is a policy too, on a slow
path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.fields import Fielded
from latentmdp._util.random import RNGLike
from latentmdp.belief import check_smoothing, filter_tables
from latentmdp.model import LatentMDP, require_model
from latentmdp.trajectories import History

if TYPE_CHECKING:
    from latentmdp._kernels.rollout import Acting
    from latentmdp.sessions import BatchSession, Session

__all__ = [
    "AlphaVectorPolicy",
    "History",
    "HistoryPolicy",
    "MarkovPolicy",
    "Policy",
    "Sized",
    "UniformPolicy",
    "action_table",
]


HistoryPolicy = Callable[[History], int | ArrayLike]
"""A policy as a function of the history: an action, or a probability for each action."""


class Sized(Protocol):
    """What a policy must fit: a `LatentMDP`, or the `Space` of a world."""

    @property
    def n_states(self) -> int:
        """S."""

    @property
    def n_actions(self) -> int:
        """A."""

    @property
    def n_rewards(self) -> int:
        """Z."""

    @property
    def horizon(self) -> int:
        """H."""


class Policy:
    """Base of the policies that run in compiled loops."""

    def acting(self, world: Sized) -> Acting:
        """The policy as arrays for a world of the given sizes; raises if they do not fit."""
        raise NotImplementedError

    def session(self, model: LatentMDP | None = None, rng: RNGLike = None) -> Session:
        """Follow one individual: `observe(state, reward)` and `act()`.

        Parameters
        ----------
        model
            The world's sizes, horizon and reward values; by default the policy's own model.
        rng
            Chance of a stochastic policy.
        """
        from latentmdp.sessions import Session

        return Session(self, self._world(model), rng)

    def batch_session(
        self, individuals: int, model: LatentMDP | None = None, rng: RNGLike = None
    ) -> BatchSession:
        """Follow many individuals at once; see `latentmdp.sessions`."""
        from latentmdp.sessions import BatchSession

        return BatchSession(self, self._world(model), individuals, rng)

    def _world(self, model: LatentMDP | None) -> LatentMDP:
        known = getattr(self, "model", None) if model is None else model
        if known is None:
            raise ValueError(f"a session of a {type(self).__name__} needs model=")
        return known


class UniformPolicy(Fielded, Policy):
    """Every action with equal probability, always."""

    def action_probabilities(self, world: Sized) -> Floats:
        """pi(a | s), shape (1, S, A)."""
        return np.full((1, world.n_states, world.n_actions), 1.0 / world.n_actions)

    def acting(self, world: Sized) -> Acting:
        """See `Policy.acting`."""
        return _stochastic_acting(self.action_probabilities(world))

    def __repr__(self) -> str:
        return "UniformPolicy()"


class MarkovPolicy(Fielded, Policy):
    """A policy that looks at the time and the state only.

    Parameters
    ----------
    actions : integers (S,) or (H, S); probabilities (S, A) or (H, S, A)
        One action per state, or per time and state; or a distribution over actions for each.
    """

    actions: NDArray[np.int32] | None
    probabilities: Floats | None

    def __init__(self, actions: ArrayLike) -> None:
        array = np.asarray(actions)
        if array.size == 0:
            raise ValueError(f"actions must not be empty, got shape {array.shape}")
        if array.dtype.kind in "iu" and array.ndim in (1, 2):
            layers = np.atleast_2d(array)
            flat = arrays.as_integers("actions", layers.ravel(), np.int32)
            self.actions, self.probabilities = arrays.frozen(flat.reshape(layers.shape)), None
        elif (array.dtype.kind == "f" and array.ndim == 2) or array.ndim == 3:
            rows = arrays.as_floats("actions", array).reshape(-1, *array.shape[-2:])
            rows = arrays.distributions("actions", rows, ("time", "state"), given=array)
            self.actions, self.probabilities = None, arrays.frozen(rows)
        else:
            raise ValueError(
                "actions must be integers of shape (S,) or (H, S), or probabilities of shape "
                f"(S, A) or (H, S, A); got {array.dtype} of shape {array.shape}"
            )
        self.n_layers, self.n_states = (layers if self.probabilities is None else rows).shape[:2]

    @property
    def stationary(self) -> bool:
        """Whether the same rule holds at every time."""
        return self.n_layers == 1

    def action_probabilities(self, world: Sized) -> Floats:
        """pi_t(a | s), shape (H or 1, S, A), checked against a model or a space."""
        _require_fit(self.n_layers, self.n_states, world)
        A = world.n_actions
        if self.probabilities is not None:
            if (own := self.probabilities.shape[-1]) != A:
                raise ValueError(f"the policy has {own} actions, the model {A}")
            return self.probabilities
        assert self.actions is not None
        _require_actions(self.actions, A)
        return np.asarray(np.eye(A)[self.actions])

    def acting(self, world: Sized) -> Acting:
        """See `Policy.acting`."""
        probabilities = self.action_probabilities(world)
        if self.actions is None:
            return _stochastic_acting(probabilities)
        labels = self.actions.ravel()
        vectors, offsets = np.zeros((labels.size, 1)), np.arange(labels.size + 1, dtype=np.int64)
        return _acting(self.n_layers, vectors=vectors, labels=labels, offsets=offsets)

    def to_fields(self) -> dict[str, Any]:
        """`actions`, or `probabilities` of a stochastic policy; the other is None."""
        return {"actions": self.actions, "probabilities": self.probabilities}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The policy with these fields, validated."""
        given = [table for table in fields.values() if table is not None]
        if len(given) != 1:
            raise ValueError("a Markov policy has either 'actions' or 'probabilities'")
        return cls(given[0])

    def __repr__(self) -> str:
        kind = "stochastic" if self.actions is None else "deterministic"
        when = "stationary" if self.stationary else f"{self.n_layers} steps"
        return f"MarkovPolicy({kind}, {when}, {self.n_states} states)"


class AlphaVectorPolicy(Fielded, Policy):
    """Act by the label of the alpha vector that is best for the current belief.

    Parameters
    ----------
    vectors : (n, M)
        Alpha vectors: entry m is the value of following the vector's plan in context m.
    actions : (n,)
        The action each vector begins with.
    offsets : (H S + 1,) or (S + 1,)
        The vectors of time t and state s are offsets[t S + s] .. offsets[t S + s + 1] - 1, at
        least one; with S + 1 entries the same sets serve at every time.
    model : LatentMDP
        The model whose belief the policy tracks: the world's own, or an estimate of it.
    smoothing : float
        alpha of the belief filter, see `latentmdp.belief`. Without smoothing, an observation that
        is impossible in every context leaves the belief as it was.
    """

    _lanes: Floats

    def __init__(
        self,
        vectors: ArrayLike,
        actions: ArrayLike,
        offsets: ArrayLike,
        model: LatentMDP,
        smoothing: float = 0.0,
    ) -> None:
        require_model(model)
        check_smoothing(model, smoothing)
        self.__dict__["vectors"] = arrays.frozen(arrays.as_floats("vectors", vectors))
        self.actions = arrays.frozen(arrays.as_integers("actions", actions, np.int32))
        self.offsets = arrays.frozen(arrays.as_integers("offsets", offsets, np.int64))
        self.model, self.smoothing = model, float(smoothing)
        self.n_layers = (self.offsets.size - 1) // model.n_states
        n, S = self.actions.size, model.n_states
        if self.vectors.shape != (n, model.n_contexts):
            raise ValueError(
                f"vectors must have shape {(n, model.n_contexts)}, got {self.vectors.shape}"
            )
        rest = (self.offsets.size - 1) % S
        if rest or self.n_layers == 0 or self.offsets[0] != 0 or self.offsets[-1] != n:
            raise ValueError(
                f"offsets must cut the {n} vectors into H S or S groups (S = {S}), got "
                f"{self.offsets.size} entries"
            )
        missing = (np.diff(self.offsets) < 1) & ~np.tile(model.terminal, self.n_layers)
        if missing.any():
            group = int(np.argmax(missing))
            raise ValueError(f"time {group // S}, state {group % S} has no vector")
        _require_actions(self.actions, model.n_actions)

    @classmethod
    def from_lanes(
        cls, lanes: Floats, model: LatentMDP, smoothing: float = 0.0
    ) -> AlphaVectorPolicy:
        """One vector per action from values Q_m(t, s, a) in lanes (M, H, n), kept as they are.

        They are rearranged into `vectors` when first needed: a plan that is made and dropped, as
        in a learner's inner loop, never pays for it.
        """
        self = cls.__new__(cls)
        check_smoothing(model, smoothing)
        self.model, self.smoothing = model, float(smoothing)
        self.n_layers = lanes.shape[1]
        groups = self.n_layers * model.n_states
        self.actions, self.offsets = _one_vector_per_action(groups, model.n_actions)
        self._lanes = lanes
        return self

    def filtering(self, model: LatentMDP, smoothing: float) -> AlphaVectorPolicy:
        """The same vectors, acting by the belief of another filter."""
        return AlphaVectorPolicy(self.vectors, self.actions, self.offsets, model, smoothing)

    @cached_property
    def vectors(self) -> Floats:
        """The alpha vectors, shape (n, M)."""
        from latentmdp._kernels.induction import interleave

        shape = (self.n_layers, self.model.n_states, self.model.n_actions, self.model.n_contexts)
        values = np.empty(shape)
        interleave(self._lanes, values)
        return arrays.frozen(values.reshape(-1, self.model.n_contexts))

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats]:
        return filter_tables(self.model, self.smoothing)

    def value(self, t: int, state: int, belief: ArrayLike) -> float:
        """The largest product of a vector of (t, state) with the belief."""
        begin, end = self._group(t, state)
        return float((self.vectors[begin:end] @ np.asarray(belief)).max())

    def action(self, t: int, state: int, belief: ArrayLike) -> int:
        """The action taken at (t, state) under a belief; the first of equally good ones."""
        begin, end = self._group(t, state)
        return int(self.actions[begin + np.argmax(self.vectors[begin:end] @ np.asarray(belief))])

    def _group(self, t: int, state: int) -> tuple[int, int]:
        group = (t if self.n_layers > 1 else 0) * self.model.n_states + state
        return int(self.offsets[group]), int(self.offsets[group + 1])

    def acting(self, world: Sized) -> Acting:
        """See `Policy.acting`."""
        _require_fit(self.n_layers, self.model.n_states, world)
        for name in ("n_actions", "n_rewards"):
            mine, theirs = getattr(self.model, name), getattr(world, name)
            if mine != theirs:
                raise ValueError(f"the policy's model has {name}={mine}, the world {theirs}")
        table, prior, initial = self._tables
        return _acting(
            self.n_layers,
            filters=bool((np.diff(self.offsets) > 1).any()),
            vectors=self.vectors,
            labels=self.actions,
            offsets=self.offsets,
            likelihood=table,
            prior=prior,
            initial=initial,
        )

    def __repr__(self) -> str:
        when = "stationary" if self.n_layers == 1 else f"{self.n_layers} steps"
        return f"AlphaVectorPolicy({self.actions.size} vectors, {when}, {self.model!r})"


def action_table(policy: Policy | HistoryPolicy, world: Sized) -> Floats | None:
    """pi_t(a | s) of a Markov policy, shape (H or 1, S, A); None for other policies."""
    if isinstance(policy, UniformPolicy | MarkovPolicy):
        return policy.action_probabilities(world)
    return None


def _stochastic_acting(probabilities: Floats) -> Acting:
    """A table pi_t(a | s), shape (H or 1, S, A)."""
    from latentmdp._kernels.alias import alias_tables

    threshold, alias = alias_tables(probabilities)
    return _acting(
        len(probabilities), stochastic=True, action_threshold=threshold, action_alias=alias
    )


def _acting(n_layers: int, **given: Any) -> Acting:
    """The arrays of a policy as kernels read them; what is not given is not needed."""
    from latentmdp._kernels.rollout import Acting

    blank = Acting(
        stochastic=False,
        filters=False,
        n_layers=n_layers,
        action_threshold=np.zeros((1, 1)),
        action_alias=np.zeros((1, 1), np.int32),
        vectors=np.zeros((1, 1)),
        labels=np.zeros(1, np.int32),
        offsets=np.arange(2),
        likelihood=np.zeros((1, 1)),
        prior=np.ones(1),
        initial=np.ones((1, 1)),
    )
    return blank._replace(**given)


@lru_cache(maxsize=64)
def _one_vector_per_action(
    groups: int, n_actions: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Labels and offsets of groups that hold each action once, in order."""
    labels = np.tile(np.arange(n_actions, dtype=np.int32), groups)
    offsets = np.arange(0, groups * n_actions + 1, n_actions, dtype=np.int64)
    return arrays.frozen(labels), arrays.frozen(offsets)


def _require_fit(n_layers: int, n_states: int, world: Sized) -> None:
    """Raise unless a policy covers the states and the horizon of a world."""
    if n_states != world.n_states:
        raise ValueError(f"the policy has {n_states} states, the model {world.n_states}")
    if n_layers != 1 and n_layers < world.horizon:
        raise ValueError(
            f"the policy covers {n_layers} steps, the model's horizon is {world.horizon}"
        )


def _require_actions(labels: NDArray[np.int32], n_actions: int) -> None:
    """Raise unless every label is an action, naming the largest."""
    if int(labels.max()) >= n_actions:
        where = arrays.first_index(labels == labels.max())
        raise ValueError(
            f"actions{list(where)} is {labels[where]}: must be below n_actions={n_actions}"
        )
