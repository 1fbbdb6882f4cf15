"""Compact plans: few vectors, a bound that holds, and little lost."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.testing import random_model as any_model


@pytest.mark.parametrize("vectors", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds(vectors: int, seed: int) -> None:
    model = random_model(seed, 3, 3, 2, 4, bonus=True, discount=0.9, sparse=seed == 1)
    plan = lm.HSVI(gap=1e-4, time_limit=5.0).plan(model)
    small = plan.compact(vectors=vectors)
    assert np.diff(small.policy.offsets).max() <= vectors
    assert small.lower <= testing.policy_value(model, small.policy) + 1e-9
    assert small.loss == pytest.approx((plan.lower - small.lower) / abs(plan.lower))
    graph = plan.compact(vectors=vectors, graph=True)
    assert graph.lower == pytest.approx(testing.policy_value(model, graph.policy))
    assert graph.lower <= small.lower + 1e-9


def test_enough_vectors_lose_nothing() -> None:
    model = random_model(0, 2, 2, 2, 3)
    plan = lm.HSVI(gap=1e-9, time_limit=5.0).plan(model)
    assert plan.compact(vectors=100).lower == pytest.approx(plan.lower, rel=1e-6)


def test_one_vector_is_a_markov_policy() -> None:
    """No more than the best policy without memory is proved, and about that is found."""
    model = random_model(3, 3, 2, 2, 3)
    best = testing.optimal_memoryless_value(model)
    found = lm.HSVI(gap=1e-3, time_limit=5.0).plan(model).compact(vectors=1)
    assert 0.9 * best <= found.lower <= best + 1e-9


@pytest.mark.parametrize("terminal", [0, 1])
def test_without_an_end(terminal: int) -> None:
    model = any_model(
        2, contexts=4, states=3, actions=3, horizon=None, discount=0.9, n_terminal=terminal
    )
    plan = lm.HSVI(gap=1e-3, time_limit=4.0).plan(model)
    small = plan.compact(vectors=10)
    assert small.loss <= 0.01
    value = lm.evaluate(model, small.policy, 20_000, rng=0)
    assert value.mean >= small.lower - 5 * value.stderr - value.truncation
    graph = plan.compact(vectors=10, graph=True)
    assert isinstance(graph.policy, lm.PolicyGraph)
    assert lm.evaluate(model, graph.policy).mean == pytest.approx(graph.lower, rel=1e-6)


def test_as_few_as_a_loss_allows() -> None:
    model = lm.make("random", contexts=3, states=4, horizon=6, rng=0)
    plan = lm.HSVI(gap=1e-3, time_limit=5.0).plan(model)
    small = plan.compact(loss=0.01)
    assert small.loss <= 0.01
    most = int(np.diff(small.policy.offsets).max())
    assert most == 1 or plan.compact(vectors=most - 1).loss > 0.01
    assert f"loses {max(small.loss, 0.0):.2%}" in small.message


def test_costs_and_forbidden_actions(tmp_path) -> None:
    model = any_model(1, contexts=3, horizon=4, reward_values=(-3.0, -1.0), forbidden=0.4)
    plan = lm.HSVI(gap=1e-3, time_limit=5.0).plan(model)
    small = plan.compact(vectors=3)
    assert small.lower <= testing.policy_value(model, small.policy) + 1e-9
    lm.save(small, tmp_path / "small.npz")
    assert lm.load(tmp_path / "small.npz") == small


def test_refuses() -> None:
    model = random_model(0, 2, 2, 2, 3)
    plan = lm.HSVI().plan(model)
    with pytest.raises(ValueError, match="give vectors= or loss="):
        plan.compact()
    with pytest.raises(ValueError, match="vectors must be"):
        plan.compact(vectors=0)
    with pytest.raises(ValueError, match="loss must lie"):
        plan.compact(loss=2.0)
    with pytest.raises(ValueError, match="this plan has none"):
        lm.QMDP().plan(model).compact(loss=0.1)
    with pytest.raises(TypeError, match="MarkovPolicy"):
        lm.Memoryless().plan(model).compact(vectors=2)
    assert lm.QMDP().plan(model).compact(vectors=2).loss is None
