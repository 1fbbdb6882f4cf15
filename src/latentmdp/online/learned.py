"""What learning by acting gives back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

from latentmdp import io, metrics
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp.errors import FormatError
from latentmdp.fit import Fit
from latentmdp.model import LatentMDP
from latentmdp.planning import Plan
from latentmdp.policies import Policy
from latentmdp.theory.diagnosis import Diagnosis, diagnose
from latentmdp.trajectories import Trajectories

__all__ = ["Learned", "Phase"]


class Phase(NamedTuple):
    """What was known when a policy was made, and what it earned."""

    first_episode: int
    episodes: int
    n_contexts: int
    log_likelihood: float
    model_error: float
    mean_return: float


@dataclass(frozen=True, eq=False)
class Learned:
    """The outcome of `learn`.

    Attributes
    ----------
    returns : (K,)
        The return of each episode, exploration included.
    policy, plan
        The policy for the episodes to come and its certificate in the fitted model.
    model, fit
        The latent MDP fitted to all episodes; with method="psr" the estimate of L-UCRL, and the
        fit it started from.
    phases
        How the estimate and the return moved; `model_error` is NaN where the truth is unknown.
    logs
        All episodes played; with method="psr" those of the exploration.
    """

    returns: Floats
    policy: Policy
    plan: Plan
    model: LatentMDP
    fit: Fit
    phases: tuple[Phase, ...]
    logs: Trajectories
    settings: dict[str, Any]
    seconds: float = field(default=0.0, compare=False)

    def __repr__(self) -> str:
        return (
            f"Learned({self.returns.size} episodes, {self.model.n_contexts} contexts, "
            f"{self.trailing_return():.4g} per episode at the end)"
        )

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The assumptions of the theory, measured on the model found."""
        return diagnose(self.model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, all or nothing (`fit.selection` is left out)."""
        io.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        found = io.load(path)
        if not isinstance(found, cls):
            raise FormatError(f"{path} holds a {type(found).__name__}, not the outcome of `learn`")
        return found

    def trailing_return(self, window: int = 1_000) -> float:
        """Mean return of the last `window` episodes."""
        return float(self.returns[-window:].mean())

    def regret(self, reference: Plan) -> Floats:
        """Cumulative regret, exploration included, against a plan of the true model."""
        arrays.require_instance("reference", reference, Plan)
        if reference.upper is None:
            raise ValueError("reference: the plan has no upper bound on V*")
        return metrics.regret(self.returns, reference.upper, reference.guarantee)
