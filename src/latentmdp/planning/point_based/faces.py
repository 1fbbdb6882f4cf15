"""Values of the problems with two and three contexts, for every time step, on grids.

The bounds they give at any belief, and their backups, are in `latentmdp._kernels.faces`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from latentmdp._kernels.faces import Faces, backup_edges, backup_triangles
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes

__all__ = ["small_faces", "straight_faces"]

_EDGE_CELLS = (64, 32, 16, 8, 4)
"""Cells along an edge, the finest that the budget allows: twice as many cost twice the work and
bring the interpolation four times as close to a smooth function. Powers of two nest."""

_TRIANGLE_CELLS = tuple(range(24, 5, -2))
"""The same along the side of a triangle, where work grows with the square: in steps of two, since a
factor of two would leave much of a budget unused."""


def straight_faces(q: Floats) -> list[Faces]:
    """Edges as straight lines between their vertices, which is Q-MDP's bound; no triangles.

    `q` is Q_{t,m}(s, a) of every context, shape (H, S, A, M).
    """
    H, _, _, M = q.shape
    i, j = np.triu_indices(M, 1)
    vertices = q.max(axis=2)
    edges = np.stack([vertices[:, :, j], vertices[:, :, i]], axis=-1)
    return [Faces(vertices[t], edges[t], np.zeros((1, 1, 1, 1))) for t in range(H)]


def small_faces(
    model: LatentMDP,
    table: Outcomes,
    q: Floats,
    work: float,
    memory: float,
    check: Callable[[], None],
) -> list[Faces]:
    """Back up edges and triangles for t = H-1..0 from `q`, as finely as the budget allows.

    Parameters
    ----------
    table
        The model's outcomes, those merged that say the same.
    work, memory
        Interpolations, and bytes, for edges and triangles each; a grid that would need more is
        coarsened, and in the end left out.
    check
        Called between time steps; it may raise to stop.
    """
    H, S, _, M = q.shape
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    values = min(work / max(1, table.size), memory / (16.0 * S)) / H
    edge = _finest(_EDGE_CELLS, lambda n: math.comb(M, 2) * (n + 1), values)
    side = _finest(_TRIANGLE_CELLS, lambda n: math.comb(M, 3) * math.comb(n + 2, 2), values)
    if edge == 0:
        return straight_faces(q)
    vertices = q.max(axis=2)
    shape = (S, math.comb(M, 3), side + 1, side + 1) if side and M >= 3 else (1, 1, 1, 1)
    later = Faces(np.zeros((S, M)), np.zeros((S, math.comb(M, 2), edge + 1)), np.zeros(shape))
    faces = []
    for t in range(H - 1, -1, -1):
        check()
        now = Faces(vertices[t], np.empty_like(later.edges), np.zeros(shape))
        arguments = (table, rewards, model.allowed, model.discount, q[t], later, 0, S)
        backup_edges(*arguments, now.edges)
        if shape[2] > 1:
            backup_triangles(*arguments, now.triangles)
        faces.append(now)
        later = now
    return faces[::-1]


def _finest(choices: tuple[int, ...], size: Callable[[int], int], allowed: float) -> int:
    """The first choice that is small enough, or 0."""
    return next((n for n in choices if size(n) <= allowed), 0)


def endless_faces(model, table, q, work, memory, check):
    """Iterate edges and triangles from above, until little changes."""
    S, _, M = q.shape
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    possible = model.allowed[:, :, None]
    vertices = np.where(model.terminal[:, None], 0.0, np.where(possible, q, -np.inf).max(axis=1))
    iterations = 30.0
    values = min(work / max(1, table.size) / iterations, memory / (16.0 * S))
    edge = _finest(_EDGE_CELLS, lambda n: math.comb(M, 2) * (n + 1), values)
    side = _finest(_TRIANGLE_CELLS, lambda n: math.comb(M, 3) * math.comb(n + 2, 2), values)
    i, j = np.triu_indices(M, 1)
    edges = np.stack([vertices[:, j], vertices[:, i]], axis=-1)
    faces = Faces(vertices, edges, np.zeros((1, 1, 1, 1)))
    if edge == 0:
        return faces
    x = np.arange(edge + 1) / edge
    faces = faces._replace(edges=np.ascontiguousarray(edges[:, :, :1] * (1 - x) + edges[:, :, 1:] * x))
    arguments = (table, rewards, model.allowed, model.discount, q)
    for n in range(200):
        check()
        now = np.empty_like(faces.edges)
        backup_edges(*arguments, faces, 0, S, now)
        change = np.abs(now - faces.edges).max()
        faces = faces._replace(edges=np.minimum(now, faces.edges))
        if change <= 1e-5 * np.abs(now).max() * (1 - model.discount):
            break
    print("edges", edge, n)
    if side and M >= 3:
        T = math.comb(M, 3)
        triangles = np.zeros((S, T, side + 1, side + 1))
        from latentmdp._kernels.faces import edge_value
        from itertools import combinations
        big = np.full(T * 0 + 1, 0.0)
        for rank, (a, b, c) in enumerate(combinations(range(M), 3)):
            for xx in range(side + 1):
                for yy in range(xx + 1):
                    u, v, w = (side - xx) / side, (xx - yy) / side, yy / side
                    triangles[:, rank, xx, yy] = u * vertices[:, a] + v * vertices[:, b] + w * vertices[:, c]
        faces = faces._replace(triangles=triangles)
        for n in range(200):
            check()
            now = np.zeros_like(faces.triangles)
            backup_triangles(*arguments, faces, 0, S, now)
            change = np.abs(now - faces.triangles).max()
            faces = faces._replace(triangles=np.minimum(now, faces.triangles))
            if change <= 1e-5 * np.abs(now).max() * (1 - model.discount):
                break
        print("triangles", side, n)
    return faces
