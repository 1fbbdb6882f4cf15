"""Conformance checks: what every planner, learner and instance of this library must do.

They are shipped so that what is written elsewhere can be held to the same rules:

    from latentmdp.testing import check_learner, check_planner
    check_planner(MyPlanner())
    check_learner(MyLearner(n_contexts=2))

A check runs to its end and then raises one `ConformanceError` that lists every rule that is broken,
and on which model.
"""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.errors import LatentMDPError
from latentmdp.instances import Instance, get_instance, make
from latentmdp.io import load, save
from latentmdp.logs import Trajectories, cell_counts
from latentmdp.metrics import model_error
from latentmdp.model import LatentMDP
from latentmdp.online import Run
from latentmdp.outcomes import row_sums
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.testing.models import random_model, small_models
from latentmdp.testing.oracles import count_histories, optimal_value, policy_value

PLAN_FIELDS = ("policy", "lower", "upper", "converged", "n_iter", "seconds", "history", "guarantee")
FIT_FIELDS = ("model", "responsibilities", "log_likelihood", "converged")
RUN_RECORDS = ("returns", "beliefs", "contexts")

Rules = dict[str, bool]
"""What is wrong where a rule is broken, and whether it is kept."""


class ConformanceError(LatentMDPError, AssertionError):
    """Something does not keep the rules; the message lists how."""


def check_planner(
    planner: Any,
    *,
    models: Mapping[str, LatentMDP] | None = None,
    optimum: Callable[[LatentMDP], float] = optimal_value,
    tolerance: float = 1e-7,
) -> None:
    """Check a planner against brute force on small models of every kind.

    For each model: `plan` returns a plan with all its fields; its policy is worth no more than the
    optimum and at least `lower` and what `guarantee` promises; `lower` and `upper`, where
    given, enclose the optimum; hidden bonus and discount are counted; planning twice gives the
    same; and a model with a single context, a plain MDP, is solved exactly. Actions that are not
    allowed must not be taken. Models without an end are judged by their first steps, up to what the
    others can be worth.

    Parameters
    ----------
    planner
        Anything with `plan(model)`.
    models
        Models by name, small enough to enumerate; `small_models()` by default. For planners that
        need no horizon there is `endless_models()` too.
    optimum
        What the planner's bounds enclose: V* by default. Give `optimal_memoryless_value` for
        planners of memoryless policies.
    tolerance
        How far two values that should agree may differ.
    """

    def rules(model: LatentMDP) -> Rules:
        cut, rest = _first_steps(model)
        best = optimum(cut if optimum is optimal_value else model)
        return _plan_rules(planner, model, cut, best, tolerance + rest)

    failures = _broken(rules, small_models() if models is None else models)
    _raise_if_any(f"{planner!r} does not conform", failures)


def _first_steps(model: LatentMDP) -> tuple[LatentMDP, float]:
    """A model cut off where histories become many, and what all that follows can be worth."""
    if model.horizon is not None:
        return model, 0.0
    steps = 1
    # So many histories are enumerated in a second of Python.
    while count_histories(model.replace(horizon=steps + 1)) <= 20_000:
        steps += 1
    largest = float(np.abs(model.reward_values).max())
    largest += 0.0 if model.bonus is None else float(np.abs(model.bonus).max())
    return model.replace(horizon=steps), model.discount**steps * largest / (1.0 - model.discount)


def check_learner(
    learner: Any, *, models: Mapping[str, LatentMDP] | None = None, episodes: int | None = None
) -> None:
    """Check a learner on small models: one that fits logs, one that acts, or one that does both.

    `fit(logs, rng=...)`: the same seed gives the same fit bit for bit, and known contexts change
    nothing of it. Another order of the episodes, and copies of an episode in place of its count,
    move the model by no more than a quarter of the sampling error (what is chosen by held-out
    episodes may depend on them). The model is off by no more than twice what counting with known
    contexts is off by on average. Responsibilities and log-likelihood are those of the episodes
    under the model. Logs without episodes, a model in place of logs and a word in place of a seed
    are refused.

    `run(world, episodes, rng=..., checkpoint=...)`: the record has one entry per episode and every
    return is possible; the same seed gives the same run bit for bit and another seed another one;
    a run taken up from its checkpoint ends like one that was never interrupted, and another run's
    checkpoint is refused; a saved run is read back as it was; the policy can be executed.

    Parameters
    ----------
    learner
        For the number of contexts of the models, two by default.
    models
        Models by name. By default small random ones for a learner that acts, and well separated
        ones with episodes of 30 steps for one that fits.
    episodes
        Of the logs, 500 by default, or of a run, 40 by default.
    """
    # 500 episodes of the default models are some 1,200 visits of each row.
    kinds = {"fit": (_fit_rules, _separated_models, 500), "run": (_run_rules, _random_models, 40)}
    present = [kind for method, kind in kinds.items() if hasattr(learner, method)]
    failures: list[str] = []
    if not present:
        failures.append("it has neither fit(logs, rng=...) nor run(world, episodes, rng=...)")
    for rules_of, default_models, number in present:
        failures += _broken(
            partial(rules_of, learner, episodes=episodes or number),
            default_models() if models is None else models,
        )
    _raise_if_any(f"{learner!r} does not conform", failures)


