"""The learner's state: counts in the layout of the compiled loop, and the models they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.online.bonus import Widths
from latentmdp.online.counts import Counts
from latentmdp.policies import AlphaVectorPolicy
from latentmdp.space import Space

if TYPE_CHECKING:
    from latentmdp._kernels.empirical import Estimate
    from latentmdp._kernels.optimism import Plans

__all__ = ["NO_BONUS", "LearnerState", "optimistic_model"]


NO_BONUS = Widths(0.0, 0.0, 0.0, 0.0, False)


@dataclass(frozen=True)
class LearnerState:
    """Counts, what is derived from them, and the plans made so far; updated in place.

    Attributes
    ----------
    space
        Sizes, with the number of contexts the learner assumes.
    estimate, plans
        What compiled steps read and write.
    widths
        Of the bonus.
    """

    space: Space
    estimate: Estimate
    plans: Plans
    widths: Widths

    @classmethod
    def begin(
        cls,
        space: Space,
        counts: Counts,
        widths: Widths,
        smoothing: float,
        growth: float,
        weights: Floats | None,
        learn_weights: bool,
    ) -> LearnerState:
        """The state before the first episode."""
        from latentmdp._kernels.empirical import KNOWN, LEARNED, UNIFORM, Estimate, refresh
        from latentmdp._kernels.induction import padded_states
        from latentmdp._kernels.optimism import Plans

        M, S, A, Z = space.n_contexts, space.n_states, space.n_actions, space.n_rewards
        n = A * padded_states(S)
        start = KNOWN if weights is not None else LEARNED if learn_weights else UNIFORM
        estimate = Estimate(
            sizes=(S, A, Z),
            by_next_state=counts.by_next_state,
            start=start,
            reward_values=space.rewards,
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
        plans = Plans(
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
        return cls(space, estimate, plans, widths)

    def counts(self) -> Counts:
        """A copy of the counts, context first."""
        M, S, A, Z = self._sizes
        e = self.estimate
        shape = (S, A, S, Z, M) if e.by_next_state else (S, A, Z, M)
        return Counts(
            _unpacked(e.transition_counts, (S, A, S, M)),
            _unpacked(e.reward_counts, shape),
            _unpacked(e.initial_counts, (S, M)),
        )

    def set_counts(self, counts: Counts) -> None:
        """Replace the counts and derive everything from them again."""
        from latentmdp._kernels.empirical import refresh

        e = self.estimate
        e.transition_counts[...] = _packed(counts.transitions, e.transition_counts.shape)
        e.reward_counts[...] = _packed(counts.rewards, e.reward_counts.shape)
        e.initial_counts[...] = _packed(counts.initial, e.initial_counts.shape)
        refresh(e)

    def model(self, weights: Floats | None = None) -> LatentMDP:
        """The empirical model."""
        return self.counts().model(self.space, weights)

    def bonus(self) -> Floats:
        """The bonus of the last plan, shape (M, S, A)."""
        M, S, A, _ = self._sizes
        return np.ascontiguousarray(self.plans.bonus.reshape(M, A, -1)[..., :S].swapaxes(1, 2))

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
            self.plans.values.copy(), self.acting_model(), self.estimate.smoothing
        )

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        space = self.space
        return space.n_contexts, space.n_states, space.n_actions, space.n_rewards


def optimistic_model(state: LearnerState, counts: Counts) -> LatentMDP:
    """The empirical model of some counts with hidden rewards [kwon2021, Prop. 3.2].

    Rows are N_m(s' | s, a) / max(1, N_m(s, a)) as in Algorithm 1: a row with less than one visit
    sums to less than one, and the bonus makes up for what is missing. The bonus is that of the last
    plan, and weights are those that the learner's filter starts from.
    """
    widths, visits = state.widths, counts.visits
    missing = np.maximum(0.0, 1.0 - counts.episodes)
    radius = np.sqrt(widths.initial / np.maximum(1.0, counts.episodes))
    empirical = counts.model(state.space, state.weights())
    share = 1.0 / np.maximum(1.0, visits)
    return LatentMDP._trusted(
        empirical,
        transitions=counts.transitions * share[..., None],
        reward_probs=empirical.reward_probs
        if counts.by_next_state
        else counts.rewards * share[..., None],
        initial=counts.initial / np.maximum(1.0, counts.episodes)[:, None],
        bonus=state.bonus(),
        initial_bonus=widths.reach * np.minimum(1.0, missing + radius),
    )


def _packed(array: Floats, shape: tuple[int, ...]) -> Floats:
    return np.array(np.moveaxis(array, 0, -1), order="C").reshape(shape)


def _unpacked(array: Floats, shape: tuple[int, ...]) -> Floats:
    return np.array(np.moveaxis(array.reshape(shape), -1, 0), order="C")
