"""Standing plans at every time and state, see `latentmdp._kernels.standing`, and their beliefs."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._kernels.simd import LANES
from latentmdp._kernels.standing import back_up_contexts, back_up_standing
from latentmdp._util.arrays import Floats, Integers
from latentmdp.planning.point_based.blocks import run_in_blocks

if TYPE_CHECKING:
    from latentmdp.planning.point_based.bounds import Bounds

__all__ = ["LATTICES", "Standing", "lattice", "standing_cost", "standing_plans"]

Shares = tuple[tuple[float, ...], ...]

LATTICES: tuple[Shares, ...] = (
    ((0.5, 0.2, 0.05, 0.01), (0.05,), (0.05,)),
    ((0.4, 0.1, 0.02), (0.1,)),
    ((0.3, 0.05),),
    ((0.1,),),
    ((),),
)
"""From fine to coarse: for one context, for a pair and for a triple of them, how much weight is left
to all others. Beside these, there is the centre of the simplex."""

_BLOCK_NANOSECONDS = 2e6
"""Work between two looks at the clock."""


class Standing(NamedTuple):
    """Standing plans of all times; the first M of F are the optimal policies of the contexts."""

    lattice: Floats  # (F, M): their beliefs
    plans: list[Floats]  # (S, M, W) by time, W is F rounded up to LANES
    labels: list[Integers]  # (S, F) by time

    @property
    def nbytes(self) -> int:
        """The memory they take."""
        return sum(array.nbytes for part in (self.plans, self.labels) for array in part)


def lattice(n_contexts: int, shares: Shares) -> Floats:
    """The vertices of the simplex and, if there are shares, its centre and what they describe."""
    points = list(np.eye(n_contexts))
    if n_contexts > 1 and shares:
        points.append(np.full(n_contexts, 1.0 / n_contexts))
    for size, rests in enumerate(shares, start=1):
        if size < n_contexts:
            for rest in rests:
                for chosen in combinations(range(n_contexts), size):
                    belief = np.full(n_contexts, rest / (n_contexts - size))
                    belief[list(chosen)] = (1.0 - rest) / size
                    points.append(belief)
    return np.array(points)


def standing_cost(bounds: Bounds, shares: Shares) -> tuple[float, float]:
    """About how many nanoseconds of one thread, and bytes, standing plans take."""
    M, S, H = bounds.model.n_contexts, bounds.model.n_states, len(bounds.points)
    F = M + bool(shares) + sum(math.comb(M, n) * len(rests) for n, rests in enumerate(shares, 1))
    W = -(-F // LANES) * LANES
    own = 0.3 * M * (M + 8) * bounds.table.size
    others = 0.5 * (F - M) * (60.0 + 0.35 * F * M) * bounds.table.size
    return H * (own + others), H * S * (8.0 * M * W + 4.0 * F)


def standing_plans(bounds: Bounds, beliefs: Floats) -> Standing:
    """Back up the standing plans of `beliefs` (F, M), t = H-1..0."""
    model = bounds.model
    S, (F, M) = model.n_states, beliefs.shape
    W = -(-F // LANES) * LANES
    successors = bounds.table.successors()
    plans, labels = [np.zeros((S, M, W))], []
    own = np.zeros((S, M, M))
    cost = F * (60.0 + 0.35 * F * M) * max(1, bounds.table.size) / S
    size = max(1, int(_BLOCK_NANOSECONDS / cost))
    for t in range(len(bounds.points) - 1, -1, -1):
        now, chosen = np.zeros((S, M, W)), np.zeros((S, F), np.int32)
        later, own_later, own = plans[-1], own, np.empty((S, M, M))
        contexts = (
            successors,
            bounds.rewards,
            model.discount,
            own_later,
            bounds.context_actions[t],
        )
        others = (bounds.table, bounds.rewards, model.allowed, model.discount, bounds.q[t], beliefs)
        is_last = t == len(bounds.points) - 1

        def work(first: int, last: int) -> None:
            back_up_contexts(*contexts, first, last, own, now, chosen)  # noqa: B023, called at once
            back_up_standing(*others, later, is_last, first, last, now, chosen)  # noqa: B023

        run_in_blocks(bounds.team, work, S, size, bounds.check)
        plans.append(now)
        labels.append(chosen)
    return Standing(beliefs, plans[:0:-1], labels[::-1])
