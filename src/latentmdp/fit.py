"""What learning from logs returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp._util.fields import float_field
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories

__all__ = ["Fit", "FitWarning", "shares_of"]


_UNSEEN = 1e-12
"""Probability given to an observation that no context allows: it then favours none of them."""


class FitWarning(UserWarning):
    """A fit that should not be trusted blindly; the message says why."""


@dataclass(frozen=True)
class Fit:
    """A latent MDP estimated from logs.

    Attributes
    ----------
    model : LatentMDP
        The estimate; its horizon is the length of the longest episode.
    responsibilities : (N, M)
        p(m | episode) for the episodes it was fitted to, in their order (for `initialize`, the
        long episodes).
    log_likelihood : float
        sum over episodes of log p(episode), without the policy's factors and without the prior.
    converged : bool
        Whether the last iterations gained less than the tolerance; never true at a cap.
    history : tuple of float
        The objective (log-likelihood plus log-prior of the smoothing) along the iterations that
        led to this estimate; it never falls.
    n_iter : int
        Number of passes over the data that the returned estimate took from its start.
    smoothing, reward_smoothing : float
        Pseudo-counts of the pooled model in every row of transitions and of rewards.
    n_parameters : int
        Number of free parameters.
    selection : estimation.n_contexts.ContextSelection or None
        How the number of contexts was chosen, where it was.
    seconds : float
        Wall-clock time of the whole fit.
    """

    model: LatentMDP
    responsibilities: Floats
    log_likelihood: float
    converged: bool
    history: tuple[float, ...] = ()
    n_iter: int = 0
    smoothing: float = 0.0
    reward_smoothing: float = 0.0
    n_parameters: int = 0
    selection: Any = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The most likely context of each episode."""
        return np.asarray(self.responsibilities.argmax(axis=1))

    def to_fields(self) -> dict[str, Any]:
        """Every field by name but for `selection`."""
        names = (name for name in self.__dataclass_fields__ if name != "selection")
        fields = {name: getattr(self, name) for name in names}
        return {**fields, "history": np.array(self.history, dtype=np.float64)}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The fit with these fields; raises where they do not fit each other."""
        shares = float_field(fields, "responsibilities", None, fields["model"].n_contexts)
        history = float_field(fields, "history", None, finite=False)
        changed = {"responsibilities": shares, "history": tuple(history.tolist())}
        return cls(**{**fields, **changed})

    def predict(self, logs: Trajectories) -> Floats:
        """p(m | episode) for other episodes, (N, M)."""
        return shares_of(self.model, logs)


def shares_of(model: LatentMDP, logs: Trajectories | Sequence[Trajectories]) -> Floats:
    """Posterior over contexts of every episode; what no context allows counts as uninformative."""
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    return np.concatenate(
        [posterior(model, part.without_contexts(), smoothing=_UNSEEN) for part in parts]
    )
