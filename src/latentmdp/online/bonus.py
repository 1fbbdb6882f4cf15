"""The exploration bonus of L-UCRL [kwon2021, Prop. 3.2].

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

import math
from dataclasses import dataclass

from latentmdp.theory import ConfidenceConstants, confidence_constants
from latentmdp.worlds import Space

__all__ = ["Bonus", "Widths"]

DEFAULT_SCALE = 3e-6


@dataclass(frozen=True)
class Widths:
    """V, scale 5 (c_R + c_T), scale c_nu, the least an episode can earn, whether U_m adapts."""

    reach: float
    row: float
    initial: float
    lowest: float
    adaptive: bool


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

    scale: float = DEFAULT_SCALE
    failure_probability: float = 0.05
    constants: ConfidenceConstants | None = None
    adaptive: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale >= 0.0):
            raise ValueError(f"scale must be finite and not negative, got {self.scale}")
        if not 0.0 < self.failure_probability < 1.0:
            raise ValueError(
                f"failure_probability must lie in (0, 1), got {self.failure_probability}"
            )

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
        return Widths(
            space.largest_return,
            self.scale * row,
            self.scale * c.initial,
            space.discounted_steps * min(*space.reward_values, 0.0),
            self.adaptive,
        )