def check_instance(instance: str | Instance | LatentMDP) -> None:
    """Check a registered instance with its default arguments, or a model.

    A registered instance documents every argument, builds from its defaults, gives the same model
    for the same seed bit for bit, and takes a `Generator` as well. A model holds
    distributions, has rewards that are not all alike, and no two of its contexts are equal.
    """
    if isinstance(instance, LatentMDP):
        _raise_if_any("the model does not conform", _model_failures(instance))
        return
    entry = get_instance(instance) if isinstance(instance, str) else instance
    _raise_if_any(f"instance {entry.name!r} does not conform", _entry_failures(entry))


def _broken(rules_of: Callable[[LatentMDP], Rules], models: Mapping[str, LatentMDP]) -> list[str]:
    """The rules that are not kept, by model."""
    failures = []
    for name, model in models.items():
        try:
            rules = rules_of(model)
        except Exception as error:
            rules = {f"raised {type(error).__name__}: {error}": False}
        failures += [f"{name}: {rule}" for rule, holds in rules.items() if not holds]
    return failures


def _plan_rules(
    planner: Any, model: LatentMDP, cut: LatentMDP, best: float, tolerance: float
) -> Rules:
    plan = planner.plan(model)
    missing = [field for field in PLAN_FIELDS if not hasattr(plan, field)]
    if missing:
        return {f"the plan lacks {', '.join(missing)}": False}
    value, again = policy_value(cut, plan.policy), planner.plan(model)
    bounds, others = (plan.lower, plan.upper), (again.lower, again.upper)
    worth = f"the policy is worth {value:.9g}"
    rules = {
        f"lower={plan.lower!r} and upper={plan.upper!r} must be finite or None": all(
            b is None or math.isfinite(b) for b in bounds
        ),
        f"converged must be a bool, got {plan.converged!r}": isinstance(plan.converged, bool),
        f"n_iter must be a count, got {plan.n_iter!r}": isinstance(plan.n_iter, int)
        and plan.n_iter >= 0,
        f"seconds must not be negative, got {plan.seconds!r}": plan.seconds >= 0.0,
        f"{worth}, more than the optimum {best:.9g}": value <= best + tolerance,
        f"planning again gave bounds {others}, first {bounds}": others == bounds,
        "planning again gave a policy of another value": policy_value(cut, again.policy) == value,
    }
    if (low := plan.lower) is not None:
        rules[f"lower={low:.9g} exceeds the optimum {best:.9g}"] = low <= best + tolerance
        rules[f"{worth}, less than lower={low:.9g}"] = value >= low - tolerance
    if (high := plan.upper) is not None:
        rules[f"upper={high:.9g} is below the optimum {best:.9g}"] = high >= best - tolerance
    if plan.guarantee is not None:
        rho1, rho2 = plan.guarantee
        promise = rho1 * best - rho2
        rules[f"{worth}, guarantee={plan.guarantee} promises {promise:.9g}"] = (
            value >= promise - tolerance
        )
    if model.n_contexts == 1:
        exact = abs(value - best) <= tolerance
        rules[f"with one context {worth}, the optimum is {best:.9g}"] = exact
    return rules


def _separated_models() -> dict[str, LatentMDP]:
    sizes = {"contexts": 2, "states": 3, "actions": 2, "horizon": 30, "delta": 1.0}
    return {f"separated {seed}": make("separated", rng=seed, **sizes) for seed in range(2)}


def _random_models() -> dict[str, LatentMDP]:
    return {f"random {seed}": random_model(rng=seed) for seed in range(3)}


