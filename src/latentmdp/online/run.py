"""What a run of a learner gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latentmdp import metrics
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.fields import float_field, integer_field
from latentmdp.model import LatentMDP
from latentmdp.online.counts import Counts
from latentmdp.planning import Plan
from latentmdp.policies import Policy
from latentmdp.space import Space
from latentmdp.theory.regret import regret_bound

__all__ = ["Curve", "Regret", "Run"]


class Curve(NamedTuple):
    """A quantity after each of a few numbers of episodes."""

    episodes: NDArray[np.int64]
    values: Floats


@dataclass(frozen=True, eq=False)
class Regret:
    """Cumulative regret sum_k (rho1 V* - rho2) - r_k, one entry per episode.

    V* is known up to the bounds of the reference plan, so the regret is too.

    Attributes
    ----------
    lower, upper
        With the plan's lower and upper bound on V* in place of V*; `lower` is None if the plan
        has none.
    bound
        H S sqrt(M A N log(M S A N / eta)), the rate of [kwon2021, Thm. 3.3].
    """

    lower: Floats | None
    upper: Floats
    bound: Floats

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """The upper curve, which never understates the regret."""
        return np.array(self.upper, dtype=dtype)


@dataclass(frozen=True, eq=False)
class Run:
    """The record of a run.

    Attributes
    ----------
    returns : (K,)
        The (discounted) return of each episode.
    beliefs : (K,)
        The belief in the true context at the end of each episode; NaN where it is unknown.
    contexts : (K,)
        The true contexts; -1 where unknown.
    error_curve
        (episodes, errors): `model_error` of the estimate after 1, 2, ..., 9, 10, 20, ... episodes;
        NaN where the true model is unknown or has another number of contexts.
    counts
        The final belief-weighted counts.
    model
        The estimate they stand for; rows without a visit are all zero.
    policy
        The policy of the last plan, with the filter it acts by.
    optimistic_value
        What the last plan promised in the optimistic model: its upper bound where it has one.
    space
        Sizes, reward values, horizon and discount, as the learner knew them.
    settings
        What was run: learner, seed, episodes, world.
    seconds
        Wall-clock time of the run, over all its resumptions; None where a file does not tell.
    """

    returns: Floats
    beliefs: Floats
    contexts: NDArray[np.int32]
    error_curve: Curve
    counts: Counts
    model: LatentMDP
    policy: Policy
    optimistic_value: float
    space: Space
    settings: dict[str, Any]
    seconds: float | None = field(default=None, compare=False)

    @property
    def n_episodes(self) -> int:
        """K."""
        return self.returns.size

    def trailing_return(self, window: int = 1_000) -> float:
        """Mean return of the last `window` episodes."""
        return float(self.returns[-window:].mean())

    def regret(self, reference: Plan, failure_probability: float = 0.05) -> Regret:
        """Cumulative regret against rho1 V* - rho2, with V* bounded by a plan of the true model.

        Parameters
        ----------
        reference
            A plan with an upper bound; its `guarantee` gives (rho1, rho2), (1, 0) by default.
        """
        arrays.require_instance("reference", reference, Plan)
        if reference.upper is None:
            raise ValueError("reference: the plan has no upper bound on V*")
        lower = reference.lower
        return Regret(
            None if lower is None else metrics.regret(self.returns, lower, reference.guarantee),
            metrics.regret(self.returns, reference.upper, reference.guarantee),
            self.regret_bound(failure_probability),
        )

    def regret_bound(self, failure_probability: float = 0.05) -> Floats:
        """The rate of Theorem 3.3 after each episode."""
        space = self.space
        return regret_bound(
            space.n_contexts,
            space.n_states,
            space.n_actions,
            space.horizon,
            np.arange(1, self.n_episodes + 1),
            failure_probability,
            space.reward_span,
        )

    def to_fields(self) -> dict[str, Any]:
        """Every field by name; the model and the space follow from the counts and a few numbers."""
        names = ("returns", "beliefs", "contexts", "policy", "optimistic_value")
        return {
            **{name: getattr(self, name) for name in (*names, "settings", "seconds")},
            "curve_episodes": self.error_curve.episodes,
            "curve_errors": self.error_curve.values,
            "transitions": self.counts.transitions,
            "rewards": self.counts.rewards,
            "initial": self.counts.initial,
            "reward_values": self.space.rewards,
            "horizon": self.space.horizon,
            "discount": self.space.discount,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The run with these fields; raises where they do not fit each other."""
        transitions = float_field(fields, "transitions", *[None] * 4)
        M, S, A, _ = transitions.shape
        values = float_field(fields, "reward_values", None)
        by_next_state = np.ndim(fields["rewards"]) == 5
        counts = Counts(
            float_field(fields, "transitions", M, S, A, S),
            float_field(fields, "rewards", M, S, A, *([S] if by_next_state else []), values.size),
            float_field(fields, "initial", M, S),
        )
        space = Space(M, S, A, tuple(values.tolist()), fields["horizon"], fields["discount"])
        K = np.size(fields["returns"])
        points = integer_field(fields, "curve_episodes", None)
        errors = float_field(fields, "curve_errors", points.size, finite=False)
        return cls(
            returns=float_field(fields, "returns", K, finite=False),
            beliefs=float_field(fields, "beliefs", K, finite=False),
            contexts=arrays.frozen(integer_field(fields, "contexts", K, low=-1).astype(np.int32)),
            error_curve=Curve(points, errors),
            counts=counts,
            model=counts.model(space),
            policy=fields["policy"],
            optimistic_value=fields["optimistic_value"],
            space=space,
            settings=fields["settings"],
            seconds=fields.get("seconds"),
        )

    def __repr__(self) -> str:
        return (
            f"Run({self.n_episodes} episodes, trailing return {self.trailing_return():.4g}, "
            f"{self.settings.get('learner', '')})"
        )
