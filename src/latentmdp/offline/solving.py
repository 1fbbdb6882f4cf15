"""Offline solution of a latent MDP: from logs to a policy with a confidence interval.

1. Fit a latent MDP to the logs (`estimation.initialize`).
2. Plan in it. An action that was never logged in a state is not taken there.
3. Value the policy in the fitted model and take off the optimism bias of having planned in that
same model; a bootstrap gives the bias and the interval (`offline.optimism_bias`).
4. Estimate the first steps a second time, from the logs without the model, by importance
sampling (`offline.off_policy`).
5. Check the fit: whether anything in the logs predicts beyond the model (`offline.checks`).
6. Say how strong an unseen influence on the logger would have to be to undo the gain over it
(`offline.sensitivity`).
7. Warn where a check fails, where the policy leaves the data, where the two estimates disagree, and
where the logs may not be what they were taken for (`offline.warnings`).
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, names, validation
from latentmdp._util.arrays import Flags, Floats
from latentmdp._util.fields import float_field
from latentmdp._util.random import RNGLike, as_generator, given_seed
from latentmdp._util.results import Result, Worded
from latentmdp._util.validation import require_choice
from latentmdp._util.words import plural
from latentmdp.engines import Engine
from latentmdp.estimation import MAX_CONTEXTS, final_states, initialize, only_tried, tried_pairs
from latentmdp.fit import Fit, FitWarning, logged_behaviour
from latentmdp.logs import Logs, cell_counts, require_logs
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.offline.checks import FitChecks, check_fit
from latentmdp.offline.off_policy import (
    LoggedEstimate,
    logged_estimate,
    paid_range,
    policy_by_context,
    possible_returns,
)
from latentmdp.offline.optimism_bias import (
    StandardErrors,
    bootstrap_differences,
    corrected,
    value_in,
)
from latentmdp.offline.references import (
    ConstantActions,
    Reference,
    has_arms,
    randomised,
    rule_value,
    rules,
)
from latentmdp.offline.sensitivity import Sensitivity, sensitivity
from latentmdp.offline.warnings import (
    Support,
    arms_warnings,
    fit_warnings,
    hardly_seen,
    logs_warnings,
    missing_rewards_warnings,
    support_of,
    value_warnings,
)
from latentmdp.planning import Plan, Planner, planner_for
from latentmdp.policies import Policy
from latentmdp.theory import Diagnosis, diagnose, occupancy

_PLAIN = ("optimism_bias", "model_first_steps", "unsupported", "seconds", "settings")
"""Fields of a result that a file holds as they are."""

_LOOKED_FOR = (
    *("shared_rewards", "shared_transitions", "shared_initial"),
    *("covariates", "max_contexts", "reward_model"),
)
"""What `initialize` is asked as `solve` is."""

_MEASURED = ("sensitivity", "standard_errors")
"""Those that files of earlier versions lack."""


class SolveWarning(UserWarning):
    """The value of the policy is less certain than its interval says; the message says why."""


@dataclass(frozen=True, eq=False)
class Solved(Result):
    """The result of `solve`. Two are equal if all but the time they took is equal.

    Attributes
    ----------
    policy, plan
        The policy and its certificate in the fitted model. An action that was never logged in a
        state is not taken there.
    model, fit
        The fitted latent MDP.
    value : Interval
        What the policy will earn per episode, with the ends of its confidence interval: its value
        in the fitted model, less the optimism bias, no less and no more than is possible.
    optimism_bias
        How much larger a policy's value is, on average, in the fitted model it was planned in.
    logged : LoggedEstimate
        The importance-sampling estimate over the first steps, from the logs without the model.
    model_first_steps
        The fitted model's value of those same steps; NaN if there are none.
    unsupported
        Share of the policy's steps in the fitted model at (m, s, a) seen fewer than 5 times.
    final_states
        States in which logged episodes ended: nothing is earned after them.
    warnings
        What a user should know before relying on it; failed checks come first.
    references
        What the policy is compared with, in the same model over the same steps: the logger, and
        each action taken always; the value of each, and what the policy gains over it.
    checks
        Checks of the fit, one row for each question; None in files of earlier versions.
    sensitivity
        How strongly something unseen must have influenced the logger to undo the gain over it;
        None where the probabilities of its actions are known.
    standard_errors
        Of the fitted model's parameters, by the same bootstrap.
    support
        What in the logs stands behind the policy: positivity, visits and variation of actions
        within individuals, for the states and actions where it spends most of its steps.
    seconds
        Wall-clock time.
    settings
        What `solve` was asked, as plain values: its arguments, with `episodes` the number of logged
        ones, `planner` its `repr`, `behaviour` "given" where it was an array, `started` whether
        there was a `start`, and `seed` None if `rng` was a generator, or nothing.
    """

    policy: Policy
    plan: Plan
    model: LatentMDP
    fit: Fit
    value: Interval
    optimism_bias: float
    logged: LoggedEstimate
    model_first_steps: float
    unsupported: float
    final_states: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    checks: FitChecks | None = None
    sensitivity: Sensitivity | None = None
    standard_errors: StandardErrors | None = None
    support: tuple[Support, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def gain(self) -> Interval:
        """What the policy earns per episode beyond the reference, by default the logger."""
        name = self.settings.get("reference", "logger")
        gains = {reference.name: reference.gain for reference in self.references}
        return gains.get(name, Interval(float("nan"), float("nan"), float("nan")))

    @property
    def supported(self) -> bool:
        """Whether the logs bear out the model: no check failed. If not, do not rely on `value`."""
        return self.checks is None or not self.checks.failed

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The assumptions of the theory, measured on the fitted model."""
        return diagnose(self.model)

    def to_fields(self) -> dict[str, Any]:
        """Every field by name but for `policy`, which is the plan's, and `model`, the fit's."""
        return {
            **{name: getattr(self, name) for name in ("plan", "fit", *_MEASURED, *_PLAIN)},
            "value": list(self.value),
            "logged_mean": self.logged.mean,
            "logged_stderr": self.logged.stderr,
            "effective_size": self.logged.effective_size,
            "final_states": list(self.final_states),
            "warnings": list(self.warnings),
            "checks": None if self.checks is None else self.checks.to_fields(),
            "references": {one.name: [*one.value, *one.gain] for one in self.references},
            "support": {"rows": [list(row) for row in self.support]},
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The outcome with these fields."""
        effective = float_field(fields, "effective_size", None)
        checks = fields.get("checks")
        return cls(
            policy=fields["plan"].policy,
            plan=fields["plan"],
            model=fields["fit"].model,
            fit=fields["fit"],
            value=Interval(*fields["value"]),
            logged=LoggedEstimate(
                fields["logged_mean"], fields["logged_stderr"], effective.size, effective
            ),
            final_states=tuple(fields["final_states"]),
            warnings=tuple(fields["warnings"]),
            references=tuple(
                Reference(name, Interval(*numbers[:3]), Interval(*numbers[3:]))
                for name, numbers in fields.get("references", {}).items()
            ),
            support=tuple(Support(*row) for row in fields.get("support", {}).get("rows", ())),
            checks=FitChecks.from_fields(checks) if checks else None,
            **{name: fields[name] for name in _MEASURED if name in fields},
            **{name: fields[name] for name in _PLAIN},
        )

    def _weights(self) -> Worded:
        """The weights of the contexts with their standard errors."""
        assert self.standard_errors is not None
        pairs = zip(self.model.weights, self.standard_errors.weights)
        words = ", ".join(f"{weight:.3g} ± {error:.2g}" for weight, error in pairs)
        apart = {"transitions", "rewards", "initial", "behaviour"} - {*self.fit.shared}
        return Worded(self.model.weights, words if apart else "")  # else weights mean nothing

    def __repr__(self) -> str:
        doubts = f", {plural(len(self.warnings), 'warning')}" if self.warnings else ""
        contexts = plural(self.model.n_contexts, "context")
        support = "" if self.supported else ", not supported"
        return f"Solved({contexts}, {self.value} per episode{support}{doubts})"

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        fitted, logged, ours = self.fit.facts(), self.logged, self.model_first_steps
        steps, sure = plural(logged.steps, "step"), self.settings.get("confidence", 0.95)
        reference, compared = self.settings.get("reference", "logger"), bool(self.references)
        promise = f"{self.value} per episode, with confidence {sure:.0%}"
        if not self.supported:
            promise = f"not supported by the logs, see the warnings: {promise}"
        first = (
            f"{logged.mean:.4g} ± {logged.stderr:.2g} from the logs alone, {ours:.4g} by the "
            f"model, over the first {steps}"
        )
        return {
            **{name: fitted[name] for name in ("contexts", "selection", "shared", "decisions")},
            **({} if self.standard_errors is None else {"weights": self._weights()}),
            "value": Worded(self.value, promise),
            "supported": Worded(self.supported, ""),
            "gain": Worded(self.gain, f"{self.gain} over the {reference}" if compared else ""),
            "references": Worded.lines([f"{one.name}: {one.value}" for one in self.references]),
            "sensitivity": Worded(self.sensitivity, str(self.sensitivity or "")),
            "optimism_bias": Worded(self.optimism_bias, f"{self.optimism_bias:.3g}, taken off"),
            "first_steps": Worded({**vars(logged), "model": ours}, first if logged.steps else ""),
            "unsupported": Worded(
                self.unsupported,
                f"{self.unsupported:.1%} of steps have hardly any data behind them",
            ),
            "final_states": self.final_states,
            "warnings": Worded.lines(self.warnings),
            "checks": Worded([] if self.checks is None else list(self.checks), ""),
            "support": Worded(list(self.support), ""),
            "seconds": self.seconds,
        }


def solve(
    logs: Logs,
    n_contexts: int | Literal["auto"] = "auto",
    rng: RNGLike = None,
    *,
    planner: Planner | None = None,
    behaviour: ArrayLike | Literal["shared", "by-context", "auto"] | None = "auto",
    shared_rewards: bool | Literal["auto"] = "auto",
    shared_transitions: bool | Literal["auto"] = "auto",
    shared_initial: bool | Literal["auto"] = "auto",
    covariates: bool | Literal["auto"] = "auto",
    start: Solved | Fit | None = None,
    confidence: float = 0.95,
    bootstrap: int = 30,
    max_contexts: int = MAX_CONTEXTS,
    horizon: int | None = None,
    discount: float | None = None,
    reference: str | Policy = "logger",
    reward_model: Literal["state-action", "transition", "auto"] = "auto",
    progress: bool = False,
    engine: Engine | None = None,
) -> Solved:
    """Find the contexts in logs, plan, and estimate what the policy will earn.

    Parameters
    ----------
    logs
        Episodes of individuals of unknown context; the horizon is that of the longest. A shorter
        one that ends in a state where no action was ever logged has ended for good: that state is
        final, and nothing is earned after it. Any other shorter one was cut short, and nothing is
        assumed of the rest. Very long logs on disk are fitted as a whole; the bootstrap then
        repeats episodes spread over them, fewer than there are, so its interval is rather too
        wide.
    n_contexts
        M; "auto" chooses it (`fit.selection` tells how).
    planner
        By default Q-MDP, or PBVI where information about the context must be bought.
    behaviour : "auto", "shared", "by-context" or (S, A)
        Whether the logger chose its actions knowing the context; "auto" decides by held-out
        likelihood. Or the probabilities with which it chose them, where they are known and do not
        depend on the context.
    shared_rewards, shared_transitions, shared_initial
        Whether all contexts have the same rewards, transitions, initial states; "auto" decides by
        held-out likelihood, and `fit.decisions` tells how.
    covariates
        Whether the weights of the contexts depend on the covariates of an individual; "auto"
        decides by held-out likelihood. A session of the policy then begins at w(x).
    start
        An earlier result of logs of the same world: its contexts are kept, and EM goes on from it.
    confidence
        Of the interval in `value`.
    bootstrap
        Number of times that logs are simulated, fitted and planned for again, to measure the
        optimism bias and the uncertainty.
    max_contexts
        The largest number of contexts that "auto" tries.
    horizon, discount
        Over how many steps, and with what discount, the policy is planned and valued; by default
        over those of the longest episode, without discount.
    reference
        What `gain` compares the policy with: "logger", "always" with the name of an action (or
        "always action 1" without names), or a policy.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s'); "auto" decides by BIC.
    progress
        Say on the standard error stream what the fit is doing.
    engine
        Where the passes over the episodes and the repetitions of the bootstrap run; in threads by
        default. The result does not depend on it.
    """
    looked_for = {name: value for name, value in locals().items() if name in _LOOKED_FOR}
    require_logs("logs", logs)
    validation.require_inside("confidence", confidence)
    bootstrap = arrays.positive_integer("bootstrap", bootstrap)
    if bootstrap < 2:
        raise ValueError("bootstrap must be at least 2 to measure a spread")
    if n_contexts != "auto":
        n_contexts = arrays.positive_integer("n_contexts", n_contexts)
    looked_for["max_contexts"] = arrays.positive_integer("max_contexts", max_contexts)
    if planner is not None:
        arrays.require_instance("planner", planner, Planner)
    if horizon is not None:
        horizon = arrays.positive_integer("horizon", horizon)
    if discount is not None and not 0.0 < discount <= 1.0:
        raise ValueError(f"discount must lie in (0, 1], got {discount}")
    baseline = _reference_name(reference, logs)
    began = time.perf_counter()
    generator = as_generator(rng)
    some = logs.held()
    if len(some) == len(logs):
        logs = some  # read once
    knowledge, known_rows = "auto" if behaviour is None else behaviour, None
    if not isinstance(knowledge, str):
        knowledge, known_rows = "shared", _checked(knowledge, logs)
    require_choice("behaviour", knowledge, ("shared", "by-context", "auto"))
    final, arms = final_states(logs), has_arms(some)
    if arms and knowledge == "auto":  # actions given once say nothing of what the logger saw later
        knowledge = "shared"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = initialize(
            None,
            logs,
            n_contexts,
            behaviour=cast(Literal["shared", "by-context", "auto"], knowledge),
            start=start.fit if isinstance(start, Solved) else start,
            rng=generator,
            progress=progress,
            engine=engine,
            **looked_for,
        )
    over = {"horizon": horizon or fit.model.horizon, "discount": discount or fit.model.discount}
    world = fit.model.replace(**over)
    tried = only_tried(world, logs)
    logger_rows = logged_behaviour(logs) if known_rows is None else known_rows
    if fit.behaviour_by_context is not None:
        logger_rows = fit.behaviour_by_context
    compared = rules(world, logger_rows, tried.allowed, baseline)
    if isinstance(reference, Policy):
        compared[baseline] = (reference,)
    if planner is None:
        planner = planner_for(tried)
    if arms:
        switching = rule_value(world, (planner.plan(tried).policy,))
        planner = ConstantActions()
    plan = planner.plan(tried)
    seen = cell_counts(logs, ("state", "action"), shares=fit.responsibilities)
    in_model = _value_in_model(world, plan.policy, hardly_seen(seen, final), generator)
    differences, errors = bootstrap_differences(
        some,
        fit,
        planner,
        logger_rows,
        final,
        bootstrap,
        generator,
        engine,
        world,
        list(compared.values()),
    )
    steps = require_horizon(world, "the value of a policy found in logs")
    ends = possible_returns(paid_range(some, world), world, steps, final)
    taken, returns = seen.sum(axis=(0, 1)), some.returns(world.discount)
    fewest = int(min(len(some), taken[taken > 0.0].min(initial=np.inf)))

    def possible(value: Interval) -> Interval:
        return value.of_alike(fewest, returns, confidence).within(*ends)

    trial = randomised(some) if known_rows is None else some
    by = None if trial.propensities is not None else logger_rows
    logged = logged_estimate(trial, plan.policy, world, by, generator, final)
    values = [in_model.value, *(rule_value(world, rule) for rule in compared.values())]
    if arms:
        policies = [plan.policy, *(rule[0] for rule in compared.values())]
        sources = [(trial, by), (some, logger_rows), *[(trial, by)] * (len(compared) - 1)]
        estimates = [  # alike for one arm, in its rounding too
            logged_estimate(source, policy, world, chances, np.random.default_rng(0), final)
            for (source, chances), policy in zip(sources, policies)
        ]
        _own_means(estimates, steps, values, differences)
    value = possible(corrected(values[0], differences[:, 0], confidence))
    references = _references(list(compared), values, differences, confidence, ends, possible)
    first_steps = in_model.first_steps(logged.steps)
    has_belief = getattr(plan.policy, "model", None) is not None
    if fit.weight_model is not None and fit.model.n_contexts > 1 and has_belief:
        policy = plan.policy.with_weight_model(fit.weight_model)
        plan = dataclasses.replace(plan, policy=policy)
    checks = check_fit(logs, fit, generator)
    unseen = None
    if known_rows is None and some.propensities is None:
        gain = next(one.gain for one in references if one.name == "logger")
        unseen = sensitivity(world, in_model.table, logger_rows, gain)
    messages = (
        *checks.warnings(),
        *(arms_warnings(in_model.value, switching) if arms else ()),
        *fit_warnings(fit, [str(w.message) for w in caught if w.category is FitWarning]),
        *value_warnings(logged, first_steps, in_model.unsupported),
        *missing_rewards_warnings(some, value, ends),
        *logs_warnings(some, final),
    )
    for other in (w for w in caught if w.category is not FitWarning):
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    for message in messages:
        warnings.warn(message, SolveWarning, stacklevel=2)
    settings = {
        "episodes": logs.n_episodes,
        "n_contexts": n_contexts,
        "planner": repr(planner),
        "behaviour": knowledge if known_rows is None else "given",
        **looked_for,
        "started": start is not None,
        "confidence": float(confidence),
        "bootstrap": bootstrap,
        "horizon": horizon,
        "discount": discount,
        "reference": baseline,
        "seed": given_seed(rng),
    }
    return Solved(
        policy=plan.policy,
        plan=plan,
        model=world,
        fit=dataclasses.replace(fit, model=world),
        value=value,
        optimism_bias=float(differences[:, 0].mean()),
        logged=logged,
        model_first_steps=first_steps,
        unsupported=in_model.unsupported,
        final_states=tuple(np.flatnonzero(final).tolist()),
        warnings=messages,
        references=references,
        checks=checks,
        sensitivity=unseen,
        standard_errors=errors,
        support=support_of(some, world, in_model.visits, seen, logger_rows),
        seconds=time.perf_counter() - began,
        settings=settings,
    )


def _reference_name(reference: str | Policy, logs: Logs) -> str:
    """What `references` calls what the policy is compared with; raises if there is none such."""
    if isinstance(reference, Policy):
        return "reference"
    labels = names.labels("action", logs.action_names, logs.n_actions)
    require_choice("reference", reference, ("logger", *(f"always {one}" for one in labels)))
    return reference


def _own_means(
    estimates: Sequence[LoggedEstimate], steps: int, values: list[float], differences: Floats
) -> None:
    """Write the means of a trial's arms over the values, where they reach all steps.

    The differences of the bootstrap keep their bias, and get the spread of these means.
    """
    for k, own in enumerate(estimates):
        if own.steps == steps:
            errors = differences[:, k] - differences[:, k].mean()
            scale = own.stderr / max(float(errors.std(ddof=1)), 1e-300)
            values[k], differences[:, k] = own.mean, differences[:, k] + (scale - 1.0) * errors


def _references(
    rule_names: Sequence[str],
    values: Sequence[float],
    differences: Floats,
    confidence: float,
    ends: tuple[float, float],
    possible: Callable[[Interval], Interval],
) -> tuple[Reference, ...]:
    """What each rule earns, and what the policy gains over it, with intervals by the bootstrap.

    Values and differences are those of the policy, then of the rules. No gain is larger than the
    `ends` of what is possible are apart; `possible` keeps a value between them.
    """
    width, references = ends[1] - ends[0], []
    for name, other, errors in zip(rule_names, values[1:], differences[:, 1:].T):
        gain = corrected(values[0] - other, differences[:, 0] - errors, confidence)
        earned = possible(corrected(other, errors, confidence))
        references.append(Reference(name, earned, gain.within(-width, width)))
    return tuple(references)


class _ModelValue(NamedTuple):
    """A policy in the fitted model: its value, how it comes about, and the data behind it."""

    value: float
    by_step: Floats  # (H,) mean discounted reward of each step
    unsupported: float  # share of steps that are flagged
    table: Floats  # (H or 1, S, A) or (H, M, S, A): how often it takes each action
    visits: Floats  # (M, S, A): expected in an episode

    def first_steps(self, steps: int) -> float:
        """Value of the first steps; NaN if there are none."""
        return float(self.by_step[:steps].sum()) if steps else float("nan")


def _value_in_model(
    model: LatentMDP, policy: Policy, flagged: Flags, rng: np.random.Generator
) -> _ModelValue:
    """Value a policy in a model, with the share of its steps at `flagged` (M, S, A)."""
    H = require_horizon(model, "the value of a policy found in logs")
    value = value_in(model, policy, rng)
    table = policy_by_context(model, policy, H, rng.spawn(1)[0])
    visits = occupancy(model, table, H) * model.weights[:, None, None]
    by_step = np.einsum("tmsa,msa->t", visits, model.planning_rewards())
    total = visits.sum(axis=0)
    share = float((total * flagged).sum() / max(total.sum(), 1e-300))
    discounted = by_step * model.discount ** np.arange(H)
    return _ModelValue(value, discounted, share, table, total)


def _checked(behaviour: ArrayLike, logs: Logs) -> Floats:
    rows = validation.shaped("behaviour", behaviour, (logs.n_states, logs.n_actions))
    rows = arrays.distributions("behaviour", rows, ("state",))
    impossible = tried_pairs(logs) & (rows == 0.0)
    if impossible.any():
        state, action = (int(i) for i in np.argwhere(impossible)[0])
        where, did = logs.pair(state, action)
        raise ValueError(
            f"behaviour[{state}, {action}] is 0, but action {did} is logged in state {where}"
        )
    return rows
