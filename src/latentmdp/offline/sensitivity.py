"""Sensitivity of a policy's gain to what the logger may have seen and the logs do not show.

Under the *marginal sensitivity model* [tan2006] something unseen, u, changes the odds of a logged
action by a factor between 1 / Gamma and Gamma,

    1/Gamma <= [pi_b(a | s, u) / (1 - pi_b(a | s, u))] / [pi_b(a | s) / (1 - pi_b(a | s))] <= Gamma,

and may say anything about what follows. Those who were given a then differ from all others: an
outcome o after (s, a) may truly have the probability P(o) w(o), where P(o) is that of the fitted
model and l <= w(o) <= u with

    l = pi_b + (1 - pi_b) / Gamma,    u = pi_b + (1 - pi_b) Gamma,    sum_o P(o) w(o) = 1.

The least mean of g(o) over such w has a closed form: l E[g] + (1 - l) CVaR[g], the second being the
mean of the lowest 1 / (1 + Gamma) of g. Backward induction with it gives the least value of a
Markov policy, context by context [bruns-smith2023]; a policy with a memory stands as the Markov
policy that acts in each context as often as it does, which has the same value at Gamma = 1. What
the logger earned was seen, whatever it looked at. So

    gain(Gamma) = gain - (V(1) - V(Gamma)),

and the Gamma at which it is 0 says how strong an unseen influence must be to overturn the
recommendation. Measured amounts beyond the model's rewards keep their means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.results import Result
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.outcomes import row_sums


@dataclass(frozen=True, eq=False)
class Sensitivity(Result):
    """What an unseen influence on the logger could do to the gain over it.

    Attributes
    ----------
    gammas : (G,)
        Factors by which it may change the odds of a logged action.
    gains : (G,)
        The least gain with each.
    overturned
        The factor from which on there may be no gain; 1 where there is none at all, infinity where
        none is strong enough.
    doubtful
        The same for the lower end of the gain's interval.
    """

    gammas: Floats
    gains: Floats
    overturned: float
    doubtful: float

    def __str__(self) -> str:
        if self.overturned <= 1.0:
            return "there is no gain to overturn"
        if np.isinf(self.overturned):
            return "no unseen influence on the logged actions would undo the gain"
        return (
            f"an unseen influence that changes the odds of logged actions by a factor of "
            f"{self.overturned:.3g} may undo the gain, and one of {self.doubtful:.3g} make it "
            "doubtful"
        )


def sensitivity(
    model: LatentMDP,
    table: Floats,
    behaviour: Floats,
    gain: Interval,
    gammas: tuple[float, ...] = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0),
) -> Sensitivity:
    """What an unseen influence could leave of the gain of a policy over its logger.

    The policy is a `table` (H or 1, S, A) or (H, M, S, A), the logger's `behaviour` (S, A) or
    (M, S, A).
    """
    nominal = least_value(model, table, behaviour, 1.0)

    def loss(gamma: float) -> float:
        return nominal - least_value(model, table, behaviour, gamma)

    def factor(left: float) -> float:
        """Where so much gain is lost."""
        if not left > 0.0:
            return 1.0
        most = 1e3  # odds of a thousand to one: no choice is left to chance
        if loss(most) < left:
            return float("inf")
        return float(brentq(lambda gamma: loss(gamma) - left, 1.0, most, rtol=1e-3))

    gains = np.array([gain.mean - loss(gamma) for gamma in gammas])
    return Sensitivity(np.array(gammas), gains, factor(gain.mean), factor(gain.low))


def least_value(model: LatentMDP, table: Floats, behaviour: Floats, gamma: float) -> float:
    """The least value of a Markov policy under influences of strength `gamma`."""
    M, S, A, _ = model.dimensions
    outcomes, horizon = model.outcomes, require_horizon(model, "a bound on unseen influences")
    rows = np.repeat(np.arange(S * A), np.diff(outcomes.starts))
    paid = model.reward_values[outcomes.reward][:, None]
    chosen = np.broadcast_to(behaviour, (M, S, A)).reshape(M, S * A).T
    least = chosen + (1.0 - chosen) / gamma  # l of (s, a) and context, (S A, M)
    beyond = 0.0 if model.bonus is None else model.bonus
    value = np.zeros((M, S))
    for t in range(horizon - 1, -1, -1):
        worth = paid + model.discount * value.T[outcomes.next_state]  # (n, M)
        mean = row_sums(outcomes, outcomes.probs * worth)
        lowest = row_sums(outcomes, _lowest(outcomes.probs, worth, rows, 1.0 / (1.0 + gamma)))
        backed = (least * mean + (1.0 - least) * lowest).T.reshape(M, S, A) + beyond
        value = (table[t if len(table) > 1 else 0] * backed).sum(axis=-1)
    begin = 0.0 if model.initial_bonus is None else model.initial_bonus
    return float(model.weights @ ((model.initial * value).sum(axis=-1) + begin))


def _lowest(probs: Floats, worth: Floats, rows: Integers, level: float) -> Floats:
    """Terms (n, M) whose sums over each row are the means of the lowest `level` of its worth."""
    terms = np.empty_like(worth)
    for m in range(worth.shape[1]):
        order = np.lexsort((worth[:, m], rows))  # by row, the lowest first
        chance = probs[order, m]
        until = np.cumsum(chance)
        first = np.searchsorted(rows, rows)  # rows are sorted: the first outcome of each
        before = until - chance - (until - chance)[first]
        share = np.clip(level - before, 0.0, chance) / level
        terms[order, m] = share * worth[order, m]
    return terms
