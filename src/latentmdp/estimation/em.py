"""Maximum likelihood for latent MDPs: expectation-maximisation over whole episodes.

For episodes i with first state s and cells c_1..c_L (`episodes`), the objective is the
log-likelihood of the mixture plus the log-prior of the pseudo-counts (`likelihood`),

    sum_i log sum_m w_m nu_m(s) prod_t P_m(c_t) + sum over rows and contexts k <pooled row, log row>

E-step    q_i(m) = p(m | episode i), and the expected counts N_m(x) of cells and N_m(s) of first
          states: every episode counts q_i(m) times in context m.
M-step    each row becomes (N_m(row) + k pooled row) / (sum N_m(row) + k), nu_m likewise from
          N_m(s), and w_m the share of the episodes; what is given, or shared, stays.

One E-step and one M-step are an *EM map*; it never lowers the objective. SQUAREM [varadhan2008]
accelerates: two maps x1 = F(x0), x2 = F(x1) give r = x1 - x0 and v = (x2 - x1) - r, and the step
length a = ||r|| / ||v|| extrapolates to

    x' = x0 + 2 a r + a^2 v            (a = 1 is x2 itself).

x' is accepted only if its objective is at least that of x1; otherwise the iteration goes on from
x1, so the objective never falls. The iteration stops when one map gains less than the tolerance.

The best of several starts is kept (`starts`: pair moments first, random ones around the pooled
model after them). Then it is settled whether contexts have initial distributions of their own, by
BIC, and how many pseudo-counts to take, by held-out likelihood (`pseudo_counts`), and EM climbs to
the end. This is the batch version of the update in [kwon2021, Alg. 3].
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal, NamedTuple, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.engines.cuda import on_gpu
from latentmdp.engines.threads import Team
from latentmdp.errors import TrajectoryError
from latentmdp.estimation.cuda_pass import CudaPass
from latentmdp.estimation.episodes import Episodes, ExpectedCounts, checked_logs
from latentmdp.estimation.likelihood import (
    MixtureLikelihood,
    Parameters,
    PseudoCounts,
    SharedRewards,
    Structure,
    is_large,
    model_from_parameters,
    parameters_from_model,
    reward_values_of,
)
from latentmdp.estimation.pseudo_counts import choose_pseudo_counts
from latentmdp.estimation.starts import own_starts
from latentmdp.estimation.termination import final_states
from latentmdp.fit import Fit, FitWarning, shares_of
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.trajectories import Trajectories

__all__ = ["EM", "Ascent", "climb", "starting_points"]

Start = LatentMDP | Fit | ArrayLike | Literal["pairs", "random"] | None

_FIRST_PSEUDO_COUNTS = PseudoCounts(1.0, 1.0)
"""What starts are compared with before "auto" has chosen: one observation of the pooled row, so
that rows with hardly any data cannot decide which start is best."""

_LOOSE = 20.0
"""Starts are compared at this multiple of the tolerance: they only have to be ranked, and the best
of them alone climbs to the end."""

_CHOICE_TOLERANCE = 5.0
"""Fits that choose the pseudo-counts stop at this multiple of the tolerance: held-out scores that
differ by less than a nat are alike, see `pseudo_counts`."""

_FIRST_STEP = 4.0
"""The longest step of SQUAREM at first. It grows fourfold when it was too short and shrinks when
an extrapolation is refused [varadhan2008]: a refusal costs one map."""


@dataclass(frozen=True, eq=False, repr=False)
class EM:
    """Fit a latent MDP to logs by maximum likelihood, or its mode under pseudo-counts.

    Parameters
    ----------
    n_contexts
        M.
    restarts
        Number of starts; the one with the highest objective is kept.
    pseudo_counts : "auto" or float
        Pseudo-counts of the pooled model in every row; "auto" takes the strengths, one for
        transitions and one for rewards, that predict held-out episodes best.
    reward_pseudo_counts : None or float
        Pseudo-counts in rows of rewards, if not those of `pseudo_counts`.
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

    n_contexts: int
    _: KW_ONLY
    restarts: int = 10
    pseudo_counts: float | Literal["auto"] = "auto"
    reward_pseudo_counts: float | None = None
    shared_rewards: bool = False
    reward_model: RewardModel = "state-action"
    weights: ArrayLike | None = None
    initial: ArrayLike | Literal["shared", "own"] | None = None
    tolerance: float = 1e-3
    max_iter: int = 2000
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_contexts", "restarts", "max_iter"):
            object.__setattr__(self, name, arrays.positive_integer(name, getattr(self, name)))
        given, of_rewards = self.pseudo_counts, self.reward_pseudo_counts
        word = isinstance(given, str)
        if (word and given != "auto") or not (word or 0.0 <= float(given) < np.inf):
            raise ValueError(f'pseudo_counts must be "auto" or not negative, got {given!r}')
        if of_rewards is not None and (word or not 0.0 <= float(of_rewards) < np.inf):
            raise ValueError(
                "reward_pseudo_counts must not be negative, and goes with a number as "
                f"pseudo_counts; got {of_rewards!r} with pseudo_counts={given!r}"
            )
        validation.require_choice("reward_model", self.reward_model, ("state-action", "transition"))
        if not self.tolerance > 0.0:
            raise ValueError(f"tolerance must be positive, got {self.tolerance}")
        if self.weights is not None:
            weights = validation.weights(self.weights, self.n_contexts)
            object.__setattr__(self, "weights", weights)

    def __repr__(self) -> str:
        """The settings that differ from the defaults."""
        shown = [str(self.n_contexts)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not field.default:
                value = value.tolist() if isinstance(value, np.ndarray) else value
                shown += [f"{field.name}={value!r}"] if value != field.default else []
        return f"EM({', '.join(shown)})"

    def fit(
        self,
        logs: Trajectories | Sequence[Trajectories],
        *,
        start: Start | Sequence[Start] = None,
        rng: RNGLike = None,
        device: str = "cpu",
    ) -> Fit:
        """Fit to one log, or to several together.

        Parameters
        ----------
        logs
            Episodes of any lengths, with or without multiplicities; known contexts are ignored.
        start
            None takes `restarts` starts, from pair moments and at random; "pairs" or "random" only
            those. Otherwise the start itself: a model, a fit, responsibilities (N, M) or labels
            (N,) of all episodes, -1 for none; or a list of such starts.
        device
            "cpu", or "cuda" for a GPU, which makes the passes over the episodes. Both add in a
            fixed order, but not the same: fits are alike up to rounding.

        Raises
        ------
        TrajectoryError
            No episode is long enough to tell contexts apart, or there are fewer than contexts.
        """
        began = time.perf_counter()
        passes = CudaPass() if on_gpu(device) else None
        generator = as_generator(rng)
        parts = checked_logs(logs, minimum=2 if self.n_contexts > 1 else 1)
        with Team(self.threads) as team:
            problem = _problem(self, parts, _models(start), passes or team)
            for message in _warnings_before(problem):
                warnings.warn(message, FitWarning, stacklevel=2)
            starts = list(self._starts(problem, start, generator))
            likelihood = problem.likelihood.with_pseudo_counts(self._first_pseudo_counts())
            loose = _LOOSE * self.tolerance
            runs = [climb(likelihood, point, loose, self.max_iter) for point in starts]
            best = max(runs, key=lambda run: run.objective)
            likelihood, point, history = self._settled(likelihood, best, generator)
            last = climb(likelihood, point, self.tolerance, self.max_iter)
            counts, log_likelihood = _e_step(likelihood, last.point)
            for message in self._warnings_after(last, counts):
                warnings.warn(message, FitWarning, stacklevel=2)
        shared = problem.shared
        model = model_from_parameters(likelihood, last.point, problem.reward_values, shared)
        return Fit(
            model=model,
            responsibilities=shares_of(model, parts),
            log_likelihood=log_likelihood + (0.0 if shared is None else shared.log_likelihood()),
            converged=last.converged,
            history=tuple(history + last.history),
            n_iter=last.n_maps,
            pseudo_counts=likelihood.pseudo_counts.transitions,
            reward_pseudo_counts=likelihood.pseudo_counts.rewards,
            n_parameters=likelihood.n_parameters + (0 if shared is None else shared.n_parameters),
            seconds=time.perf_counter() - began,
        )

    def _first_pseudo_counts(self) -> PseudoCounts:
        """The strengths given, or those to begin with."""
        if self.pseudo_counts == "auto":
            return _FIRST_PSEUDO_COUNTS
        given, of_rewards = float(self.pseudo_counts), self.reward_pseudo_counts
        return PseudoCounts(given, given if of_rewards is None else float(of_rewards))

    def _settled(
        self, likelihood: MixtureLikelihood, best: Ascent, rng: np.random.Generator
    ) -> tuple[MixtureLikelihood, Parameters, list[float]]:
        """Settle the initial distributions and the pseudo-counts, from the best start's end.

        Returns the likelihood to climb, where to climb from, and the history that counts: none
        where the objective has changed.
        """
        point, history = best.point, best.history
        if self.initial is None:
            counts, _ = _e_step(likelihood, point)
            if likelihood.prefers_own_initial(counts.by_first):
                likelihood, history = likelihood.with_own_initial(), []
                loose = _LOOSE * self.tolerance
                point = climb(likelihood, point, loose, self.max_iter).point
        if self.pseudo_counts == "auto" and self.n_contexts > 1:
            tolerance = _CHOICE_TOLERANCE * self.tolerance
            chosen = choose_pseudo_counts(
                likelihood,
                point,
                rng,
                lambda some, start: climb(some, start, tolerance, self.max_iter).point,
            )
            likelihood, history = likelihood.with_pseudo_counts(chosen), []
        return likelihood, point, history

    def _warnings_after(self, last: Ascent, counts: ExpectedCounts) -> Iterator[str]:
        """What the caller should know about the end of the climb."""
        if not last.converged:
            yield (
                f"not converged after max_iter={self.max_iter} maps: the last gained more "
                f"than tolerance={self.tolerance:g}"
            )
        episodes = counts.by_first.sum(axis=0)
        if episodes.min() < 1.0:
            yield (
                f"context {episodes.argmin()} explains less than one episode: fewer than "
                f"n_contexts={self.n_contexts} contexts may do"
            )

    def _starts(
        self, problem: _Problem, start: Start | Sequence[Start], rng: np.random.Generator
    ) -> Iterator[Parameters]:
        """The points to climb from."""
        likelihood = problem.likelihood
        if start is None or isinstance(start, str):
            yield from starting_points(likelihood, self.restarts, rng, start)
        elif self.n_contexts == 1:
            yield from starting_points(likelihood, 1, rng)
        elif _is_list(start):
            for one in start:
                yield from self._starts(problem, one, rng)
        elif isinstance(start, LatentMDP | Fit):
            (model,) = _models(start)
            if model.n_contexts != self.n_contexts:
                raise ValueError(
                    f"the start has {model.n_contexts} contexts, n_contexts is {self.n_contexts}"
                )
            for part in problem.logs:
                part.validate(model)
            yield parameters_from_model(likelihood, model)
        else:
            shares = self._shares(np.asarray(start), sum(len(part) for part in problem.logs))
            counts = likelihood.episodes.shared_out(problem.logs, shares)
            yield _m_step(likelihood, counts)

    def _shares(self, given: NDArray[Any], episodes: int) -> Floats:
        """p(m | episode) as the caller gives it, by labels or by responsibilities."""
        N, M = episodes, self.n_contexts
        if given.ndim == 1 and given.dtype.kind in "iu":
            if (number := int(given.max(initial=0)) + 1) > M:
                raise ValueError(f"labels has {number} contexts, n_contexts is {M}")
            given = np.eye(M)[np.maximum(given, 0)] * (given >= 0)[:, None]
        if given.shape != (N, M):
            raise ValueError(
                f"start must be labels ({N},) or responsibilities ({N}, {M}), got {given.shape}"
            )
        return given.astype(np.float64)


class Ascent(NamedTuple):
    """Where a climb ended; `history` is the objective along it and never falls."""

    point: Parameters
    objective: float
    history: list[float]
    converged: bool
    n_maps: int


def climb(
    likelihood: MixtureLikelihood, start: Parameters, tolerance: float, max_maps: int
) -> Ascent:
    """EM from `start`, accelerated by SQUAREM, until one map gains less than `tolerance`.

    `max_maps` caps the number of maps; reaching it is not convergence.
    """
    x0 = start
    counts, value = _e_step(likelihood, x0)
    x1, here = _m_step(likelihood, counts), value + likelihood.log_prior(x0)
    history, n_maps, longest = [here], 1, _FIRST_STEP
    while n_maps < max_maps:
        counts, value = _e_step(likelihood, x1)
        x2, ahead = _m_step(likelihood, counts), value + likelihood.log_prior(x1)
        n_maps += 1
        if not ahead - here >= tolerance:
            if ahead >= here:
                return Ascent(x1, ahead, [*history, ahead], True, n_maps)
            return Ascent(x0, here, history, True, n_maps)
        length = _step_length(x0, x1, x2, longest)
        if length > 1.0 and n_maps < max_maps:
            candidate = likelihood.repaired(_extrapolated(x0, x1, x2, length), x2)
            counts, value = _e_step(likelihood, candidate)
            value += likelihood.log_prior(candidate)
            n_maps += 1
            if np.isfinite(value) and value >= ahead:
                longest *= 4.0 if length == longest else 1.0
                x0, x1, here = candidate, _m_step(likelihood, counts), value
                history.append(here)
                continue
            longest = max(_FIRST_STEP, longest / 4.0)
        x0, x1, here = x1, x2, ahead
        history.append(here)
    return Ascent(x0, here, history, False, n_maps)


def starting_points(
    likelihood: MixtureLikelihood, number: int, rng: np.random.Generator, kind: str | None = None
) -> list[Parameters]:
    """The points of `own_starts`: one M-step from each."""
    return [_m_step(likelihood, counts) for counts in own_starts(likelihood, number, rng, kind)]


def _e_step(likelihood: MixtureLikelihood, parameters: Parameters) -> tuple[ExpectedCounts, float]:
    """N_m(x) and N_m(s) under p(m | episode), and the log-likelihood, in one compiled pass."""
    table, first = likelihood.tables(parameters)
    return likelihood.episodes.expected_counts(table, first, likelihood.team)


def _m_step(likelihood: MixtureLikelihood, counts: ExpectedCounts) -> Parameters:
    """The parameters that maximise the expected log-likelihood plus the log-prior."""
    blocks = [
        rows.normalised(rows.incidence @ counts.by_cell + k * rows.pooled[:, None])
        for rows, k in zip(likelihood.rows, likelihood.strengths)
    ]
    initial = likelihood.settled_initial
    if initial is None:
        initial = counts.by_first + likelihood.strengths[0] * likelihood.pooled_first[:, None]
        initial = initial / initial.sum(axis=0)
    weights = likelihood.structure.weights
    if weights is None:
        episodes = counts.by_first.sum(axis=0)
        weights = episodes / episodes.sum()
    return (*blocks, initial, weights)


def _step_length(x0: Parameters, x1: Parameters, x2: Parameters, longest: float) -> float:
    first = sum(float(np.sum((b - a) ** 2)) for a, b in zip(x0, x1))
    second = sum(float(np.sum((c - 2.0 * b + a) ** 2)) for a, b, c in zip(x0, x1, x2))
    if second == 0.0:
        return 1.0
    return float(np.clip(np.sqrt(first / second), 1.0, longest))


def _extrapolated(x0: Parameters, x1: Parameters, x2: Parameters, length: float) -> Parameters:
    return tuple(
        a + 2.0 * length * (b - a) + length**2 * (c - 2.0 * b + a) for a, b, c in zip(x0, x1, x2)
    )


class _Problem(NamedTuple):
    """The logs as a likelihood, and what the model needs beside its parameters."""

    logs: list[Trajectories]
    likelihood: MixtureLikelihood
    reward_values: Floats
    shared: SharedRewards | None


def _problem(
    em: EM, logs: list[Trajectories], models: list[LatentMDP], team: Team | CudaPass
) -> _Problem:
    """The likelihood that the settings ask for, without pseudo-counts.

    A start may know of more states than the logs.
    """
    known: list[Trajectories | LatentMDP] = [*logs, *models]
    reward_values = reward_values_of(known)
    S, A = max(x.n_states for x in known), max(x.n_actions for x in known)
    sizes = (S, A, reward_values.size)
    shared = em.shared_rewards or reward_values.size == 1
    word = em.initial if isinstance(em.initial, str) else None
    learned = em.initial is None or word in ("shared", "own")
    if word is not None and not learned:
        raise ValueError(f'initial must be "shared", "own" or probabilities, got {word!r}')
    structure = Structure(
        em.n_contexts,
        reward_model=em.reward_model,
        shared_initial=em.initial is None or word == "shared",
        weights=None if em.weights is None else np.asarray(em.weights),
        initial=None
        if learned
        else validation.initial(em.initial, em.n_contexts, np.ones((S, 1), np.bool_), False),
    )
    episodes = Episodes(logs, use_rewards=not shared, sizes=sizes)
    return _Problem(
        logs,
        MixtureLikelihood(episodes, structure, PseudoCounts(0.0, 0.0), team),
        reward_values,
        SharedRewards(logs, sizes, em.reward_model) if shared else None,
    )


def _is_list(start: Any) -> TypeGuard[Sequence[Start]]:
    """A list of starts, rather than one that is written as a list of numbers."""
    return isinstance(start, list | tuple) and any(
        one is None or isinstance(one, str | LatentMDP | Fit | np.ndarray) for one in start
    )


def _models(start: Start | Sequence[Start]) -> list[LatentMDP]:
    """The models among the starts."""
    given: Sequence[Start] = start if _is_list(start) else [cast(Start, start)]
    models = [one.model if isinstance(one, Fit) else one for one in given]
    return [one for one in models if isinstance(one, LatentMDP)]


def _warnings_before(problem: _Problem) -> Iterator[str]:
    """Refuse what cannot be fitted, and name what cannot be trusted."""
    likelihood, shared = problem.likelihood, problem.shared
    M, episodes = likelihood.structure.n_contexts, likelihood.episodes
    if episodes.n_episodes < M:
        raise TrajectoryError(
            f"{episodes.n_episodes:g} episodes cannot show n_contexts={M} contexts"
        )
    if M > 1 and episodes.longest < 3:
        yield (
            "no episode has more than 2 steps: contexts are not identified by pairs of "
            "transitions, only the span of their differences is"
        )
    observed = likelihood.cell_counts.sum()
    if likelihood.n_parameters > observed:
        yield (
            f"{likelihood.n_parameters} free parameters for {observed:g} transitions: "
            f"n_contexts={M} is more than these logs can bear"
        )
    given = likelihood.structure.initial
    if given is not None and (given.sum(axis=0)[likelihood.pooled_first > 0.0] == 0.0).any():
        raise TrajectoryError("initial gives probability 0 to a state in which episodes start")
    S, A, Z = episodes.n_states, episodes.n_actions, episodes.n_rewards
    lasting = np.ones(S, np.bool_)
    lasting[np.flatnonzero(final_states(problem.logs))] = False
    missing = np.setdiff1d(np.flatnonzero(np.repeat(lasting, A)), episodes.cells // (S * Z))
    if missing.size:
        some = ", ".join(f"({i // A}, {i % A})" for i in missing[:5])
        more = "" if missing.size <= 5 else f" and {missing.size - 5} more"
        large = is_large(episodes, likelihood.structure, shared)
        told = "are left out of the model" if large else "are uniform in every context"
        yield f"no episode visits (state, action) {some}{more}: these rows {told}, not estimated"
