"""Maximum likelihood for latent MDPs: expectation-maximisation over whole episodes.

The E-step is one compiled pass over the merged episodes (`episodes`, `mixture`), the M-step
normalises counts, SQUAREM accelerates (`squarem`). The best of several starts is kept: pair
moments (`pairs`) first, random ones around the pooled model after them. Rows are smoothed towards
the pooled model, by default as strongly as predicts held-out episodes best (`smoothing`). Batch
version of the update in [kwon2021, Alg. 3].
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.engines.threads import Team
from latentmdp.estimation.checks import check_data, is_word, known_initial, known_weights, warn
from latentmdp.estimation.encoding import checked_logs
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters, Smoothing, Structure
from latentmdp.estimation.pairs import MAX_CELLS
from latentmdp.estimation.parameters import (
    SharedRewards,
    parameters_from_model,
    parameters_from_shares,
    reward_values_of,
    to_model,
)
from latentmdp.estimation.pseudo_counts import choose_smoothing
from latentmdp.estimation.squarem import Ascent, squarem
from latentmdp.estimation.starts import own_starts, pair_starts, random_start
from latentmdp.fit import Fit, shares_of
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories

__all__ = ["EM"]

Start = LatentMDP | Fit | ArrayLike | Literal["pairs", "random"] | None

_FIRST_SMOOTHING = 1.0
_LOOSE = 20.0


class EM:
    """Fit a latent MDP to logs by (smoothed) maximum likelihood.

    Parameters
    ----------
    n_contexts
        M.
    restarts
        Number of starts; the one with the highest objective is kept.
    smoothing : "auto" or float
        Pseudo-counts of the pooled model in every row; "auto" takes the strengths, one for
        transitions and one for rewards, that predict held-out episodes best.
    reward_smoothing : None or float
        Pseudo-counts in rows of rewards, if not those of `smoothing`.
    shared_rewards
        Whether all contexts have the same rewards. Rewards then say nothing about the context.
    reward_model : "state-action" or "transition"
        Whether a reward depends on (s, a), or on (s, a, s').
    weights : None or (M,)
        Known weights; learned by default.
    initial : None, "shared", "own", (S,) or (M, S)
        Known initial distributions, or how to learn them: one that all contexts share, one for
        each context, or (by default) what BIC prefers.
    tolerance
        Stop when one EM map gains less than this (in nats, over all episodes).
    max_iter
        Cap on the maps from one start.
    threads
        Threads to use; None takes all cores. The result does not depend on it.
    """

    def __init__(
        self,
        n_contexts: int,
        *,
        restarts: int = 10,
        smoothing: float | Literal["auto"] = "auto",
        reward_smoothing: float | None = None,
        shared_rewards: bool = False,
        reward_model: Literal["state-action", "transition"] = "state-action",
        weights: ArrayLike | None = None,
        initial: ArrayLike | Literal["shared", "own"] | None = None,
        tolerance: float = 1e-3,
        max_iter: int = 2000,
        threads: int | None = None,
    ) -> None:
        self.n_contexts = arrays.positive_integer("n_contexts", n_contexts)
        self.restarts = arrays.positive_integer("restarts", restarts)
        self.max_iter = arrays.positive_integer("max_iter", max_iter)
        word = isinstance(smoothing, str)
        if (word and smoothing != "auto") or not (word or 0.0 <= float(smoothing) < np.inf):
            raise ValueError(f'smoothing must be "auto" or not negative, got {smoothing!r}')
        if reward_smoothing is not None and (word or not 0.0 <= float(reward_smoothing) < np.inf):
            raise ValueError(
                "reward_smoothing must not be negative, and goes with a number as smoothing; got "
                f"{reward_smoothing!r} with smoothing={smoothing!r}"
            )
        if reward_model not in ("state-action", "transition"):
            raise ValueError(
                f'reward_model must be "state-action" or "transition", got {reward_model!r}'
            )
        if not tolerance > 0.0:
            raise ValueError(f"tolerance must be positive, got {tolerance}")
        self.smoothing, self.reward_smoothing = smoothing, reward_smoothing
        self.tolerance, self.threads = float(tolerance), threads
        self.shared_rewards, self.reward_model = bool(shared_rewards), reward_model
        self.weights = None if weights is None else known_weights(weights, self.n_contexts)
        self.initial = initial

    def fit(
        self,
        logs: Trajectories | Sequence[Trajectories],
        *,
        start: Start | Sequence[Start] = None,
        rng: RNGLike = None,
    ) -> Fit:
        """Fit to one log, or to several together.

        Parameters
        ----------
        logs
            Episodes of any lengths, with or without multiplicities; known contexts are ignored.
        start
            None takes `restarts` starts, from pair moments and at random; "pairs" or "random" only
            those. Otherwise the start itself: a model, a fit, responsibilities (N, M) or labels
            (N,) of all episodes; or a list of such starts.

        Raises
        ------
        TrajectoryError
            No episode is long enough to tell contexts apart, or there are fewer than contexts.
        """
        began = time.perf_counter()
        generator = as_generator(rng)
        parts = checked_logs(logs, minimum=2 if self.n_contexts > 1 else 1)
        with Team(self.threads) as team:
            problem = _Problem(self, parts, _models(start), team)
            check_data(problem.likelihood)
            first = problem.likelihood.smoothed(self.first_smoothing())
            runs = [problem.climb(first, x, _LOOSE) for x in problem.starts(start, generator)]
            return problem.finish(runs, generator, began)

    def first_smoothing(self) -> Smoothing:
        """The strengths given, or those to begin with."""
        if self.smoothing == "auto":
            return Smoothing(_FIRST_SMOOTHING, _FIRST_SMOOTHING)
        of_rewards = self.smoothing if self.reward_smoothing is None else self.reward_smoothing
        return Smoothing(float(self.smoothing), float(of_rewards))


class _Problem:
    """One call of `fit`: the logs as a likelihood, and the steps towards its maximum."""

    def __init__(
        self, settings: EM, logs: list[Trajectories], models: list[LatentMDP], team: Team
    ) -> None:
        self.settings, self.logs = settings, logs
        self.reward_values = reward_values_of([*logs, *models])
        S, A = (max(getattr(x, n) for x in (*logs, *models)) for n in ("n_states", "n_actions"))
        sizes = (S, A, self.reward_values.size)
        joint = settings.reward_model == "transition"
        shared = settings.shared_rewards or sizes[2] == 1
        self.shared = SharedRewards(logs, sizes, joint) if shared else None
        structure = Structure(
            settings.n_contexts,
            joint=joint,
            shared_initial=is_word(settings.initial, None, "shared"),
            weights=settings.weights,
            initial=known_initial(settings.initial, settings.n_contexts, S),
        )
        episodes = Episodes(logs, use_rewards=not shared, sizes=sizes)
        self.likelihood = MixtureLikelihood(episodes, structure, Smoothing(0.0, 0.0), team)

    def starts(
        self, start: Start | Sequence[Start], rng: np.random.Generator
    ) -> Iterator[Parameters]:
        """The points to climb from."""
        if self.settings.n_contexts == 1:
            yield self.likelihood.pooled()
        elif start is None or isinstance(start, str):
            yield from self._own_starts(start, rng)
        elif _is_list(start):
            for one in start:
                yield from self.starts(one, rng)
        elif isinstance(start, LatentMDP | Fit):
            (model,) = _models(start)
            self._require_contexts("the start", model.n_contexts)
            for part in self.logs:
                part.validate(model)
            yield parameters_from_model(self.likelihood, model)
        else:
            shares = self._shares(np.asarray(start))
            yield parameters_from_shares(self.likelihood, self.logs, shares)

    def _own_starts(self, kind: str | None, rng: np.random.Generator) -> list[Parameters]:
        if kind not in (None, "pairs", "random"):
            raise ValueError(f'start must be "pairs", "random", a model or labels, got {kind!r}')
        number = self.settings.restarts
        if kind is None:
            return own_starts(self.likelihood, number, rng)
        if kind == "random":
            return [random_start(self.likelihood, rng) for _ in range(number)]
        found = pair_starts(self.likelihood, number, rng)
        if not found:
            raise ValueError(f'start="pairs" needs at most {MAX_CELLS} distinct transitions')
        return found

    def _shares(self, given: NDArray[np.generic]) -> Floats:
        N, M = sum(len(part) for part in self.logs), self.settings.n_contexts
        if given.ndim == 1 and given.dtype.kind in "iu":
            self._require_contexts("labels", int(given.max(initial=0)) + 1, at_most=True)
            given = np.eye(M)[given]
        if given.shape != (N, M):
            raise ValueError(
                f"start must be labels ({N},) or responsibilities ({N}, {M}), got {given.shape}"
            )
        return given.astype(np.float64)

    def _require_contexts(self, what: str, number: int, at_most: bool = False) -> None:
        M = self.settings.n_contexts
        if number > M or (number < M and not at_most):
            raise ValueError(f"{what} has {number} contexts, n_contexts is {M}")

    def climb(self, likelihood: MixtureLikelihood, start: Parameters, loose: float = 1.0) -> Ascent:
        """SQUAREM from `start`, with `loose` times the tolerance."""
        settings = self.settings
        return squarem(
            likelihood.step,
            likelihood.repair,
            start,
            loose * settings.tolerance,
            settings.max_iter,
        )

    def finish(self, runs: list[Ascent], rng: np.random.Generator, began: float) -> Fit:
        """Choose what is left to choose, climb to the end and report."""
        settings = self.settings
        best = max(runs, key=lambda run: run.objective)
        point, history = best.point, best.history
        likelihood = self.likelihood.smoothed(settings.first_smoothing())
        if settings.initial is None and likelihood.prefers_own_initial(point):
            likelihood, history = likelihood.with_own_initial(), []
            point = self.climb(likelihood, point, _LOOSE).point
        if settings.smoothing == "auto" and settings.n_contexts > 1:
            cap = settings.max_iter
            chosen = choose_smoothing(likelihood, point, rng, 5 * settings.tolerance, cap)
            likelihood, history = likelihood.smoothed(chosen), []
        last = self.climb(likelihood, point)
        if not last.converged:
            warn(
                f"not converged after max_iter={settings.max_iter} maps: the last gained more "
                f"than tolerance={settings.tolerance:g}"
            )
        return self._report(likelihood, last, history, began)

    def _report(
        self, likelihood: MixtureLikelihood, last: Ascent, history: list[float], began: float
    ) -> Fit:
        expected = likelihood.expected_counts(last.point)
        lightest = expected.by_first.sum(axis=0)
        if lightest.min() < 1.0:
            warn(
                f"context {lightest.argmin()} explains less than one episode: fewer than "
                f"n_contexts={self.settings.n_contexts} contexts may do"
            )
        model = to_model(likelihood, last.point, self.reward_values, self.shared)
        constant = 0.0 if self.shared is None else self.shared.log_likelihood()
        return Fit(
            model=model,
            responsibilities=shares_of(model, self.logs),
            log_likelihood=expected.log_likelihood + constant,
            converged=last.converged,
            history=tuple(history + last.history),
            n_iter=last.n_maps,
            smoothing=likelihood.smoothing.transitions,
            reward_smoothing=likelihood.smoothing.rewards,
            n_parameters=likelihood.n_parameters
            + (0 if self.shared is None else self.shared.n_parameters),
            seconds=time.perf_counter() - began,
        )


def _is_list(start: Any) -> TypeGuard[Sequence[Start]]:
    """A list of starts, rather than one that is written as a list of numbers."""
    return isinstance(start, list | tuple) and any(
        one is None or isinstance(one, str | LatentMDP | Fit | np.ndarray) for one in start
    )


def _models(start: Start | Sequence[Start]) -> list[LatentMDP]:
    """The models among the starts."""
    found: list[LatentMDP] = []
    for one in start if _is_list(start) else [start]:
        if isinstance(one, LatentMDP | Fit):
            found.append(one.model if isinstance(one, Fit) else one)
    return found