def _fit_rules(learner: Any, model: LatentMDP, episodes: int) -> Rules:
    logs = simulate(model, UniformPolicy(), episodes, rng=0)
    fit = learner.fit(logs, rng=0)
    missing = [field for field in FIT_FIELDS if not hasattr(fit, field)]
    if missing:
        return {f"the fit lacks {', '.join(missing)}": False}
    sizes, expected = ((m.n_contexts, m.n_states, m.n_actions) for m in (fit.model, model))
    if sizes != expected:
        return {f"the fit has (contexts, states, actions) {sizes}, the model {expected}": False}
    error, typical = model_error(model, fit.model, per_cell=True), _counting_error(model, logs)
    hidden = logs.without_contexts()
    rules = {
        f"converged must be a bool, got {fit.converged!r}": isinstance(fit.converged, bool),
        "the same seed gave another fit": _same_fit(fit, learner.fit(logs, rng=0)),
        "hiding the contexts gave another fit": _same_fit(fit, learner.fit(hidden, rng=0)),
        f"the model is off by {error:.3g} per cell, where counting with known contexts is off by "
        f"{typical:.3g}": error <= 2.0 * typical,
    }
    rules |= _invariance_rules(learner, hidden, fit, 0.25 * typical)
    return rules | _refusal_rules(learner, logs, model)


def _counting_error(model: LatentMDP, logs: Trajectories) -> float:
    """Mean L1 error per cell of counts with known contexts, sum_x sqrt(2 p_x (1 - p_x) / (pi N)).

    The mean over the cells of the default models varies by 15% of itself, so that twice as much is
    more than six of its standard deviations away.
    """
    assert logs.contexts is not None
    labels = np.eye(model.n_contexts)[logs.contexts]
    visits = cell_counts(logs, ("state", "action"), shares=labels)
    P = model.observation_probs()
    spread = np.sqrt(P * (1.0 - P)).sum(axis=(3, 4))
    return float(np.minimum(spread * np.sqrt(2.0 / np.pi / np.maximum(visits, 1.0)), 2.0).mean())


def _invariance_rules(learner: Any, logs: Trajectories, fit: Any, tolerance: float) -> Rules:
    """Order and counts change the model by little, though both depend on what episodes show."""
    steps = logs.steps()
    visits = np.bincount(steps.episode, steps.state == 0, minlength=len(logs))
    counts = np.where(visits > np.median(visits), 5, 1)
    copied = logs[np.repeat(np.arange(len(logs)), counts)]
    merged = copied.deduplicate()
    counted = learner.fit(merged, rng=0)
    pairs = {
        "another order of the episodes": (fit, logs[np.argsort(visits, kind="stable")]),
        "copies in place of counts": (counted, copied),
    }
    rules = {}
    for what, (first, others) in pairs.items():
        moved = model_error(first.model, learner.fit(others, rng=0).model, per_cell=True)
        rules[f"{what} moved the model by {moved:.3g} per cell"] = moved <= tolerance
    with_counts = _report_rules(counted, merged).items()
    rules |= {f"with counts of episodes, {rule}": holds for rule, holds in with_counts}
    return rules | _report_rules(fit, logs)


def _report_rules(fit: Any, logs: Trajectories) -> Rules:
    """Responsibilities and log-likelihood from the definition, episode by episode."""
    joint = _log_probabilities(fit.model, logs)
    largest = joint.max(axis=1, keepdims=True)
    weights = np.exp(joint - largest)
    totals = weights.sum(axis=1, keepdims=True)
    expected = float(logs.multiplicities() @ (largest + np.log(totals))[:, 0])
    posterior = np.asarray(fit.responsibilities)
    near = bool(np.isclose(fit.log_likelihood, expected, rtol=1e-8, atol=0.0))
    fits, shares = posterior.shape == joint.shape, weights / totals
    right = fits and np.allclose(posterior, shares, rtol=0.0, atol=1e-6)
    return {
        f"log_likelihood is {fit.log_likelihood:.9g}, that of the model {expected:.9g}": near,
        f"responsibilities must have shape {joint.shape}, got {posterior.shape}": fits,
        "the responsibilities are not the posterior under the model": right,
    }


def _log_probabilities(model: LatentMDP, logs: Trajectories) -> Floats:
    """Log w_m P_m(episode || its actions), shape (N, M)."""
    with np.errstate(divide="ignore"):
        P, initial = np.log(model.observation_probs()), np.log(model.initial)
        weights = np.log(model.weights)
    return np.array(
        [weights + initial[:, s[0]] + P[:, s[:-1], a, s[1:], z].sum(axis=1) for s, a, z, _ in logs]
    )


