"""Maximum likelihood for latent MDPs: expectation-maximisation over whole episodes.

For episodes i with first state s and cells c_1..c_L (`episodes`), the objective is the
log-likelihood of the mixture plus the log-prior of the pseudo-counts (`likelihood`),

    sum_i log sum_m w_m nu_m(s) prod_t P_m(c_t) + sum over rows and contexts k <pooled row, log row>

(P_m holds the logger's pi_m(a|s) as well where it may have known the context.)

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
model after them). Then held-out likelihood decides what contexts share and how many pseudo-counts
to take (`held_out`), and EM climbs to the end. This is the batch version of the update in
[kwon2021, Alg. 3].
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.results import plain
from latentmdp.engines import Engine, as_engine
from latentmdp.errors import TrajectoryError
from latentmdp.estimation.episodes import Episodes, ExpectedCounts, checked_logs
from latentmdp.estimation.held_out import (
    NOISE,
    Decision,
    Folds,
    HeldOut,
    distance,
    sharing_hypotheses,
)
from latentmdp.estimation.likelihood import (
    MixtureLikelihood,
    Parameters,
    Part,
    PseudoCounts,
    Structure,
    behaviour_from_parameters,
    model_from_parameters,
    parameters_from_model,
    reward_values_of,
    weight_model_from_parameters,
)
from latentmdp.estimation.starts import own_starts, split_starts
from latentmdp.estimation.termination import final_states
from latentmdp.fit import Fit, FitWarning, shares_of
from latentmdp.logs import Covariates, Encoder, Logs, WeightModel
from latentmdp.metrics import adjusted_rand_index
from latentmdp.model import LatentMDP, RewardModel

Start = LatentMDP | Fit | ArrayLike | Literal["pairs", "random"] | None

_LOOSE = 20.0
"""Starts are compared at this multiple of the tolerance: they only have to be ranked, and the best
of them alone climbs to the end."""


STABLE = 0.8
"""Adjusted Rand index from which on groups count as the same: by the usual reading [steinley2004]
0.65 is moderate, 0.8 good agreement."""


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
    behaviour : "shared", "by-context" or "auto"
        Whether the logger's policy pi(a | s) depended on the context. If it did, the actions that
        it took are evidence about the context, and enter the likelihood.
    behaviour_pseudo_counts : None or float
        Pseudo-counts in rows of the logger's policy, if not those of `pseudo_counts`.
    shared_rewards, shared_transitions, shared_initial : bool or "auto"
        Whether all contexts have the same rewards, transitions, or initial states. They then say
        nothing about the context. "auto" decides by held-out likelihood.
    covariates : bool or "auto"
        Whether the weights of the contexts depend on the covariates of an individual, by ridge
        multinomial regression (`Fit.weight_model`); "auto" decides by held-out likelihood. Logs
        without covariates have no use for it.
    ridge : None or float
        Strength k of the penalty k / 2 |beta|^2 of that regression, if not `pseudo_counts`.
    reward_model : "state-action" or "transition"
        Whether a reward depends on (s, a), or on (s, a, s').
    weights : None or (M,)
        Known weights; learned by default.
    initial : None, (S,) or (M, S)
        Known initial distributions; learned by default. "shared" and "own" are short for
        `shared_initial` True and False.
    folds : None or int
        Parts of the individuals, each held out once where held-out episodes decide; by default 5,
        or 2 of very many.
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
    behaviour: Literal["shared", "by-context", "auto"] = "shared"
    behaviour_pseudo_counts: float | None = None
    shared_rewards: bool | Literal["auto"] = False
    shared_transitions: bool | Literal["auto"] = False
    shared_initial: bool | Literal["auto"] = "auto"
    covariates: bool | Literal["auto"] = "auto"
    ridge: float | None = None
    reward_model: RewardModel = "state-action"
    weights: ArrayLike | None = None
    initial: ArrayLike | Literal["shared", "own"] | None = None
    folds: int | None = None
    tolerance: float = 1e-3
    max_iter: int = 2000
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_contexts", "restarts", "max_iter"):
            object.__setattr__(self, name, arrays.positive_integer(name, getattr(self, name)))
        pseudo_counts = self.pseudo_counts
        word = isinstance(pseudo_counts, str)
        if (word and pseudo_counts != "auto") or not (word or 0.0 <= float(pseudo_counts) < np.inf):
            raise ValueError(f'pseudo_counts must be "auto" or not negative, got {pseudo_counts!r}')
        for name in ("reward_pseudo_counts", "behaviour_pseudo_counts", "ridge"):
            strength = getattr(self, name)
            if strength is not None and (word or not 0.0 <= float(strength) < np.inf):
                raise ValueError(
                    f"{name} must not be negative, and goes with a number as "
                    f"pseudo_counts; got {strength!r} with pseudo_counts={pseudo_counts!r}"
                )
        validation.require_choice("behaviour", self.behaviour, ("shared", "by-context", "auto"))
        if isinstance(self.initial, str):
            validation.require_choice("initial", self.initial, ("shared", "own"))
            object.__setattr__(self, "shared_initial", self.initial == "shared")
            object.__setattr__(self, "initial", None)
        for name in ("shared_rewards", "shared_transitions", "shared_initial", "covariates"):
            validation.require_choice(name, getattr(self, name), (True, False, "auto"))
        validation.require_choice("reward_model", self.reward_model, ("state-action", "transition"))
        if self.folds is not None and arrays.positive_integer("folds", self.folds) < 2:
            raise ValueError(
                "folds must be at least 2: one part is left out, the others are fitted"
            )
        if not self.tolerance > 0.0:
            raise ValueError(f"tolerance must be positive, got {self.tolerance}")
        if self.weights is not None:
            weights = validation.weights(self.weights, self.n_contexts)
            object.__setattr__(self, "weights", weights)

    def __repr__(self) -> str:
        """The settings that differ from the defaults."""
        named = [(one, plain(getattr(self, one.name))) for one in fields(self)[1:]]
        changed = [f"{one.name}={value!r}" for one, value in named if value != one.default]
        return f"EM({', '.join([str(self.n_contexts), *changed])})"

    def fit(
        self,
        logs: Logs | Sequence[Logs],
        *,
        start: Start | Sequence[Start] = None,
        rng: RNGLike = None,
        device: str = "cpu",
        engine: Engine | None = None,
    ) -> Fit:
        """Fit to one log, or to several together.

        Parameters
        ----------
        logs
            Episodes of any lengths, with or without multiplicities, in memory or on disk; known
            contexts are ignored.
        start
            None takes `restarts` starts, from pair moments and at random; "pairs" or "random" only
            those. Otherwise the start itself: a model, a fit, responsibilities (N, M) or labels
            (N,) of all episodes, -1 for none; or a list of such starts.
        engine
            Where the passes over the episodes run; `threads` of this process by default. The
            result does not depend on it, but for `engines.Cuda()`: a GPU adds in a fixed order
            too, but another, and fits are alike up to rounding.
        device
            "cuda" is short for `engine=engines.Cuda()`.

        Raises
        ------
        TrajectoryError
            No episode is long enough to tell contexts apart, or there are fewer than contexts.
        DeviceError
            There is no GPU, or the episodes do not fit into its memory.
        """
        began = time.perf_counter()
        work = as_engine(engine, self.threads, device)
        generator = as_generator(rng)
        parts = checked_logs(logs, minimum=2 if self.n_contexts > 1 else 1)
        starts = start if _is_list(start) else [cast(Start, start)]
        problem = problem_of(self, parts, _models(starts), work)
        problem.likelihood.episodes.held_by(work, self.n_contexts)  # raises if they do not fit
        for message in _warnings_before(problem):
            warnings.warn(message, FitWarning, stacklevel=2)
        hypotheses = sharing_hypotheses(
            problem.own_parts, problem.open_parts, self._fixed_strengths()
        )
        few = self.restarts if len(hypotheses) == 1 else max(2, self.restarts // 4)
        loose, runs = _LOOSE * self.tolerance, {}
        for strengths in hypotheses:
            likelihood = problem.likelihood.with_pseudo_counts(strengths)
            points = self._starts(problem, likelihood, starts, few, generator)
            ends = [climb(likelihood, one, loose, self.max_iter) for one in points]
            runs[strengths] = sorted(ends, key=lambda run: -run.objective)
        likelihood, point, history, decisions, agreement = self._chosen(
            problem, runs, starts, generator
        )
        last = climb(likelihood, point, self.tolerance, self.max_iter)
        counts, log_likelihood = likelihood.episodes.expected_counts(
            *likelihood.tables(last.point), work
        )
        for message in self._warnings_after(last, counts, agreement):
            warnings.warn(message, FitWarning, stacklevel=2)
        estimate = problem.estimate(likelihood, last.point)
        behaviour = estimate.behaviour
        if behaviour is None and "behaviour" in likelihood.structure.parts:
            log_likelihood -= likelihood.block("behaviour").log_likelihood()
        strengths = likelihood.pseudo_counts
        return Fit(
            model=estimate.model,
            responsibilities=estimate.shares(problem.logs, work),
            log_likelihood=log_likelihood,
            converged=last.converged,
            history=(*history, *last.history),
            n_iter=last.n_maps,
            pseudo_counts=strengths.transitions,
            reward_pseudo_counts=strengths.rewards,
            behaviour_pseudo_counts=strengths.behaviour,
            n_parameters=likelihood.n_parameters,
            behaviour=likelihood.episodes.behaviour() if behaviour is None else behaviour,
            weight_model=estimate.weight_model,
            shared=self._shared_parts(likelihood),
            decisions=decisions,
            seconds=time.perf_counter() - began,
            estimator=decided_em(self, strengths, self.n_contexts),
            logs=tuple(problem.logs),
        )

    def _shared_parts(self, likelihood: MixtureLikelihood) -> tuple[str, ...]:
        """What all contexts share."""
        own = {*likelihood.own_parts}
        if likelihood.fixed_initial is None or likelihood.structure.initial is not None:
            own.add("initial")
        parts: tuple[Part, ...] = ("transitions", "rewards", "initial", "behaviour")
        return tuple(part for part in parts if self.n_contexts == 1 or part not in own)

    def _fixed_strengths(self) -> PseudoCounts | None:
        """The strengths given; None where they are to be chosen."""
        if self.pseudo_counts == "auto":
            return None
        strength = float(self.pseudo_counts)
        ridge = strength if self.ridge is None else float(self.ridge)
        others = (self.reward_pseudo_counts, self.behaviour_pseudo_counts)
        k_R, k_B = (strength if other is None else float(other) for other in others)
        # a context has one initial distribution only, with as many observations as episodes
        return PseudoCounts(strength, k_R, k_B, min(strength, 1.0), ridge)

    def _chosen(
        self,
        problem: FitProblem,
        runs: dict[PseudoCounts, list[Ascent]],
        starts: Sequence[Start],
        rng: np.random.Generator,
    ) -> tuple[MixtureLikelihood, Parameters, list[float], tuple[str, ...], float]:
        """Choose what contexts share and the pseudo-counts, from the best climb at hypotheses.

        Folds begin at estimates on all episodes, so that they find the same contexts. Returns the
        likelihood to climb, where to climb from, the history that counts (none where the objective
        has changed) and what was decided, in words.
        """
        fixed, open_parts = self._fixed_strengths(), problem.open_parts
        decided, scores = next(iter(runs)), None
        decisions: tuple[Decision, ...] = ()
        if self.n_contexts > 1 and (fixed is None or open_parts):
            tolerance = 5.0 * self.tolerance  # scores that differ by less than a nat are alike
            folds = Folds(problem.likelihood, self.folds, rng)
            begin = {strengths: ends[0].point for strengths, ends in runs.items()}
            scores = HeldOut(
                folds,
                self.n_contexts,
                [begin] * len(folds.trains),
                lambda some, point: climb(some, point, tolerance, self.max_iter).point,
                open_parts,
                fixed,
            )
            decided, decisions = scores.choice()
        likelihood = problem.likelihood.with_pseudo_counts(decided)
        ends = runs[min(runs, key=lambda strengths: distance(strengths, decided))]
        point, history = ends[0].point, ends[0].history if decided in runs else []
        if scores is not None:
            point = likelihood.mixed(point)
        if len(runs) > 1:
            points = [point, *self._starts(problem, likelihood, starts, self.restarts, rng)]
            loose = _LOOSE * self.tolerance
            ends = [climb(likelihood, one, loose, self.max_iter) for one in points]
            ends.sort(key=lambda run: -run.objective)
            point, history = ends[0].point, ends[0].history
        alike = self._agreement(problem, likelihood, ends, scores)
        return likelihood, point, history, tuple(map(str, decisions)), alike

    def _agreement(
        self,
        problem: FitProblem,
        likelihood: MixtureLikelihood,
        ends: list[Ascent],
        scores: HeldOut | None = None,
    ) -> float:
        """The least adjusted Rand index between the groups and others that are about as good.

        Those of other ends of the climb within `NOISE` of the best, and those at the farthest
        strengths that predict individuals left out as well, within two standard errors.
        """
        if self.n_contexts == 1:
            return 1.0
        decided, loose = likelihood.pseudo_counts, _LOOSE * self.tolerance
        below = [ends[0].objective - one.objective for one in ends]
        rivals = [one.point for one, less in zip(ends, below) if loose < less < NOISE]
        groups = [[problem.labels(likelihood, point) for point in (ends[0].point, *rivals)]]
        if scores is not None:
            best = scores.candidate(decided).scores
            losses = {k: scores.folds.gain(best, c.scores) for k, c in scores.candidates.items()}
            good = [k for k, loss in losses.items() if not loss.clear(2.0)]  # standard errors
            farthest = max([decided, *good], key=lambda k: distance(k, decided))
            groups.append(
                [
                    problem.labels(likelihood.with_pseudo_counts(k), scores.candidate(k).points[0])
                    for k in (decided, farthest)
                ]
            )
        return min(adjusted_rand_index(one[0], other) for one in groups for other in one)

    def _warnings_after(
        self, last: Ascent, counts: ExpectedCounts, agreement: float
    ) -> Iterator[str]:
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
        elif agreement < STABLE:
            yield (
                f"other groups explain these logs about as well, and agree with these to "
                f"{agreement:.2f} only (adjusted Rand index): do not rely on who belongs to which"
            )

    def _starts(
        self,
        problem: FitProblem,
        likelihood: MixtureLikelihood,
        starts: Sequence[Start],
        restarts: int,
        rng: np.random.Generator,
    ) -> Iterator[Parameters]:
        """The points to climb from."""
        for start in starts:
            if start is None or isinstance(start, str):
                yield from starting_points(likelihood, restarts, rng, start)
            elif self.n_contexts == 1:
                yield from starting_points(likelihood, 1, rng)
            elif isinstance(start, LatentMDP | Fit):
                (model,) = _models([start])
                if model.n_contexts != self.n_contexts:
                    raise ValueError(
                        f"the start has {model.n_contexts} contexts, n_contexts is "
                        f"{self.n_contexts}"
                    )
                for part in problem.logs:
                    part.validate(model)
                behaviour = start.behaviour_by_context if isinstance(start, Fit) else None
                yield parameters_from_model(likelihood, model, behaviour)
            else:
                shares = self._shares(np.asarray(start), sum(map(len, problem.logs)))
                counts = likelihood.episodes.shared_out(problem.logs, shares)
                yield _m_step(likelihood, counts)

    def _shares(self, start: NDArray[Any], episodes: int) -> Floats:
        """p(m | episode) as the caller gives it, by labels or by responsibilities."""
        N, M = episodes, self.n_contexts
        if start.ndim == 1 and start.dtype.kind in "iu":
            if (number := int(start.max(initial=0)) + 1) > M:
                raise ValueError(f"labels has {number} contexts, n_contexts is {M}")
            start = np.eye(M)[np.maximum(start, 0)] * (start >= 0)[:, None]
        if start.shape != (N, M):
            raise ValueError(
                f"start must be labels ({N},) or responsibilities ({N}, {M}), got {start.shape}"
            )
        return start.astype(np.float64, copy=False)


AnyEM = TypeVar("AnyEM", bound=EM)


def decided_em(em: AnyEM, strengths: PseudoCounts, n_contexts: int) -> AnyEM:
    """The same EM with nothing left open: these strengths, and shared what they say."""
    if n_contexts == 1:
        return replace(em, n_contexts=1, restarts=1, behaviour="shared", covariates=False)
    shared = PseudoCounts._make(bool(np.isinf(k)) for k in strengths)
    if all(shared[:3]):  # nothing tells the contexts apart: let a further fit say so again
        shared = shared._replace(transitions=False, rewards=False)
    k_T, k_R, k_B, _, ridge = (1.0 if np.isinf(k) else float(k) for k in strengths)
    return replace(
        em,
        n_contexts=n_contexts,
        pseudo_counts=k_T,
        reward_pseudo_counts=k_R,
        behaviour_pseudo_counts=k_B,
        ridge=ridge,
        shared_transitions=bool(shared.transitions),
        shared_rewards=bool(shared.rewards),
        shared_initial=bool(shared.initial),
        behaviour="shared" if shared.behaviour else "by-context",
        covariates=not shared.weights,
    )


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

    `max_maps` caps the number of maps; reaching it is not convergence. The E-step is the pass over
    the episodes that gives `counts` and the log-likelihood, the M-step is `_m_step`.
    """
    episodes, tables, engine = likelihood.episodes, likelihood.tables, likelihood.engine
    first_step = 4.0  # grows when it was too short, shrinks when an extrapolation is refused
    x0 = start
    counts, value = episodes.expected_counts(*tables(x0), engine)
    x1, here = _m_step(likelihood, counts, x0), value + likelihood.log_prior(x0)
    history, n_maps, longest = [here], 1, first_step
    while n_maps < max_maps:
        counts, value = episodes.expected_counts(*tables(x1), engine)
        x2, ahead = _m_step(likelihood, counts, x1), value + likelihood.log_prior(x1)
        n_maps += 1
        if not ahead - here >= tolerance:
            if ahead >= here:
                return Ascent(x1, ahead, [*history, ahead], True, n_maps)
            return Ascent(x0, here, history, True, n_maps)
        length = _step_length(x0, x1, x2, longest)
        if length > 1.0 and n_maps < max_maps:
            candidate = likelihood.repaired(_extrapolated(x0, x1, x2, length), x2)
            counts, value = episodes.expected_counts(*tables(candidate), engine)
            value += likelihood.log_prior(candidate)
            n_maps += 1
            if np.isfinite(value) and value >= ahead:
                longest *= 4.0 if length == longest else 1.0
                x1 = _m_step(likelihood, counts, candidate)
                x0, here = candidate, value
                history.append(here)
                continue
            longest = max(first_step, longest / 4.0)
        x0, x1, here = x1, x2, ahead
        history.append(here)
    return Ascent(x0, here, history, False, n_maps)


