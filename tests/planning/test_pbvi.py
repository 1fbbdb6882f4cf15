"""PBVI against brute force and its own guarantee."""

import math

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.pbvi import simplex_grid


@pytest.mark.parametrize("planner", [lm.PBVI(beliefs=60), lm.PBVI(spacing=0.4)])
def test_conforms(planner: lm.PBVI) -> None:
    testing.check_planner(planner)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spacing", [0.1, 0.5])
def test_a_grid_keeps_its_promise(seed: int, spacing: float) -> None:
    model = random_model(seed, contexts=2 + seed % 2, states=2, horizon=4)
    plan = lm.PBVI(spacing=spacing).plan(model)
    best = testing.optimal_value(model)
    assert plan.guarantee == (1.0, spacing * 4**2)
    assert plan.converged
    assert best - plan.guarantee[1] <= plan.lower <= best + 1e-9
    assert plan.upper >= best - 1e-9
    assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9


def test_the_promise_scales_with_the_rewards() -> None:
    model = random_model(0, contexts=2, states=2, horizon=3, form="values", bonus=True)
    rewards = model.planning_rewards()
    plan = lm.PBVI(spacing=0.2).plan(model)
    assert plan.guarantee[1] == pytest.approx(0.2 * 9 * (rewards.max() - rewards.min()))
    assert plan.lower >= testing.optimal_value(model) - plan.guarantee[1]


def test_enough_beliefs_make_it_exact() -> None:
    # 24 histories at most at a time step: every reachable belief is a point.
    model = random_model(5, contexts=3, states=2, actions=2, horizon=3)
    plan = lm.PBVI(beliefs=4000).plan(model)
    assert plan.lower == pytest.approx(testing.optimal_value(model), abs=1e-6)


def test_more_beliefs_do_not_hurt_and_a_time_limit_keeps_the_rounds_done() -> None:
    model = random_model(7, contexts=4, states=4, horizon=5)
    few, many = (lm.PBVI(beliefs=n).plan(model) for n in (10, 400))
    assert few.lower <= many.lower + 1e-12
    assert many.n_iter > few.n_iter
    stopped = lm.PBVI(beliefs=400, time_limit=1e-9).plan(model)
    assert not stopped.converged
    assert "time limit" in stopped.message
    assert stopped.lower <= many.lower


@pytest.mark.parametrize(("M", "n"), [(1, 4), (2, 5), (3, 4), (4, 3)])
def test_the_grid_covers_the_simplex(M: int, n: int) -> None:
    grid = simplex_grid(M, n)
    assert len(grid) == math.comb(n + M - 1, M - 1)
    np.testing.assert_allclose(grid.sum(axis=1), 1.0)
    assert len(np.unique(grid, axis=0)) == len(grid)
    beliefs = np.random.default_rng(0).dirichlet(np.ones(M), 500)
    nearest = np.abs(beliefs[:, None] - grid).sum(axis=2).min(axis=1)
    assert nearest.max() <= 2 * (M // 2) * (M - M // 2) / (M * n) + 1e-12


def test_a_grid_too_large_is_refused_before_any_work() -> None:
    model = random_model(0, contexts=8)
    with pytest.raises(ValueError, match="belief points"):
        lm.PBVI(spacing=0.01).plan(model)


def test_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="not both"):
        lm.PBVI(beliefs=10, spacing=0.1)
    with pytest.raises(ValueError, match="beliefs"):
        lm.PBVI(beliefs=0)
    with pytest.raises(ValueError, match="spacing"):
        lm.PBVI(spacing=0.0)
