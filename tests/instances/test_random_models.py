import numpy as np
import pytest

import latentmdp as lm


def test_benchmark_of_planners():
    model = lm.make("random", contexts=5, states=10, actions=3, horizon=20, rng=0)
    means = model.mean_rewards()
    assert ((means > 0).sum(axis=(1, 2)) == 6).all()
    np.testing.assert_array_equal(model.initial, np.eye(10)[np.zeros(5, int)])
    np.testing.assert_array_equal(model.weights, np.full(5, 0.2))
    assert not np.array_equal(means[0] > 0, means[1] > 0)


def test_benchmark_of_learners():
    model = lm.make(
        "random",
        contexts=7,
        states=15,
        actions=3,
        horizon=30,
        concentration=0.3,
        reward_density=4 / 45,
        reward_low=0.5,
        rng=0,
    )
    means = model.mean_rewards()
    assert ((means > 0).sum(axis=(1, 2)) == 4).all()
    assert means[means > 0].min() >= 0.5


def test_shared_rewards_are_the_same_in_all_contexts():
    means = lm.make("random", rewards="shared", reward_density=0.5, rng=0).mean_rewards()
    assert (means == means[0]).all()
    assert (means[0] > 0).sum() == 7


def test_start_none_is_uniform():
    np.testing.assert_array_equal(
        lm.make("random", start=None, rng=0).initial, np.full((3, 7), 1 / 7)
    )


@pytest.mark.parametrize("concentration", [0.3, 1.0, 5.0])
def test_rows_have_the_variance_of_a_dirichlet(concentration):
    # An entry of Dirichlet(c, .., c) over S states has variance (S-1) / (S^2 (S c + 1)). The mean
    # of squares over n = 10 * 20 * 5 rows has a relative standard error below 0.05; 5 of those.
    S = 20
    T = lm.make(
        "random", contexts=10, states=S, actions=5, concentration=concentration, rng=0
    ).transitions
    expected = (S - 1) / (S**2 * (S * concentration + 1))
    assert T.var() == pytest.approx(expected, rel=0.25)