def starting_points(
    likelihood: MixtureLikelihood, number: int, rng: np.random.Generator, kind: str | None = None
) -> list[Parameters]:
    """The points of `own_starts`: one M-step from each."""
    return [_m_step(likelihood, counts) for counts in own_starts(likelihood, number, rng, kind)]


def starts_by_split(
    likelihood: MixtureLikelihood, before: Parameters, rng: np.random.Generator
) -> list[Parameters]:
    """Points with one context more than `before`: each of its contexts cut in two at random."""
    fewer = likelihood.with_contexts(before[-1].shape[-1])
    counts, _ = fewer.episodes.expected_counts(*fewer.tables(before), fewer.engine)
    return [_m_step(likelihood, some) for some in split_starts(likelihood, counts, rng)]


def _m_step(
    likelihood: MixtureLikelihood, counts: ExpectedCounts, before: Parameters | None = None
) -> Parameters:
    """The parameters that maximise the expected log-likelihood plus the log-prior.

    Coefficients of covariates only come closer to the maximum than they were `before`.
    """
    M = counts.by_first.shape[1]
    blocks = [
        np.repeat(rows.pooled[:, None], M, axis=1)
        if np.isinf(k)
        else rows.normalised(rows.incidence @ counts.by_cell + k * rows.pooled[:, None])
        for rows, k in zip(likelihood.rows, likelihood.strengths)
    ]
    initial = likelihood.fixed_initial
    if initial is None:
        k = likelihood.initial_strength
        by_state = likelihood.episodes.by_state(counts.by_first)
        initial = by_state + k * likelihood.pooled_first[:, None]
        initial = initial / initial.sum(axis=0)
    weights = likelihood.structure.weights
    if weights is None and likelihood.episodes.design is not None:
        weights = likelihood.regressed(counts.by_first, None if before is None else before[-1])
    elif weights is None:
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


