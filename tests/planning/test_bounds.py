"""The parts of the search one by one: plans, points, sampling, garbage, the policy's closure."""

import itertools
import math

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.hsvi.nodes import Nodes, planned_policy, reached
from latentmdp.planning.hsvi.search import HeuristicSearch, inclusion, systematic
from latentmdp.planning.limits import PlanningClock


def filled_bounds(seed: int, few: float = 32, points: int = 60) -> Bounds:
    """Bounds with points at random beliefs, all backed up twice."""
    model = random_model(seed, contexts=4, states=2, horizon=4, sparse=True, discount=0.9)
    bounds = Bounds(model, PlanningClock(60.0), 1, few=few)
    rng = np.random.default_rng(seed)
    for t in range(model.horizon):
        add(bounds, t, rng, points)
    for _ in range(2):
        sweep(bounds)
    return bounds


def add(bounds: Bounds, t: int, rng: np.random.Generator, points: int) -> None:
    cells = t * 2 + rng.integers(2, size=points)
    bounds.locate(bounds.beliefs_in(cells, rng.dirichlet(np.ones(4), points)))


def sweep(bounds: Bounds) -> None:
    for points in reversed(bounds.points_of_layers()):
        bounds.back_up(points, np.ones(points.size, np.bool_))
        bounds.arrange(1.0)
    bounds.keep_better()


def rest_of(model: lm.LatentMDP, t: int, s: int, belief: np.ndarray) -> lm.LatentMDP:
    """What is left of an episode from (t, s) with this belief."""
    first = np.eye(model.n_states)[s]
    return model.replace(weights=belief, initial=first, horizon=model.horizon - t)


@pytest.mark.parametrize("seed", range(4))
def test_first_plans_are_policies_evaluated_in_every_context(seed: int) -> None:
    model = random_model(seed, contexts=3, states=3, horizon=4, form="values", bonus=True)
    bounds = Bounds(model, PlanningClock(60.0), 1)
    values = np.moveaxis(bounds.tables.first_plans.reshape(-1, 4, 3, 3), 0, -1)
    assert values.shape[-1] == 4  # one for all contexts, and their own
    for k in range(values.shape[-1]):
        policy = lm.MarkovPolicy(bounds.first_actions[:, :, k])
        for m, s in np.ndindex(3, 3):
            alone = model.context(m).replace(initial=s, initial_bonus=None)
            value = lm.evaluate(alone, policy).mean
            assert values[0, s, m, k] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("ends", [True, False])
def test_a_lattice_is_placed_near_every_set_in_every_cell_that_is_reached(ends: bool) -> None:
    # From state 0 an episode moves on to 1, then to 2 and stays; 3 is never reached.
    T = np.zeros((3, 4, 1, 4))
    T[:, [0, 1, 2, 3], :, [1, 2, 2, 0]] = 1.0
    rewards = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.2, 0.1, 0.3]])
    times = {"horizon": 3 if ends else None, "discount": 0.5}
    others = {"initial": 0, "weights": [0.5, 0.3, 0.2]} | times
    model = lm.LatentMDP.from_amounts(T, rewards.T[:, :, None], observed=False, **others)
    bounds = Bounds(model, PlanningClock(60.0), 1)
    cells = [0, 1 + 4, 2 + 8] if ends else [0, 1, 2]
    expected, w = set(), model.weights
    for sizes, level in (((1,), 1), ((1, 2), 2), ((1, 2, 3), 3)):
        size, _ = bounds.lattice_size
        bounds.place_lattice()
        for k in sizes:
            rest = 4.0 ** (k - level - 1)
            for chosen in itertools.combinations(range(3), k):
                near = np.zeros(3)
                near[list(chosen)] = w[list(chosen)]
                belief = (1 - rest) * near / near.sum() + rest * w
                expected |= {(cell, *np.round(belief, 9)) for cell in cells}
        new = bounds.lattice
        found = {
            (cell, *np.round(belief, 9))
            for cell, belief in zip(
                bounds.store.points.cell[new].tolist(), bounds.store.points.belief[new].tolist()
            )
        }
        assert found == expected - {(0, *np.round(w, 9))}  # that is the start, a point already
        assert size == len(cells) * sum(math.comb(3, k) for k in sizes)


