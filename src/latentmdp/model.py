"""The latent Markov decision process [kwon2021, Def. 1].

At the start of an episode a context m is drawn with probability w_m and stays hidden; then

    s_1 ~ nu_m,    a_t = pi(history),    (s_{t+1}, r_t) ~ P_m(s', r | s_t, a_t),    t = 1..H,

and the value of a policy is V = sum_m w_m E_m^pi [ sum_t discount^{t-1} r_t ]. The joint law
P_m(s', r | s, a) is T_m(s' | s, a) R_m(r | s, a), or T_m(s' | s, a) R_m(r | s, a, s') where the
reward depends on the next state. Rewards take finitely many values (0 and 1 by default).

A model may carry hidden rewards, R^hid of [kwon2021, Prop. 3.2]: `bonus` (M, S, A), earned at
each step, and `initial_bonus` (M,), earned once. Planners and `evaluate` count them, agents never
observe them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Floats
from latentmdp._util.fields import Fielded
from latentmdp.errors import ModelError

__all__ = ["LatentMDP", "RewardModel", "require_model"]

RewardModel = Literal["state-action", "transition"]
"""Whether a reward depends on (s, a), or on (s, a, s')."""


class LatentMDP(Fielded):
    """A finite mixture of MDPs over shared states and actions; immutable and validated once.

    Parameters
    ----------
    transitions : (M, S, A, S)
        T_m(s' | s, a).
    rewards : (M, S, A), (M, S, A, Z) or (M, S, A, S, Z)
        Bernoulli means, or probabilities over `reward_values`, or those given the next state.
    initial : None, int, (S,) or (M, S)
        nu_m(s): uniform over states by default; an integer is a fixed start state.
    weights : None or (M,)
        w_m: uniform by default.
    horizon : int
        H, the number of actions in an episode.
    discount : float
        In (0, 1].
    reward_values : sequence of Z distinct floats
        What the rewards are worth.
    bonus, initial_bonus : None, (M, S, A) and (M,)
        Hidden rewards, counted by planners and never observed.
    context_names, state_names, action_names : None or sequences of distinct strings
        Labels for reports.
    allow_unvisited : bool
        Accept all-zero rows of `transitions` and of reward probabilities: a row of an empirical
        model that no data support. Nothing follows such a row, so a planner sees no future there.

    Raises
    ------
    ModelError
        Naming the argument, the index and by how much it is off.
    """

    transitions: Floats
    reward_probs: Floats
    reward_values: Floats
    initial: Floats
    weights: Floats
    horizon: int
    discount: float
    bonus: Floats | None
    initial_bonus: Floats | None
    context_names: tuple[str, ...] | None
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    allow_unvisited: bool

    def __init__(
        self,
        transitions: ArrayLike,
        rewards: ArrayLike,
        *,
        initial: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        horizon: int,
        discount: float = 1.0,
        reward_values: ArrayLike = (0.0, 1.0),
        bonus: ArrayLike | None = None,
        initial_bonus: ArrayLike | None = None,
        context_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        allow_unvisited: bool = False,
    ) -> None:
        try:
            T = validation.transitions(transitions, allow_unvisited)
            M, S, A, _ = T.shape
            values = validation.reward_values(reward_values)
            fields: dict[str, Any] = {
                "transitions": T,
                "reward_probs": validation.rewards(rewards, values, T, allow_unvisited),
                "reward_values": values,
                "initial": validation.initial(initial, M, S, allow_unvisited),
                "weights": validation.weights(weights, M),
                "bonus": validation.bonus("bonus", bonus, (M, S, A)),
                "initial_bonus": validation.bonus("initial_bonus", initial_bonus, (M,)),
                "horizon": arrays.positive_integer("horizon", horizon),
                "discount": validation.discount(discount),
                "context_names": validation.names("context_names", context_names, M),
                "state_names": validation.names("state_names", state_names, S),
                "action_names": validation.names("action_names", action_names, A),
                "allow_unvisited": bool(allow_unvisited),
            }
        except ValueError as error:
            raise ModelError(str(error)) from None
        arrays.store(self, fields)

    @classmethod
    def _trusted(cls, like: LatentMDP, **fields: Any) -> LatentMDP:
        """A copy of `like` with some stored arrays changed, unchecked.

        Learners need it: rows of an optimistic model may sum to less than one.
        """
        self = cls.__new__(cls)
        arrays.store(self, {**like.__getstate__(), **fields})
        return self

    def __setattr__(self, name: str, *value: object) -> None:
        raise AttributeError(f"a LatentMDP is immutable: use replace({name}=...) for a new one")

    __delattr__ = __setattr__

    @property
    def n_contexts(self) -> int:
        """M, the number of MDPs."""
        return self.transitions.shape[0]

    @property
    def n_states(self) -> int:
        """S, the number of states."""
        return self.transitions.shape[1]

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return self.transitions.shape[2]

    @property
    def n_rewards(self) -> int:
        """Z, the number of distinct reward values."""
        return self.reward_values.shape[0]

    @property
    def reward_model(self) -> RewardModel:
        """Whether rewards depend on s' too: `reward_probs` is then (M, S, A, S, Z)."""
        return "transition" if self.reward_probs.ndim == 5 else "state-action"

    def observation_probs(self) -> Floats:
        """P_m(s', r | s, a), shape (M, S, A, S, Z)."""
        rewards = self.reward_probs
        if self.reward_model == "state-action":
            rewards = rewards[:, :, :, None, :]
        return self.transitions[..., None] * rewards

    def mean_rewards(self) -> Floats:
        """E_m[r | s, a] without the bonus, shape (M, S, A)."""
        if self.reward_model == "transition":
            given_next = self.reward_probs @ self.reward_values
            return np.einsum("msan,msan->msa", self.transitions, given_next)
        return self.reward_probs @ self.reward_values

    def planning_rewards(self) -> Floats:
        """Mean rewards plus the hidden bonus: what a planner maximises, shape (M, S, A)."""
        means = self.mean_rewards()
        return means if self.bonus is None else means + self.bonus

    def initial_value(self) -> float:
        """sum_m w_m R^hid_init(m): what every policy earns at the start."""
        return 0.0 if self.initial_bonus is None else float(self.weights @ self.initial_bonus)

    def packed(self) -> Floats:
        """P_m(s', r | s, a) context-last, shape (S, A, S, Z, M): the layout of compiled kernels."""
        return self._packed

    @cached_property
    def _packed(self) -> Floats:
        packed = np.ascontiguousarray(np.moveaxis(self.observation_probs(), 0, -1))
        return arrays.frozen(packed)

    def lanes(self) -> tuple[Floats, Floats]:
        """Transitions (M, S', n) and planning rewards (M, n) as backward induction reads them."""
        return self._lanes

    @cached_property
    def _lanes(self) -> tuple[Floats, Floats]:
        from latentmdp._kernels.induction import to_lanes

        next_major = np.moveaxis(self.transitions, -1, 1)
        return to_lanes(next_major), to_lanes(self.planning_rewards())

    def context(self, m: int) -> LatentMDP:
        """The MDP of context `m` alone, as a latent MDP with one context."""
        return self.subset([m])

    def subset(self, contexts: Iterable[int]) -> LatentMDP:
        """The latent MDP over some contexts, in the order given, weights renormalised."""
        index = np.asarray(list(contexts))
        M = self.n_contexts
        if index.size == 0:
            raise ValueError("contexts must name at least one context")
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TypeError(f"contexts must be integers, got {index.tolist()}")
        if index.min() < -M or index.max() >= M:
            raise ValueError(f"contexts must lie in [0, {M}), got {index.tolist()}")
        if np.unique(index % M).size < index.size:
            raise ValueError(f"contexts must be distinct, got {index.tolist()}")
        weights = self.weights[index]
        total = float(weights.sum())
        if total == 0.0:
            raise ValueError(f"contexts {index.tolist()} have total weight zero")
        names = self.context_names
        return self.replace(
            transitions=self.transitions[index],
            rewards=self.reward_probs[index],
            initial=self.initial[index],
            weights=weights if index.size == M else weights / total,
            bonus=None if self.bonus is None else self.bonus[index],
            initial_bonus=None if self.initial_bonus is None else self.initial_bonus[index],
            context_names=None if names is None else [names[i] for i in index],
        )

    def mixture(self) -> LatentMDP:
        """The average MDP, as a latent MDP with one context: T, R and nu averaged over contexts.

        Where some contexts have an all-zero row, the others are averaged.
        """
        w = self.weights
        rewards = np.einsum("m,m...->...", w, self.reward_probs)
        if self.reward_model == "transition":
            rewards = np.einsum("m,msanz->sanz", w, self.observation_probs())
        bonus, first = self.bonus, self.initial_bonus
        return self.replace(
            transitions=arrays.normalised(np.einsum("m,msan->san", w, self.transitions))[None],
            rewards=arrays.normalised(rewards)[None],
            initial=arrays.normalised(w @ self.initial)[None],
            weights=[1.0],
            bonus=None if bonus is None else np.einsum("m,msa->sa", w, bonus)[None],
            initial_bonus=None if first is None else [float(w @ first)],
            context_names=None,
        )

    def distances(self, other: LatentMDP) -> Floats:
        """sum_{s,a} ||P_m - P'_n||_1 for every pair of contexts (m of self, n of other)."""
        for name in ("n_states", "n_actions", "reward_values"):
            one, two = np.asarray(getattr(self, name)), np.asarray(getattr(other, name))
            if not np.array_equal(one, two):
                raise ValueError(f"the models differ in {name}: {one.tolist()} and {two.tolist()}")
        mine, theirs = self.observation_probs(), other.observation_probs()
        return np.stack([np.abs(one - theirs).sum(axis=(1, 2, 3, 4)) for one in mine])

    def align(self, to: LatentMDP) -> LatentMDP:
        """Reorder the contexts so that they match those of `to` as closely as possible.

        The order minimises the sum of L1 distances of the joint distributions (linear assignment).
        """
        if self.n_contexts != to.n_contexts:
            raise ValueError(
                f"align needs as many contexts: {self.n_contexts} here, {to.n_contexts} there"
            )
        from scipy.optimize import linear_sum_assignment

        _, order = linear_sum_assignment(to.distances(self))
        return self.subset(order)

    def replace(self, **changes: Any) -> LatentMDP:
        """A copy with some constructor arguments changed (`rewards` in any of its three forms)."""
        unknown = set(changes) - set(_CONSTRUCTOR_ARGUMENTS)
        if unknown:
            raise TypeError(f"replace() got an unknown argument {sorted(unknown)[0]!r}")
        current = self.__getstate__()
        current["rewards"] = current.pop("reward_probs")
        return type(self)(**{**current, **changes})

    def fingerprint(self) -> str:
        """A hexadecimal digest of every field: equal models have equal fingerprints."""
        digest = hashlib.sha256()
        for name, value in self.__getstate__().items():
            if isinstance(value, np.ndarray):
                digest.update(f"{name}{value.shape}".encode() + value.tobytes())
            else:
                digest.update(f"{name}={value!r};".encode())
        return digest.hexdigest()

    def to_fields(self) -> dict[str, Any]:
        """Every field by name, None where it is not given: what a file holds."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.__getstate__().items()
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The model with these fields, validated."""
        rewards = np.asarray(fields["reward_probs"])
        if rewards.ndim < 4:
            raise ModelError(
                "field 'reward_probs' must have shape (M, S, A, Z) or (M, S, A, S, Z), got "
                f"{rewards.shape}"
            )
        others = {name: value for name, value in fields.items() if name != "reward_probs"}
        return cls(rewards=rewards, **others)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in _FIELDS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays.store(self, state)

    def __repr__(self) -> str:
        values = ", ".join(f"{value:g}" for value in self.reward_values[:4])
        more = ", ..." if self.n_rewards > 4 else ""
        hidden = ", bonus" if self.bonus is not None or self.initial_bonus is not None else ""
        discount = "" if self.discount == 1.0 else f", discount={self.discount:g}"
        return (
            f"LatentMDP(contexts={self.n_contexts}, states={self.n_states}, "
            f"actions={self.n_actions}, horizon={self.horizon}, "
            f"rewards={{{values}{more}}}{discount}{hidden})"
        )


_FIELDS = tuple(LatentMDP.__annotations__)
_CONSTRUCTOR_ARGUMENTS = tuple("rewards" if f == "reward_probs" else f for f in _FIELDS)


def require_model(obj: object) -> None:
    """Raise `TypeError` unless `obj` is a model, as where arguments are swapped."""
    arrays.require_instance("model", obj, LatentMDP)