class FittedWorld(NamedTuple):
    """The model at some parameters, and what else tells contexts apart in logs."""

    model: LatentMDP
    behaviour: Floats | None
    weight_model: WeightModel | None

    def shares(self, logs: list[Logs], engine: Engine | None) -> Floats:
        """p(m | episode) of all episodes, (N, M)."""
        return shares_of(self.model, logs, self.behaviour, self.weight_model, engine)


class FitProblem(NamedTuple):
    """The logs as a likelihood, and what the model needs beside its parameters.

    Contexts have `own_parts` of their own; of `open_parts` it is to be decided.
    """

    logs: list[Logs]
    likelihood: MixtureLikelihood
    reward_values: Floats
    own_parts: tuple[Part, ...]
    open_parts: tuple[Part, ...]

    def estimate(self, likelihood: MixtureLikelihood, point: Parameters) -> FittedWorld:
        """The model at a point, with names and amounts of the logs."""
        model = model_from_parameters(likelihood, point, self.reward_values)
        for part in self.logs:
            model = part.describe(model)
        behaviour = behaviour_from_parameters(likelihood, point)
        return FittedWorld(model, behaviour, weight_model_from_parameters(likelihood, point))

    def labels(self, likelihood: MixtureLikelihood, point: Parameters) -> Integers:
        """The likeliest context of every episode; of very long logs, of some."""
        world, logs = self.estimate(likelihood, likelihood.mixed(point)), self.logs
        return world.shares([part.held() for part in logs], None).argmax(axis=1)


