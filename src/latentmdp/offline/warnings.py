"""Reasons not to rely on a policy found in logs, as messages to its user.

A policy may go where the logs have hardly any data, the fitted model may contradict the logs, and
the logs may not be what they were taken for: states that never occur, rewards with too many values,
short episodes of two kinds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentmdp._util import names
from latentmdp._util.arrays import Flags, Floats
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP
from latentmdp.offline.off_policy import LoggedEstimate

_FEW_VISITS = 5.0
"""Expected visits below which an estimated row is mostly noise and pseudo-counts; the same rule of
thumb as for a cell of a contingency table."""


def hardly_seen(seen: Floats, final: Flags) -> Flags:
    """Which (m, s, a) have fewer than 5 expected visits in the logs, `seen` (M, S, A).

    Nothing is chosen in a `final` state (S,), so none is counted there.
    """
    return (seen < _FEW_VISITS) & ~final[:, None]


class Support(NamedTuple):
    """What in the logs stands behind an action that a policy takes in a state.

    Positivity is `logger_share`, the probability with which the logger took it there, in the
    context where it did so most seldom; support are the logged `visits` there, `fewest_visits` of
    them in a context that the policy meets; and what a change of action does is identified by
    individuals who were there more than once and whose action `varied`, a share of them (NaN where
    there is none).
    """

    state: str
    action: str
    policy_share: float  # of its steps
    logger_share: float
    visits: float
    fewest_visits: float
    varied: float


def support_of(
    logs: Trajectories,
    model: LatentMDP,
    visits: Floats,
    seen: Floats,
    behaviour: Floats,
    most: int = 20,
) -> tuple[Support, ...]:
    """The states and actions in which a policy spends most of its steps, `visits` (M, S, A).

    The logs have `seen` (M, S, A) visits, and were made with a `behaviour` (S, A) or (M, S, A).
    """
    (_, S, A), share = visits.shape, visits.sum(axis=0) / max(visits.sum(), 1e-300)
    state_names = names.labels("state", model.state_names, S)
    action_names = names.labels("action", model.action_names, A)
    varied, rows = _varied(logs, S), []
    for s, a in zip(*np.unravel_index(np.argsort(-share, axis=None, kind="stable")[:most], (S, A))):
        if share[s, a] > 0.0:
            met = visits[:, s, a] > 0.0
            chance, by_context = behaviour[..., s, a].min(), seen[:, s, a]
            numbers = (share[s, a], chance, by_context.sum(), by_context[met].min(), varied[s])
            rows.append(Support(state_names[s], action_names[a], *map(float, numbers)))
    return tuple(rows)


def _varied(logs: Trajectories, n_states: int) -> Floats:
    """Of individuals who were in a state more than once, how many took more than one action, (S,).

    NaN where there are none.
    """
    episode, state, action, *_ = logs.steps()
    key = logs.individuals()[episode].astype(np.int64) * n_states + state
    kinds, first, of, times = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    differs = np.bincount(of, action != action[first][of], kinds.size) > 0.0
    weights = logs.multiplicities()[episode[first]] * (times > 1)
    number = np.bincount(kinds % n_states, weights, n_states)
    none = np.full(n_states, np.nan)
    changed = np.bincount(kinds % n_states, weights * differs, n_states)
    return np.divide(changed, number, out=none, where=number > 0.0)


def fit_warnings(fit: Fit, messages: list[str]) -> tuple[str, ...]:
    """The warnings of the fit itself, and what its contexts cannot tell a planner."""
    warnings = list(dict.fromkeys(messages))
    differ = set(fit.shared) ^ {"transitions", "rewards", "initial", "behaviour"}
    if fit.model.n_contexts > 1 and differ == {"behaviour"}:
        warnings.append(
            "the contexts differ only in what the logger did: in this world they are alike"
        )
    return tuple(warnings)


def arms_warnings(best_arm: float, switching: float) -> tuple[str, ...]:
    """That no individual ever changes its action, and what cannot be told for that reason."""
    return (
        "no individual ever changes its action, so what a change would do is not identified: "
        f"models of equal likelihood promise from {best_arm:.4g}, the best action throughout, to "
        f"{max(best_arm, switching):.4g} of a policy that changes it. The policy takes one action "
        "throughout",
    )


def value_warnings(
    logged: LoggedEstimate, model_first_steps: float, unsupported: float
) -> tuple[str, ...]:
    """Whether the policy leaves the data, or the logs contradict the model."""
    warnings = []
    # A higher limit hides a policy that leaves the logs, a lower one warns about almost every one.
    if unsupported > 0.05:
        warnings.append(
            f"the policy leaves the data: {unsupported:.0%} of its steps are at a context, state "
            f"and action seen fewer than {_FEW_VISITS:g} times"
        )
    if logged.steps == 0:
        warnings.append("no logged episode agrees with the policy: nothing checks the fitted model")
    # By chance alone they differ by more than four standard errors less than once in 10,000.
    elif abs(logged.mean - model_first_steps) > 4.0 * logged.stderr:
        warnings.append(
            f"the logs and the model disagree on the first {logged.steps} steps: "
            f"{logged.mean:.4g} ± {logged.stderr:.2g} and {model_first_steps:.4g}"
        )
    return tuple(warnings)


def missing_rewards_warnings(
    logs: Trajectories, value: Interval, ends: tuple[float, float]
) -> tuple[str, ...]:
    """Whether rewards that are missing could move a value beyond its interval.

    They are taken for like those that are there, which no check of the logs can see. Nothing earns
    less or more than the `ends`.
    """
    counts = logs.step_counts()
    share = float(counts @ np.isnan(logs.values())) / max(int(counts.sum()), 1)
    below, above = share * (value.mean - ends[0]), share * (ends[1] - value.mean)
    if max(below, above) <= 0.5 * (value.high - value.low):
        return ()
    return (
        f"{share:.1%} of the rewards are missing, and taken for like the others: if it is the low "
        f"ones that are missing the value may be up to {below:.3g} lower, if the high ones up to "
        f"{above:.3g} higher",
    )


def logs_warnings(logs: Trajectories, final: Flags) -> tuple[str, ...]:
    """Whether the logs themselves may not be what they were taken for."""
    warnings, states = [], names.labels("state", logs.state_names, logs.n_states)
    early = logs.last_states[logs.lengths < logs.lengths.max()]
    elsewhere = int((~final[early] | (early < 0)).sum())
    if final.any() and elsewhere:
        ends = ", ".join(states[s] for s in np.flatnonzero(final))
        warnings.append(
            f"no action is logged in {ends}, where {early.size - elsewhere} of the "
            f"{early.size} short episodes end: taken as final, with nothing earned after; the "
            f"other {elsewhere} are taken as cut short"
        )
    absent = np.setdiff1d(np.arange(logs.n_states), logs.states)
    if absent.size:
        warnings.append(
            f"{absent.size} of {logs.n_states} states never occur, the first is "
            f"{states[absent[0]]}: number states 0, 1, 2, ... without gaps"
        )
    share = _largest_share(logs)
    if share > 0.05:  # of a normal distribution one of 1,000 has about 1 %
        warnings.append(
            f"one step makes {share:.0%} of the variance of all that was paid: means hang on a few "
            "rare amounts, and the interval may be too short"
        )
    if logs.n_rewards > max(20, logs.n_steps / _FEW_VISITS):  # 20 are never too many
        warnings.append(
            f"{logs.n_rewards} different rewards in {logs.n_steps} steps: rewards must be few "
            "values, each seen often; round them, or sort them into classes"
        )
    return tuple(warnings)


def _largest_share(logs: Trajectories) -> float:
    """The share of one step in the squared deviations of measured amounts; 0 where there are few.

    Amounts are compared with the mean of their action.
    """
    if logs.amounts is None or logs.n_steps < 100:
        return 0.0
    paid = ~np.isnan(logs.amounts)
    amounts, action = logs.amounts[paid], logs.actions[paid]
    number = np.maximum(np.bincount(action), 1)
    squares = (amounts - (np.bincount(action, amounts) / number)[action]) ** 2
    return float(squares.max(initial=0.0) / max(squares.sum(), 1e-300))
