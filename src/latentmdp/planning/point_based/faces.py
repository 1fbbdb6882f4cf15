"""Values of the problems with two and three contexts, for every time step, on grids."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from latentmdp._kernels.faces import Faces, backup_edges, backup_triangles
from latentmdp.planning.point_based.problem import Problem

__all__ = ["small_faces", "straight_faces"]

_EDGE_POINTS = (64, 32, 16, 8, 4)
_TRIANGLE_POINTS = tuple(range(24, 5, -2))


def straight_faces(problem: Problem) -> list[Faces]:
    """Edges as straight lines between their vertices, which is Q-MDP's bound; no triangles."""
    H, _, _, M = problem.q.shape
    i, j = np.triu_indices(M, 1)
    vertices = problem.q.max(axis=2)
    edges = np.stack([vertices[:, :, j], vertices[:, :, i]], axis=-1)
    return [Faces(vertices[t], edges[t], np.zeros((1, 1, 1, 1))) for t in range(H)]


def small_faces(
    problem: Problem, work: float, memory: float, check: Callable[[], None]
) -> list[Faces]:
    """Back up edges and triangles for t = H-1..0, as finely as the budget allows.

    Parameters
    ----------
    work, memory
        Interpolations, and bytes, for edges and triangles each; a grid that would need more is
        coarsened, and in the end left out.
    check
        Called between time steps; it may raise to stop.
    """
    H, S, _, M = problem.q.shape
    transitions = max(1, int(np.count_nonzero(problem.table.any(axis=-1))))
    values = min(work / transitions, memory / (16.0 * S)) / H
    n = _finest(_EDGE_POINTS, lambda n: math.comb(M, 2) * (n + 1), values)
    k = _finest(_TRIANGLE_POINTS, lambda k: math.comb(M, 3) * math.comb(k + 2, 2), values)
    if n == 0:
        return straight_faces(problem)
    vertices = problem.q.max(axis=2)
    shape = (S, math.comb(M, 3), k + 1, k + 1) if k and M >= 3 else (1, 1, 1, 1)
    following = Faces(np.zeros((S, M)), np.zeros((S, math.comb(M, 2), n + 1)), np.zeros(shape))
    faces = []
    for t in range(H - 1, -1, -1):
        check()
        now = Faces(vertices[t], np.empty_like(following.edges), np.zeros(shape))
        arguments = (problem.table, problem.rewards, problem.discount, problem.q[t], following)
        backup_edges(*arguments, now.edges)
        if shape[2] > 1:
            backup_triangles(*arguments, now.triangles)
        faces.append(now)
        following = now
    return faces[::-1]


def _finest(choices: tuple[int, ...], size: Callable[[int], int], allowed: float) -> int:
    """The first choice that is small enough, or 0."""
    return next((n for n in choices if size(n) <= allowed), 0)
