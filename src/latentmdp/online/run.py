"""The result of learning by acting: what was earned, what was learned, and the policy found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from latentmdp import metrics
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp._util.fields import float_field, integer_field
from latentmdp._util.results import Result, Worded
from latentmdp._util.words import plural
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP
from latentmdp.online.empirical_model import Counts
from latentmdp.planning import Plan
from latentmdp.policies import HistoryPolicy, MarkovPolicy, Policy
from latentmdp.theory import Diagnosis, diagnose, regret_bound
from latentmdp.worlds import Space

RECORDS = ("returns", "beliefs", "contexts")
"""Fields of a run with one entry per episode."""

_PLAIN = (*RECORDS, *("model", "settings", "optimistic_value", "plan", "fit", "logs", "seconds"))
"""Fields of a run that a file holds as they are."""


class Curve(NamedTuple):
    """A quantity after each of a few numbers of episodes."""

    episodes: Integers
    values: Floats


class Phase(NamedTuple):
    """Episodes that one policy played: what was known when it was made, and what it earned.

    `n_contexts` is 0, and the log-likelihood NaN, before the first fit.
    """

    first_episode: int
    episodes: int
    n_contexts: int
    log_likelihood: float
    model_error: float
    mean_return: float


def phase_rows(phases: Sequence[Phase]) -> Floats:
    """One row per phase, one column per field."""
    return np.array(phases, dtype=np.float64).reshape(-1, len(Phase._fields))


def phases_of(fields: Mapping[str, Any]) -> tuple[Phase, ...]:
    """The phases of the field that `phase_rows` filled."""
    rows = float_field(fields, "phases", None, len(Phase._fields), finite=False)
    return tuple(Phase(*map(int, row[:3]), *map(float, row[3:])) for row in rows)


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
class Run(Result):
    """The record of a run, and what came of it.

    Every learner fills the first part; what it does not have is None or empty in the second.

    Attributes
    ----------
    returns : (K,)
        The (discounted) return of each episode, exploration included.
    beliefs : (K,)
        The belief in the true context at the end of each episode; NaN where it is unknown.
    contexts : (K,)
        The true contexts; -1 where unknown. No learner sees them unless they are revealed.
    error_curve
        (episodes, errors): `model_error` of the estimate after so many episodes; NaN where the
        true model is unknown or has another number of contexts.
    model
        The latent MDP that was learned. L-UCRL's has all-zero rows where there was no visit.
    policy
        The policy for the episodes to come, with the filter it acts by.
    settings
        What was run: the learner and its arguments, the world, the seed as it was given (None if
        it was not a number) and the key of the chance that followed from it.
    counts
        The final belief-weighted counts, of learners that count.
    optimistic_value
        What the last plan is worth in the optimistic model: its upper bound where it has one.
    plan
        The certificate of `policy` in `model`.
    fit
        The last fit to all episodes; after a spectral start, the fit that L-UCRL started from.
    phases
        How the estimate and the return moved.
    logs
        All episodes, contexts hidden; `fit` is based on those before the policy's own.
    value
        (mean, low, high): what `policy` earns in the world, from episodes of its own that nothing
        was learned from, with a 95 % interval. None of learners that do not try their last policy.
    warnings
        Reasons not to rely on the policy.
    seconds
        Wall-clock time of the run, over all its resumptions.
    """

    returns: Floats
    beliefs: Floats
    contexts: Indices
    error_curve: Curve
    model: LatentMDP
    policy: Policy | HistoryPolicy
    settings: dict[str, Any]
    counts: Counts | None = None
    optimistic_value: float = float("nan")
    plan: Plan | None = None
    fit: Fit | None = None
    phases: tuple[Phase, ...] = ()
    logs: Trajectories | None = None
    value: Interval | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        for array in (self.returns, self.beliefs, self.contexts, *self.error_curve):
            arrays.frozen(array)

    @property
    def space(self) -> Space:
        """Sizes, reward values, horizon and discount, as the learner knew them."""
        return Space.of(self.model)

    @property
    def n_episodes(self) -> int:
        """K."""
        return self.returns.size

    def trailing_return(self, window: int | None = None) -> float:
        """Mean return at the end: of the last tenth of the episodes, or of the last `window`."""
        return float(self.returns[-(window or metrics.last_tenth(self.n_episodes)) :].mean())

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The assumptions of the theory, measured on the model found."""
        return diagnose(self.model)

    def regret(self, reference: Plan, failure_probability: float = 0.05) -> Regret:
        """Cumulative regret against rho1 V* - rho2, with V* bounded by a plan of the true model.

        Parameters
        ----------
        reference
            A plan with an upper bound on V*; its `guarantee` gives (rho1, rho2), (1, 0) by
            default. A memoryless plan is refused: its `upper` bounds policies without memory
            only, and V* may lie above it.
        """
        arrays.require_instance("reference", reference, Plan)
        if isinstance(reference.policy, MarkovPolicy):
            raise ValueError(
                "reference: the upper bound of a memoryless plan holds for policies without memory "
                "only, so the regret would be understated; give a plan of QMDP, PBVI, HSVI or Exact"
            )
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
            *space.dimensions[:3],
            space.required_horizon(),
            np.arange(1, self.n_episodes + 1),
            failure_probability,
            space.reward_span,
        )

    def to_fields(self) -> dict[str, Any]:
        """Everything as named arrays, plain values and parts."""
        own_plan = self.plan is not None and self.plan.policy is self.policy
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "curve_episodes": self.error_curve.episodes,
            "curve_errors": self.error_curve.values,
            "policy": None if own_plan else self.policy,
            **({} if self.counts is None else self.counts.fields("count_")),
            "phases": phase_rows(self.phases),
            "value": None if self.value is None else list(self.value),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The run with these fields; raises where they do not fit each other."""
        plan, model = fields.get("plan"), fields["model"]
        policy = fields.get("policy", None if plan is None else plan.policy)
        if policy is None:
            raise ValueError("there is neither a policy nor a plan")
        counts = None
        if "count_initial" in fields:
            counts = Counts.of_fields(fields, "count_", model.dimensions, model.reward_model)
        K = np.size(fields["returns"])
        others: dict[str, Any] = {name: fields.get(name) for name in _PLAIN if name not in RECORDS}
        points = integer_field(fields, "curve_episodes", None)
        return cls(
            returns=float_field(fields, "returns", K, finite=False),
            beliefs=float_field(fields, "beliefs", K, finite=False),
            contexts=integer_field(fields, "contexts", K, low=-1).astype(np.int32),
            error_curve=Curve(
                points, float_field(fields, "curve_errors", points.size, finite=False)
            ),
            policy=policy,
            counts=counts,
            phases=phases_of(fields),
            **others,
            value=None if fields.get("value") is None else Interval(*fields["value"]),
            warnings=tuple(fields.get("warnings") or ()),
        )

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        trailing, plan, value = self.trailing_return(), self.plan, self.value
        earns = "" if value is None else f"{value} per episode (95 % interval)"
        return {
            "learner": self.settings.get("learner"),
            "seed": self.settings.get("seed"),
            "episodes": self.n_episodes,
            "contexts": self.model.n_contexts,
            "mean_return": float(self.returns.mean()),
            "trailing_return": Worded(trailing, f"{trailing:.4g} per episode in the last tenth"),
            "value": Worded(value, earns),
            "lower": None if plan is None else plan.lower,
            "upper": None if plan is None else plan.upper,
            "optimistic_value": self.optimistic_value,
            "model_error": float(self.error_curve.values[-1]),
            "warnings": Worded.lines(self.warnings),
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        learner = self.settings.get("learner", "a learner")
        contexts = plural(self.model.n_contexts, "context")
        noun = "episode" if self.n_episodes == 1 else "episodes"
        return (
            f"Run({self.n_episodes} {noun} of {learner}, {contexts}, "
            f"{self.trailing_return():.4g} per episode in the last tenth)"
        )