def problem_of(em: EM, logs: list[Logs], models: list[LatentMDP], engine: Engine) -> FitProblem:
    """The likelihood that the settings ask for, without pseudo-counts.

    A start may know of more states than the logs.
    """
    sources: list[Logs | LatentMDP] = [*logs, *models]
    reward_values = reward_values_of(sources)
    S, A = max(x.n_states for x in sources), max(x.n_actions for x in sources)
    sizes = (S, A, reward_values.size)
    encoder = _encoder(em, logs)
    own_parts, open_parts = _asked(em, A, reward_values.size, encoder is not None)
    modelled = (*own_parts, *open_parts)
    blocks: tuple[Part, ...] = ("transitions", "rewards")
    structure = Structure(
        em.n_contexts,
        reward_model=em.reward_model,
        weights=None if em.weights is None else np.asarray(em.weights),
        initial=None
        if em.initial is None
        else validation.initial(em.initial, em.n_contexts, np.ones((S, 1), np.bool_), False),
        # the actions of a logger who is known to have known nothing say nothing
        parts=(*blocks, "behaviour") if "behaviour" in modelled else blocks,
    )
    episodes = Episodes(logs, sizes=sizes, encoder=encoder, engine=engine)
    strengths = PseudoCounts()._replace(**dict.fromkeys({*blocks} - {*modelled}, np.inf))
    likelihood = MixtureLikelihood(episodes, structure, strengths, engine)
    if np.count_nonzero(likelihood.pooled_first) < 2:  # where all begin alike nothing is open
        open_parts = tuple(part for part in open_parts if part != "initial")
    return FitProblem(logs, likelihood, reward_values, own_parts, open_parts)


