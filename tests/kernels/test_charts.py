"""Charts of three contexts: places, interpolation, and bounds that hold."""

import numpy as np
import pytest
from models import random_model

from latentmdp import testing
from latentmdp.planning.point_based.bounds import Bounds
from latentmdp.planning.point_based.charts import RULERS, allotted, chart_cost, chart_grid
from latentmdp.planning.point_based.kernels import charts as kernels
from latentmdp.planning.point_based.kernels.faces import split_values

MIXED = [(2, 0, 1), (4, 2, 3), (1, 1, 1), (3, 0, 1)]


def masses(n: int = 300) -> np.ndarray:
    """Masses of all sizes, some of them on faces of the simplex or between equal contexts."""
    rng = np.random.default_rng(0)
    u = np.exp(rng.normal(scale=4.0, size=(n, 3)))
    u[: n // 4] *= rng.random((n // 4, 3)) < 0.6
    u[n // 2 : n // 2 + n // 8, 1] = u[n // 2 : n // 2 + n // 8, 2]
    return u[u.sum(axis=1) > 0.0]


@pytest.mark.parametrize("ruler", [(1, 0, 1), (3, 0, 1), (5, 2, 3), (6, 6, 2), *RULERS])
def test_interpolation_is_exact_for_linear_functions_and_above_convex_ones(
    ruler: tuple[int, int, int],
) -> None:
    grid, linear = chart_grid(ruler), np.array([1.0, -2.0, 5.0])
    planes = np.random.default_rng(1).normal(size=(3, 6))
    convex = (grid @ planes).max(axis=1)
    for mass in masses():
        found = kernels.chart_value((grid @ linear)[None], ruler, 0, mass)
        assert found == pytest.approx(linear @ mass, abs=1e-12 * mass.sum())
        above = kernels.chart_value(convex[None], ruler, 0, mass)
        assert above >= (mass @ planes).max() - 1e-12 * mass.sum()
    for f, point in enumerate(grid):
        found = kernels.chart_value(convex[None], ruler, 0, point)
        assert found == pytest.approx(convex[f], abs=1e-12)


@pytest.mark.parametrize("ruler", [(3, 0, 1), (5, 2, 3), RULERS[0]])
def test_the_corners_are_those_around_a_belief(ruler: tuple[int, int, int]) -> None:
    """With the planes that touch |u| at each point as plans, the best is one of the nearest."""
    grid = chart_grid(ruler)
    tangents = np.concatenate([np.zeros((3, 3)), grid / np.linalg.norm(grid, axis=1)[:, None]])
    plans = np.ascontiguousarray(tangents.T)[None]
    for mass in masses():
        value, which = kernels.best_corner(plans, ruler, 0, mass)
        assert value == pytest.approx(mass @ tangents[which])
        levels = np.unique(grid[:, 0])
        c = int(np.argmax(mass))
        for m in range(3):
            odds, corner = mass[m] / mass[c], grid[which - 3][m] / grid[which - 3][c]
            below, above = (
                levels[levels <= odds + 1e-12].max(),
                levels[levels >= odds - 1e-12].min(),
            )
            assert below - 1e-9 <= corner <= above + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_charts_enclose_the_optimum_at_every_time_and_belief(seed: int) -> None:
    model = random_model(
        seed, 3, 2, 2, 4, form="values", sparse=seed % 2 == 0, bonus=True, discount=0.8
    )
    model = model.replace(initial=0, initial_bonus=None)
    bounds = Bounds(model, False, lambda: None)
    bounds.tabulate()
    bounds.chart(MIXED)
    beliefs = np.random.default_rng(seed).dirichlet(np.full(3, 0.5), 4)
    upper = np.empty(4)
    for t in range(4):
        split_values(bounds.faces[t], np.zeros(4, np.int64), beliefs, upper)
        plans = bounds.standing.plans[t][0, :, : len(bounds.standing.lattices[t])]
        for i, belief in enumerate(beliefs):
            best = testing.optimal_value(model.replace(weights=belief, horizon=4 - t))
            assert (belief @ plans).max() - 1e-9 <= best <= upper[i] + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_policy_of_charts_earns_their_lower_bound(seed: int) -> None:
    model = random_model(seed, 3, 2, 2, 4, sparse=True, discount=0.9)
    bounds = Bounds(model, False, lambda: None)
    bounds.tabulate()
    bounds.chart(MIXED)
    earned = testing.policy_value(model, bounds.policy(bounds.steps))
    assert earned >= bounds.lower() - 1e-12


def test_charts_do_not_depend_on_threads() -> None:
    model = random_model(5, 3, 40, 3, 4)
    found = []
    for threads in (1, 3):
        bounds = Bounds(model, False, lambda: None, threads)
        bounds.tabulate()
        bounds.chart(MIXED)
        found.append(bounds)
    one, three = found
    for t in range(4):
        assert np.array_equal(one.standing.plans[t], three.standing.plans[t])
        assert np.array_equal(one.faces[t].charts, three.faces[t].charts)


def test_grids_are_finer_where_more_doubt_is_left_and_keep_the_limits() -> None:
    bounds = Bounds(random_model(0, 3, 5, 2, 6), False, lambda: None)
    bounds.tabulate()
    doubt = np.array([0.0, 0.4, 0.2, 0.05, 0.001, 0.0])
    least = RULERS[-1]
    cost, size = chart_cost(bounds, [RULERS[3]] * 6)
    for work, memory in ((cost, np.inf), (np.inf, size), (0.0, 0.0)):
        chosen = allotted(bounds, doubt, least, work, memory)
        ranks = [RULERS.index(ruler) for ruler in chosen]
        assert ranks[0] == ranks[-1] == len(RULERS) - 1
        assert ranks[1:] == sorted(ranks[1:])
        if work:
            assert ranks[1] < ranks[4]
            found = chart_cost(bounds, chosen)
            assert found[0] <= work
            assert found[1] <= memory
