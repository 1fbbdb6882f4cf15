"""The empirical model of L-UCRL: belief-weighted counts and what they stand for [kwon2021, Alg. 1].

N_m(s' | s, a), N_m(r | s, a) and N_m(s) are added up over episodes, each with weight b-hat(m); the
model That_m, Rhat_m, nuhat_m is their shares. `Counts` is a snapshot, context first, as users see
it; `EmpiricalModel` holds the counts in the layout of the compiled loop, updated in place, with
everything that acting and planning derive from them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util.arrays import Arrays, Floats, frozen, normalised
from latentmdp._util.results import Result
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.online.bonus import Widths
from latentmdp.policies import AlphaVectorPolicy
from latentmdp.trajectories import Trajectories, cell_counts, first_state_counts
from latentmdp.worlds import Space

if TYPE_CHECKING:
    from latentmdp._kernels.empirical import Estimate
    from latentmdp._kernels.optimism import OptimisticValues

__all__ = ["Counts", "EmpiricalModel", "same_contexts"]


@dataclass(frozen=True, eq=False)
class Counts(Result):
    """Counts, context first.

    Attributes
    ----------
    transitions : (M, S, A, S)
        N_m(s' | s, a).
    rewards : (M, S, A, Z) or (M, S, A, S, Z)
        N_m(r | s, a), or N_m(s', r | s, a) for the reward model "transition".
    initial : (M, S)
        N_m(s): how often an episode began in s.
    """

    transitions: Floats
    rewards: Floats
    initial: Floats

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            frozen(array)

    def facts(self) -> list[tuple[str, Any]]:
        """How much was counted."""
        return [("contexts", len(self.initial)), ("visits", f"{self.visits.sum():.6g}")]

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(np.add, self.arrays().values(), other.arrays().values()))

    def arrays(self, prefix: str = "") -> Arrays:
        """The arrays by name, which `prefix` goes before."""
        return {f"{prefix}{field.name}": getattr(self, field.name) for field in fields(self)}

    @property
    def visits(self) -> Floats:
        """N_m(s, a) before it is clipped at one, shape (M, S, A)."""
        # Added in the order of the compiled loop, so that both give the same bits.
        return np.cumsum(self.transitions, axis=-1)[..., -1]

    @property
    def episodes(self) -> Floats:
        """N(m), shape (M,)."""
        return self.initial.sum(axis=-1)

    @property
    def reward_model(self) -> RewardModel:
        """Whether rewards are counted by (s, a) or by (s, a, s')."""
        return "transition" if self.rewards.ndim == 5 else "state-action"

    def model(self, space: Space, weights: Floats | None = None) -> LatentMDP:
        """The empirical model; rows without a visit are all zero.

        Weights are the shares N(m) of all episodes, uniform if there are none, unless given.
        """
        if weights is None and self.episodes.sum() > 0.0:
            weights = self.episodes / self.episodes.sum()
        T, R, nu = map(normalised, self.arrays().values())
        return space.model_of(T, R, initial=nu, weights=weights, allow_unvisited=True)

    @classmethod
    def zero(cls, space: Space, reward_model: RewardModel) -> Counts:
        """No visits at all."""
        M, S, A, Z = space.dimensions
        rewards = (M, S, A, S, Z) if reward_model == "transition" else (M, S, A, Z)
        return cls(np.zeros((M, S, A, S)), np.zeros(rewards), np.zeros((M, S)))

    @classmethod
    def start(
        cls, start: Any, space: Space, prior_count: float, reward_model: RewardModel
    ) -> Counts:
        """What a learner begins with.

        `start` is None, a model (or a `Fit` that holds one) whose every row counts as
        `prior_count` visits, or logs with contexts.
        """
        if start is None:
            return cls.zero(space, reward_model)
        if isinstance(start, Trajectories):
            return _counts_of_logs(start, space, reward_model)
        model = start if isinstance(start, LatentMDP) else getattr(start, "model", None)
        if not isinstance(model, LatentMDP):
            raise TypeError(
                "start must be None, a LatentMDP, a Fit or Trajectories with contexts, got "
                f"{type(start).__name__}"
            )
        space.require_fit("start", model)
        joint = model.observation_probs()
        rewards = joint if reward_model == "transition" else joint.sum(axis=3)
        return cls(
            prior_count * model.transitions, prior_count * rewards, prior_count * model.initial
        )


def _counts_of_logs(logs: Trajectories, space: Space, reward_model: RewardModel) -> Counts:
    if logs.contexts is None:
        raise ValueError("start: the logs must know their contexts")
    if logs.contexts.size and int(logs.contexts.max()) >= space.n_contexts:
        worst = int(np.argmax(logs.contexts))
        raise ValueError(
            f"start: episode {worst} has context {logs.contexts[worst]}, the world only "
            f"{space.n_contexts} contexts"
        )
    for name in ("n_states", "n_actions", "n_rewards"):
        if getattr(logs, name) > getattr(space, name):
            raise ValueError(
                f"start has {name}={getattr(logs, name)}, the world {getattr(space, name)}"
            )
    sizes = (space.n_states, space.n_actions, space.n_rewards)
    shares = np.eye(space.n_contexts)[logs.contexts]
    by = ("state", "action", "next_state") if reward_model == "transition" else ("state", "action")
    return Counts(
        cell_counts(logs, ("state", "action", "next_state"), sizes, shares),
        cell_counts(logs, (*by, "reward"), sizes, shares),
        first_state_counts(logs, space.n_states, shares),
    )


def same_contexts(counts: Counts) -> bool:
    """Whether all contexts have the same counts, so that nothing tells them apart."""
    return all(bool((a == a[:1]).all()) for a in (counts.transitions, counts.rewards))


@dataclass(frozen=True)
class EmpiricalModel:
    """Counts, what is derived from them, and the optimistic values; updated in place.

    Attributes
    ----------
    space
        Sizes, with the number of contexts the learner assumes.
    estimate, optimistic
        What compiled steps read and write.
    widths
        Of the bonus.
    """

    space: Space
    estimate: Estimate
    optimistic: OptimisticValues
    widths: Widths

    @classmethod
    def begin(
        cls,
        space: Space,
        counts: Counts,
        widths: Widths | None,
        smoothing: float,
        growth: float,
        weights: Floats | None,
        learn_weights: bool,
    ) -> EmpiricalModel:
        """The state before the first episode; without `widths` there is no bonus."""
        from latentmdp._kernels.empirical import KNOWN, LEARNED, UNIFORM, Estimate, refresh
        from latentmdp._kernels.induction import padded_states
        from latentmdp._kernels.optimism import OptimisticValues

        widths = Widths(0.0, 0.0, 0.0, 0.0, False) if widths is None else widths
        M, S, A, Z = space.dimensions
        n = A * padded_states(S)
        start = KNOWN if weights is not None else LEARNED if learn_weights else UNIFORM
        estimate = Estimate(
            sizes=(S, A, Z),
            transition_rewards=counts.reward_model == "transition",
            start=start,
            reward_values=space.reward_array,
            smoothing=float(smoothing),
            transition_counts=_packed(counts.transitions, (S * A, S, M)),
            reward_counts=_packed(counts.rewards, (-1, Z, M)),
            initial_counts=_packed(counts.initial, (S, M)),
            visits=np.zeros((S * A, M)),
            scale=np.empty((S * A, M)),
            scratch=np.empty((1, M)),
            rows=np.empty(S * A, np.int64),
            seen=np.zeros(S * A, np.bool_),
            prior=np.full(M, 1.0 / M) if weights is None else weights.copy(),
            initial=np.full((S, M), 1.0 / S),
            transitions=np.zeros((M, S, n)),
            means=np.zeros((M, n)),
        )
        refresh(estimate)
        optimistic = OptimisticValues(
            reach=float(widths.reach),
            width=float(widths.row),
            lowest=float(widths.lowest),
            adaptive=widths.adaptive,
            growth=float(growth),
            discount=float(space.discount),
            values=np.zeros((M, space.horizon, n)),
            bonus=np.zeros((M, n)),
            rewards=np.zeros((M, n)),
            spread=np.full(M, float(widths.reach)),
            planned_visits=np.zeros((S * A, M)),
            stale=np.ones(M, np.bool_),
            due=np.ones(1, np.bool_),
        )
        return cls(space, estimate, optimistic, widths)

    def counts(self) -> Counts:
        """A copy of the counts, context first."""
        M, S, A, Z = self.space.dimensions
        e = self.estimate
        shape = (S, A, S, Z, M) if e.transition_rewards else (S, A, Z, M)
        packed = (e.transition_counts, e.reward_counts, e.initial_counts)
        return Counts(*map(_unpacked, packed, ((S, A, S, M), shape, (S, M))))

    def set_counts(self, counts: Counts) -> None:
        """Replace the counts and derive everything from them again."""
        from latentmdp._kernels.empirical import refresh

        e = self.estimate
        packed = (e.transition_counts, e.reward_counts, e.initial_counts)
        for own, given in zip(packed, counts.arrays().values()):
            own[...] = _packed(given, own.shape)
        refresh(e)

    def model(self, weights: Floats | None = None) -> LatentMDP:
        """The empirical model."""
        return self.counts().model(self.space, weights)

    def bonus(self) -> Floats:
        """The bonus of the last plan, shape (M, S, A)."""
        M, S, A, _ = self.space.dimensions
        return np.ascontiguousarray(self.optimistic.bonus.reshape(M, A, -1)[..., :S].swapaxes(1, 2))

    def weights(self) -> Floats:
        """The weights that beliefs start from."""
        return self.estimate.prior / self.estimate.prior.sum()

    def acting_model(self) -> LatentMDP:
        """The empirical model with the start of the acting filter: its w and nu."""
        model = self.model(self.weights())
        return model.replace(initial=np.ascontiguousarray(self.estimate.initial.T))

    def policy(self) -> AlphaVectorPolicy:
        """The Q-MDP policy of the last plan, with the filter it acts by."""
        return AlphaVectorPolicy.from_lanes(
            self.optimistic.values.copy(), self.acting_model(), self.estimate.smoothing
        )

    def optimistic_model(self, counts: Counts) -> LatentMDP:
        """The empirical model of some counts with hidden rewards [kwon2021, Prop. 3.2].

        Rows are N_m(s' | s, a) / max(1, N_m(s, a)) as in Algorithm 1: a row with less than one
        visit sums to less than one, and the bonus makes up for what is missing. The bonus is the
        last one that was set (`raise_bonus`), and weights are those that the learner's filter
        starts from.
        """
        widths = self.widths
        missing = np.maximum(0.0, 1.0 - counts.episodes)
        radius = np.sqrt(widths.initial / np.maximum(1.0, counts.episodes))
        empirical = counts.model(self.space, self.weights())
        share = 1.0 / np.maximum(1.0, counts.visits)
        return LatentMDP._trusted(
            empirical,
            transitions=counts.transitions * share[..., None],
            reward_probs=empirical.reward_probs
            if counts.reward_model == "transition"
            else counts.rewards * share[..., None],
            initial=counts.initial / np.maximum(1.0, counts.episodes)[:, None],
            bonus=self.bonus(),
            initial_bonus=widths.reach * np.minimum(1.0, missing + radius),
        )

    def raise_bonus(self) -> None:
        """Set the bonus for the counts as they are now, and the values U_m of the next one.

        U_m of the adaptive bonus is the largest informed value in the optimistic model, so setting
        it takes a backward induction in every context whose counts changed.
        """
        from latentmdp._kernels.optimism import replan

        replan(self.estimate, self.optimistic)

    def informed_value(self) -> float:
        """The informed bound of the last Q-MDP plan in the optimistic model."""
        from latentmdp._kernels.induction import informed_value

        model = self.optimistic_model(self.counts())
        assert model.initial_bonus is not None
        value = informed_value(self.optimistic.values, model.weights, model.initial)
        return float(value + model.weights @ model.initial_bonus)

    def distances(self, truth: LatentMDP) -> Floats:
        """sum_{s,a} ||P_n - Phat_m||_1 for every pair of contexts, (M, M)."""
        from latentmdp._kernels.empirical import distances

        M = self.space.n_contexts
        cost = np.empty((M, M))
        distances(self.estimate, truth.packed().reshape(-1, M), cost)
        return cost


def _packed(array: Floats, shape: tuple[int, ...]) -> Floats:
    return np.array(np.moveaxis(array, 0, -1), order="C").reshape(shape)


def _unpacked(array: Floats, shape: tuple[int, ...]) -> Floats:
    return np.array(np.moveaxis(array.reshape(shape), -1, 0), order="C")
