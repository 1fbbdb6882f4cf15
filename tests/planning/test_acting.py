"""The planner in use is the one that earns more in the fitted model."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.planning import CertifiedPlanner, acting_smoothing, planner_for


def test_information_is_bought_where_q_mdp_would_wait() -> None:
    model = lm.make("wait-hub")
    waiting = lm.evaluate(model, lm.QMDP().plan(model).policy, 20_000, rng=0)
    acting = lm.evaluate(model, planner_for(model).plan(model).policy, 20_000, rng=0)
    assert acting.mean - 4 * acting.stderr > 5.0 * waiting.mean


def test_q_mdp_acts_where_it_is_good_enough() -> None:
    model = lm.make("separated", rng=0)
    quick = lm.QMDP(smoothing=1e-3).plan(model)
    episodes = [
        lm.simulate(model, policy, 200, rng=0)
        for policy in (quick.policy, planner_for(model).plan(model).policy)
    ]
    assert episodes[0] == episodes[1]


def test_a_certificate_comes_with_the_better_policy() -> None:
    """With no time to improve, HSVI's lower bound is that of one action for ever."""
    model = lm.make("separated", contexts=5, states=8, horizon=20, rewards="own", rng=3)
    in_time = CertifiedPlanner().plan(model)
    assert in_time.converged
    plan = CertifiedPlanner(time_limit=1e-9).plan(model)
    earned = lm.evaluate(model, plan.policy, 20_000, rng=0)
    assert not plan.converged
    assert plan.upper >= in_time.lower
    assert plan.lower <= earned.mean + 4 * earned.stderr
    assert earned.mean > 0.95 * in_time.lower


def test_smoothing_leaves_most_to_the_model_however_large_it_is() -> None:
    assert acting_smoothing(5, 2) == acting_smoothing(50, 2) == 1e-3
    for states, rewards in ((51, 2), (600, 2), (10_000, 7)):
        assert acting_smoothing(states, rewards) * states * rewards == pytest.approx(0.1)


def test_large_models_can_be_acted_in_and_certified() -> None:
    """With S Z > 1,000 a smoothing of 1e-3 would leave nothing to the model and be refused."""
    rng = np.random.default_rng(0)
    S = 600
    T = np.zeros((2, S, 2, S))
    T[:, np.arange(S), :, (np.arange(S) + 1) % S] = 1.0
    model = lm.LatentMDP(T, rng.random((2, S, 2)), horizon=2)
    policy = planner_for(model).plan(model).policy
    assert policy.smoothing == pytest.approx(0.1 / (2 * S))
    plan = CertifiedPlanner(time_limit=1e-9).plan(model)
    earned = lm.evaluate(model, plan.policy, 20_000, rng=0)
    assert plan.lower - 5.0 * earned.stderr <= earned.mean <= plan.upper + 5.0 * earned.stderr
