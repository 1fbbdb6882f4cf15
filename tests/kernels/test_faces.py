"""Faces of the simplex: ranks, interpolation, and bounds that hold."""

from itertools import combinations

import numpy as np
import pytest
from models import random_model

from latentmdp import testing
from latentmdp.planning import q_values
from latentmdp.planning.point_based.faces import endless_faces, small_faces, straight_faces
from latentmdp.planning.point_based.kernels import faces as kernels


@pytest.mark.parametrize("M", [2, 3, 4, 7])
def test_ranks_count_pairs_and_triples_in_order(M: int) -> None:
    pairs = [kernels.edge_rank(i, j, M) for i, j in combinations(range(M), 2)]
    triples = [kernels.triangle_rank(i, j, k, M) for i, j, k in combinations(range(M), 3)]
    assert pairs == list(range(len(pairs)))
    assert triples == list(range(len(triples)))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_interpolation_is_exact_for_linear_functions(order: tuple[int, int, int]) -> None:
    values, n = np.array([1.0, -2.0, 5.0]), 6
    triangles, edges = np.zeros((1, 1, n + 1, n + 1)), np.zeros((1, 3, n + 1))
    for x in range(n + 1):
        for y in range(x + 1):
            triangles[0, 0, x, y] = values @ [(n - x) / n, (x - y) / n, y / n]
    for rank, (i, j) in enumerate(combinations(range(3), 2)):
        edges[0, rank] = values[j] + np.arange(n + 1) / n * (values[i] - values[j])
    for mass in np.random.default_rng(0).dirichlet(np.ones(3), 50) * 3.0:
        given = mass[list(order)]
        found = kernels.triangle_value(triangles, 0, *order, 3, *given)
        assert found == pytest.approx(values @ mass)
        i, j = order[:2]
        pair = kernels.edge_value(edges, 0, i, j, 3, mass[i], mass[j])
        assert pair == pytest.approx(values[i] * mass[i] + values[j] * mass[j])


def solid_of(function, n: int) -> np.ndarray:
    """A solid with the values of a function of the belief at its grid points."""
    solids = np.zeros((1, n + 1, n + 1, n + 1))
    for x, y, z in np.ndindex(n + 1, n + 1, n + 1):
        if x >= y >= z:
            solids[0, x, y, z] = function(np.array([n - x, x - y, y - z, z]) / n)
    return solids


@pytest.mark.parametrize("n", [1, 2, 7])
def test_solids_are_exact_for_linear_functions_and_above_convex_ones(n: int) -> None:
    rng = np.random.default_rng(n)
    plans = rng.normal(size=(6, 4))
    linear, convex = solid_of(lambda b: plans[0] @ b, n), solid_of(lambda b: max(plans @ b), n)
    corners = np.concatenate([np.eye(4), np.eye(4) + np.eye(4)[::-1], np.ones((1, 4))])
    for mass in np.concatenate([corners, 3.0 * rng.dirichlet(np.full(4, 0.5), 300)]):
        assert kernels.solid_value(linear, 0, mass) == pytest.approx(plans[0] @ mass)
        value = kernels.solid_value(convex, 0, mass)
        assert value >= max(plans @ mass) - 1e-12
        assert value <= mass @ plans.max(axis=0) + 1e-12  # no more than with the vertices alone
    assert kernels.solid_value(linear, 0, np.zeros(4)) == 0.0


def test_a_finer_solid_keeps_the_values_of_the_coarse_one() -> None:
    plans = np.random.default_rng(0).normal(size=(6, 4))
    coarse, fine = solid_of(lambda b: max(plans @ b), 3), np.zeros((1, 7, 7, 7))
    kernels.refine_solids(coarse, fine)
    assert np.allclose(fine[:, ::2, ::2, ::2], coarse)
    for mass in np.random.default_rng(1).dirichlet(np.ones(4), 100):
        same = kernels.solid_value(coarse, 0, mass)
        assert kernels.solid_value(fine, 0, mass) == pytest.approx(same)


@pytest.mark.parametrize("seed", range(6))
def test_every_split_bounds_the_optimum_and_more_faces_are_tighter(seed: int) -> None:
    model = random_model(
        seed, 2 + seed % 4, 2, 2, 3, form="values", sparse=True, bonus=True, discount=0.8
    )
    model = model.replace(initial=0, initial_bonus=None)
    q = q_values(model)
    table = model.outcomes.informative()
    loose = straight_faces(model, q)
    tight = small_faces(model, table, q, 1e7, np.inf, lambda: None)
    beliefs = np.random.default_rng(seed).dirichlet(np.full(model.n_contexts, 0.5), 4)
    states = np.zeros(4, np.int64)
    for t in range(model.horizon):
        bounds = np.empty((2, 4))
        kernels.split_values(loose[t], states, beliefs, bounds[0])
        kernels.split_values(tight[t], states, beliefs, bounds[1])
        for i, belief in enumerate(beliefs):
            rest = model.replace(weights=belief, horizon=model.horizon - t)
            assert testing.optimal_value(rest) <= bounds[1, i] + 1e-9
            assert bounds[1, i] <= bounds[0, i] + 1e-9
    assert (tight[0].solids.size > 1) == (model.n_contexts == 4)


@pytest.mark.parametrize("work", [3e3, 1e4, 1e5, 2e5, 4e5, 1e6])
def test_without_an_end_a_budget_of_any_size_gives_bounds_that_hold(work: float) -> None:
    """The smallest grids too, which have no coarser ones to begin with."""
    model = random_model(3, 4, 2, 2, 3).replace(horizon=None, discount=0.8, initial=0)
    q, table = q_values(model), model.outcomes.informative()
    faces = endless_faces(model, table, q[0], work, np.inf, lambda: None)
    finest = endless_faces(model, table, q[0], 1e8, np.inf, lambda: None)
    states = np.zeros(20, np.int64)
    beliefs = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    bounds = np.empty((2, 20))
    kernels.split_values(faces, states, beliefs, bounds[0])
    kernels.split_values(finest, states, beliefs, bounds[1])
    for i in range(0, 20, 5):
        short = model.replace(horizon=3, weights=beliefs[i])
        assert testing.optimal_value(short) <= bounds[1, i] + 1e-9  # no rewards are negative
    assert (bounds[1] <= bounds[0] + 0.05 * np.abs(bounds[0])).all()
    assert (bounds[1] <= beliefs @ q[0, 0].max(axis=0) + 1e-9).all()
