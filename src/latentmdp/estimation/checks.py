"""What can be fitted at all, and what the fit is worth: errors and warnings before EM starts."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp.errors import TrajectoryError
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import MixtureLikelihood
from latentmdp.fit import FitWarning

__all__ = ["check_data", "is_word", "known_initial", "known_weights", "warn"]


def warn(message: str) -> None:
    """Warn the caller of `fit`."""
    warnings.warn(message, FitWarning, stacklevel=4)


def is_word(value: object, *words: str | None) -> bool:
    """Whether `value`, which may be an array, is None or one of these words."""
    return (value is None or isinstance(value, str)) and value in words


def check_data(likelihood: MixtureLikelihood) -> None:
    """Refuse what cannot be fitted, warn about what cannot be trusted."""
    M, episodes = likelihood.structure.n_contexts, likelihood.episodes
    if episodes.n_episodes < M:
        raise TrajectoryError(
            f"{episodes.n_episodes:g} episodes cannot show n_contexts={M} contexts"
        )
    if M > 1 and episodes.longest < 3:
        warn(
            "no episode has more than 2 steps: contexts are not identified by pairs of "
            "transitions, only the span of their differences is"
        )
    observed = likelihood.cell_counts.sum()
    if likelihood.n_parameters > observed:
        warn(
            f"{likelihood.n_parameters} free parameters for {observed:g} transitions: "
            f"n_contexts={M} is more than these logs can bear"
        )
    given = likelihood.structure.initial
    if given is not None and (given.sum(axis=0)[likelihood.pooled_first > 0.0] == 0.0).any():
        raise TrajectoryError("initial gives probability 0 to a state in which episodes start")
    _warn_of_unvisited(episodes)


def _warn_of_unvisited(episodes: Episodes) -> None:
    S, A, Z = episodes.n_states, episodes.n_actions, episodes.n_rewards
    visited = np.zeros(S * A, dtype=np.bool_)
    visited[episodes.cells // (S * Z)] = True
    missing = np.flatnonzero(~visited)
    if missing.size:
        some = ", ".join(f"({i // A}, {i % A})" for i in missing[:5])
        more = "" if missing.size <= 5 else f" and {missing.size - 5} more"
        warn(
            f"no episode visits (state, action) {some}{more}: these rows are uniform in every "
            "context, not estimated"
        )


def known_weights(weights: ArrayLike, n_contexts: int) -> Floats:
    """Check weights that the caller knows."""
    values = arrays.as_floats("weights", weights)
    if values.shape != (n_contexts,) or values.min() < 0.0 or abs(values.sum() - 1.0) > 1e-9:
        raise ValueError(
            f"weights must be {n_contexts} probabilities that sum to one, got {values.tolist()}"
        )
    return values


def known_initial(
    initial: ArrayLike | Literal["shared", "own"] | None, n_contexts: int, n_states: int
) -> Floats | None:
    """Initial distributions (M, S) that the caller knows, or None where they are to be learned."""
    if initial is None or is_word(initial, "shared", "own"):
        return None
    if isinstance(initial, str):
        raise ValueError(f'initial must be "shared", "own" or probabilities, got {initial!r}')
    values = arrays.as_floats("initial", initial)
    if values.shape not in ((n_states,), (n_contexts, n_states)):
        raise ValueError(
            f"initial must have shape ({n_states},) or ({n_contexts}, {n_states}), "
            f"got {values.shape}"
        )
    rows = np.broadcast_to(values, (n_contexts, n_states))
    if rows.min() < 0.0 or np.abs(rows.sum(axis=1) - 1.0).max() > 1e-9:
        raise ValueError("initial must hold probabilities that sum to one")
    return np.ascontiguousarray(rows)
