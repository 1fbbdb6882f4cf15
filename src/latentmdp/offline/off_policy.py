"""Off-policy evaluation: the value of a policy, estimated from logs of another one.

Per-decision importance sampling [precup2000], weighted. Logged actions were chosen with the
probabilities behaviour(a | s). Let pi(h) be the action that the policy takes after history h. Up to
step t, episode i has the ratio

    rho_it = prod_{k <= t} 1[a_k = pi(h_k)] / behaviour(a_k | s_k),

and the estimate is

    V = sum_t discount^t (sum_i rho_it r_it) / (sum_i rho_it).

It needs no model of the world (the policy's own filter may have one). But only episodes that happen
to agree with the policy count, and there are fewer of them at every step. So the estimate covers
the first steps only, as long as the effective sample size (sum_i rho_it)^2 / sum_i rho_it^2 is
large enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Flags, Floats, normalised
from latentmdp._util.results import Result
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.policies import Policy
from latentmdp.trajectories import Trajectories, cell_counts

__all__ = ["Interval", "LoggedEstimate", "behaviour_policy", "logged_estimate"]


_FEWEST_EFFECTIVE = 30.0
"""Effective episodes that a step needs: more would end the estimate earlier, fewer would leave a
bootstrap standard error that cannot be trusted. 30 is the usual rule for a mean of a sample."""

_RESAMPLES = 200
"""Bootstrap resamples of the episodes: the standard error is then itself known to about 5 %."""


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, eq=False)
class LoggedEstimate(Result):
    """Importance sampling over the first `steps` steps of the logs.

    Attributes
    ----------
    mean, stderr : float
        Value of those steps and its bootstrap standard error; NaN and infinity without steps.
    steps : int
        Number of steps at which enough episodes still agree with the policy.
    effective_size : (steps,)
        Effective number of episodes at each of those steps.
    """

    mean: float
    stderr: float
    steps: int
    effective_size: Floats

    def __repr__(self) -> str:
        return f"LoggedEstimate({self.mean:.4g} ± {self.stderr:.2g} over {self.steps} steps)"


def behaviour_policy(logs: Trajectories) -> Floats:
    """How often each action was taken in each state, shape (S, A); uniform where never seen."""
    return normalised(cell_counts(logs, ("state", "action")), np.ones(logs.n_actions))


def logged_estimate(
    logs: Trajectories,
    policy: Policy,
    model: LatentMDP,
    behaviour: Floats,
    rng: np.random.Generator,
    final: Flags | None = None,
) -> LoggedEstimate:
    """Weighted per-decision importance sampling of a policy from logs of a behaviour (S, A).

    In states that are `final` (S,) nothing is chosen and nothing earned: an episode that reached
    one keeps its weight. One that is cut short elsewhere loses it.
    """
    final = np.zeros(model.n_states, dtype=np.bool_) if final is None else final
    ratios, rewards = _ratios(logs, policy, model, behaviour, final)
    counts = logs.multiplicities().astype(np.float64)
    weighted = ratios * counts[:, None]
    total = weighted.sum(axis=0)
    squares = (ratios * weighted).sum(axis=0)
    effective = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0.0)
    steps = int(np.argmax([*(effective < _FEWEST_EFFECTIVE), True]))
    if steps == 0:
        return LoggedEstimate(float("nan"), float("inf"), 0, effective[:0])
    scale = model.discount ** np.arange(steps)
    resamples = rng.multinomial(int(counts.sum()), counts / counts.sum(), _RESAMPLES)
    each = np.vstack([counts, resamples.astype(np.float64)])  # how often each episode counts
    normaliser = np.maximum(each @ ratios[:, :steps], 1e-300)
    values = (each @ (ratios * rewards)[:, :steps] / normaliser) @ scale
    return LoggedEstimate(float(values[0]), float(values[1:].std(ddof=1)), steps, effective[:steps])


def _ratios(
    logs: Trajectories, policy: Policy, model: LatentMDP, behaviour: Floats, final: Flags
) -> tuple[Floats, Floats]:
    """Importance ratios rho (N, L) and rewards (N, L); zero where an episode is cut short."""
    lengths = logs.lengths
    longest = min(int(lengths.max()), require_horizon(model, "an estimate from logs"))
    ratios, rewards = np.zeros((len(logs), longest)), np.zeros((len(logs), longest))
    for length in np.unique(lengths[lengths > 0]):
        chosen = np.flatnonzero(lengths == length)
        states, actions, earned = logs[chosen].as_arrays()
        values = model.reward_values[earned]
        session = policy.batch_session(chosen.size, model)
        session.observe(states[:, 0])
        running = np.ones(chosen.size)
        for t in range(min(int(length), longest)):
            ratio = (session.act_indices() == actions[:, t]) / behaviour[
                states[:, t], actions[:, t]
            ]
            running = running * np.where(final[states[:, t]], 1.0, ratio)
            ratios[chosen, t], rewards[chosen, t] = running, values[:, t]
            session.observe(states[:, t + 1], values[:, t], actions[:, t])
        ended = final[states[:, -1]]
        ratios[chosen[ended], length:] = running[ended, None]
    return ratios, rewards
