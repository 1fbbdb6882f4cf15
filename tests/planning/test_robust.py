"""Robust objectives against the linear program over all deterministic history policies."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning import robust
from latentmdp.planning.hsvi.search import HeuristicSearch
from latentmdp.testing import random_model as any_model

OBJECTIVES = [("worst-case", None), ("cvar", 0.5), ("regret", None), ("ball", 0.4)]


@pytest.mark.parametrize(("objective", "level"), OBJECTIVES)
@pytest.mark.parametrize("seed", range(6))
def test_is_the_linear_program_over_all_policies(objective: str, level: float, seed: int) -> None:
    model = random_model(seed, 2 + seed % 3, 2, 2, 2, sparse=seed % 2 == 1, bonus=seed > 3)
    best = testing.robust_value(model, objective, level)
    planner = lm.Robust(objective, level, gap=0.0, absolute_gap=1e-7, time_limit=None)
    plan = planner.plan(model)
    assert plan.converged
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert plan.lower == pytest.approx(best, abs=1e-6)
    assert plan.upper == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("objective", "level"), OBJECTIVES)
def test_contexts_of_weight_0_count_unless_no_share_has_them(objective: str, level: float) -> None:
    model = random_model(9, 3, 2, 2, 2).replace(weights=[0.0, 0.6, 0.4])
    plan = lm.Robust(objective, level, gap=0.0, absolute_gap=1e-7, time_limit=None).plan(model)
    assert plan.lower == pytest.approx(testing.robust_value(model, objective, level), abs=1e-6)
    without = testing.robust_value(model.subset([1, 2]), objective, level)
    if objective == "cvar":
        assert plan.lower == pytest.approx(without, abs=1e-6)
        assert "weight 0" not in plan.message
    else:
        assert plan.lower < without - 1e-3
        assert "contexts of weight 0 count like the others: [0]" in plan.message


@pytest.mark.parametrize(("objective", "level"), OBJECTIVES)
@pytest.mark.parametrize("terminal", [0, 1])
def test_first_states_that_contexts_do_not_share(
    objective: str, level: float, terminal: int
) -> None:
    """A policy must begin well also where the weights that it was planned for never begin."""
    model = any_model(terminal, contexts=3, states=3, horizon=1, n_terminal=terminal, bonus=True)
    model = model.replace(initial=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    best = testing.robust_value(model, objective, level)
    planner = lm.Robust(objective, level, gap=0.0, absolute_gap=1e-7, time_limit=None)
    plan = planner.plan(model)
    assert plan.converged
    assert plan.lower == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("horizon", [5, None])
def test_plans_are_followed_after_the_search_has_renumbered_them(
    horizon: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_of_search = HeuristicSearch.round

    def with_collection(self: HeuristicSearch) -> None:
        round_of_search(self)
        if len(self.bounds.plans) > 100:
            self.bounds.collect()

    monkeypatch.setattr(HeuristicSearch, "round", with_collection)
    discount = 0.8 if horizon is None else 1.0
    model = lm.make("random", contexts=4, states=5, horizon=horizon, discount=discount, rng=1)
    plan = lm.Robust(gap=0.005, time_limit=10.0).plan(model)
    assert plan.n_iter > 1  # some of the policies are older than the last plans
    np.testing.assert_allclose(lm.evaluate(model, plan.policy).by_context, plan.by_context)
    assert plan.by_context.min() == pytest.approx(plan.lower)
    # Before the graph was evaluated, the same followed from the vectors of the plans.
    assert plan.lower == pytest.approx(plan.history[-1][1], rel=1e-8)


@pytest.mark.parametrize(("objective", "level"), OBJECTIVES)
def test_values_by_context_are_those_of_the_policy(objective: str, level: float) -> None:
    model = any_model(3, contexts=3, horizon=3, reward_values=(-2.0, -0.5), forbidden=0.3)
    plan = lm.Robust(objective, level, gap=0.01, time_limit=None).plan(model)
    for m in range(3):
        alone = model.replace(weights=np.eye(3)[m])
        assert testing.policy_value(alone, plan.policy) == pytest.approx(plan.by_context[m])
    weights = robust.WeightSet(objective, level or 1.0, model.weights)
    against = plan.by_context - plan.reference
    assert weights.worst(against) @ against == pytest.approx(plan.lower)
    assert plan.worst_weights @ against == pytest.approx(plan.lower, abs=1e-6)
    simulated = lm.evaluate(model, plan.policy, 40_000, rng=0, method="monte-carlo")
    # five standard errors for each of three contexts: wrong once in 600,000 times
    assert (np.abs(simulated.by_context - plan.by_context) < 5 * simulated.stderr_by_context).all()


@pytest.mark.parametrize("objective", ["worst-case", "cvar", "ball"])
def test_nature_takes_the_worst_of_its_weights(objective: str) -> None:
    """The closed form of the inner minimum, against the program with a single policy."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        weights, values = rng.dirichlet(np.ones(4)), rng.normal(size=4)
        allowed = robust.WeightSet(objective, rng.uniform(0.1, 1.0), weights)
        found, _ = allowed.against(values[None])
        assert allowed.worst(values) @ values == pytest.approx(found @ values, abs=1e-7)
        assert allowed.worst(values).sum() == pytest.approx(1.0)
        assert (allowed.worst(values) >= 0.0).all()


