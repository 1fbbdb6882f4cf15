"""Conformance checks: what every planner and every instance of this library must do.

They are shipped so that a planner or an instance written elsewhere can be held to the same rules:

    from latentmdp.testing import check_planner
    check_planner(MyPlanner())

A check runs to its end and then raises one `ConformanceError` that lists everything it found.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from latentmdp.errors import LatentMDPError
from latentmdp.instances import Instance, get_instance
from latentmdp.model import LatentMDP
from latentmdp.testing.models import small_models
from latentmdp.testing.oracles import optimal_value, policy_value

__all__ = ["ConformanceError", "check_instance", "check_planner"]

PLAN_FIELDS = (
    "policy",
    "lower",
    "upper",
    "converged",
    "n_iter",
    "seconds",
    "history",
    "guarantee",
)


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
    same; and a model with a single context, a plain MDP, is solved exactly.

    Parameters
    ----------
    planner
        Anything with `plan(model)`.
    models
        Models by name, small enough to enumerate; `small_models()` by default.
    optimum
        What the planner's bounds enclose: V* by default. Give `optimal_memoryless_value` for
        planners of memoryless policies.
    tolerance
        How far two values that should agree may differ.

    Raises
    ------
    ConformanceError
        Listing every rule that is broken, and on which model.
    """
    failures: list[str] = []
    for name, model in (small_models() if models is None else models).items():
        try:
            found = _planner_failures(planner, model, optimum(model), tolerance)
        except Exception as error:
            found = [f"raised {type(error).__name__}: {error}"]
        failures += [f"{name}: {failure}" for failure in found]
    _raise_if_any(f"{planner!r} does not conform", failures)


def check_instance(instance: str | Instance | LatentMDP) -> None:
    """Check a registered instance with its default arguments, or a model.

    A registered instance documents every argument, builds from its defaults, gives the same model
    for the same seed bit for bit, and takes a `Generator` as well. A model holds
    distributions, has rewards that are not all alike, and no two of its contexts are equal.

    Raises
    ------
    ConformanceError
        Listing every rule that is broken.
    """
    if isinstance(instance, LatentMDP):
        _raise_if_any("the model does not conform", _model_failures(instance))
        return
    entry = get_instance(instance) if isinstance(instance, str) else instance
    _raise_if_any(f"instance {entry.name!r} does not conform", _entry_failures(entry))


def _planner_failures(planner: Any, model: LatentMDP, best: float, tolerance: float) -> list[str]:
    plan = planner.plan(model)
    missing = [field for field in PLAN_FIELDS if not hasattr(plan, field)]
    if missing:
        return [f"the plan lacks {', '.join(missing)}"]
    value = policy_value(model, plan.policy)
    rules = _field_rules(plan)
    rules |= _bound_rules(plan, value, best, tolerance)
    rules |= _repeat_rules(plan, planner.plan(model), value, model)
    if model.n_contexts == 1:
        exact = abs(value - best) <= tolerance
        rules[f"with one context the policy is worth {value:.9g}, the optimum is {best:.9g}"] = (
            exact
        )
    return [failure for failure, kept in rules.items() if not kept]


def _field_rules(plan: Any) -> dict[str, bool]:
    finite = all(b is None or math.isfinite(b) for b in (plan.lower, plan.upper))
    return {
        f"lower={plan.lower!r} and upper={plan.upper!r} must be finite or None": finite,
        f"converged must be a bool, got {plan.converged!r}": isinstance(plan.converged, bool),
        f"n_iter must be a count, got {plan.n_iter!r}": isinstance(plan.n_iter, int)
        and plan.n_iter >= 0,
        f"seconds must not be negative, got {plan.seconds!r}": plan.seconds >= 0.0,
    }


def _bound_rules(plan: Any, value: float, best: float, tolerance: float) -> dict[str, bool]:
    rules = {
        f"the policy is worth {value:.9g}, more than the optimum {best:.9g}": value
        <= best + tolerance
    }
    if plan.lower is not None:
        rules[f"lower={plan.lower:.9g} exceeds the optimum {best:.9g}"] = (
            plan.lower <= best + tolerance
        )
        rules[f"the policy is worth {value:.9g}, less than lower={plan.lower:.9g}"] = (
            value >= plan.lower - tolerance
        )
    if plan.upper is not None:
        rules[f"upper={plan.upper:.9g} is below the optimum {best:.9g}"] = (
            plan.upper >= best - tolerance
        )
    if plan.guarantee is not None:
        rho1, rho2 = plan.guarantee
        promise = rho1 * best - rho2
        rules[
            f"the policy is worth {value:.9g}, guarantee={plan.guarantee} promises {promise:.9g}"
        ] = value >= promise - tolerance
    return rules


def _repeat_rules(plan: Any, again: Any, value: float, model: LatentMDP) -> dict[str, bool]:
    return {
        f"planning again gave bounds {(again.lower, again.upper)}, first "
        f"{(plan.lower, plan.upper)}": (again.lower, again.upper) == (plan.lower, plan.upper),
        "planning again gave a policy of another value": policy_value(model, again.policy) == value,
    }


def _entry_failures(entry: Instance) -> list[str]:
    rng = {"rng": np.random.default_rng(0)} if entry.uses_rng else {}
    same = {"rng": np.random.default_rng(0)} if entry.uses_rng else {}
    try:
        model, twin = entry.build(**rng), entry.build(**same)
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
    P = model.observation_probs()
    for what, rows in (("initial", model.initial), ("observations", P.reshape(*P.shape[:3], -1))):
        off = float(np.abs(rows.sum(axis=-1) - 1.0).max())
        if off > 1e-12:
            failures.append(f"a distribution of {what} is off by {off:.3g}")
    if (model.weights <= 0.0).any():
        failures.append(f"context {int(np.argmin(model.weights))} is never drawn")
    if np.ptp(model.planning_rewards()) == 0.0:
        failures.append("all mean rewards are equal: every policy is optimal")
    for m in range(model.n_contexts):
        for n in range(m + 1, model.n_contexts):
            if np.array_equal(P[m], P[n]) and np.array_equal(model.initial[m], model.initial[n]):
                failures.append(f"contexts {m} and {n} are the same MDP")
    return failures


def _raise_if_any(title: str, failures: list[str]) -> None:
    if failures:
        raise ConformanceError("\n".join([f"{title}:", *(f"  - {line}" for line in failures)]))
