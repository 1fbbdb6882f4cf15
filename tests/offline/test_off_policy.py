"""Importance sampling from logs, against exact values and counts made by hand."""

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp.offline import Interval, LoggedEstimate
from latentmdp.offline.off_policy import behaviour_policy, logged_estimate


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_importance_sampling_is_right_where_the_logs_reach(seed: int, discount: float) -> None:
    """Within 5 standard errors of the exact value: a false alarm in 6e-7 of such tests."""
    model = random_model(seed, horizon=3, discount=discount)
    policy = random_alpha_policy(model, seed + 1)
    logs = lm.simulate(model, lm.UniformPolicy(), 20_000, rng=seed).without_contexts()
    uniform = np.full((3, 2), 0.5)
    found = logged_estimate(logs, policy, model, uniform, np.random.default_rng(seed))
    exact = lm.evaluate(model, policy, method="exact").mean
    assert found.steps == 3
    assert abs(found.mean - exact) < 5 * found.stderr
    np.testing.assert_allclose(found.effective_size, 20_000 / 2.0 ** np.arange(1, 4), rtol=0.1)


def test_the_standard_error_is_that_of_the_estimate() -> None:
    """Over 60 logs the spread of the estimates is the mean standard error within a factor 1.5.

    The standard deviation of 60 normal numbers has a relative error of 9 %, so a false alarm is
    one of more than 3.5 standard errors: less than one in 2,000.
    """
    model = random_model(3, horizon=2)
    policy = random_alpha_policy(model, 4)
    uniform = np.full((3, 2), 0.5)
    found = [
        logged_estimate(
            lm.simulate(model, lm.UniformPolicy(), 400, rng=seed),
            policy,
            model,
            uniform,
            np.random.default_rng(seed),
        )
        for seed in range(60)
    ]
    spread = np.std([estimate.mean for estimate in found], ddof=1)
    stderr = np.mean([estimate.stderr for estimate in found])
    assert 1 / 1.5 < spread / stderr < 1.5


def test_episodes_that_agree_are_counted_by_hand() -> None:
    """40 episodes of each sequence of two actions; the policy takes action 1, then action 0."""
    pairs = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 40, axis=0)
    rewards = np.arange(160)[:, None] // 40 * [1, 0] + [0, 1]
    logs = lm.Trajectories.from_arrays(
        np.zeros((160, 3), np.int64), pairs, rewards, reward_values=[0.0, 1.0, 2.0, 3.0]
    )
    T, R = np.ones((1, 1, 2, 1)), np.full((1, 1, 2, 4), 0.25)
    model = lm.LatentMDP(T, R, horizon=2, reward_values=[0.0, 1.0, 2.0, 3.0], discount=0.5)
    policy = lm.MarkovPolicy([[1], [0]])
    behaviour = behaviour_policy(logs)
    np.testing.assert_array_equal(behaviour, [[0.5, 0.5]])
    found = logged_estimate(logs, policy, model, behaviour, np.random.default_rng(0))
    assert (found.steps, found.mean) == (2, pytest.approx(2.5 + 0.5 * 1.0))
    np.testing.assert_allclose(found.effective_size, [80.0, 40.0])


def test_episodes_with_counts_are_as_many_episodes() -> None:
    model = random_model(0, horizon=2)
    logs = lm.simulate(model, lm.UniformPolicy(), 2_000, rng=0).without_contexts()
    policy, uniform = random_alpha_policy(model, 1), np.full((3, 2), 0.5)
    whole, merged = (
        logged_estimate(part, policy, model, uniform, np.random.default_rng(0))
        for part in (logs, logs.deduplicate())
    )
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12)
    assert merged.stderr == pytest.approx(whole.stderr, rel=0.3)
    np.testing.assert_allclose(merged.effective_size, whole.effective_size)


def test_logs_that_never_agree_say_nothing() -> None:
    model = random_model(0, horizon=3)
    logs = lm.simulate(model, lm.MarkovPolicy([0, 0, 0]), 100, rng=0)
    never = lm.MarkovPolicy([1, 1, 1])
    behaviour = behaviour_policy(logs)
    found = logged_estimate(logs, never, model, behaviour, np.random.default_rng(0))
    assert found.steps == 0
    assert np.isnan(found.mean)
    np.testing.assert_array_equal(behaviour, [[1.0, 0.0]] * 3)


def test_estimates_are_equal_by_content_and_short_to_read() -> None:
    one = LoggedEstimate(0.5, 0.125, 2, np.array([80.0, 40.0]))
    assert one == LoggedEstimate(0.5, 0.125, 2, np.array([80.0, 40.0]))
    assert one != LoggedEstimate(0.5, 0.125, 2, np.array([80.0, 41.0]))
    none = LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))
    assert none == LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))
    assert one != none
    assert repr(one) == "LoggedEstimate(0.5 ± 0.12 over 2 steps)"
    assert str(Interval(1.0, 0.5, 2.0)) == "1 [0.5, 2]"