def test_nothing_at_stake_is_the_mean() -> None:
    model = random_model(1, 3, 2, 2, 3)
    best = lm.Exact().plan(model).lower
    for objective, level in (("cvar", 1.0), ("ball", 0.0)):
        plan = lm.Robust(objective, level, gap=1e-6, time_limit=None).plan(model)
        assert plan.lower == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("terminal", [0, 1])
def test_without_an_end(terminal: int) -> None:
    model = any_model(
        5, contexts=3, states=3, horizon=None, discount=0.8, n_terminal=terminal, bonus=True
    )
    plan = lm.Robust("worst-case", gap=0.01, time_limit=20.0).plan(model)
    assert plan.converged
    value = lm.evaluate(model, plan.policy)
    assert value.exact
    np.testing.assert_allclose(value.by_context, plan.by_context, rtol=1e-6)
    assert plan.lower == pytest.approx(plan.by_context.min())
    single = lm.HSVI(gap=1e-3, time_limit=5.0).plan(model.replace(weights=plan.worst_weights))
    assert plan.lower <= single.upper + 1e-9
    long = lm.evaluate(model, plan.policy, 20_000, rng=0, method="monte-carlo")
    allowed = 5 * long.stderr_by_context + long.truncation
    assert (np.abs(long.by_context - plan.by_context) < allowed).all()


def test_a_single_policy_says_what_it_gives_up() -> None:
    rows = np.zeros((2, 1, 2, 1))
    rows[:] = 1.0
    means = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])  # each context pays for one of two actions
    model = lm.LatentMDP(rows, means, horizon=1)
    mixed = lm.Robust(gap=1e-6).plan(model)
    assert mixed.lower == pytest.approx(0.5, abs=1e-6)
    assert np.sort(mixed.policy.weights) == pytest.approx([0.5, 0.5], abs=1e-5)
    single = lm.Robust(gap=1e-6, deterministic=True).plan(model)
    assert single.lower == pytest.approx(0.0)
    assert single.given_up == pytest.approx(0.5, abs=1e-6)
    assert "mixture" in single.message
    assert single.policy.weights.size == 1


@pytest.mark.parametrize("horizon", [4, None])
def test_any_limit_leaves_a_valid_plan(horizon: int | None) -> None:
    discount = 0.999 if horizon is None else 1.0
    model = lm.make("random", contexts=4, states=6, horizon=horizon, discount=discount, rng=0)
    good = lm.Robust(gap=0.01, time_limit=20.0).plan(model)
    for seconds in (1e-6, 0.02):
        plan = lm.Robust(gap=0.0, time_limit=seconds).plan(model)
        assert not plan.converged
        assert plan.lower <= good.upper + 1e-9
        assert plan.upper >= good.lower - 1e-9
        lm.simulate(model, plan.policy, 10, rng=0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"objective": "mean"}, "objective must be one of"),
        ({"objective": "cvar"}, "needs level"),
        ({"objective": "cvar", "level": 1.5}, "at most 1"),
        ({"objective": "ball", "level": 3.0}, "at most 2"),
        ({"objective": "regret", "level": 0.5}, "takes no level"),
        ({"gap": -1.0}, "gap must be"),
    ],
)
def test_refuses(arguments: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        lm.Robust(**arguments)


def test_saved_and_loaded(tmp_path) -> None:
    model = random_model(2, 3, 2, 2, 3)
    plan = lm.Robust("cvar", 0.5).plan(model)
    lm.save(plan, tmp_path / "plan.npz")
    assert lm.load(tmp_path / "plan.npz") == plan
    lm.save(plan.policy, tmp_path / "policy.npz")
    assert lm.load(tmp_path / "policy.npz") == plan.policy
    assert "cvar at 0.5" in repr(plan)


@pytest.mark.parametrize(("horizon", "memory"), [(4, 0.005), (None, 0.002)])
def test_policies_that_may_not_be_kept_in_every_state_are_followed_where_they_lead(
    horizon: int | None, memory: float
) -> None:
    """With little memory a graph lists the nodes of its policies that are reached, link by link."""
    model = random_model(3, contexts=3, states=4, horizon=4, sparse=True)
    if horizon is None:
        model = model.replace(horizon=None, discount=0.8)
    plan = lm.Robust(gap=0.0, memory_limit=memory).plan(model)
    assert not plan.policy.links().stays.any()
    assert lm.Robust(gap=0.5).plan(model).policy.links().stays.any()
    np.testing.assert_allclose(lm.evaluate(model, plan.policy).by_context, plan.by_context)
    assert plan.by_context.min() == pytest.approx(plan.lower)