def test_plans_of_a_lattice_lift_the_lower_bound_where_cells_are_many() -> None:
    # The upper bound stays what it was, so that it holds does not depend on the lattice.
    model = lm.make("sparse", contexts=3, states=60, horizon=12, rng=5)
    search = HeuristicSearch(model, PlanningClock(60.0), 1)
    bounds = search.bounds
    before = bounds.best_lower, bounds.best_upper
    for _ in range(2):
        bounds.place_lattice()
        search.back_up([bounds.start_points], lattice=True)
        bounds.keep_better()
    assert before[0] < bounds.best_lower <= bounds.best_upper <= before[1]
    points = np.setdiff1d(bounds.lattice, bounds.start_points)
    assert (bounds.store.points.point_lane[points] < 0).all()
    policy = planned_policy(bounds)
    assert lm.evaluate(model, policy).mean >= bounds.best_lower - 1e-9


@pytest.mark.parametrize("few", [4, np.inf])
@pytest.mark.parametrize("seed", range(4))
def test_points_enclose_the_optimum(seed: int, few: float) -> None:
    bounds = filled_bounds(seed, few)
    points, vectors = bounds.store.points, bounds.plans.vector
    chosen = np.arange(0, bounds.n_points, 15)
    lowers, uppers, _ = bounds.bounds_at(chosen)
    for i, lower, upper in zip(chosen, lowers, uppers):
        (t, s), belief = divmod(int(points.cell[i]), 2), points.belief[i]
        best = testing.optimal_value(rest_of(bounds.model, t, s, belief))
        assert points.plan[i] < 0 or vectors[points.plan[i]] @ belief <= best + 1e-9
        assert lower - 1e-9 <= best <= min(upper, points.upper[i]) + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_earns_its_vector_when_its_links_are_followed(seed: int) -> None:
    """In every context, by a recursion over the model's own outcomes."""
    bounds = filled_bounds(seed)
    model, plans, table = bounds.model, bounds.plans, bounds.model.outcomes
    rewards = model.planning_rewards()

    def earned(t: int, s: int, plan: int) -> np.ndarray:
        if t == model.horizon or model.terminal[s]:
            return np.zeros(model.n_contexts)
        x = bounds.lumping.state[s]
        a = plans.action[plan] if plan >= 0 else bounds.first_actions[t, x, -1 - plan]
        total = rewards[:, s, a].copy()
        for k in range(*table.starts[s * model.n_actions + a :][:2]):
            link = plan
            if plan >= 0 and t + 1 < model.horizon:
                link = plans.link[plans.start[plan] + bounds.lumping.outcome[k]]
            total += model.discount * table.probs[k] * earned(t + 1, table.next_state[k], link)
        return total

    rng = np.random.default_rng(seed)
    for plan in rng.choice(bounds.n_plans, 20, replace=False):
        t, x = divmod(int(plans.cell[plan]), 2)
        s = bounds.lumping.leaders[x]
        by_context = plans.vector[plan][bounds.lumping.classes(s)]
        np.testing.assert_allclose(earned(t, s, plan), by_context, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_policy_keeps_only_plans_that_are_followed_and_their_value(seed: int) -> None:
    bounds = filled_bounds(seed, points=200)
    policy = planned_policy(bounds)
    assert policy.actions.size < bounds.n_plans
    assert testing.policy_value(bounds.model, policy) >= bounds.best_lower - 1e-10
    nodes = reached(Nodes(bounds, bounds.start_states, bounds.best_plans))
    np.testing.assert_array_equal(nodes.vectors(), policy.vectors)


@pytest.mark.parametrize("seed", range(3))
def test_garbage_is_collected_and_nothing_else(seed: int) -> None:
    bounds, rng = filled_bounds(seed, points=20), np.random.default_rng(seed)
    for _ in range(3):  # new points, after which plans are improved and replaced
        for t in range(1, 4):
            add(bounds, t, rng, 60)
        sweep(bounds)
    bounds.kept = [np.array([3, -1, 7])]
    before, kept = planned_policy(bounds), bounds.plans.vector[[3, 7]].copy()
    n, points = bounds.n_plans, bounds.store.points
    numbers = points.plan[: bounds.n_points].copy()
    vectors = bounds.plans.vector[numbers]
    bounds.collect()
    after = planned_policy(bounds)
    assert bounds.n_plans < n
    np.testing.assert_array_equal(before.vectors, after.vectors)
    np.testing.assert_array_equal(before.actions, after.actions)
    np.testing.assert_array_equal(bounds.plans.vector[bounds.kept[0][[0, 2]]], kept)
    assert bounds.kept[0][1] == -1
    found = numbers >= 0
    renumbered = points.plan[: bounds.n_points]
    np.testing.assert_array_equal(renumbered >= 0, found)
    np.testing.assert_array_equal(bounds.plans.vector[renumbered[found]], vectors[found])
    lanes = points.plan_lane[: bounds.n_points]
    items = bounds.store.blocks.item.reshape(-1)[lanes[lanes >= 0]]
    np.testing.assert_array_equal(items, renumbered[lanes >= 0])


def test_work_that_is_stopped_leaves_bounds_that_hold() -> None:
    bounds = filled_bounds(0)
    lower, upper = bounds.best_lower, bounds.best_upper
    calls = iter(range(3))

    def stop() -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    bounds.check = stop
    with pytest.raises(KeyboardInterrupt):
        sweep(bounds)
    bounds.keep_better()
    best = testing.optimal_value(bounds.model)
    assert lower <= bounds.best_lower <= best + 1e-9
    assert best - 1e-9 <= bounds.best_upper <= upper


@pytest.mark.parametrize("threads", [2, 3])
def test_the_same_bits_with_any_number_of_threads(threads: int) -> None:
    model = random_model(3, contexts=4, states=4, horizon=6)
    runs = []
    for n in (1, threads):
        search = HeuristicSearch(model, PlanningClock(None), n)
        for _ in range(6):
            search.round()
        runs.append((search.bounds.best_lower, search.bounds.best_upper, search.bounds.n_points))
    assert runs[0] == runs[1]


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
    bounds = Bounds(random_model(0, contexts=3, horizon=3), PlanningClock(60.0), 1)
    X, before = bounds.problem.width.size, bounds.n_points
    beliefs = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    cells, points = X + np.array([0, 0, 0, 1]), bounds.store.points
    found = bounds.locate(bounds.beliefs_in(cells, beliefs))
    points = bounds.store.points
    assert bounds.n_points == before + 3
    assert found[0] == found[2]
    np.testing.assert_array_equal(points.belief[found], beliefs)
    np.testing.assert_array_equal(points.cell[found], cells)
    near = bounds.beliefs_in(cells, beliefs + 1e-6 * np.array([1.0, -1.0, 0.0]))
    np.testing.assert_array_equal(bounds.locate(near), found)
    bounds.refine(1e4)
    assert not np.isin(bounds.locate(near), found).any()


def test_a_look_finds_the_best_plan_and_the_point_itself_where_all_are_looked_at() -> None:
    """Against products with all plans of the cell; a point is no higher than its own bound."""
    bounds = filled_bounds(1, few=np.inf)
    points, plans, n = bounds.store.points, bounds.plans, bounds.n_points
    lowers, uppers, items = bounds.bounds_at(np.arange(n))
    of_points = points.plan[:n]
    for i in range(0, n, 7):
        cell = points.cell[i]
        same = of_points[(points.cell[:n] == cell) & (of_points >= 0)]
        best = (plans.vector[same] @ points.belief[i]).max(initial=-np.inf)
        assert lowers[i] >= best - 1e-12
        if items[i] >= 0:
            assert plans.cell[items[i]] == cell
            assert lowers[i] == pytest.approx(best, abs=1e-12)
    assert (uppers <= points.upper[:n] + 1e-12).all()
