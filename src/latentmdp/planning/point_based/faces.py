"""Values of the problems with two, three and four contexts, for every time step, on grids.

The bounds they give at any belief, and their backups, are in `kernels.faces`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from latentmdp._util import Floats
from latentmdp.engines import blocks, run_blocks
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes
from latentmdp.planning.point_based.kernels.faces import (
    Faces,
    backup_edges,
    backup_solids,
    backup_triangles,
    fill_triangles,
    refine_solids,
)
from latentmdp.planning.point_based.standing import NO_RULER
from latentmdp.planning.qmdp import best_of

_EDGE_CELLS = (64, 32, 16, 8, 4)
"""Cells along an edge, the finest that the budget allows: twice as many cost twice the work and
bring the interpolation four times as close to a smooth function. Powers of two nest."""

_TRIANGLE_CELLS = tuple(range(24, 5, -2))
"""The same along the side of a triangle, where work grows with the square: in steps of two, since a
factor of two would leave much of a budget unused."""

_SOLID_CELLS, _SOLID_WORK = (48, 40, *range(32, 5, -2)), 4.0
"""The same along the side of a solid, where work grows with the cube, and how many interpolations
of the others one there is worth. Only a model of four contexts has one: it is the whole simplex."""

_BLOCK_WORK = 2e5
"""Interpolations between two looks at the clock, some milliseconds."""


_ITERATIONS, _MOST_ITERATIONS, _LEFT = 20.0, 500, 1e-5
"""Without an end: iterations that the work is planned for, those made at most, and the share of the
value that may be left to gain; backed-up points gain more than a finer end of this iteration."""

_COARSER = (8, 4, 2, 1)
"""The grid of a solid, times coarser: iterations on the coarse ones do most at next to no cost."""

_BACKUPS = {"edges": backup_edges, "triangles": backup_triangles, "solids": backup_solids}
"""In this order: triangles of the next step rest on its edges."""


def straight_faces(model: LatentMDP, q: Floats) -> list[Faces]:
    """The vertices alone, which is Q-MDP's bound.

    `q` is Q_{t,m}(s, a) of every context, shape (H, S, A, M).
    """
    none = np.zeros((1, 1, 1, 1))
    rest = np.zeros((1, 1, 1)), none, none, np.zeros((1, 1)), NO_RULER
    return [Faces(vertices, *rest) for vertices in best_of(model, q)]


def small_faces(
    model: LatentMDP,
    table: Outcomes,
    q: Floats,
    work: float,
    memory: float,
    check: Callable[[], None],
    threads: int | None = 1,
) -> list[Faces]:
    """Back up edges, triangles and solids for t = H-1..0 from `q`, as finely as the budget allows.

    Parameters
    ----------
    table
        The model's outcomes, those merged that say the same.
    work, memory
        Interpolations, and bytes, for each kind of face; a grid that would need more is coarsened,
        and in the end left out.
    check
        Called now and then; it may raise to stop.
    threads
        How many share the states.
    """
    H, S, _, M = q.shape
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    grids = _Grids.within(M, min(work / max(1, table.size), memory / (16.0 * S)) / H)
    straight = straight_faces(model, q)
    if grids.edge == 0:
        return straight
    size = grids.states_in_block(table.size / S)
    later = straight[0]._replace(vertices=np.zeros((S, M)), **grids.zeros(S))
    faces = []
    for t in range(H - 1, -1, -1):
        now = straight[t]._replace(**grids.zeros(S))
        arguments = (table, rewards, model.allowed, model.discount, q[t], later)
        for name, back_up in _BACKUPS.items():
            out = getattr(now, name)
            if out.shape[-1] > 1:
                run_blocks(back_up, blocks(S, size), threads, check, *arguments, out)
        faces.append(now)
        later = now
    return faces[::-1]


class _Grids(NamedTuple):
    """Cells along a side of each kind of face, 0 for none."""

    n_contexts: int
    edge: int
    triangle: int
    solid: int

    @classmethod
    def within(cls, M: int, values: float) -> Self:
        """The finest with so many values of each kind for a state."""
        return cls(
            M,
            _finest(_EDGE_CELLS, lambda n: math.comb(M, 2) * (n + 1), values),
            _finest(_TRIANGLE_CELLS, lambda n: math.comb(M, 3) * math.comb(n + 2, 2), values)
            * (M >= 3),
            _finest(_SOLID_CELLS, lambda n: _SOLID_WORK * math.comb(n + 3, 3), values) * (M == 4),
        )

    def zeros(self, S: int) -> dict[str, Any]:
        """The arrays of S states."""
        M, none = self.n_contexts, (1, 1, 1, 1)
        triangle, solid = self.triangle + 1, self.solid + 1
        return {
            "edges": np.zeros((S, math.comb(M, 2), self.edge + 1)),
            "triangles": np.zeros(
                (S, math.comb(M, 3), triangle, triangle) if triangle > 1 else none
            ),
            "solids": np.zeros((S, solid, solid, solid) if solid > 1 else none),
        }

    def states_in_block(self, outcomes: float) -> int:
        """States whose backup takes some milliseconds, with so many outcomes each."""
        M, (_, edge, triangle, solid) = self.n_contexts, self
        values = math.comb(M, 2) * (edge + 1) + math.comb(M, 3) * math.comb(triangle + 2, 2)
        values += int(_SOLID_WORK * math.comb(solid + 3, 3))
        return max(1, int(_BLOCK_WORK / max(1.0, outcomes * values)))


def _finest(choices: tuple[int, ...], size: Callable[[int], float], allowed: float) -> int:
    """The first choice that is small enough, or 0."""
    return next((n for n in choices if size(n) <= allowed), 0)


def endless_faces(
    model: LatentMDP,
    table: Outcomes,
    q: Floats,
    work: float,
    memory: float,
    check: Callable[[], None],
    threads: int | None = 1,
) -> Faces:
    """Edges, triangles and solids of a model without an end, iterated from Q-MDP's bound down.

    `q` is Q_m(s, a) of every context, shape (S, A, M). Every iterate is an upper bound, so the
    iteration ends when little is left to gain. The rest is as for `small_faces`.
    """
    S, _, M = q.shape
    rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
    values = min(work / (_ITERATIONS * max(1, table.size)), memory / (16.0 * S))
    grids, straight = _Grids.within(M, values), straight_faces(model, q[None])[0]
    edge = grids.edge
    if edge == 0:
        return straight
    vertices, x = straight.vertices, np.arange(edge + 1) / edge
    i, j = np.triu_indices(M, 1)
    edges = vertices[:, j, None] * (1.0 - x) + vertices[:, i, None] * x
    faces = straight._replace(edges=np.ascontiguousarray(edges))
    arguments = (table, rewards, model.allowed, model.discount, q)
    wanted = _LEFT * (1.0 - model.discount) * max(float(np.abs(vertices).max()), 1e-300)
    size = grids.states_in_block(table.size / S)

    def iterate(name: str, faces: Faces) -> Faces:
        back_up = _BACKUPS[name]
        for _ in range(_MOST_ITERATIONS):
            before, now = getattr(faces, name), np.zeros_like(getattr(faces, name))
            run_blocks(back_up, blocks(S, size), threads, check, *arguments, faces, now)
            now = np.minimum(now, before)
            faces = faces._replace(**{name: now})
            if (before - now).max(initial=0.0) <= wanted:
                break
        return faces

    faces = iterate("edges", faces)
    room = grids.zeros(S)
    if grids.triangle:
        fill_triangles(vertices, room["triangles"])
        faces = iterate("triangles", faces._replace(triangles=room["triangles"]))
    if grids.solid:
        coarse = np.zeros((S, 2, 2, 2))
        coarse[:, [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]] = vertices
        for n in (grids.solid // coarser for coarser in _COARSER if grids.solid >= 2 * coarser):
            fine = np.zeros((S, n + 1, n + 1, n + 1))
            refine_solids(coarse, fine)
            faces = iterate("solids", faces._replace(solids=fine))
            coarse = faces.solids
    return faces
