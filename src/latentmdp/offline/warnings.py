"""What a user should know before relying on a policy found in logs."""

from __future__ import annotations

import numpy as np

from latentmdp._util.arrays import Flags
from latentmdp.fit import Fit
from latentmdp.offline.off_policy import LoggedEstimate
from latentmdp.offline.optimism_bias import EPISODES
from latentmdp.policies import Policy
from latentmdp.simulation import simulate
from latentmdp.trajectories import Trajectories, cell_counts

__all__ = ["doubts_of_logs", "doubts_of_value", "unsupported_share"]


_FEW_VISITS = 5.0
_LEFT_THE_DATA = 0.05
_MANY_REWARDS = 20


def unsupported_share(
    logs: Trajectories, fit: Fit, policy: Policy, final: Flags, rng: np.random.Generator
) -> float:
    """Share of the policy's steps at (m, s, a) with hardly any data behind them."""
    visits = cell_counts(logs, ("state", "action"), shares=fit.responsibilities)
    played = simulate(fit.model, policy, EPISODES, rng)
    states, actions, _ = played.as_arrays()
    assert played.contexts is not None
    few = visits[played.contexts[:, None], states[:, :-1], actions] < _FEW_VISITS
    return float((few & ~final[states[:, :-1]]).mean())


def doubts_of_value(
    logged: LoggedEstimate, first_steps: float, unsupported: float
) -> tuple[str, ...]:
    """Where the policy leaves the data, or the logs contradict the model."""
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


def doubts_of_logs(logs: Trajectories, final: Flags) -> tuple[str, ...]:
    """Where the logs themselves may not be what they were taken for."""
    found = []
    early = logs.last_states[logs.lengths < logs.lengths.max()]
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
