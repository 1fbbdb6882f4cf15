"""What every planner shares: the interface and the result."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class Planner(Protocol):
    """Anything with `plan(model) -> Plan`."""

    def plan(self, model: LatentMDP) -> Plan:
        """Find a good policy for the model, its bonus and discount counted."""
        ...
