"""What solving logs gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

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

    _of: ClassVar[str] = "solve"

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

    def __repr__(self) -> str:
        return (
            f"Solved({self.model.n_contexts} contexts, {self.value} per episode"
            f"{f', {len(self.warnings)} warnings' if self.warnings else ''})"
        )
