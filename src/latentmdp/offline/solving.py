"""From logs to a policy, with an honest statement of what it will earn."""

from __future__ import annotations

import time
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.estimation.initialization import initialize
from latentmdp.estimation.termination import continued, final_states, forbidding
from latentmdp.model import LatentMDP
from latentmdp.offline.off_policy import behaviour_policy, logged_estimate
from latentmdp.offline.optimism_bias import EPISODES, corrected, flattery_draws, value_in
from latentmdp.offline.solved import Solved, SolveWarning
from latentmdp.offline.warnings import doubts_of_logs, doubts_of_value, unsupported_share
from latentmdp.planning import QMDP, Planner, acting_smoothing
from latentmdp.policies import Policy
from latentmdp.simulation import simulate
from latentmdp.trajectories import Trajectories

__all__ = ["solve"]


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
    bootstrap = arrays.positive_integer("bootstrap", bootstrap)
    if bootstrap < 2:
        raise ValueError("bootstrap must be at least 2 to measure a spread")
    began = time.perf_counter()
    generator = as_generator(rng)
    known = behaviour_policy(logs) if behaviour is None else _checked(behaviour, logs)
    final = final_states(logs)
    whole = continued(logs, final)
    if planner is None:
        planner = QMDP(smoothing=acting_smoothing(whole.n_states, whole.n_rewards))
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
    promised = value_in(fit.model, plan.policy, generator)
    differences = flattery_draws(whole, fit, planner, known, final, bootstrap, generator)
    value = corrected(promised, differences, confidence)
    logged = logged_estimate(whole, plan.policy, fit.model, known, generator, final)
    first_steps = _first_steps(fit.model, plan.policy, logged.steps, generator)
    unsupported = unsupported_share(whole, fit, plan.policy, final, generator)
    found = (*doubts_of_value(logged, first_steps, unsupported), *doubts_of_logs(logs, final))
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


def _first_steps(model: LatentMDP, policy: Policy, steps: int, rng: np.random.Generator) -> float:
    if steps == 0:
        return float("nan")
    logs = simulate(model, policy, EPISODES, rng)
    earned = model.reward_values[logs.as_arrays()[2][:, :steps]]
    return float((earned @ model.discount ** np.arange(steps)).mean())


def _checked(behaviour: ArrayLike, logs: Trajectories) -> Floats:
    rows: Any = arrays.as_floats("behaviour", behaviour)
    if rows.shape != (logs.n_states, logs.n_actions):
        raise ValueError(
            f"behaviour must have shape {(logs.n_states, logs.n_actions)}, got {rows.shape}"
        )
    return arrays.distributions("behaviour", rows, ("state",))
