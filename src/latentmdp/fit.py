"""A latent MDP fitted to logs, and the evidence on its number of contexts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.fields import float_field, integer_field
from latentmdp._util.results import Result
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories

__all__ = ["ContextSelection", "Fit", "FitWarning", "shares_of", "without_fit_warnings"]


_UNSEEN = 1e-12
"""Probability given to an observation that no context allows: it then favours none of them."""


class FitWarning(UserWarning):
    """A fit that should not be trusted blindly; the message says why."""


@contextmanager
def without_fit_warnings() -> Iterator[None]:
    """Fits that only serve a decision say nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        yield


@dataclass(frozen=True, eq=False, repr=False)
class ContextSelection(Result):
    """The evidence on the number of contexts; arrays are indexed like `candidates`.

    Attributes
    ----------
    n_contexts
        The number chosen.
    candidates
        The numbers tried.
    log_likelihood, n_parameters, bic, icl
        Of the mixtures fitted to all episodes; constants that all of them share are left out.
    held_out_gain, held_out_error
        Held-out log-likelihood gained over one context less, and its standard error (0 for the
        first candidate).
    eigenvalues, noise_edge
        Of the pair moments; empty and 0 where there are too many cells.
    votes
        What each criterion says.
    statement
        In words, how sure the choice is.
    models
        The mixtures fitted to all episodes, one for each candidate: good starts, not final fits.
    """

    n_contexts: int
    candidates: tuple[int, ...]
    log_likelihood: Floats
    n_parameters: Integers
    bic: Floats
    icl: Floats
    held_out_gain: Floats
    held_out_error: Floats
    eigenvalues: Floats
    noise_edge: float
    votes: dict[str, int]
    statement: str
    models: tuple[LatentMDP, ...] = field(default=(), compare=False)

    @property
    def model(self) -> LatentMDP:
        """The mixture with the number of contexts chosen."""
        return self.models[self.candidates.index(self.n_contexts)]

    def table(self) -> str:
        """The criteria as plain text, one candidate per line."""
        lines = ["contexts  held-out gain      BIC - best      ICL - best"]
        for k, M in enumerate(self.candidates):
            pair = f"{self.held_out_gain[k]:9.1f} ± {self.held_out_error[k]:<6.1f}"
            gain = pair if k else " " * 18
            bic, icl = self.bic[k] - self.bic.min(), self.icl[k] - self.icl.min()
            lines.append(f"{M:8d} {gain} {bic:14.1f}  {icl:14.1f}")
        return "\n".join([*lines, self.statement])

    def facts(self) -> list[tuple[str, str]]:
        """The choice, what each criterion says, and how sure it is."""
        votes = ", ".join(f"{name} {vote}" for name, vote in self.votes.items())
        return [("contexts", str(self.n_contexts)), ("votes", votes), ("", self.statement)]

    def __repr__(self) -> str:
        return f"ContextSelection({self.n_contexts} of {self.candidates}: {self.statement!r})"

    def to_fields(self) -> dict[str, Any]:
        """Every attribute by name but the models, which files leave out."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.compare}

    @classmethod
    def from_fields(cls, found: dict[str, Any]) -> Self:
        """The evidence with these fields; raises where they do not fit each other."""
        candidates, chosen = tuple(found["candidates"]), found["n_contexts"]
        if chosen not in candidates:
            raise ValueError(f"n_contexts={chosen} is not among the candidates {candidates}")
        if not all(isinstance(vote, int) for vote in found["votes"].values()):
            raise TypeError(f"votes must be numbers of contexts, got {found['votes']}")
        by_candidate = ("log_likelihood", "bic", "icl", "held_out_gain", "held_out_error")
        number = len(candidates)
        changed = {
            "candidates": candidates,
            "n_parameters": integer_field(found, "n_parameters", number),
            "eigenvalues": float_field(found, "eigenvalues", None),
            **{name: float_field(found, name, number, finite=False) for name in by_candidate},
        }
        return cls(**{**found, **changed})


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Result):
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
        The objective (log-likelihood plus log-prior of the pseudo-counts) along the iterations
        that led to this estimate; it never falls.
    n_iter : int
        Number of passes over the data that the returned estimate took from its start.
    pseudo_counts, reward_pseudo_counts : float
        Pseudo-counts of the pooled model in every row of transitions and of rewards.
    n_parameters : int
        Number of free parameters.
    selection : ContextSelection or None
        How the number of contexts was chosen, where it was.
    seconds : float
        Wall-clock time of the whole fit; it does not count for equality.
    """

    model: LatentMDP
    responsibilities: Floats
    log_likelihood: float
    converged: bool
    history: tuple[float, ...] = ()
    n_iter: int = 0
    pseudo_counts: float = 0.0
    reward_pseudo_counts: float = 0.0
    n_parameters: int = 0
    selection: ContextSelection | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def labels(self) -> Integers:
        """The most likely context of each episode."""
        return np.asarray(self.responsibilities.argmax(axis=1))

    def predict(self, logs: Trajectories) -> Floats:
        """p(m | episode) for other episodes, (N, M)."""
        return shares_of(self.model, logs)

    def facts(self) -> list[tuple[str, str]]:
        """What a reader wants to know first, by name."""
        weights = ", ".join(f"{w:.3g}" for w in self.model.weights)
        state = "converged" if self.converged else "not converged"
        rows = [
            ("contexts", f"{self.model.n_contexts}, with weights {weights}"),
            ("episodes", str(len(self.responsibilities))),
            ("log-likelihood", f"{self.log_likelihood:.6g}, {self.n_parameters} parameters"),
            ("pseudo-counts", f"{self.pseudo_counts:g}, rewards {self.reward_pseudo_counts:g}"),
            ("iterations", f"{self.n_iter}, {state}"),
        ]
        if self.selection is not None:
            rows.append(("number of contexts", self.selection.statement))
        return rows

    def __repr__(self) -> str:
        lines = [f"  {name}: {value}" for name, value in self.facts()]
        return "\n".join(["Fit(", *lines, ")"])

    def to_fields(self) -> dict[str, Any]:
        """Every attribute by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**found, "history": np.array(self.history, dtype=np.float64)}

    @classmethod
    def from_fields(cls, found: dict[str, Any]) -> Self:
        """The fit with these fields; raises where they do not fit each other."""
        contexts = found["model"].n_contexts
        changed = {
            "responsibilities": float_field(found, "responsibilities", None, contexts),
            "history": tuple(float_field(found, "history", None, finite=False).tolist()),
        }
        return cls(**{**found, **changed})


def shares_of(model: LatentMDP, logs: Trajectories | Sequence[Trajectories]) -> Floats:
    """Posterior over contexts of every episode; what no context allows counts as uninformative."""
    parts = [logs] if isinstance(logs, Trajectories) else list(logs)
    return np.concatenate(
        [posterior(model, part.without_contexts(), smoothing=_UNSEEN) for part in parts]
    )
