"""A latent MDP fitted to logs, and the evidence on its number of contexts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers, normalised
from latentmdp._util.fields import float_field, integer_field
from latentmdp._util.random import RNGLike
from latentmdp._util.results import Result, Worded, labelled
from latentmdp._util.storage import rows_on_disk
from latentmdp.belief import posterior
from latentmdp.engines import Engine, as_engine
from latentmdp.logs import Batch, Logs, Sizes, Trajectories, WeightModel, cell_counts, listed_logs
from latentmdp.model import LatentMDP

__all__ = [
    "ContextSelection",
    "Estimator",
    "Fit",
    "FitWarning",
    "logged_behaviour",
    "shares_of",
    "without_fit_warnings",
]


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
    log_likelihood, n_parameters
        Of the mixtures fitted to all episodes; constants that all of them share are left out.
    held_out
        Mean log-likelihood of an individual under a fit that has not seen it.
    held_out_loss, held_out_error
        What a candidate loses against the best one, summed over all individuals, and the standard
        error of that (0 for the best).
    statement
        In words, how sure the choice is.
    individuals
        How many there are, for BIC.
    sizes : (candidates, largest candidate)
        The weights of the contexts of each mixture, largest first; zero beyond their number.
    entropy
        How surely individuals belong to one context: 1 if all do, 0 if nothing is known; one minus
        the mean entropy of p(m | individual) over its maximum, log M.
    stability
        How alike the groups are that fits to different parts of the individuals find: the mean
        adjusted Rand index of their labels for all individuals. NaN where contexts are the same.
    models
        The mixtures fitted to all episodes, one for each candidate: good starts, not final fits.
    """

    n_contexts: int
    candidates: tuple[int, ...]
    log_likelihood: Floats
    n_parameters: Integers
    held_out: Floats
    held_out_loss: Floats
    held_out_error: Floats
    statement: str
    individuals: int = 0
    sizes: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    entropy: Floats = field(default_factory=lambda: np.zeros(0))
    stability: Floats = field(default_factory=lambda: np.zeros(0))
    models: tuple[LatentMDP, ...] = field(default=(), compare=False)

    @property
    def model(self) -> LatentMDP:
        """The mixture with the number of contexts chosen."""
        return self.models[self.candidates.index(self.n_contexts)]

    @property
    def aic(self) -> Floats:
        """Akaike's criterion of each candidate, -2 log L + 2 k; the lowest is the best."""
        return 2.0 * (self.n_parameters - self.log_likelihood)

    @property
    def bic(self) -> Floats:
        """Schwarz's criterion of each candidate, -2 log L + k log(individuals)."""
        return self.n_parameters * np.log(max(self.individuals, 1)) - 2.0 * self.log_likelihood

    def rows(self) -> list[dict[str, str]]:
        """The evidence in words, a candidate in a row, by heading.

        Log-likelihoods held out are of an individual, what is lost by them is of all.
        """
        rows, two_digits = [], ["-" if np.isnan(x) else f"{x:.2f}" for x in self.stability]
        for k, M in enumerate(self.candidates):
            row = {
                "contexts": f"{M}{' (chosen)' if self.n_contexts == M else ''}",
                "held-out": f"{self.held_out[k]:.4f}",
                "loss": f"{self.held_out_loss[k]:.1f} ± {self.held_out_error[k]:.1f}",
                "log-likelihood": f"{self.log_likelihood[k]:.1f}",
            }
            if self.individuals:  # not in files of earlier versions
                row |= {"AIC": f"{self.aic[k]:.1f}", "BIC": f"{self.bic[k]:.1f}"}
                row |= {"entropy": f"{self.entropy[k]:.2f}", "stability": two_digits[k]}
                row["sizes"] = ", ".join(f"{size:.2f}" for size in self.sizes[k, :M])
            rows.append(row)
        return rows

    def table(self) -> str:
        """The evidence as plain text, one candidate per line."""
        rows = self.rows()
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths)) for line in lines]
        return "\n".join([*text, self.statement])

    def facts(self) -> dict[str, Any]:
        """The choice, what each candidate loses, and how sure it is."""
        losses = ", ".join(
            f"{M}: {loss:.1f} ± {error:.1f}"
            for M, loss, error in zip(self.candidates, self.held_out_loss, self.held_out_error)
        )
        return {
            "contexts": self.n_contexts,
            "held_out_loss": Worded(self.held_out_loss, losses),
            "stability": self.stability,
            "statement": self.statement,
        }

    def __repr__(self) -> str:
        return f"ContextSelection({self.n_contexts} of {self.candidates}: {self.statement!r})"

    @classmethod
    def from_fields(cls, found: dict[str, Any]) -> Self:
        """The evidence with these fields; raises where they do not fit each other."""
        candidates, n_contexts = tuple(found["candidates"]), found["n_contexts"]
        if n_contexts not in candidates:
            raise ValueError(f"n_contexts={n_contexts} is not among the candidates {candidates}")
        by_candidate = ("log_likelihood", "held_out", "held_out_loss", "held_out_error")
        number = len(candidates)
        changed = {
            "candidates": candidates,
            "n_parameters": integer_field(found, "n_parameters", number),
            **{name: float_field(found, name, number, finite=False) for name in by_candidate},
        }
        return cls(**{**found, **changed})


