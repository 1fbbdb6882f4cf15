"""Importance weights of logged actions: 1 / pi_t(a | s) for the policy that drew them.

Logs that do not look like the policy's would bias every moment without a sign of it, so each
(s, a) is compared with what the policy would have done.
"""

import warnings
from typing import NamedTuple

import numpy as np

from latentmdp._kernels.windows import number_steps
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp.errors import TrajectoryError
from latentmdp.logs import Trajectories, sizes_of
from latentmdp.policies import MarkovPolicy, UniformPolicy

__all__ = ["SamplingPolicy", "Weighed", "policy_table", "weigh_steps"]

SamplingPolicy = UniformPolicy | MarkovPolicy | None

NEVER_TAKEN = 30.0
"""An action that was expected more often than this and never taken (chance: e^-30) is missing."""
SURPRISE = 7.0
"""Standard errors beyond which the logs are not the sampling policy's (chance: 1e-12 a cell)."""


class Weighed(NamedTuple):
    """Logs as the counting kernels read them, with the number and the weight of every step."""

    states: Indices
    offsets: Integers
    counts: Integers
    steps: Integers
    weights: Floats


def policy_table(policy: SamplingPolicy, S: int, A: int, horizon: int) -> Floats:
    """pi_t(a | s), shape (layers, S, A), every entry positive."""
    if policy is None or isinstance(policy, UniformPolicy):
        return np.full((1, S, A), 1.0 / A)
    if not isinstance(policy, MarkovPolicy):
        raise TypeError(
            "policy must be None (uniform), a UniformPolicy or a MarkovPolicy, got "
            f"{type(policy).__name__}"
        )
    if policy.actions is not None:
        raise ValueError(
            "policy is deterministic, so most tests are never tried: give action probabilities, "
            "all of them positive"
        )
    table = policy.probabilities
    assert table is not None
    if table.shape[1:] != (S, A):
        raise ValueError(f"policy has (states, actions) {table.shape[1:]}, the data {(S, A)}")
    if 1 < len(table) < horizon:
        raise ValueError(f"policy covers {len(table)} steps, the episodes have up to {horizon}")
    if (table <= 0.0).any():
        t, s, a = arrays.first_index(table <= 0.0)
        raise ValueError(
            f"policy never takes action {a} in state {s} at time {t}: tests that begin with it "
            "cannot be weighed; every probability must be positive"
        )
    return table


def weigh_steps(logs: Trajectories, policy: SamplingPolicy) -> Weighed:
    """Number and weigh every logged step, after a check that the logs look like the policy's."""
    logs.require_complete("counting windows")
    sizes = sizes_of(logs)
    table = policy_table(policy, sizes[0], sizes[1], int(logs.lengths.max(initial=1)))
    steps, weights = np.empty(logs.n_steps, np.int64), np.empty(logs.n_steps)
    taken, counts = np.zeros(table.shape), logs.multiplicities()
    columns = (logs.states, logs.actions, logs.rewards, logs.offsets, counts)
    number_steps(*columns, 1.0 / table, sizes, steps, weights, taken)
    _require_likely(taken, table)
    return Weighed(logs.states, logs.offsets, counts, steps, weights)


def _require_likely(taken: Floats, table: Floats) -> None:
    """Refuse logs without an action the policy would have taken; warn of other differences."""
    visits = taken.sum(axis=2, keepdims=True)
    expected, spread = ((visits * part).sum(axis=0) for part in (table, table * (1.0 - table)))
    taken = taken.sum(axis=0)
    missing = (taken == 0.0) & (expected > NEVER_TAKEN)
    if missing.any():
        s, a = arrays.first_index(missing)
        raise TrajectoryError(
            f"the logs never take action {a} in state {s}, where the sampling policy would have "
            f"taken it about {expected[s, a]:.0f} times: pass the policy that drew the actions"
        )
    surprise = np.abs(taken - expected) / np.sqrt(spread + 1.0)
    if (surprise > SURPRISE).any():
        s, a = arrays.first_index(surprise == surprise.max())
        warnings.warn(
            f"the logs do not look like the sampling policy's: action {a} in state {s} was taken "
            f"{taken[s, a]:.0f} times, expected {expected[s, a]:.0f} "
            f"({surprise[s, a]:.0f} standard errors); the moments are biased unless `policy` is "
            "what drew the actions",
            stacklevel=5,
        )
