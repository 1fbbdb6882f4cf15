"""The search for a memoryless policy as an optimisation over occupancies.

A memoryless policy earns sum_t sum_{s,m} y_t(s, m) R_m(s, pi_t(s)) with the occupancy
y_t(s, m) = w_m discount^t P_m^pi(s_t = s), in which the planners of `Memoryless` work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import memoryless as kernels
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.planning.qmdp import q_values

__all__ = ["TOLERANCE", "Incumbent", "MemorylessProblem"]

Actions = NDArray[np.int32]

TOLERANCE = 1e-10
"""Values closer than this, relative to the informed bound, count as equal."""


@dataclass(frozen=True)
class MemorylessProblem:
    """A model in context-last tables, and what each context alone is worth.

    Attributes
    ----------
    transitions, rewards
        (S, A, S, M) and (S, A, M), hidden bonus included.
    start
        y_0, shape (S, M).
    values
        Q_{t,m}(s, a) of each context's optimal policy, shape (H, S, A, M).
    constant
        The part of the value that no policy changes.
    """

    transitions: Floats
    rewards: Floats
    discount: float
    start: Floats
    values: Floats
    constant: float
    stationary: bool

    @classmethod
    def of(cls, model: LatentMDP, stationary: bool) -> MemorylessProblem:
        """The problem of a model."""
        bonus = model.initial_bonus
        return cls(
            transitions=np.ascontiguousarray(np.moveaxis(model.transitions, 0, -1)),
            rewards=np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1)),
            discount=model.discount,
            start=np.ascontiguousarray((model.weights[:, None] * model.initial).T),
            values=q_values(model),
            constant=0.0 if bonus is None else float(model.weights @ bonus),
            stationary=stationary,
        )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """H, S, A, M."""
        H, S, A, M = self.values.shape
        return H, S, A, M

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a policy: (H, S), or (1, S) if stationary."""
        H, S, _, _ = self.sizes
        return (1 if self.stationary else H), S

    def bound(self) -> float:
        """Q-MDP's bound: the first action is the same in all contexts, later ones are informed."""
        return float(np.einsum("sm,sam->sa", self.start, self.values[0]).max(axis=1).sum())

    def value(self, policy: Actions) -> float:
        """What a policy earns, without the constant."""
        tables = (self.transitions, self.rewards, self.discount, self.start)
        return float(kernels.policy_value(*tables, self.values.shape[0], policy))

    def tolerance(self) -> float:
        """The absolute difference below which two values count as equal."""
        informed = np.einsum("sm,sam->sam", self.start, np.abs(self.values[0])).max(axis=1).sum()
        return TOLERANCE * max(float(informed), np.finfo(np.float64).tiny)


@dataclass
class Incumbent:
    """The best policy so far with its value, and the least upper bound, without the constant."""

    policy: Actions
    lower: float
    upper: float
    n_iter: int = 0

    def offer(self, policy: Actions, value: float) -> None:
        """Keep a policy if it is better."""
        if value > self.lower:
            self.policy, self.lower = policy.copy(), value

    def prove(self, upper: float) -> None:
        """Keep a bound if it is tighter; it is never less than what a policy attains."""
        self.upper = max(self.lower, min(self.upper, upper))
