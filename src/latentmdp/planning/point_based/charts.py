"""Both bounds at every time and state for three contexts, see `kernels.charts`.

The plans of the grid are standing plans, its values take the place of the small faces.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._util import Floats, Indices, Integers
from latentmdp.engines import blocks, run_blocks
from latentmdp.outcomes import Outcomes
from latentmdp.planning.point_based.kernels.charts import back_up_charts
from latentmdp.planning.point_based.kernels.faces import Faces
from latentmdp.planning.point_based.kernels.standing import back_up_contexts
from latentmdp.planning.point_based.standing import Ruler, Standing

if TYPE_CHECKING:
    from latentmdp.planning.point_based.bounds import Bounds

RULERS: tuple[Ruler, ...] = (
    (14, 8, 4),
    (14, 6, 3),
    (12, 4, 3),
    (10, 4, 2),
    (8, 3, 2),
    (9, 0, 1),
    (7, 0, 1),
    (5, 0, 1),
    (4, 0, 1),
)
"""From fine to coarse: octaves, how many of them are cut, and into how many cells. With few points
more octaves bring most, as beliefs come close to vertices; then cuts where odds are near even."""

_BLOCK_NANOSECONDS, _NANOSECONDS = 2e6, 25.0
"""Work between two looks at the clock, and about what a successor of a point takes."""


def chart_grid(ruler: Ruler) -> Floats:
    """The points (F, 3) of the grid, each with its largest entry 1."""
    octaves, fine, cuts = ruler
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


def n_points(ruler: Ruler) -> int:
    """How many points a grid has."""
    octaves, fine, cuts = ruler
    return 3 * (octaves + fine * (cuts - 1) + 2) ** 2


def chart_cost(bounds: Bounds, rulers: Sequence[Ruler]) -> tuple[float, float]:
    """How many successors of points are looked at, and the bytes that plans and values take."""
    points = float(sum(n_points(ruler) for ruler in rulers))
    size = 8 * 4 + 4 + bounds.node_bytes
    return bounds.table.size * points, bounds.model.n_states * points * size


def allotted(
    bounds: Bounds, doubt: Floats, least: Ruler, work: float, memory: float
) -> list[Ruler]:
    """Grids for every time step, so that the bounds at the start come closest.

    A grid of F points adds to the gap in proportion to 1 / F, as the error of interpolation is
    quadratic in the size of the cells, and to the `doubt` (H,) left at the time, the expected
    probability that the likeliest context is wrong: beliefs near a vertex lose little. Under limits
    of `work` and `memory` the sum is least where F is in proportion to the root of the doubt.
    No grid is coarser than `least`, and the first is not finer: the beliefs at the start are backed
    up themselves.
    """
    shares = np.sqrt(doubt)
    sizes = np.array([n_points(ruler) for ruler in RULERS])
    low, high = 0.0, sizes[0] / max(float(shares.min()), 1e-12 * float(shares.max()), 1e-300)
    chosen = [least] * len(doubt)
    for _ in range(60):
        scale = 0.5 * (low + high)
        finest = [least, *(_largest(sizes, scale * share, least) for share in shares[1:])]
        cost, size = chart_cost(bounds, finest)
        if cost <= work and size <= memory:
            low, chosen = scale, finest
        else:
            high = scale
    return chosen


def _largest(sizes: Integers, points: float, least: Ruler) -> Ruler:
    """The finest grid of at most so many points."""
    position = int(np.argmax(np.append(sizes <= points, True)))
    return RULERS[min(position, RULERS.index(least))]


class _ChartLayer(NamedTuple):
    """One time step: the plans and actions of all points, their values, the contexts' policies."""

    plans: Floats  # (S, 3, 3 + F)
    labels: Indices  # (S, 3 + F)
    values: Floats  # (S, F)
    own: Floats  # (S, 3, 3)
    grid: Floats  # (F, 3)
    ruler: Ruler


def charts(bounds: Bounds, rulers: Sequence[Ruler]) -> tuple[Standing, list[Faces]]:
    """Back up plans and values at the points of the grids of each time, t = H-1..0."""
    successors, layers = bounds.table.successors(), [_nothing(bounds, rulers[-1])]
    for t in range(len(bounds.points) - 1, -1, -1):
        layers.append(_back_up(bounds, t, rulers[t], successors, layers[-1]))
    layers = layers[:0:-1]
    standing = Standing(
        [np.concatenate([np.eye(3), now.grid]) for now in layers],
        [now.plans for now in layers],
        [now.labels for now in layers],
        [now.ruler for now in layers],
    )
    faces = [
        now._replace(charts=layer.values, ruler=layer.ruler)
        for now, layer in zip(bounds.straight, layers)
    ]
    return standing, faces


def chart_seconds(bounds: Bounds) -> float:
    """Seconds that a successor of a point takes now, from one time step of the coarsest grid."""
    ruler, last = RULERS[-1], len(bounds.points) - 1
    successors = bounds.table.successors()
    layer = _back_up(bounds, last, ruler, successors, _nothing(bounds, ruler))
    began = time.perf_counter()
    _back_up(bounds, max(last - 1, 0), ruler, successors, layer)
    return (time.perf_counter() - began) / max(1.0, chart_cost(bounds, [ruler])[0])


def _nothing(bounds: Bounds, ruler: Ruler) -> _ChartLayer:
    """The plans of a time step, before any is backed up."""
    S, grid = bounds.model.n_states, chart_grid(ruler)
    F = len(grid)
    plans, labels = np.zeros((S, 3, 3 + F)), np.zeros((S, 3 + F), np.int32)
    return _ChartLayer(plans, labels, np.zeros((S, F)), np.zeros((S, 3, 3)), grid, ruler)


def _back_up(
    bounds: Bounds, t: int, ruler: Ruler, successors: Outcomes, later: _ChartLayer
) -> _ChartLayer:
    """The plans and values of time t."""
    model, now = bounds.model, _nothing(bounds, ruler)
    is_last = t == len(bounds.points) - 1

    most = int(np.diff(bounds.table.starts).max())

    nanoseconds = _NANOSECONDS * len(now.grid) * max(1, bounds.table.size) / model.n_states
    size = max(1, int(_BLOCK_NANOSECONDS / nanoseconds))
    run_blocks(
        back_up_contexts, blocks(model.n_states, 64), bounds.threads, bounds.check, successors,
        bounds.rewards, model.discount, later.own, bounds.context_actions[t], now.own, now.plans,
        now.labels,
    )  # fmt: skip
    run_blocks(
        back_up_charts, blocks(model.n_states, size), bounds.threads, bounds.check, bounds.table,
        most, bounds.rewards, model.discount, model.allowed, bounds.q[t], now.grid, later.ruler,
        later.values, later.plans, is_last, now.values, now.plans, now.labels,
    )  # fmt: skip
    return now
