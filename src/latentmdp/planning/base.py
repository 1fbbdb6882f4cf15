"""The interface of every planner, and the plan it returns: a policy with bounds on its value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from latentmdp._util.fields import float_field
from latentmdp._util.results import Result, Worded
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.policies import Policy

ROUNDING = 1e-9
"""Bounds may cross by this share of the largest value that enters them and still count as equal:
rounding in a sum over H steps stays below H 2^-53 of it, 1e-11 at a horizon of 100,000."""


class CrossedBoundsError(LatentMDPError):
    """A lower bound exceeds an upper bound by more than rounding, so one of them is wrong."""


def enclosing(lower: float, upper: float, size: float) -> float:
    """`upper`, or `lower` where rounding alone has made the bounds cross.

    `CrossedBoundsError` if they cross by more than `ROUNDING` times `size`, the largest absolute
    value that enters them.
    """
    if lower - upper > ROUNDING * size:
        raise CrossedBoundsError(
            f"the lower bound {lower!r} exceeds the upper bound {upper!r} by {lower - upper:.3g}, "
            f"more than rounding explains for values up to {size:.3g}: one of them is wrong"
        )
    return max(lower, upper)


def relative(difference: float, value: float) -> float:
    """The share of |value| that a difference of bounds is; 0 where they have met or crossed."""
    if difference <= 0.0:
        return 0.0
    return difference / abs(value) if value != 0.0 else math.inf


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Result):
    """A policy and what is known of its quality.

    Attributes
    ----------
    policy
        The policy to execute.
    lower, upper
        Bounds at the start of an episode: value of `policy` >= lower, and no policy of the
        planner's class is worth more than upper. The class is all policies, so V* <= upper, except
        for `Memoryless`, whose upper bounds memoryless policies. None where the planner gives none.
    converged
        Whether the planner reached what it was asked for; reaching a cap is not convergence.
    n_iter, seconds
        Work done.
    history
        Points (seconds, lower, upper) in the order they were reached.
    guarantee
        (rho1, rho2) of [kwon2021, eq. (1)]: value of `policy` >= rho1 V* - rho2; None if none.
    message
        Why the planner stopped.
    loss
        Of a compact plan: the share of the lower bound that was given up for few vectors.
    """

    policy: Policy
    lower: float | None = None
    upper: float | None = None
    converged: bool = True
    n_iter: int = 1
    seconds: float = field(default=0.0, compare=False)
    history: tuple[tuple[float, float, float], ...] = field(default=(), compare=False)
    guarantee: tuple[float, float] | None = None
    message: str = ""
    loss: float | None = None

    @property
    def gap(self) -> float | None:
        """(upper - lower) / |lower|, the relative gap; None without both bounds."""
        if self.lower is None or self.upper is None:
            return None
        return relative(self.upper - self.lower, self.lower)

    def compact(
        self, vectors: int | None = None, loss: float | None = None, graph: bool = False
    ) -> Plan:
        """A plan with few vectors and its own proved lower bound, small enough to read.

        Parameters
        ----------
        vectors
            At most so many for each time and state, or for each state where there is no end.
        loss
            In place of `vectors`: about as few as lose no more than this share of `lower`.
        graph
            Whether the policy is the `PolicyGraph` of these vectors, whose value in every context
            is known; otherwise it acts by the best vector and earns at least as much on average.

        Notes
        -----
        See `latentmdp.planning.compact`. `loss` of the plan returned says what was given up.
        """
        from latentmdp.planning.compact import compacted

        return compacted(self, vectors, loss, graph)

    def __repr__(self) -> str:
        bounds = [("lower", self.lower), ("upper", self.upper), ("gap", self.gap)]
        lines = [
            f"policy={self.policy!r}",
            ", ".join(f"{name}={value:.6g}" for name, value in bounds if value is not None),
            f"converged={self.converged}, n_iter={self.n_iter}, seconds={self.seconds:.3g}",
            f"message={self.message!r}",
        ]
        return "Plan(" + ",\n     ".join(line for line in lines if line) + ")"

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        gap, promise = self.gap, self.guarantee
        worth = "" if promise is None else "worth at least {:.4g} V* - {:.4g}".format(*promise)
        return {
            "policy": repr(self.policy),
            "lower": self.lower,
            "upper": self.upper,
            "gap": Worded(gap, "" if gap is None else f"{100.0 * gap:.3g}%"),
            "guarantee": Worded(promise, worth),
            "converged": self.converged,
            "iterations": self.n_iter,
            "seconds": self.seconds,
            "message": self.message,
        }

    def to_fields(self) -> dict[str, Any]:
        """Named parts to save: the policy, plain values, and the history as an array (n, 3)."""
        changed = {
            "history": np.array(self.history, dtype=np.float64).reshape(-1, 3),
            "guarantee": None if self.guarantee is None else list(self.guarantee),
        }
        return {**vars(self), **changed}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The plan with these fields."""
        guarantee = fields.get("guarantee")
        if guarantee is not None and len(guarantee) != 2:
            raise ValueError(f"guarantee must be two numbers, got {guarantee}")
        history = float_field(fields, "history", None, 3, finite=False).tolist()
        changed = {
            "history": tuple((t, low, high) for t, low, high in history),
            "guarantee": None if guarantee is None else tuple(guarantee),
        }
        return cls(**{**fields, **changed})


@runtime_checkable
class Planner(Protocol):
    """Anything with `plan(model) -> Plan`."""

    def plan(self, model: LatentMDP) -> Plan:
        """Find a good policy for the model, its bonus and discount counted."""
        ...
