import numpy as np
import pytest

import latentmdp as lm


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("start", [0, 3, None])
def test_nothing_is_random_given_the_context(seed, start):
    model = lm.make("deterministic", contexts=4, start=start, rng=seed)
    for array in (model.transitions, model.reward_probs, model.initial):
        assert set(np.unique(array)) <= {0.0, 1.0}
    if start is not None:
        assert (model.initial[:, start] == 1).all()


def test_start_none_draws_a_start_for_each_context():
    models = [lm.make("deterministic", start=None, rng=seed) for seed in range(10)]
    assert any((model.initial != model.initial[0]).any() for model in models)


@pytest.mark.parametrize("variation", [0.0, 0.1, 0.4])
def test_contexts_agree_but_for_a_fraction_of_the_rows(variation):
    model = lm.make("deterministic", contexts=3, states=10, actions=4, variation=variation, rng=0)
    P = model.observation_probs()
    differ = (P[0] != P[1]).any(axis=(-2, -1)).sum()
    assert differ <= 2 * round(variation * 40)
    assert (differ > 0) == (variation > 0)


def test_the_density_of_rewards():
    # 2,000 independent Bernoulli(.3) draws: six standard errors are 0.062.
    model = lm.make("deterministic", contexts=1, states=100, actions=20, reward_density=0.3, rng=0)
    assert model.mean_rewards().mean() == pytest.approx(0.3, abs=0.062)
