"""What every planner shares: the interface and the result."""

from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from latentmdp._util.fields import float_field
from latentmdp.model import LatentMDP
from latentmdp.policies import Policy

__all__ = ["Plan", "Planner"]


@dataclass(frozen=True)
class Plan:
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
    """

    policy: Policy
    lower: float | None = None
    upper: float | None = None
    converged: bool = True
    n_iter: int = 1
    seconds: float = 0.0
    history: tuple[tuple[float, float, float], ...] = ()
    guarantee: tuple[float, float] | None = None
    message: str = ""

    @property
    def gap(self) -> float | None:
        """(upper - lower) / lower, the relative gap; None without both bounds."""
        if self.lower is None or self.upper is None:
            return None
        difference = self.upper - self.lower
        if difference <= 0.0:
            return 0.0
        return difference / abs(self.lower) if self.lower != 0.0 else float("inf")

    def to_fields(self) -> dict[str, Any]:
        """Every field by name, None where it is not given."""
        names = ("policy", "lower", "upper", "converged", "n_iter", "seconds", "message")
        return {
            **{name: getattr(self, name) for name in names},
            "history": np.array(self.history, dtype=np.float64).reshape(-1, 3),
            "guarantee": None if self.guarantee is None else list(self.guarantee),
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The plan with these fields; raises where they do not fit."""
        history = float_field(fields, "history", None, 3, finite=False)
        guarantee = fields.get("guarantee")
        if guarantee is not None and len(guarantee) != 2:
            raise ValueError(f"guarantee must be two numbers, got {guarantee}")
        return cls(
            **{
                **fields,
                "history": tuple((t, low, high) for t, low, high in history.tolist()),
                "guarantee": None if guarantee is None else (guarantee[0], guarantee[1]),
            }
        )


@runtime_checkable
class Planner(Protocol):
    """Anything with `plan(model) -> Plan`."""

    def plan(self, model: LatentMDP) -> Plan:
        """Find a good policy for the model, its bonus and discount counted."""
        ...
