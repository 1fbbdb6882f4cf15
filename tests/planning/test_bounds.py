"""The parts of the bounds one by one: search, backups, sampling, and the policy's closure."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.point_based.bounds import Bounds
from latentmdp.planning.point_based.expansion import inclusion, locate, systematic
from latentmdp.planning.point_based.standing import LATTICES, lattice


def first_bounds(model: lm.LatentMDP, exact: bool) -> Bounds:
    bounds = Bounds(model, exact, lambda: None)
    bounds.tabulate()
    bounds.prepare(lattice(model.n_contexts, LATTICES[2]))
    return bounds


def filled_bounds(seed: int, exact: bool, points: int = 60) -> tuple[Bounds, object]:
    model = random_model(seed, contexts=4, states=2, horizon=4, sparse=True, discount=0.9)
    bounds = first_bounds(model, exact)
    bounds.tighten(1e6, np.inf)
    rng = np.random.default_rng(seed)
    for t in range(model.horizon):
        bounds.add(t, rng.integers(2, size=points), rng.dirichlet(np.ones(4), points))
    visited = [np.arange(len(points)) for points in bounds.points]
    bounds.sweep(visited)
    return bounds, model


@pytest.mark.parametrize("seed", range(4))
def test_first_plans_are_context_policies_evaluated_in_every_context(seed: int) -> None:
    model = random_model(seed, contexts=3, states=3, horizon=4, form="values", bonus=True)
    bounds = first_bounds(model, True)
    for k in range(3):
        policy = lm.MarkovPolicy(bounds.context_actions[:, :, k])
        for m, s in np.ndindex(3, 3):
            alone = model.context(m).replace(initial=s, initial_bonus=None)
            value = lm.evaluate(alone, policy).mean
            assert bounds.standing.plans[0][s, m, k] == pytest.approx(value, rel=1e-12)
    plans = np.array(bounds.standing.plans)[..., : len(bounds.standing.lattices[0])]
    np.testing.assert_allclose(
        np.einsum("tskk->tsk", plans[..., :3]), bounds.q.max(axis=2), rtol=1e-12
    )
    assert (plans <= bounds.q.max(axis=2)[..., None] + 1e-12).all()
    assert (plans >= bounds.least[..., None] - 1e-12).all()


@pytest.mark.parametrize(
    ("contexts", "seed", "spread", "points"),
    [(2, 10, 0.1, 60), (2, 14, 0.3, 60), (3, 18, 0.3, 120), (4, 7, 0.3, 200), (4, 3, 1.0, 120)],
)
def test_every_plan_can_be_followed(contexts: int, seed: int, spread: float, points: int) -> None:
    """No plan earns more in a context than its optimum, also where the cells searched are empty."""
    model = random_model(seed, contexts=contexts, states=2, horizon=4, sparse=True, discount=0.9)
    bounds = first_bounds(model, False)
    rng = np.random.default_rng(seed)
    for t in range(model.horizon):
        states = rng.integers(2, size=points)
        bounds.add(t, states, rng.dirichlet(np.full(contexts, spread), points))
    bounds.sweep([np.arange(len(points)) for points in bounds.points])
    n_empty = 0
    for t, step in enumerate(bounds.steps):
        states = np.repeat([0, 1], np.diff(step.starts[step.groups]))
        assert (step.rows <= bounds.q[t].max(axis=1)[states] + 1e-12).all()
        assert (step.rows >= bounds.least[t][states] - 1e-12).all()
        n_empty += (np.diff(step.starts) == 0).sum()
    assert n_empty > 0


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_points_enclose_the_optimum(seed: int, exact: bool) -> None:
    bounds, model = filled_bounds(seed, exact)
    for t, (points, step) in enumerate(zip(bounds.points, bounds.steps)):
        for i in range(0, len(points), 15):
            s, belief = points.states[i], points.beliefs[i]
            rest = model.replace(weights=belief, initial=np.eye(2)[s], horizon=model.horizon - t)
            best = testing.optimal_value(rest)
            begin, end = step.starts[step.groups[[s, s + 1]]]
            assert (step.rows[begin:end] @ belief).max(initial=-np.inf) <= best + 1e-9
            standing = step.standing[s, :, : step.standing_labels.shape[1]]
            assert (belief @ standing).max() <= best + 1e-9
            assert best <= points.uppers[i] + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_dropping_plans_that_are_not_followed_keeps_the_value(seed: int) -> None:
    bounds, model = filled_bounds(seed, exact=False, points=200)
    policy = bounds.policy(bounds.steps)
    assert policy.actions.size < sum(len(step.rows) for step in bounds.steps)
    assert testing.policy_value(model, policy) >= bounds.lower() - 1e-10


def test_an_abandoned_sweep_leaves_the_bounds_as_they_were() -> None:
    bounds, _ = filled_bounds(0, exact=False)
    lower, upper, steps = bounds.lower(), bounds.upper(), bounds.steps
    calls = iter(range(3))

    def stop() -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    bounds.check = stop
    with pytest.raises(KeyboardInterrupt):
        bounds.sweep([np.arange(len(points)) for points in bounds.points])
    assert bounds.steps is steps
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
    bounds = first_bounds(model, True)
    beliefs = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    states = np.array([0, 0, 0, 1])
    found = locate(bounds, 1, states, beliefs, 100.0)
    assert len(bounds.points[1]) == 3
    assert found[0] == found[2]
    np.testing.assert_array_equal(bounds.points[1].beliefs[found], beliefs)
    np.testing.assert_array_equal(bounds.points[1].states[found], states)
    again = locate(bounds, 1, states, beliefs + 1e-4 * np.array([1.0, -1.0, 0.0]), 100.0)
    np.testing.assert_array_equal(again, found)