def _encoder(em: EM, logs: list[Logs]) -> Encoder | None:
    """What turns the covariates of the logs into design vectors, where they may matter."""
    described = [part for part in logs if part.covariates is not None]
    if em.covariates is False or em.n_contexts == 1 or em.weights is not None or not described:
        return None
    covariates, counts = [], []
    for part in (batch.read() for one in described for batch in one.batches()):
        assert part.covariates is not None
        covariates.append(part.covariates[part.beginnings()])
        counts.append(part.multiplicities()[part.beginnings()])
    return Covariates.concat(covariates).encoder(np.concatenate(counts))


def _asked(
    em: EM, n_actions: int, n_rewards: int, covariates: bool
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The parts that contexts have of their own, and those of which it is to be decided."""
    if em.n_contexts == 1:
        blocks: tuple[Part, ...] = ("transitions", "rewards") if n_rewards > 1 else ("transitions",)
        return (*blocks, "initial"), ()
    used: bool | str = "auto" if em.covariates == "auto" else not em.covariates
    shared_by_part: dict[Part, bool | str] = {
        "transitions": em.shared_transitions,
        "rewards": True if n_rewards == 1 else em.shared_rewards,
        "behaviour": n_actions == 1
        or {"shared": True, "by-context": False}.get(em.behaviour, "auto"),
        "initial": em.shared_initial if em.initial is None else True,
        "weights": used if covariates else True,
    }
    own_parts = tuple(part for part, shared in shared_by_part.items() if shared is False)
    open_parts = tuple(part for part, shared in shared_by_part.items() if shared == "auto")
    if not set(own_parts + open_parts) - {"initial", "weights"}:
        raise ValueError(
            f"n_contexts={em.n_contexts} contexts that share transitions, rewards and behaviour "
            "cannot be told apart"
        )
    return own_parts, open_parts


def _is_list(start: Any) -> TypeGuard[Sequence[Start]]:
    """A list of starts, rather than one that is written as a list of numbers."""
    return isinstance(start, list | tuple) and any(
        one is None or isinstance(one, str | LatentMDP | Fit | np.ndarray) for one in start
    )


def _models(starts: Sequence[Start]) -> list[LatentMDP]:
    """The models among the starts."""
    models = [one.model if isinstance(one, Fit) else one for one in starts]
    return [one for one in models if isinstance(one, LatentMDP)]


def _warnings_before(problem: FitProblem) -> Iterator[str]:
    """Refuse what cannot be fitted, and name what cannot be trusted."""
    likelihood = problem.likelihood
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
    initial = likelihood.structure.initial
    if initial is not None and (initial.sum(axis=0)[likelihood.pooled_first > 0.0] == 0.0).any():
        raise TrajectoryError("initial gives probability 0 to a state in which episodes start")
    S, A = episodes.n_states, episodes.n_actions
    lasting = np.ones(S, np.bool_)
    lasting[np.flatnonzero(final_states(problem.logs))] = False
    visited = episodes.parts_of_cells().pair
    missing = np.setdiff1d(np.flatnonzero(np.repeat(lasting, A)), visited)
    if missing.size:
        logs, pairs = problem.logs[0], [divmod(int(i), A) for i in missing[:5]]
        some = ", ".join(str(logs.pair(s, a)).replace("'", "") for s, a in pairs)
        more = "" if missing.size <= 5 else f" and {missing.size - 5} more"
        fate = "left out of the model" if likelihood.is_large else "uniform in every context"
        yield (
            f"no episode visits (state, action) {some}{more}: these rows are {fate}, not estimated"
        )
