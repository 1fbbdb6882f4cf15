"""Confidence sets around an empirical latent MDP, and the regret bound of L-UCRL that they give.

The set [kwon2021, eq. (4), Prop. 3.2] of the models with, for all m, s, a,

    ||(T_m - That_m)(. | s, a)||_1 <= sqrt(c_T / N_m(s, a)),
    ||(R_m - Rhat_m)(. | s, a)||_1 <= sqrt(c_R / N_m(s, a)),
    ||nu_m - nuhat_m||_1           <= sqrt(c_nu / N(m)),

contains the truth in all K episodes with probability 1 - eta, when contexts are revealed. For n
outcomes and N samples P(||p - phat||_1 >= e) <= 2^n exp(-N e^2 / 2) [weissman2003], and a union
bound over every row, every N it may have (at most H K, or K) and the three families gives

    c_T  = 2 (S ln 2 + L),   c_R = 2 (Z ln 2 + L),   L = ln(3 M S A H K / eta),
    c_nu = 2 (S ln 2 + ln(3 M K / eta)),

in the paper's order, c_T = O(S log(M S A K / eta)). With revealed contexts the regret of acting
optimistically in that set is [kwon2021, Thm. 3.3]

    Regret(K) <~ H S sqrt(M A N log(M S A N / eta)),    N = H K,

for rewards in [0, 1]. The paper leaves the absolute constant open; it is 1 here, so the curve shows
the rate and the scale, not a certificate.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP


@dataclass(frozen=True)
class ConfidenceConstants:
    """c_T, c_R and c_nu: radii are sqrt(c / N)."""

    transition: float
    reward: float
    initial: float


def confidence_constants(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    horizon: int,
    episodes: int,
    failure_probability: float = 0.05,
    n_rewards: int = 2,
) -> ConfidenceConstants:
    """The constants for K episodes and failure probability eta."""
    sizes = {"n_contexts": n_contexts, "n_states": n_states, "n_actions": n_actions}
    sizes |= {"horizon": horizon, "episodes": episodes, "n_rewards": n_rewards}
    for name, size in sizes.items():
        arrays.positive_integer(name, size)
    validation.require_inside("failure_probability", failure_probability)
    each = failure_probability / 3.0
    rows = math.log(n_contexts * n_states * n_actions * horizon * episodes / each)
    starts = math.log(n_contexts * episodes / each)
    return ConfidenceConstants(
        transition=2.0 * (n_states * math.log(2.0) + rows),
        reward=2.0 * (n_rewards * math.log(2.0) + rows),
        initial=2.0 * (n_states * math.log(2.0) + starts),
    )


def confidence_set_contains(
    truth: LatentMDP,
    estimate: LatentMDP,
    visits: Floats,
    episodes: Floats,
    constants: ConfidenceConstants,
) -> bool:
    """Whether `truth` lies in the confidence set around `estimate`.

    Parameters
    ----------
    visits : (M, S, A)
        N_m(s, a); rows never visited constrain nothing.
    episodes : (M,)
        N(m).
    """
    rows = [
        (truth.transitions, estimate.transitions, visits, constants.transition),
        (truth.reward_probs, estimate.reward_probs, visits, constants.reward),
        (truth.initial, estimate.initial, episodes, constants.initial),
    ]
    for mine, theirs, count, constant in rows:
        distance = np.abs(mine - theirs).sum(axis=-1)
        radius = np.sqrt(constant / np.maximum(count, 1.0))
        if ((distance > radius) & (count > 0.0)).any():
            return False
    return True


def regret_bound(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    horizon: int,
    episodes: ArrayLike,
    failure_probability: float = 0.05,
    reward_span: float = 1.0,
) -> Floats:
    """The regret bound of L-UCRL with revealed contexts after each number of episodes.

    Parameters
    ----------
    reward_span
        Largest minus smallest reward: regret scales with it.
    """
    validation.require_inside("failure_probability", failure_probability)
    steps = horizon * np.asarray(episodes, dtype=np.float64)
    if (steps <= 0.0).any():
        raise ValueError("episodes must be positive")
    logarithm = np.log(n_contexts * n_states * n_actions * steps / failure_probability)
    rate = horizon * n_states * np.sqrt(n_contexts * n_actions * steps * logarithm)
    return np.asarray(reward_span * rate)
