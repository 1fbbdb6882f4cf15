"""The parts of the bounds one by one: search, backups, sampling, and the policy's closure."""

import numpy as np
import pytest
from models import random_model

from latentmdp import testing
from latentmdp.planning.point_based.alpha_policy import alpha_policy
from latentmdp.planning.point_based.bounds import Bounds
from latentmdp.planning.point_based.expansion import inclusion, locate, systematic
from latentmdp.planning.point_based.problem import prepare


def filled_bounds(seed: int, exact: bool, points: int = 60) -> tuple[Bounds, object]:
    model = random_model(seed, contexts=4, states=2, horizon=4, sparse=True, discount=0.9)
    bounds = Bounds(prepare(model), exact, lambda: None)
    bounds.tighten(1e6, np.inf)
    rng = np.random.default_rng(seed)
    for t in range(model.horizon):
        bounds.add(t, rng.integers(2, size=points), rng.dirichlet(np.ones(4), points))
    visited = [np.arange(len(stage)) for stage in bounds.stages]
    bounds.sweep(visited)
    return bounds, model


@pytest.mark.parametrize("seed", range(4))
def test_first_plans_are_context_policies_evaluated_in_every_context(seed: int) -> None:
    model = random_model(seed, contexts=3, states=3, horizon=4, form="values", bonus=True)
    problem = prepare(model)
    best = np.einsum("tskk->tsk", problem.plans)
    np.testing.assert_allclose(best, problem.q.max(axis=2), rtol=1e-12)
    assert (problem.plans <= problem.q.max(axis=2)[:, :, None, :] + 1e-12).all()
    assert (problem.plans >= problem.least[:, :, None, :] - 1e-12).all()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_points_enclose_the_optimum(seed: int, exact: bool) -> None:
    bounds, model = filled_bounds(seed, exact)
    for t, (stage, arranged) in enumerate(zip(bounds.stages, bounds.arranged)):
        for i in range(0, len(stage), 15):
            start = np.eye(2)[stage.states[i]]
            rest = model.replace(weights=stage.beliefs[i], initial=start, horizon=model.horizon - t)
            best = testing.optimal_value(rest)
            begin, end = arranged.plans.starts[arranged.plans.groups[stage.states[i] + [0, 1]]]
            assert (arranged.plans.rows[begin:end] @ stage.beliefs[i]).max() <= best + 1e-9
            assert best <= stage.uppers[i] + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_dropping_plans_that_are_not_followed_keeps_the_value(seed: int) -> None:
    bounds, model = filled_bounds(seed, exact=False, points=200)
    policy = alpha_policy(model, bounds.problem, bounds.arranged)
    assert policy.actions.size < sum(now.order.size for now in bounds.arranged)
    assert testing.policy_value(model, policy) >= bounds.lower() - 1e-10


def test_an_abandoned_sweep_leaves_the_bounds_as_they_were() -> None:
    bounds, _ = filled_bounds(0, exact=False)
    lower, upper, arranged = bounds.lower(), bounds.upper(), bounds.arranged
    calls = iter(range(3))

    def stop() -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    bounds.check = stop
    with pytest.raises(KeyboardInterrupt):
        bounds.sweep([np.arange(len(stage)) for stage in bounds.stages])
    assert bounds.arranged is arranged
    assert bounds.lower() == lower
    assert bounds.upper() <= upper


def test_inclusion_probabilities_sum_to_the_count() -> None:
    excess = np.random.default_rng(0).pareto(0.7, 400)
    for count in (1.0, 10.5, 399.0):
        probabilities = inclusion(excess, count)
        assert probabilities.sum() == pytest.approx(count)
        below = probabilities < 1.0
        ratio = probabilities[below] / excess[below]
        np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_array_equal(inclusion(np.array([0.0, 2.0, 1.0]), 5.0), [0.0, 1.0, 1.0])


@pytest.mark.filterwarnings("error")
def test_inclusion_probabilities_of_tiny_excesses() -> None:
    excess = np.array([5.0, 1.0, 2.0, 2.0])
    expected = inclusion(excess, 2.0)
    np.testing.assert_allclose(inclusion(excess * 1e-310, 2.0), expected)
    np.testing.assert_allclose(inclusion(np.append(excess, [1e-310] * 3), 2.0)[:4], expected)
    np.testing.assert_array_equal(inclusion(np.array([1.0, 1e-310, 1e-310]), 2.0), [1.0, 0.0, 0.0])


def test_systematic_sampling_has_its_inclusion_probabilities() -> None:
    # 4 standard errors of 20,000 draws, nine entries: false alarm below 1e-3.
    probabilities = np.array([1.0, 0.5, 0.25, 0.05, 0.2, 0.75, 0.0, 0.9, 0.35])
    rng = np.random.default_rng(1)
    counts = np.zeros(9)
    for _ in range(20_000):
        counts[systematic(probabilities, rng)] += 1
    error = np.sqrt(probabilities * (1.0 - probabilities) / 20_000)
    assert (np.abs(counts / 20_000 - probabilities) <= 4.0 * error + 1e-12).all()


def test_locate_finds_known_beliefs_and_adds_the_others() -> None:
    model = random_model(0, contexts=3, horizon=3)
    bounds = Bounds(prepare(model), True, lambda: None)
    beliefs = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    states = np.array([0, 0, 0, 1])
    found = locate(bounds, 1, states, beliefs, 100.0)
    assert len(bounds.stages[1]) == 3
    assert found[0] == found[2]
    np.testing.assert_array_equal(bounds.stages[1].beliefs[found], beliefs)
    np.testing.assert_array_equal(bounds.stages[1].states[found], states)
    again = locate(bounds, 1, states, beliefs + 1e-4 * np.array([1.0, -1.0, 0.0]), 100.0)
    np.testing.assert_array_equal(again, found)
