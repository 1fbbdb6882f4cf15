"""Coordinate ascent: monotone, optimal where it must be, and started as the paper says."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.base import CrossedBoundsError
from latentmdp.planning.memoryless.cadp import (
    Incumbent,
    MemorylessProblem,
    ascent,
    weight_select_update,
)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_never_below_its_start(seed: int, stationary: bool) -> None:
    rng = np.random.default_rng(seed)
    model = testing.random_model(
        rng, contexts=3, states=4, actions=3, horizon=4, zeros=0.3, bonus=True, discount=0.9
    )
    problem = MemorylessProblem.of(model, stationary)
    start = rng.integers(3, size=problem.shape)
    *_, (policy, value) = ascent(problem, start)
    before = lm.evaluate(model, lm.MarkovPolicy(start)).mean
    after = lm.evaluate(model, lm.MarkovPolicy(policy)).mean
    assert after >= before - 1e-12
    assert after == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_no_single_change_improves_the_result(seed: int, stationary: bool) -> None:
    model = testing.random_model(seed, contexts=3, states=3, actions=3, horizon=3)
    plan = lm.Memoryless("cadp", stationary=stationary).plan(model)
    for row, s, a in np.ndindex(*plan.policy.actions.shape, 3):
        changed = plan.policy.actions.copy()
        changed[row, s] = a
        assert lm.evaluate(model, lm.MarkovPolicy(changed)).mean <= plan.lower + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_not_below_weight_select_update_and_each_context_alone(seed: int) -> None:
    model = testing.random_model(seed, contexts=3, states=4, actions=3, horizon=5)
    plan = lm.Memoryless("cadp", starts=0).plan(model)
    problem = MemorylessProblem.of(model, stationary=False)
    starts = [weight_select_update(problem)]
    starts += [lm.planning.q_values(model)[..., m].argmax(axis=2) for m in range(3)]
    for start in starts:
        assert plan.lower >= lm.evaluate(model, lm.MarkovPolicy(start)).mean - 1e-12


def test_weight_select_update_averages_over_contexts() -> None:
    """At the last step it takes the action with the best mean reward."""
    model = testing.random_model(1, contexts=3, states=4, actions=3, horizon=2)
    last = weight_select_update(MemorylessProblem.of(model, stationary=False))[-1]
    means = np.einsum("m,msa->sa", model.weights, model.mean_rewards())
    np.testing.assert_array_equal(last, means.argmax(axis=1))


def test_claims_no_proof_it_does_not_have() -> None:
    gaps = 0
    for seed in range(10):
        model = testing.random_model(seed, contexts=3, states=3, horizon=3)
        plan = lm.Memoryless("cadp").plan(model)
        best = testing.optimal_memoryless_value(model)
        assert plan.lower - 1e-12 <= best <= plan.upper + 1e-12
        gaps += not plan.converged
        assert plan.converged == (plan.upper == plan.lower)
    assert gaps > 0


def test_same_seed_same_policy() -> None:
    model = testing.random_model(3, contexts=3, states=5, actions=3, horizon=5)
    first, second = (lm.Memoryless("cadp", rng=7).plan(model) for _ in range(2))
    np.testing.assert_array_equal(first.policy.actions, second.policy.actions)


def test_a_policy_better_than_any_can_be_is_an_error() -> None:
    incumbent = Incumbent(np.zeros((1, 2), np.int32), lower=1.0, upper=2.0, magnitude=3.0)
    incumbent.offer(np.ones((1, 2), np.int32), 2.0 + 1e-12)  # rounding
    assert incumbent.lower == incumbent.upper == 2.0 + 1e-12
    with pytest.raises(CrossedBoundsError):
        incumbent.offer(np.ones((1, 2), np.int32), 2.001)
    with pytest.raises(CrossedBoundsError):
        Incumbent(np.zeros((1, 2), np.int32), 1.0, 2.0, 3.0).prove(0.999)