def _refusal_rules(learner: Any, logs: Trajectories, model: LatentMDP) -> Rules:
    attempts: dict[str, tuple[Any, Any]] = {
        "logs without episodes": (logs[:0], 0),
        "a model in place of logs": (model, 0),
        "a word in place of a seed": (logs, "seed"),
    }
    rules = {}
    for what, (logs_or_model, rng) in attempts.items():
        try:
            learner.fit(logs_or_model, rng=rng)
            answer, holds = "accepted", False
        except Exception as error:
            holds = isinstance(error, ValueError | TypeError | LatentMDPError)
            answer = f"met with {type(error).__name__}"
        rules[f"{what} must raise ValueError or TypeError, was {answer}"] = holds
    return rules


def _same_fit(first: Any, second: Any) -> bool:
    return bool(
        first.model == second.model
        and np.array_equal(first.responsibilities, second.responsibilities)
        and first.log_likelihood == second.log_likelihood
    )


def _run_rules(learner: Any, model: LatentMDP, episodes: int) -> Rules:
    run = learner.run(model, episodes, rng=0)
    steps = float((model.discount ** np.arange(model.n_layers)).sum())
    low, high = (steps * float(r) for r in (model.reward_values.min(), model.reward_values.max()))
    logs = simulate(model, run.policy, 5, rng=0)
    rules = {
        f"every record must have {episodes} entries": all(
            getattr(run, name).shape == (episodes,) for name in RUN_RECORDS
        ),
        "a return is out of the range of possible ones": bool(
            ((run.returns >= low - 1e-9) & (run.returns <= high + 1e-9)).all()
        ),
        "the error curve must end at the last episode": run.error_curve.episodes[-1] == episodes,
        "the policy cannot be executed": len(logs) == 5,
        "the same seed gave another run": _same_run(run, learner.run(model, episodes, rng=0)),
        "another seed gave the same run": not _same_run(run, learner.run(model, episodes, rng=1)),
    }
    return rules | _file_rules(learner, model, run)


def _file_rules(learner: Any, model: LatentMDP, run: Run) -> Rules:
    episodes = run.n_episodes
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, saved = Path(folder) / "run.npz", Path(folder) / "run.parquet"
        first = learner.run(model, episodes, rng=0, checkpoint=checkpoint)
        again = learner.run(model, episodes, rng=0, checkpoint=checkpoint)
        try:
            learner.run(model, episodes, rng=1, checkpoint=checkpoint)
            refused = False
        except ValueError:
            refused = True
        save(run, saved)
        back = load(saved)
    return {
        "a run with a checkpoint ended otherwise": _same_run(run, first),
        "a run taken up from its checkpoint ended otherwise": _same_run(run, again),
        "the checkpoint of another run was not refused": refused,
        "a saved run was read back changed": _same_run(run, back),
    }


def _same_run(first: Run, second: Run) -> bool:
    """Whether two runs played the same episodes and found the same, whatever they are called."""
    return dataclasses.replace(first, settings={}) == dataclasses.replace(second, settings={})


def _entry_failures(entry: Instance) -> list[str]:
    seeded = [{"rng": np.random.default_rng(0)} if entry.uses_rng else {} for _ in range(2)]
    try:
        model, twin = (entry.build(**rng) for rng in seeded)
    except Exception as error:
        return [f"building it with its defaults raised {type(error).__name__}: {error}"]
    if not isinstance(model, LatentMDP):
        return [f"it must build a LatentMDP, got {type(model).__name__}"]
    failures = _model_failures(model)
    if model != twin:
        failures.append("the same seed gave two different models")
    text = entry.build.__doc__ or ""
    failures += [f"argument {a!r} is not documented" for a in entry.arguments if a not in text]
    return failures


def _model_failures(model: LatentMDP) -> list[str]:
    failures = []
    table, allowed = model.outcomes, model.allowed
    observations = row_sums(table, table.probs)[allowed.ravel()]
    for what, sums in (("initial", model.initial.sum(axis=-1)), ("observations", observations)):
        off = float(np.abs(sums - 1.0).max())
        if off > 1e-12:
            failures.append(f"a distribution of {what} is off by {off:.3g}")
    if (model.weights <= 0.0).any():
        failures.append(f"context {int(np.argmin(model.weights))} is never drawn")
    if np.ptp(model.planning_rewards()[:, allowed]) == 0.0:
        failures.append("all mean rewards are equal: every policy is optimal")
    for m, n in combinations(range(model.n_contexts), 2):
        same = np.array_equal(table.distinct[:, m], table.distinct[:, n])
        if same and np.array_equal(model.initial[m], model.initial[n]):
            failures.append(f"contexts {m} and {n} are the same MDP")
    return failures


def _raise_if_any(title: str, failures: list[str]) -> None:
    if failures:
        raise ConformanceError("\n".join([f"{title}:", *(f"  - {line}" for line in failures)]))
