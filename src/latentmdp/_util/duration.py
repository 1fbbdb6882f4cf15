"""How long an episode lasts: H steps, or without an end, discounted or until it ends by itself.

Whether there is a horizon is asked here, and not by those who need an answer that follows from it:
the layers of a plan, when an episode is over, what later steps are worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentmdp._util.words import plural
from latentmdp.errors import ModelError

LONGEST_TOTAL = 10_000
"""Steps after which simulated episodes are cut off that have neither an end nor a discount, unless
a number is given: some may go round for ever."""


@dataclass(frozen=True)
class Duration:
    """The steps of an episode, and what a reward is worth in each: discount^t in step t.

    Attributes
    ----------
    horizon
        H; None where there is no end: then the discount is below 1, or the total reward is bounded.
    discount
        In (0, 1].
    """

    horizon: int | None
    discount: float

    @property
    def n_layers(self) -> int:
        """The number of time steps that a plan tells apart: H, or 1 where there is no end."""
        return 1 if self.horizon is None else self.horizon

    @property
    def is_total(self) -> bool:
        """Whether all rewards of an episode count alike, however long it takes to its end."""
        return self.horizon is None and self.discount == 1.0

    @property
    def planning_discount(self) -> float:
        """The discount that plans are made with, so that ties are broken for the sooner.

        Without discounting it is smaller than 1 by 2^-46, 1.4e-14: of actions that earn the same,
        the one that earns earlier (or pays costs later) is better by that share of its value for
        every step, which is some fifty times the rounding of a sum; of those that earn at the same
        time, the lowest number is taken. Any other difference is larger, so no better action is
        given up, and values change by less than H 2^-46 of themselves. Returns and values of
        policies count with `discount`; one below 1 prefers the sooner by itself. Where there is no
        end either it is smaller by 2^-20: a linear solve must see it.
        """
        return min(self.discount, 1.0 - 2.0 ** (-20 if self.is_total else -46))

    def is_over(self, t: int) -> bool:
        """Whether an episode has no step t, counted from 0."""
        return self.horizon is not None and t >= self.horizon

    def within(self, steps: int) -> int:
        """As many of the given number of steps as an episode has."""
        return steps if self.horizon is None else min(steps, self.horizon)

    def remaining(self, t: int) -> int | None:
        """The horizon that is left at step t."""
        return None if self.horizon is None else self.horizon - t

    def discounted_steps(self, first: int = 0) -> float:
        """sum_t discount^t over the steps from `first` on: what they are worth at reward 1."""
        if self.horizon is None:
            return np.inf if self.is_total else self.discount**first / (1.0 - self.discount)
        return float((self.discount ** np.arange(first, self.horizon)).sum())

    def cut_off(self, negligible: float) -> int:
        """H; where there is no end, the first T with discount^T below `negligible`.

        Without a discount either, `LONGEST_TOTAL`.
        """
        if self.is_total:
            return LONGEST_TOTAL
        if self.horizon is None:
            return int(np.floor(np.log(negligible) / np.log(self.discount))) + 1
        return self.horizon

    def required(self, what: str) -> int:
        """H; `ModelError` where there is no end and `what` needs one."""
        if self.horizon is None:
            raise ModelError(
                f"{what} needs a horizon, and there is none: model.replace(horizon=...) cuts "
                "episodes off"
            )
        return self.horizon

    def require_discount(self, what: str) -> None:
        """Raise `ModelError` where there is neither an end nor a discount and `what` needs one."""
        if self.is_total:
            raise ModelError(
                f"{what} needs a horizon or a discount below 1: model.replace(horizon=...) cuts "
                "episodes off; HSVI, Robust, QMDP and evaluate need neither"
            )

    def require_covered(self, steps: int) -> None:
        """Raise unless a policy that says what to do in so many steps covers an episode."""
        if self.horizon is None:
            raise ValueError(
                f"the policy covers {plural(steps, 'step')}, but the model has no end: only a "
                "policy that is the same at every time can follow it"
            )
        if steps < self.horizon:
            raise ValueError(
                f"the policy covers {plural(steps, 'step')}, the model's horizon is {self.horizon}"
            )

    def step(self, t: int) -> str:
        """Step t in words, to follow a state; empty where all steps are alike."""
        return "" if self.horizon is None else f" at step {t} of {self.horizon}"

    def __str__(self) -> str:
        return "without an end" if self.horizon is None else f"over {plural(self.horizon, 'step')}"