class Estimator(Protocol):
    """What fits a model to logs from a fit of some of them."""

    def fit(self, logs: Sequence[Logs], *, start: Fit, rng: RNGLike = None) -> Fit:
        """The fit of all logs together."""


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
        sum over episodes of log p(episode), without the prior and, unless the logger's policy
        depended on the context, without the policy's factors.
    converged : bool
        Whether the last iterations gained less than the tolerance; never true at a cap.
    history : tuple of float
        The objective (log-likelihood plus log-prior of the pseudo-counts) along the iterations
        that led to this estimate; it never falls.
    n_iter : int
        Number of passes over the data that the returned estimate took from its start.
    pseudo_counts, reward_pseudo_counts, behaviour_pseudo_counts : float
        Pseudo-counts of the pooled model in every row of transitions, of rewards and of the
        logger's policy; infinite where all contexts share them.
    behaviour : None, (S, A) or (M, S, A)
        The logger's policy, estimated: by context where it depended on the context; None where
        it was not asked for.
    weight_model : WeightModel or None
        The weights of the contexts for an individual with given covariates, where they matter.
    shared : tuple of str
        What all contexts share: of "transitions", "rewards", "initial" and "behaviour".
    decisions : tuple of str
        What was decided by held-out likelihood about what contexts share, with the evidence.
    n_parameters : int
        Number of free parameters.
    selection : ContextSelection or None
        How the number of contexts was chosen, where it was.
    seconds : float
        Wall-clock time of the whole fit; it does not count for equality.
    estimator, logs
        What goes on from this fit, with all that was decided, and what it was fitted to; files
        leave them out.
    """

    model: LatentMDP
    responsibilities: Floats
    log_likelihood: float
    converged: bool
    history: tuple[float, ...] = ()
    n_iter: int = 0
    pseudo_counts: float = 0.0
    reward_pseudo_counts: float = 0.0
    behaviour_pseudo_counts: float = np.inf
    behaviour: Floats | None = None
    weight_model: WeightModel | None = None
    shared: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    n_parameters: int = 0
    selection: ContextSelection | None = None
    seconds: float = field(default=0.0, compare=False)
    estimator: Estimator | None = field(default=None, compare=False)
    logs: tuple[Logs, ...] = field(default=(), compare=False)

    @property
    def labels(self) -> Integers:
        """The most likely context of each episode."""
        return np.asarray(self.responsibilities.argmax(axis=1))

    def predict(self, logs: Logs) -> Floats:
        """p(m | episode) for other episodes of the same logger, (N, M)."""
        return shares_of(self.model, logs, self.behaviour_by_context, self.weight_model)

    @property
    def behaviour_by_context(self) -> Floats | None:
        """The logger's policy (M, S, A) where it depended on the context."""
        behaviour = self.behaviour
        return behaviour if behaviour is not None and behaviour.ndim == 3 else None

    def update(self, more_logs: Logs, *, rng: RNGLike = None) -> Fit:
        """Go on from this fit with further logs: EM on all logs so far, from this estimate.

        The number of contexts, what they share and the pseudo-counts stay as they were chosen.

        Raises
        ------
        ValueError
            The fit does not hold its logs, because it comes from a file or a spectral method.
        """
        if self.estimator is None or not self.logs:
            raise ValueError(
                "this fit does not hold the logs that it was fitted to: fit all logs together, "
                "EM(...).fit([logs, more_logs], start=fit)"
            )
        fit = self.estimator.fit([*self.logs, more_logs], start=self, rng=rng)
        return replace(fit, selection=self.selection, decisions=self.decisions)

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        selection, depends = self.selection, self.weight_model
        M, weights = self.model.n_contexts, ", ".join(f"{w:.3g}" for w in self.model.weights)
        ended = "converged" if self.converged else "not converged"
        likely = f"{self.log_likelihood:.6g}, {self.n_parameters} parameters"
        added = f"{self.pseudo_counts:g}, rewards {self.reward_pseudo_counts:g}"
        return {
            "contexts": Worded(M, f"{M}, with weights {weights}"),
            "weights": Worded(self.model.weights, ""),
            "episodes": len(self.responsibilities),
            "log_likelihood": Worded(self.log_likelihood, likely),
            "parameters": Worded(self.n_parameters, ""),
            "pseudo_counts": Worded(self.pseudo_counts, added),
            "reward_pseudo_counts": Worded(self.reward_pseudo_counts, ""),
            "shared": Worded(self.shared, ", ".join(self.shared) or "nothing"),
            "iterations": Worded(self.n_iter, f"{self.n_iter}, {ended}"),
            "converged": Worded(self.converged, ""),
            "weights_depend_on": None if depends is None else list(depends.encoder.columns),
            "decisions": Worded.lines(self.decisions),
            "selection": None if selection is None else selection.statement,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        lines = [f"  {name}: {value}" for name, value in labelled(self.facts())]
        return "\n".join(["Fit(", *lines, ")"])

    def to_fields(self) -> dict[str, Any]:
        """Every attribute by name but the estimator and the logs, which files leave out."""
        left_out = ("estimator", "logs")
        return {o.name: getattr(self, o.name) for o in fields(self) if o.name not in left_out}

    @classmethod
    def from_fields(cls, found: dict[str, Any]) -> Self:
        """The fit with these fields; raises where they do not fit each other."""
        contexts = found["model"].n_contexts
        changed = {
            "responsibilities": float_field(found, "responsibilities", None, contexts),
            "history": tuple(float_field(found, "history", None, finite=False).tolist()),
            "shared": tuple(found["shared"]),
            "decisions": tuple(found["decisions"]),
        }
        return cls(**{**found, **changed})


def shares_of(
    model: LatentMDP,
    logs: Logs | Sequence[Logs],
    behaviour: Floats | None = None,
    weight_model: WeightModel | None = None,
    engine: Engine | None = None,
) -> Floats:
    """Posterior over contexts of every episode; what no context allows counts as uninformative.

    All segments of an individual have its posterior. The logged actions are evidence where a
    `behaviour` by context (M, S, A) is given, covariates where a `weight_model` is. Of very many
    episodes on disk, the result is an array in a temporary file.
    """
    parts = listed_logs(logs)
    batches = [batch for part in parts for batch in part.batches()]
    if len(batches) == 1:
        return _batch_shares(batches[0], model, behaviour, weight_model, None)
    engine = as_engine(None if all(part.fits_memory for part in parts) else engine)
    rows = engine.map(_batch_shares, batches, model, behaviour, weight_model, 1)
    return rows_on_disk(rows, sum(map(len, parts)), model.n_contexts)


def _batch_shares(
    batch: Batch,
    model: LatentMDP,
    behaviour: Floats | None,
    weight_model: WeightModel | None,
    threads: int | None,
) -> Floats:
    logs = batch.read()
    shares = posterior(model, logs.without_contexts(), smoothing=_UNSEEN, threads=threads)
    individual = logs.individuals()
    ends = np.searchsorted(individual, np.arange(logs.n_individuals), side="right") - 1
    if behaviour is None and weight_model is None:
        return shares if logs.continues is None else np.asarray(shares[ends][individual])
    with np.errstate(divide="ignore"):
        scores = np.log(shares[ends])
        if behaviour is not None:
            scores += _action_scores(behaviour, logs)
        if weight_model is not None and logs.covariates is not None:
            design = weight_model.encoder.design(logs.covariates[logs.beginnings()])
            scores += np.log(weight_model.weights(design)) - np.log(model.weights)
    return arrays.shares_of_logs(scores)[individual]


def _action_scores(behaviour: Floats, logs: Trajectories) -> Floats:
    """Log-probability of each individual's actions in every context, (individuals, M)."""
    episode, state, action, *_ = logs.steps()
    individual = logs.individuals()[episode]
    chances = behaviour[:, state, action]
    chances = np.where((chances > 0.0).any(axis=0), np.maximum(chances, _UNSEEN), 1.0)
    return np.column_stack(
        [np.bincount(individual, np.log(p), minlength=logs.n_individuals) for p in chances]
    )


def logged_behaviour(
    logs: Logs | Sequence[Logs], pseudo_counts: float = 0.0, sizes: Sizes | None = None
) -> Floats:
    """How often each action was taken in each state, shape (S, A); uniform where never seen.

    With pseudo-counts, shrunk towards the choice of actions in all states together.
    """
    visits = cell_counts(logs, ("state", "action"), sizes)
    anything = np.ones(visits.shape[1])
    pooled = normalised(visits.sum(axis=0), anything)
    return normalised(visits + pseudo_counts * pooled, anything)
