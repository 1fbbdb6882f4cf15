"""What a policy is worth, judged from logs of another one.

Two estimates stand side by side. The **model-based** one is the policy's value in the fitted model.
It flatters a policy that was planned in that same model, so the flattery is measured and taken off
by a parametric bootstrap: logs are drawn from the fitted model, refitted and planned for, and the
new policy's value in the refitted model is compared with its value in the fitted one, where the
truth is known. The spread of that difference is the uncertainty.

The **logged** one is weighted per-decision importance sampling. With rho_t the product over steps
up to t of [a_k = pi(h_k)] / behaviour(a_k | s_k),

    V = sum_t discount^t (sum_i rho_it r_it) / (sum_i rho_it).

It needs no model, but for a deterministic policy only episodes that happen to agree with it count,
and those die out quickly: it is given up to the last step at which the effective sample size
(sum rho)^2 / sum rho^2 is large enough, beside the model's value of the same first steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats, normalised
from latentmdp.model import LatentMDP
from latentmdp.policies import Policy
from latentmdp.trajectories import Trajectories, cell_counts

__all__ = ["Interval", "LoggedEstimate", "behaviour_policy", "logged_estimate"]


_FEWEST_EFFECTIVE = 30.0
_RESAMPLES = 200


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


class LoggedEstimate(NamedTuple):
    """Importance sampling over the first `steps` steps of the logs.

    Attributes
    ----------
    mean, stderr
        Value of those steps and its bootstrap standard error.
    steps
        How far the logs reach before too few episodes agree with the policy.
    effective_size
        Effective number of episodes at each of those steps.
    """

    mean: float
    stderr: float
    steps: int
    effective_size: Floats


def behaviour_policy(logs: Trajectories) -> Floats:
    """How often each action was taken in each state, shape (S, A); uniform where never seen."""
    return normalised(cell_counts(logs, ("state", "action")), np.ones(logs.n_actions))


def logged_estimate(
    logs: Trajectories,
    policy: Policy,
    model: LatentMDP,
    behaviour: Floats,
    rng: np.random.Generator,
    final: NDArray[np.bool_] | None = None,
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
    draws = rng.multinomial(int(counts.sum()), counts / counts.sum(), _RESAMPLES)
    resampled = np.vstack([counts, draws.astype(np.float64)])
    normaliser = np.maximum(resampled @ ratios[:, :steps], 1e-300)
    values = (resampled @ (ratios * rewards)[:, :steps] / normaliser) @ scale
    return LoggedEstimate(float(values[0]), float(values[1:].std(ddof=1)), steps, effective[:steps])


def _ratios(
    logs: Trajectories,
    policy: Policy,
    model: LatentMDP,
    behaviour: Floats,
    final: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """Importance ratios rho (N, L) and rewards (N, L); zero where an episode is cut short."""
    lengths = logs.lengths
    longest = min(int(lengths.max()), model.horizon)
    ratios, rewards = np.zeros((len(logs), longest)), np.zeros((len(logs), longest))
    for length in np.unique(lengths[lengths > 0]):
        chosen = np.flatnonzero(lengths == length)
        states, actions, earned = logs[chosen].as_arrays()
        values = model.reward_values[earned]
        session = policy.batch_session(chosen.size, model)
        session.observe(states[:, 0])
        running = np.ones(chosen.size)
        for t in range(min(int(length), longest)):
            ratio = (session.act() == actions[:, t]) / behaviour[states[:, t], actions[:, t]]
            running = running * np.where(final[states[:, t]], 1.0, ratio)
            ratios[chosen, t], rewards[chosen, t] = running, values[:, t]
            session.observe(states[:, t + 1], values[:, t], actions[:, t])
        over = final[states[:, -1]]
        ratios[chosen[over], length:] = running[over, None]
    return ratios, rewards
