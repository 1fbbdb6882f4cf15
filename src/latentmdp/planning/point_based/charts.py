"""Both bounds at every time and state for three contexts, see `latentmdp._kernels.charts`.

The plans of the grid are standing plans, its values take the place of the small faces.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._kernels.charts import back_up_charts
from latentmdp._kernels.faces import Faces
from latentmdp._kernels.simd import LANES
from latentmdp._kernels.standing import back_up_contexts
from latentmdp._util.arrays import Floats, Indices
from latentmdp.outcomes import Outcomes
from latentmdp.planning.point_based.blocks import run_in_blocks
from latentmdp.planning.point_based.standing import Spacing, Standing

if TYPE_CHECKING:
    from latentmdp.planning.point_based.bounds import Bounds

__all__ = ["SPACINGS", "chart_cost", "chart_grid", "chart_seconds", "charts"]

SPACINGS: tuple[Spacing, ...] = (
    (14, 8, 4),
    (14, 6, 3),
    (12, 4, 3),
    (10, 4, 2),
    (8, 3, 2),
    (9, 0, 1),
    (7, 0, 1),
    (5, 0, 1),
    (4, 0, 1),
    (3, 0, 1),
    (2, 0, 1),
    (1, 0, 1),
)
"""From fine to coarse: octaves, how many of them are cut, and into how many cells. With few points
more octaves bring most, as beliefs come close to vertices; then cuts where odds are near even."""

_BLOCK_NANOSECONDS, _NANOSECONDS = 2e6, 25.0
"""Work between two looks at the clock, and about what a successor of a point takes."""


def chart_grid(spacing: Spacing) -> Floats:
    """The points (F, 3) of the grid, each with its largest entry 1."""
    octaves, fine, cuts = spacing
    levels = [0.0]
    for octave in range(octaves):
        cells = cuts if octave >= octaves - fine else 1
        levels += [2.0 ** (octave - octaves) * (1.0 + k / cells) for k in range(cells)]
    levels.append(1.0)
    L = len(levels)
    grid = np.ones((3, L, L, 3))
    for c in range(3):
        grid[c, :, :, (c + 1) % 3] = np.array(levels)[:, None]
        grid[c, :, :, (c + 2) % 3] = levels
    return grid.reshape(-1, 3)


def chart_cost(bounds: Bounds, spacing: Spacing) -> tuple[float, float]:
    """How many successors of points are looked at, and the bytes that plans and values take."""
    octaves, fine, cuts = spacing
    F = 3 * (octaves + fine * (cuts - 1) + 2) ** 2
    S, H = bounds.model.n_states, len(bounds.points)
    return float(H) * bounds.table.size * F, float(H) * S * F * (8 * 4 + 4)


class _Layer(NamedTuple):
    """One time step: the plans and actions of all points, their values, the contexts' policies."""

    plans: Floats  # (S, 3, W)
    labels: Indices  # (S, 3 + F)
    values: Floats  # (S, F)
    own: Floats  # (S, 3, 3)


def charts(bounds: Bounds, spacing: Spacing) -> tuple[Standing, list[Faces]]:
    """Back up plans and values at the points of a grid, t = H-1..0."""
    grid, successors = chart_grid(spacing), bounds.table.successors()
    layers = [_nothing(bounds, grid)]
    for t in range(len(bounds.points) - 1, -1, -1):
        layers.append(_back_up(bounds, t, grid, spacing, successors, layers[-1]))
    layers = layers[:0:-1]
    lattice = np.concatenate([np.eye(3), grid])
    standing = Standing(
        lattice, [now.plans for now in layers], [now.labels for now in layers], spacing
    )
    faces = [
        now._replace(charts=layer.values, spacing=spacing)
        for now, layer in zip(bounds.straight, layers)
    ]
    return standing, faces


def chart_seconds(bounds: Bounds) -> float:
    """Seconds that a successor of a point takes now, from one time step of the coarsest grid."""
    spacing, last = SPACINGS[-1], len(bounds.points) - 1
    grid, successors = chart_grid(spacing), bounds.table.successors()
    layer = _back_up(bounds, last, grid, spacing, successors, _nothing(bounds, grid))
    began = time.perf_counter()
    _back_up(bounds, max(last - 1, 0), grid, spacing, successors, layer)
    return (time.perf_counter() - began) / max(1.0, float(bounds.table.size) * len(grid))


def _nothing(bounds: Bounds, grid: Floats) -> _Layer:
    """What follows the last time step."""
    S, F = bounds.model.n_states, len(grid)
    plans = np.zeros((S, 3, -(-(3 + F) // LANES) * LANES))
    return _Layer(plans, np.zeros((S, 3 + F), np.int32), np.zeros((S, F)), np.zeros((S, 3, 3)))


def _back_up(
    bounds: Bounds, t: int, grid: Floats, spacing: Spacing, successors: Outcomes, later: _Layer
) -> _Layer:
    """The plans and values of time t."""
    model, now = bounds.model, _Layer(*(np.zeros_like(array) for array in later))
    is_last = t == len(bounds.points) - 1

    def work(first: int, last: int) -> None:
        back_up_contexts(
            successors, bounds.rewards, model.discount, later.own, bounds.context_actions[t],
            first, last, now.own, now.plans, now.labels,
        )  # fmt: skip
        back_up_charts(
            bounds.table, bounds.rewards, model.discount, model.allowed, bounds.q[t], grid, spacing,
            later.values, later.plans, is_last, first, last, now.values, now.plans, now.labels,
        )  # fmt: skip

    nanoseconds = _NANOSECONDS * len(grid) * max(1, bounds.table.size) / model.n_states
    size = max(1, int(_BLOCK_NANOSECONDS / nanoseconds))
    run_in_blocks(bounds.team, work, model.n_states, size, bounds.check)
    return now
