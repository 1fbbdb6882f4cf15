"""Exploration bonuses: by variance [zhou2023], of the paper [kwon2021, Prop. 3.2].

By variance (`VarianceBonus`, the default of L-UCRL). With V = discount V_{t+1} the optimistic value
of the next step in context m, n = n_m(s, a) the (belief-weighted) number of visits, N = max(1, n):

    b_t(m, s, a) = c1 (sqrt(Var_That(V) / N) + sqrt(Var(rhat) / N))
                   + c2 (max V - min V + max r - min r) / N,
    Q_t(m, s, a) = min(U_t, E rhat + E_That V + b_t + (1 - n)^+ U_t).

U_t is the most that can be earned from step t on: the largest reward in every step that is left,
or, where rewards are costs and an episode may end, in one step. A row of That sums to min(1, n),
and its variance is weighted likewise: a row that was never visited has the value U_t, and as
belief-weighted visits grow from 0 to 1 its own estimate takes over without a jump. The extent of V
is over the states that context m has been seen in, and terminal ones.

What is certain needs no bonus: the leading term vanishes where nothing varies, and the other falls
with 1 / N. A bonus of the form (range of the rewards) / sqrt(N) keeps a learner busy for ever where
one reward is rare and large (the cliff of CliffWalking). The constants, c1 = 0.2 and
c2 = 0.3, hardly matter over a factor of three, except that c2 = 0.1 gives up on RiverSwim in one
run of ten.

With a `failure_probability` eta it is the bonus of L-MVP [zhou2023, Alg. 2], as printed for
c1 = 4 and c2 = 16 (`VarianceBonus.printed`): returns span B, iota = 2 ln(2 M S A H K / eta),

    b_t(m, s, a) = max(c1 sqrt(|supp That| Var_That(V) iota / N), c2 S iota B / N),

and U_t = U_1 throughout. There rewards are known; here they are counted as well, and their mean is
raised by 2 sqrt(Var(rhat) iota / N) + 5 (max r - min r) iota / N, the radius which [zhou2023] gives
to a probability. Optimistic values are then at least the true ones with probability 1 - eta; the
bonus is saturated until pairs have been visited hundreds of times S.

The paper's (`Bonus`).

    R^hid_m(s, a) = min(V, V (1 - n)^+ + U_m min(1, sqrt(scale 5 (c_R + c_T) / N))),   N = max(1, n)
    R^hid_init(m) = V min(1, (1 - n)^+ + sqrt(scale c_nu / N)),              n = n_m(s, a) or n(m)

n is the (belief-weighted) number of visits and V what an episode can earn at most, less what it can
earn at least: H for rewards in {0, 1}; in general (1 + discount + ... + discount^{H-1})
(max(r, 0) - min(r, 0)), with which the proof of the proposition holds for rewards of any sign.

With scale = 1 and U_m = V (`adaptive=False`) this is the proposition: the square root exceeds 1
whenever n <= 1, so the mass (1 - n)^+ that a row of That lacks changes nothing. Two things make it
practical:

- The constants of the theory keep the bonus saturated until N is in the hundreds; `scale` is far
  below 1. What matters is kept: an unvisited row, all-zero in That, has the full bonus V, and
  without a jump as belief-weighted visits grow from 0 to 1.
- The proof uses V only as a bound on values of the true model. Where an episode cannot earn nearly
  V (one reward at the end of a long walk), `adaptive` takes for U_m the largest value, in the
  optimistic model of the last plan, of a state that context m has been seen in (less what an
  episode can lose): optimistic values bound true ones.

The default was chosen on random instances (M=7, S=15, A=3, H=30), latent RiverSwim and FrozenLake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from latentmdp._util import validation
from latentmdp.theory import ConfidenceConstants, confidence_constants
from latentmdp.worlds import Space

HIDDEN_REWARDS, BY_VARIANCE, AS_PRINTED = range(3)
"""Kinds of bonus: constant in time; by the variance; by the variance as [zhou2023] has it."""


class Widths(NamedTuple):
    """The numbers of a bonus that do not change during a run; by default those of none."""

    kind: int = HIDDEN_REWARDS
    reach: float = 0.0  # V
    lowest: float = 0.0  # the least an episode can earn, at most 0
    initial: float = 0.0  # scale c_nu
    row: float = 0.0  # scale 5 (c_R + c_T), of hidden rewards
    adaptive: bool = False  # whether U_m follows the values of the last plan
    # By variance: of sd(V) / sqrt(N) and extent / N, and the same of rewards.
    factors: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Bonus:
    """How much unfamiliar state-action pairs are over-valued.

    Parameters
    ----------
    scale
        Multiplies the constants of the theory; 1 is the paper.
    failure_probability
        eta: the confidence set holds in all episodes with probability 1 - eta (at scale 1).
    constants
        c_T, c_R and c_nu; from the sizes, the number of episodes and eta by default.
    adaptive
        Whether the bonus is measured against the values found so far rather than V; see above.
    """

    scale: float = 3e-6
    failure_probability: float = 0.05
    constants: ConfidenceConstants | None = None
    adaptive: bool = True

    def __post_init__(self) -> None:
        validation.require_non_negative("scale", self.scale)
        validation.require_inside("failure_probability", self.failure_probability)

    def scaled(self, factor: float) -> Bonus:
        """A bonus that is so many times as large, where it is not capped."""
        return replace(self, scale=factor**2 * self.scale)

    def widths(self, space: Space, episodes: int) -> Widths:
        """The numbers the learner uses for a run of K episodes in a space."""
        c = self.constants or confidence_constants(
            *space.dimensions[:3],
            space.required_horizon(),
            episodes,
            self.failure_probability,
            space.n_rewards,
        )
        row = 5.0 * (c.reward + c.transition)
        lowest = space.discounted_steps * min(*space.reward_values, 0.0)
        scaled = (self.scale * c.initial, self.scale * row)
        return Widths(HIDDEN_REWARDS, space.largest_return, lowest, *scaled, self.adaptive)


@dataclass(frozen=True)
class VarianceBonus:
    """A bonus that follows the variance of what comes next, and is small where that is certain.

    Parameters
    ----------
    deviation
        c1: factor of the standard deviations, over the square root of the visits.
    remainder
        c2: factor of the extent of values and rewards, over the visits.
    failure_probability
        eta: where it is given, the bonus has the form of [zhou2023], with its logarithms.
    """

    deviation: float = 0.2
    remainder: float = 0.3
    failure_probability: float | None = None

    def __post_init__(self) -> None:
        validation.require_non_negative("deviation", self.deviation)
        validation.require_non_negative("remainder", self.remainder)
        if self.failure_probability is not None:
            validation.require_inside("failure_probability", self.failure_probability)

    @classmethod
    def printed(cls, failure_probability: float = 0.05) -> VarianceBonus:
        """The bonus of L-MVP with the constants of its proof [zhou2023, Alg. 2]."""
        return cls(4.0, 16.0, failure_probability)

    def scaled(self, factor: float) -> VarianceBonus:
        """A bonus that is so many times as large, where it is not capped."""
        return replace(self, deviation=factor * self.deviation, remainder=factor * self.remainder)

    def widths(self, space: Space, episodes: int) -> Widths:
        """The numbers the learner uses for a run of K episodes in a space."""
        reach, lowest = (
            space.largest_return,
            space.discounted_steps * min(*space.reward_values, 0.0),
        )
        extent = float(np.ptp(space.reward_array))
        c1, c2, eta = self.deviation, self.remainder, self.failure_probability
        if eta is None:
            return Widths(BY_VARIANCE, reach, lowest, factors=(c1, c2, c1, c2 * extent))
        M, S, A, Z = space.dimensions
        H = space.required_horizon()
        iota = 2.0 * math.log(2.0 * M * S * A * H * episodes / eta)
        of_values = (c1 * math.sqrt(iota), c2 * S * iota * reach)
        of_rewards = (2.0 * math.sqrt(iota), 5.0 * iota * extent)
        first = confidence_constants(M, S, A, H, episodes, eta, Z).initial
        return Widths(AS_PRINTED, reach, lowest, first, factors=(*of_values, *of_rewards))
