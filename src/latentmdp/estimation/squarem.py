"""Accelerated fixed-point iteration: SQUAREM with a monotone safeguard [varadhan2008].

For a map F that never lowers an objective (an EM map), two steps x1 = F(x0), x2 = F(x1) give
r = x1 - x0 and v = (x2 - x1) - r, and the step length a = -||r|| / ||v|| extrapolates to

    x' = x0 - 2 a r + a^2 v            (a = -1 is x2 itself).

x' is accepted only if its objective is at least that of x1; otherwise the iteration goes on from
x1, so the objective never falls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latentmdp._util.arrays import Floats

__all__ = ["Ascent", "squarem"]

Blocks = tuple[Floats, ...]

_FIRST_STEP = 4.0


class Ascent(NamedTuple):
    """Where the iteration ended; `history` is the objective along it and never falls."""

    point: Blocks
    objective: float
    history: list[float]
    converged: bool
    n_maps: int


def squarem(
    step: Callable[[Blocks], tuple[Blocks, float]],
    repair: Callable[[Blocks, Blocks], Blocks],
    start: Blocks,
    tolerance: float,
    max_maps: int,
) -> Ascent:
    """Iterate `step` from `start` until one map gains less than `tolerance`.

    Parameters
    ----------
    step
        x -> (F(x), objective(x)).
    repair
        (x', x2) -> a valid point near x'; x2 is valid and close.
    tolerance
        Stop when F raises the objective by less.
    max_maps
        Cap on the number of maps; reaching it is not convergence.
    """
    here, (ahead, objective) = start, step(start)
    history, n_maps, longest = [objective], 1, _FIRST_STEP
    while n_maps < max_maps:
        beyond, after = step(ahead)
        n_maps += 1
        if not after - objective >= tolerance:
            better = after >= objective
            point, best = (ahead, after) if better else (here, objective)
            return Ascent(point, best, [*history, best] if better else history, True, n_maps)
        length = _step_length(here, ahead, beyond, longest)
        if length > 1.0 and n_maps < max_maps:
            candidate = repair(_extrapolated(here, ahead, beyond, length), beyond)
            following, value = step(candidate)
            n_maps += 1
            if np.isfinite(value) and value >= after:
                longest *= 4.0 if length == longest else 1.0
                here, ahead, objective = candidate, following, value
                history.append(objective)
                continue
            longest = max(_FIRST_STEP, longest / 4.0)
        here, ahead, objective = ahead, beyond, after
        history.append(objective)
    return Ascent(here, objective, history, False, n_maps)


def _step_length(here: Blocks, ahead: Blocks, beyond: Blocks, longest: float) -> float:
    first = sum(float(np.sum((x1 - x0) ** 2)) for x0, x1 in zip(here, ahead))
    second = sum(
        float(np.sum((x2 - 2.0 * x1 + x0) ** 2)) for x0, x1, x2 in zip(here, ahead, beyond)
    )
    if second == 0.0:
        return 1.0
    return float(np.clip(np.sqrt(first / second), 1.0, longest))


def _extrapolated(here: Blocks, ahead: Blocks, beyond: Blocks, length: float) -> Blocks:
    return tuple(
        x0 + 2.0 * length * (x1 - x0) + length**2 * (x2 - 2.0 * x1 + x0)
        for x0, x1, x2 in zip(here, ahead, beyond)
    )
