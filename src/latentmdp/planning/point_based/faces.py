"""Values of the problems with two and three contexts, for every time step, on grids.

The bounds they give at any belief, and their backups, are in `latentmdp._kernels.faces`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from latentmdp._kernels.faces import Faces, backup_edges, backup_triangles, fill_triangles
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes

__all__ = ["endless_faces", "small_faces", "straight_faces"]

_EDGE_CELLS = (64, 32, 16, 8, 4)
"""Cells along an edge, the finest that the budget allows: twice as many cost twice the work and
bring the interpolation four times as close to a smooth function. Powers of two nest."""

_TRIANGLE_CELLS = tuple(range(24, 5, -2))
"""The same along the side of a triangle, where work grows with the square: in steps of two, since a
factor of two would leave much of a budget unused."""


_ITERATIONS, _MOST_ITERATIONS, _LEFT = 20.0, 500, 1e-5
"""Without an end: iterations that the work is planned for, those made at most, and the share of the
value that may be left to gain; backed-up points gain more than a finer end of this iteration."""


def _vertices(model: LatentMDP, q: Floats) -> Floats:
    """The value of every context alone, (H, S, M), from q (H, S, A, M)."""
    if model.all_allowed:
        return np.asarray(q.max(axis=2))
    best = np.where(model.allowed[:, :, None], q, -np.inf).max(axis=2)
    best[:, model.terminal] = 0.0
    return np.asarray(best)


def straight_faces(model: LatentMDP, q: Floats) -> list[Faces]:
    """Edges as straight lines between their vertices, which is Q-MDP's bound; no triangles.

    `q` is Q_{t,m}(s, a) of every context, shape (H, S, A, M).
    """
    H, _, _, M = q.shape
    i, j = np.triu_indices(M, 1)
    vertices = _vertices(model, q)
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
        return straight_faces(model, q)
    vertices = _vertices(model, q)
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


def endless_faces(
    model: LatentMDP,
    table: Outcomes,
    q: Floats,
    work: float,
    memory: float,
    check: Callable[[], None],
) -> Faces:
    """Edges and triangles of a model without an end, iterated from Q-MDP's bound down.

    `q` is Q_m(s, a) of every context, shape (S, A, M). Every iterate is an upper bound, so the
    iteration may stop at any time: when little is left to gain, or when `check` raises, which is
    passed on before anything has changed. The rest is as for `small_faces`.
    """
    S, _, M = q.shape
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    values = min(work / (_ITERATIONS * max(1, table.size)), memory / (16.0 * S))
    edge = _finest(_EDGE_CELLS, lambda n: math.comb(M, 2) * (n + 1), values)
    side = _finest(_TRIANGLE_CELLS, lambda n: math.comb(M, 3) * math.comb(n + 2, 2), values)
    straight = straight_faces(model, q[None])[0]
    if edge == 0:
        return straight
    x = np.arange(edge + 1) / edge
    ends = straight.edges[:, :, :, None]
    faces = straight._replace(
        edges=np.ascontiguousarray(ends[:, :, 0] * (1.0 - x) + ends[:, :, 1] * x)
    )
    arguments = (table, rewards, model.allowed, model.discount, q)
    wanted = _LEFT * (1.0 - model.discount) * max(float(np.abs(straight.vertices).max()), 1e-300)

    def iterate(back_up: Callable[..., None], name: str) -> None:
        nonlocal faces
        for _ in range(_MOST_ITERATIONS):
            check()
            before = getattr(faces, name)
            now = np.zeros_like(before)
            back_up(*arguments, faces, 0, S, now)
            now = np.minimum(now, before)
            faces = faces._replace(**{name: now})
            if (before - now).max(initial=0.0) <= wanted:
                break

    iterate(backup_edges, "edges")
    if side and M >= 3:
        triangles = np.zeros((S, math.comb(M, 3), side + 1, side + 1))
        fill_triangles(straight.vertices, triangles)
        faces = faces._replace(triangles=triangles)
        iterate(backup_triangles, "triangles")
    return faces
