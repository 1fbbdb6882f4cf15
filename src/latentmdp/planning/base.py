"""The interface of every planner, and the plan it returns: a policy with bounds on its value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.display import html_table
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.policies import Policy

__all__ = ["CrossedBoundsError", "Plan", "Planner", "enclosing"]

ROUNDING = 1e-9
"""Bounds may cross by this share of the largest value that enters them and still count as equal.

Rounding in a sum over H steps stays below H 2^-53 of it, 1e-11 at a horizon of 100,000; the
smallest gap worth asking for is far larger.
"""


class CrossedBoundsError(LatentMDPError):
    """A lower bound exceeds an upper bound by more than rounding, so one of them is wrong."""


def enclosing(lower: float, upper: float, size: float) -> float:
    """`upper`, or `lower` where rounding alone has made the bounds cross.

    Parameters
    ----------
    size
        The largest absolute value that enters the bounds.

    Raises
    ------
    CrossedBoundsError
        They cross by more than `ROUNDING` times `size`.
    """
    if lower - upper > ROUNDING * size:
        raise CrossedBoundsError(
            f"the lower bound {lower!r} exceeds the upper bound {upper!r} by {lower - upper:.3g}, "
            f"more than rounding explains for values up to {size:.3g}: one of them is wrong"
        )
    return max(lower, upper)


@dataclass(frozen=True, repr=False)
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
        """(upper - lower) / |lower|, the relative gap; None without both bounds."""
        if self.lower is None or self.upper is None:
            return None
        difference = self.upper - self.lower
        if difference <= 0.0:
            return 0.0
        return difference / abs(self.lower) if self.lower != 0.0 else math.inf

    def __repr__(self) -> str:
        bounds = [("lower", self.lower), ("upper", self.upper), ("gap", self.gap)]
        lines = [
            f"policy={self.policy!r}",
            ", ".join(f"{name}={value:.6g}" for name, value in bounds if value is not None),
            f"converged={self.converged}, n_iter={self.n_iter}, seconds={self.seconds:.3g}",
            f"message={self.message!r}",
        ]
        return "Plan(" + ",\n     ".join(line for line in lines if line) + ")"

    def _repr_html_(self) -> str:
        return html_table(
            "Plan",
            [
                ("policy", repr(self.policy)),
                ("lower", None if self.lower is None else f"{self.lower:.6g}"),
                ("upper", None if self.upper is None else f"{self.upper:.6g}"),
                ("gap", None if self.gap is None else f"{100.0 * self.gap:.3g}%"),
                ("converged", self.converged),
                ("iterations", self.n_iter),
                ("seconds", f"{self.seconds:.3g}"),
                ("message", self.message or None),
            ],
        )

    def to_fields(self) -> dict[str, Any]:
        """Named parts to save: the policy, plain values, and the history as an array (n, 3)."""
        return {
            "policy": self.policy,
            "lower": self.lower,
            "upper": self.upper,
            "converged": self.converged,
            "n_iter": self.n_iter,
            "seconds": self.seconds,
            "history": np.array(self.history, dtype=np.float64).reshape(-1, 3),
            "guarantee": None if self.guarantee is None else list(self.guarantee),
            "message": self.message,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The plan that `to_fields` gave; what is missing takes its default.

        Raises
        ------
        TypeError, ValueError
            Naming the field that is not what it should be.
        """
        policy = fields.get("policy")
        arrays.require_instance("policy", policy, Policy)
        guarantee = _numbers(fields, "guarantee", 1, 2)
        return cls(
            policy=policy,  # type: ignore[arg-type] # checked above
            lower=_plain(fields, "lower", float, None),
            upper=_plain(fields, "upper", float, None),
            converged=_plain(fields, "converged", bool, True),
            n_iter=_plain(fields, "n_iter", int, 1),
            seconds=_plain(fields, "seconds", float, 0.0),
            history=tuple((t, low, high) for t, low, high in _numbers(fields, "history", 2, 3)),
            guarantee=(guarantee[0], guarantee[1]) if guarantee else None,
            message=_plain(fields, "message", str, ""),
        )


def _plain(fields: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """A field of one type, or its default; a whole number will do for a float."""
    value = fields.get(name)
    if value is None:
        return default
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) is not (kind is bool):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
    return kind(value)


def _numbers(fields: Mapping[str, Any], name: str, ndim: int, width: int) -> list[Any]:
    """A field of numbers whose last axis has `width` entries, as a list; empty if missing."""
    if fields.get(name) is None:
        return []
    array = arrays.to_array(name, fields[name])
    if array.dtype.kind not in "fiu" or array.ndim != ndim or array.shape[-1] != width:
        shape = ", ".join(["n"] * (ndim - 1) + [str(width)])
        raise ValueError(f"{name} must be numbers of shape ({shape}), got shape {array.shape}")
    found: list[Any] = array.astype(np.float64).tolist()
    return found


@runtime_checkable
class Planner(Protocol):
    """Anything with `plan(model) -> Plan`."""

    def plan(self, model: LatentMDP) -> Plan:
        """Find a good policy for the model, its bonus and discount counted."""
        ...
