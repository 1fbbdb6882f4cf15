"""Standing plans at every time and state, see `kernels.standing`, and their beliefs."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._util import Floats, Indices
from latentmdp.engines import blocks, run_blocks
from latentmdp.outcomes import Outcomes
from latentmdp.planning.point_based.kernels.standing import back_up_contexts, back_up_standing

if TYPE_CHECKING:
    from latentmdp.planning.point_based.bounds import Bounds

Shares = tuple[tuple[float, ...], ...]
Ruler = tuple[int, int, int]

NO_RULER: Ruler = (0, 0, 0)

LATTICES: tuple[Shares, ...] = (
    ((0.5, 0.2, 0.05, 0.01), (0.05,), (0.05,)),
    ((0.4, 0.1, 0.02), (0.1,)),
    ((0.3, 0.05),),
    ((0.1,),),
    ((),),
)
"""From fine to coarse: for one context, for a pair and for a triple of them, how much weight is
left to all others. Beside these, there is the centre of the simplex."""

_ODDS, _MOST_POWER, _FEW_CONTEXTS = 4.0, 3, 3
"""Up to three contexts the finest lattice is one of odds: weights 1, 1/4, 1/16 or 1/64, the largest
of them 1. With more contexts these would be too many."""

_BLOCK_NANOSECONDS = 2e6
"""Work between two looks at the clock."""


class Standing(NamedTuple):
    """Standing plans by time; the first M of F are the optimal policies of the contexts."""

    lattices: list[Floats]  # (F, M): their beliefs, up to a factor
    plans: list[Floats]  # (S, M, F)
    labels: list[Indices]  # (S, F)
    rulers: list[Ruler]  # of the grid of `charts` that they are, from the fourth on, or zeros

    @property
    def nbytes(self) -> int:
        """The memory they take."""
        return sum(array.nbytes for part in (self.plans, self.labels) for array in part)


def lattice(n_contexts: int, shares: Shares) -> Floats:
    """The vertices of the simplex and, if there are shares, its centre and what they describe."""
    points = list(np.eye(n_contexts))
    if 1 < n_contexts <= _FEW_CONTEXTS and shares == LATTICES[0]:
        powers = np.array(list(product(range(_MOST_POWER + 1), repeat=n_contexts)))
        weights = _ODDS ** -powers[powers.min(axis=1) == 0].astype(np.float64)
        return np.concatenate([points, weights / weights.sum(axis=1, keepdims=True)])
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
    if M <= _FEW_CONTEXTS and shares == LATTICES[0]:
        F = M + (_MOST_POWER + 1) ** M - _MOST_POWER**M
    own = 0.3 * M * (M + 8) * bounds.table.size
    others = 0.5 * (F - M) * (80.0 + 0.15 * F * M) * bounds.table.size
    linked = bounds.node_bytes * (F - M)
    return H * (own + others), H * S * (8.0 * M * F + 4.0 * F + linked)


def standing_plans(bounds: Bounds, beliefs: Floats) -> Standing:
    """Back up the standing plans of `beliefs` (F, M), t = H-1..0."""
    S, (F, M) = bounds.model.n_states, beliefs.shape
    plans, labels = [np.zeros((S, M, F))], []
    own, successors = np.zeros((S, M, M)), bounds.table.successors()
    for t in range(len(bounds.points) - 1, -1, -1):
        now, chosen, own = _back_up(bounds, t, beliefs, successors, plans[-1], own)
        plans.append(now)
        labels.append(chosen)
    H = len(labels)
    return Standing([beliefs] * H, plans[:0:-1], labels[::-1], [NO_RULER] * H)


def _back_up(
    bounds: Bounds, t: int, beliefs: Floats, successors: Outcomes, later: Floats, own_later: Floats
) -> tuple[Floats, Indices, Floats]:
    """Plans and labels of time t, and the values of the contexts' policies, context last."""
    model, (F, M) = bounds.model, beliefs.shape
    now, own = np.zeros_like(later), np.empty_like(own_later)
    labels = np.zeros((model.n_states, F), np.int32)
    values, is_last = (bounds.rewards, model.discount), t == len(bounds.points) - 1

    nanoseconds = F * (80.0 + 0.15 * F * M) * max(1, bounds.table.size) / model.n_states
    size = max(1, int(_BLOCK_NANOSECONDS / nanoseconds))
    run_blocks(
        back_up_contexts, blocks(model.n_states, 64), bounds.threads, bounds.check, successors,
        *values, own_later, bounds.context_actions[t], own, now, labels,
    )  # fmt: skip
    run_blocks(
        back_up_standing, blocks(model.n_states, size), bounds.threads, bounds.check, bounds.table,
        *values, model.allowed, bounds.q[t], beliefs, later, is_last, now, labels,
    )  # fmt: skip
    return now, labels, own
