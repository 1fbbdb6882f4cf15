"""What learning by acting gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from latentmdp import metrics
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.fields import float_field
from latentmdp.fit import Fit
from latentmdp.model import LatentMDP
from latentmdp.offline.outcome import Outcome
from latentmdp.planning import Plan
from latentmdp.policies import Policy
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
class Learned(Outcome):
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

    def to_fields(self) -> dict[str, Any]:
        """Every field by name but for `policy`, which is the plan's."""
        names = ("returns", "plan", "model", "fit", "logs", "settings", "seconds")
        phases = np.array(self.phases, dtype=np.float64).reshape(-1, len(Phase._fields))
        return {**{name: getattr(self, name) for name in names}, "phases": phases}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The outcome with these fields; raises where they do not fit each other."""
        phases = float_field(fields, "phases", None, len(Phase._fields), finite=False)
        returns = float_field(fields, "returns", None)
        if returns.size < len(fields["logs"]):
            raise ValueError(f"{returns.size} returns of {len(fields['logs'])} episodes")
        return cls(
            policy=fields["plan"].policy,
            **{
                **fields,
                "returns": returns,
                "phases": tuple(
                    Phase(int(first), int(count), int(contexts), *rest)
                    for first, count, contexts, *rest in phases.tolist()
                ),
            },
        )

    def __repr__(self) -> str:
        return (
            f"Learned({self.returns.size} episodes, {self.model.n_contexts} contexts, "
            f"{self.trailing_return():.4g} per episode at the end)"
        )

    def trailing_return(self, window: int = 1_000) -> float:
        """Mean return of the last `window` episodes."""
        return float(self.returns[-window:].mean())

    def regret(self, reference: Plan) -> Floats:
        """Cumulative regret, exploration included, against a plan of the true model."""
        arrays.require_instance("reference", reference, Plan)
        if reference.upper is None:
            raise ValueError("reference: the plan has no upper bound on V*")
        return metrics.regret(self.returns, reference.upper, reference.guarantee)
