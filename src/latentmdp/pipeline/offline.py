"""From logs to a policy, with an honest statement of what it will earn."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from latentmdp import _arrays, io
from latentmdp._random import RNGLike, as_generator
from latentmdp._threads import run_blocks
from latentmdp.errors import FormatError
from latentmdp.fit import Fit, FitWarning
from latentmdp.learning.em import EM
from latentmdp.learning.initialization import initialize
from latentmdp.learning.reward_form import RewardForm
from latentmdp.learning.support import (
    continued,
    cut_short,
    final_states,
    forbidding,
    last_states,
)
from latentmdp.model import LatentMDP
from latentmdp.pipeline.counting import visit_counts
from latentmdp.pipeline.off_policy import (
    Interval,
    LoggedEstimate,
    behaviour_policy,
    logged_estimate,
)
from latentmdp.planning import QMDP, Plan, Planner, evaluate
from latentmdp.policies import MarkovPolicy, Policy
from latentmdp.simulation import simulate
from latentmdp.space import Space
from latentmdp.theory.diagnosis import Diagnosis, diagnose
from latentmdp.trajectories import Trajectories

__all__ = ["SolveWarning", "Solved", "solve"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_EPISODES = 20_000
_FEW_VISITS = 5.0
_LEFT_THE_DATA = 0.05
_SMOOTHING_STEP = 2.0
_MANY_REWARDS = 20


class SolveWarning(UserWarning):
    """The value of the policy is less certain than its interval says; the message says why."""


@dataclass(frozen=True, eq=False)
class Solved:
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

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The assumptions of the theory, measured on the model found."""
        return diagnose(self.model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, all or nothing (`fit.selection` is left out)."""
        io.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Solved:
        """Read what `save` wrote."""
        found = io.load(path)
        if not isinstance(found, cls):
            raise FormatError(f"{path} holds a {type(found).__name__}, not the outcome of `solve`")
        return found


def solve(
    logs: Trajectories,
    n_contexts: int | Literal["auto"] = "auto",
    rng: RNGLike = None,
    *,
    planner: Planner | None = None,
    behaviour: ArrayLike | None = None,
    confidence: float = 0.95,
    bootstrap: int = 30,
    max_contexts: int = 10,
    reward_model: Literal["state-action", "transition", "auto"] = "auto",
    progress: bool = False,
) -> Solved:
    """Find the contexts in logs, plan, and estimate what the policy will earn.

    Parameters
    ----------
    logs
        Episodes of individuals of unknown context; the horizon is that of the longest. A shorter
        one that ends in a state where no action was ever logged has ended for good: that state is
        final, and nothing is earned after it. Any other shorter one was cut short, and nothing is
        assumed of the rest.
    n_contexts
        M; "auto" chooses it (`fit.selection` tells how).
    planner
        Q-MDP by default.
    behaviour : (S, A) or None
        Probabilities with which the logged actions were chosen; estimated by default.
    confidence
        Of the interval in `value`.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s'); "auto" decides by BIC.
    bootstrap
        Number of times the whole path is repeated on simulated logs to measure the uncertainty.
    """
    if not isinstance(logs, Trajectories):
        raise TypeError(
            f"logs must be Trajectories, got {type(logs).__name__}: read a file with load(path), "
            "or columns with Trajectories.from_table(table)"
        )
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    bootstrap = _arrays.positive_integer("bootstrap", bootstrap)
    if bootstrap < 2:
        raise ValueError("bootstrap must be at least 2 to measure a spread")
    began = time.perf_counter()
    generator = as_generator(rng)
    known = behaviour_policy(logs) if behaviour is None else _checked(behaviour, logs)
    final = final_states(logs)
    whole = continued(logs, final)
    planner = QMDP(smoothing=_acting_smoothing(whole)) if planner is None else planner
    fit = initialize(
        None,
        whole,
        n_contexts,
        max_contexts=max_contexts,
        reward_model=reward_model,
        rng=generator,
        progress=progress,
    )
    plan = planner.plan(forbidding(fit.model, whole))
    promised = _value(fit.model, plan.policy, generator)
    differences = _bootstrap(whole, fit, planner, known, final, bootstrap, generator)
    value = _corrected(promised, differences, confidence)
    logged = logged_estimate(whole, plan.policy, fit.model, known, generator, final)
    first_steps = _first_steps(fit.model, plan.policy, logged.steps, generator)
    unsupported = _unsupported(whole, fit, plan.policy, final, generator)
    found = (*_warnings(logged, first_steps, unsupported), *_doubts(logs, final))
    for message in found:
        warnings.warn(message, SolveWarning, stacklevel=2)
    return Solved(
        policy=plan.policy,
        plan=plan,
        model=fit.model,
        fit=fit,
        value=value,
        flattery=float(differences.mean()),
        logged=logged,
        model_first_steps=first_steps,
        unsupported=unsupported,
        final_states=tuple(np.flatnonzero(final).tolist()),
        warnings=found,
        seconds=time.perf_counter() - began,
        settings={
            "episodes": logs.n_episodes,
            "n_contexts": n_contexts,
            "planner": repr(planner),
            "behaviour": "estimated" if behaviour is None else "given",
            "confidence": float(confidence),
            "bootstrap": bootstrap,
            "max_contexts": max_contexts,
            "reward_model": reward_model,
            "seed": int(rng) if isinstance(rng, int | np.integer) else None,
        },
    )


def _bootstrap(
    logs: Trajectories,
    fit: Fit,
    planner: Planner,
    behaviour: Floats,
    final: Flags,
    repeats: int,
    rng: np.random.Generator,
) -> Floats:
    """Value in the refitted model minus value in the fitted one, of the policy planned there.

    The strengths of smoothing were chosen from data, so each repetition draws its own: those of
    the fit, or a step of the grid they were chosen from away. Simulated episodes are cut where
    logged ones were; one that ended for good, ends by itself.
    """
    seeds = rng.integers(0, 2**63, size=repeats)
    policy = MarkovPolicy(behaviour)
    form: RewardForm = "transition" if fit.model.rewards_depend_on_next_state else "state-action"
    lengths = np.where(final[last_states(logs)], fit.model.horizon, logs.lengths)
    lengths = np.repeat(lengths, logs.multiplicities())

    def repeat(first: int, _: int) -> float:
        own = np.random.default_rng(int(seeds[first]))
        drawn = simulate(fit.model, policy, logs.n_episodes, own, threads=1)
        drawn = cut_short(drawn.without_contexts(), lengths)
        step = _SMOOTHING_STEP ** own.choice([-1.0, 0.0, 1.0], size=2)
        em = EM(
            fit.model.n_contexts,
            smoothing=fit.smoothing * step[0],
            reward_smoothing=fit.reward_smoothing * step[1],
            reward_model=form,
            threads=1,
        )
        again = em.fit(drawn, start=fit.model, rng=own)
        planned = planner.plan(forbidding(again.model, drawn)).policy
        return _value(again.model, planned, own) - _value(fit.model, planned, own)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return np.array(run_blocks(repeat, [(i, i + 1) for i in range(repeats)], None))


def _corrected(promised: float, differences: Floats, confidence: float) -> Interval:
    """Take the mean difference off; it is itself uncertain, by as much as its own size.

    The refitted models lie closer to the fitted one than that does to the truth, so the mean
    difference understates what it corrects.
    """
    n, flattery = differences.size, float(differences.mean())
    spread = float(differences.std(ddof=1)) * np.sqrt(1.0 + 1.0 / n)
    chance = float(stats.t.ppf(0.5 + confidence / 2.0, n - 1)) * spread
    half = float(np.hypot(chance, flattery))
    mean = promised - flattery
    return Interval(mean, mean - half, mean + half)


def _value(model: LatentMDP, policy: Policy, rng: np.random.Generator) -> float:
    return evaluate(model, policy, _EPISODES, rng, threads=1).mean


def _first_steps(model: LatentMDP, policy: Policy, steps: int, rng: np.random.Generator) -> float:
    if steps == 0:
        return float("nan")
    logs = simulate(model, policy, _EPISODES, rng)
    earned = model.reward_values[logs.as_arrays()[2][:, :steps]]
    return float((earned @ model.discount ** np.arange(steps)).mean())


def _unsupported(
    logs: Trajectories, fit: Fit, policy: Policy, final: Flags, rng: np.random.Generator
) -> float:
    """Share of the policy's steps at (m, s, a) with hardly any data behind them."""
    visits = visit_counts(logs, fit.responsibilities, Space.of(fit.model))
    played = simulate(fit.model, policy, _EPISODES, rng)
    states, actions, _ = played.as_arrays()
    assert played.contexts is not None
    few = visits[played.contexts[:, None], states[:, :-1], actions] < _FEW_VISITS
    return float((few & ~final[states[:, :-1]]).mean())


def _warnings(logged: LoggedEstimate, first_steps: float, unsupported: float) -> tuple[str, ...]:
    found = []
    if unsupported > _LEFT_THE_DATA:
        found.append(
            f"the policy leaves the data: {unsupported:.0%} of its steps are at a context, state "
            f"and action seen fewer than {_FEW_VISITS:g} times"
        )
    if logged.steps == 0:
        found.append("no logged episode agrees with the policy: nothing checks the fitted model")
    elif abs(logged.mean - first_steps) > 4.0 * logged.stderr:
        found.append(
            f"the logs and the model disagree on the first {logged.steps} steps: "
            f"{logged.mean:.4g} ± {logged.stderr:.2g} and {first_steps:.4g}"
        )
    return tuple(found)


def _doubts(logs: Trajectories, final: Flags) -> tuple[str, ...]:
    """Where the logs themselves may not be what they were taken for."""
    found = []
    early = last_states(logs)[logs.lengths < logs.lengths.max()]
    elsewhere = int((~final[early]).sum())
    if final.any() and elsewhere:
        names = ", ".join(map(str, np.flatnonzero(final)))
        found.append(
            f"no action is logged in state {names}, where {early.size - elsewhere} of the "
            f"{early.size} short episodes end: taken as final, with nothing earned after; the "
            f"other {elsewhere} are taken as cut short"
        )
    absent = np.setdiff1d(np.arange(logs.n_states), logs.states)
    if absent.size:
        found.append(
            f"{absent.size} of {logs.n_states} states never occur, the first is {absent[0]}: "
            "number states 0, 1, 2, ... without gaps"
        )
    if logs.n_rewards > max(_MANY_REWARDS, logs.n_steps / _FEW_VISITS):
        found.append(
            f"{logs.n_rewards} different rewards in {logs.n_steps} steps: rewards must be few "
            "values, each seen often; round them, or sort them into classes"
        )
    return tuple(found)


def _acting_smoothing(logs: Trajectories) -> float:
    """A little smoothing: a fitted model is wrong somewhere, and the filter must survive it."""
    return min(1e-3, 0.1 / (logs.n_states * logs.n_rewards))


def _checked(behaviour: ArrayLike, logs: Trajectories) -> Floats:
    rows: Any = _arrays.as_floats("behaviour", behaviour)
    if rows.shape != (logs.n_states, logs.n_actions):
        raise ValueError(
            f"behaviour must have shape {(logs.n_states, logs.n_actions)}, got {rows.shape}"
        )
    return _arrays.distributions("behaviour", rows, ("state",))
