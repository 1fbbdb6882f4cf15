"""What solving logs gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from latentmdp._util.fields import float_field
from latentmdp.fit import Fit
from latentmdp.model import LatentMDP
from latentmdp.offline.off_policy import Interval, LoggedEstimate
from latentmdp.offline.outcome import Outcome
from latentmdp.planning import Plan
from latentmdp.policies import Policy

__all__ = ["SolveWarning", "Solved"]


class SolveWarning(UserWarning):
    """The value of the policy is less certain than its interval says; the message says why."""


@dataclass(frozen=True, eq=False)
class Solved(Outcome):
    """The outcome of `solve`.

    Attributes
    ----------
    policy, plan
        The policy and its certificate in the fitted model. An action that was never logged in a
        state is not taken there.
    model, fit
        The fitted latent MDP.
    value : Interval
        What the policy will earn, mean with low and high end: its value in the fitted model, less
        the flattery of having been planned there.
    flattery
        What was taken off.
    logged : LoggedEstimate
        The importance-sampling estimate over the first steps, straight from the logs.
    model_first_steps
        The fitted model's value of those same steps.
    unsupported
        Share of the policy's steps in the fitted model at (m, s, a) seen fewer than 5 times.
    final_states
        States in which logged episodes ended: nothing is earned after them.
    warnings
        What a user should know before relying on it.
    settings
        What `solve` was asked; `seed` is None where it was not a number.
    """

    policy: Policy
    plan: Plan
    model: LatentMDP
    fit: Fit
    value: Interval
    flattery: float
    logged: LoggedEstimate
    model_first_steps: float
    unsupported: float
    final_states: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    settings: dict[str, Any] = field(default_factory=dict)

    def to_fields(self) -> dict[str, Any]:
        """Every field by name but for `policy`, which is the plan's, and `model`, the fit's."""
        names = ("plan", "fit", "flattery", "model_first_steps", "unsupported", "seconds")
        return {
            **{name: getattr(self, name) for name in names},
            "value": list(self.value),
            "logged_mean": self.logged.mean,
            "logged_stderr": self.logged.stderr,
            "effective_size": self.logged.effective_size,
            "final_states": list(self.final_states),
            "warnings": list(self.warnings),
            "settings": self.settings,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The outcome with these fields."""
        effective = float_field(fields, "effective_size", None)
        names = ("flattery", "model_first_steps", "unsupported", "seconds", "settings")
        return cls(
            policy=fields["plan"].policy,
            plan=fields["plan"],
            model=fields["fit"].model,
            fit=fields["fit"],
            value=Interval(*fields["value"]),
            logged=LoggedEstimate(
                fields["logged_mean"], fields["logged_stderr"], effective.size, effective
            ),
            final_states=tuple(fields["final_states"]),
            warnings=tuple(fields["warnings"]),
            **{name: fields[name] for name in names},
        )

    def __repr__(self) -> str:
        return (
            f"Solved({self.model.n_contexts} contexts, {self.value} per episode"
            f"{f', {len(self.warnings)} warnings' if self.warnings else ''})"
        )
