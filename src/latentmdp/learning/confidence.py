"""The exploration bonus of L-UCRL [kwon2021, Prop. 3.2].

    R^hid_m(s, a)   = V min(1, (1 - n)^+ + sqrt(scale 5 (c_R + c_T) / N)),   N = max(1, n)
    R^hid_init(m)   = V min(1, (1 - n)^+ + sqrt(scale c_nu / N)),            n = n_m(s, a) or n(m)

n is the (belief-weighted) number of visits and V the most an episode can earn or lose: H for
rewards in {0, 1}; in general (1 + discount + ... + discount^{H-1}) (max(r, 0) - min(r, 0)), with
which the proof of the proposition goes through for rewards of any sign.

With scale = 1 this is the proposition: the square root exceeds 1 whenever n <= 1, so the mass
(1 - n)^+ that a row of That lacks changes nothing. With the small scale that works in practice it
keeps what matters: an unvisited row, all-zero in That, has the full bonus V, and it does so without
a jump as belief-weighted visits grow from 0 to 1.

The default scale was chosen on random instances (M=7, S=15, A=3, H=30) and latent RiverSwim; the
bonus is then about 1.3 / sqrt(N) on the former. The constants of the theory (scale=1) keep the
bonus saturated until N is in the hundreds.
"""

import math
from dataclasses import dataclass

from latentmdp.learning.space import Space
from latentmdp.theory.confidence import ConfidenceConstants, confidence_constants

__all__ = ["Bonus", "Widths"]

DEFAULT_SCALE = 3e-6


@dataclass(frozen=True)
class Widths:
    """bonus = reach min(1, (1 - n)^+ + sqrt(row / N)); the initial one with `initial`."""

    reach: float
    row: float
    initial: float


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
    """

    scale: float = DEFAULT_SCALE
    failure_probability: float = 0.05
    constants: ConfidenceConstants | None = None

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
            space.n_contexts,
            space.n_states,
            space.n_actions,
            space.horizon,
            episodes,
            self.failure_probability,
            space.n_rewards,
        )
        row = 5.0 * (c.reward + c.transition)
        return Widths(space.largest_return, self.scale * row, self.scale * c.initial)
