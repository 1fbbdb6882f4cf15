"""KL rates exactly, Condition 3 and the time to a sure posterior within 4 standard errors."""

from itertools import product

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import theory
from latentmdp.testing import action_probabilities, posterior


def all_episodes(model, policy):
    """(history, P_m(history) for each m, policy included) for every complete episode."""
    acts = action_probabilities(policy, model.n_actions)
    P = model.observation_probs()
    paths = [
        (lm.policies.History((s,), (), ()), model.initial[:, s]) for s in range(model.n_states)
    ]
    for _ in range(model.horizon):
        paths = [
            (
                lm.policies.History((*h.states, n), (*h.actions, a), (*h.rewards, z)),
                p * acts(h)[a] * P[:, h.states[-1], a, n, z],
            )
            for h, p in paths
            for a, n, z in product(
                range(model.n_actions), range(model.n_states), range(model.n_rewards)
            )
        ]
    return paths


@pytest.mark.parametrize("kind", ["uniform", "alpha"])
def test_kl_rate_is_the_divergence_of_trajectories(kind):
    # chain rule: the sum of expected step divergences is the divergence of whole episodes
    model = random_model(0, contexts=3, states=2, horizon=3)
    model = model.replace(initial=0)
    policy = lm.UniformPolicy() if kind == "uniform" else random_alpha_policy(model, 1)
    episodes = [p for _, p in all_episodes(model, policy) if p.max() > 0.0]
    expected = np.zeros((3, 3))
    for m, n in product(range(3), repeat=2):
        expected[m, n] = sum(p[m] * np.log(p[m] / p[n]) for p in episodes)
    np.testing.assert_allclose(theory.kl_rate(model, policy), expected / 3, atol=1e-12)


def test_kl_is_infinite_where_a_context_is_excluded():
    model = lm.make("deterministic", contexts=2, states=3, variation=1.0, rng=0)
    assert np.isinf(theory.divergences(model)).any()
    assert np.isfinite(np.diagonal(theory.divergences(model))).all()


def test_condition_3_within_4_standard_errors():
    model = random_model(2, contexts=2, states=2, horizon=4)
    threshold = (0.4 / 2) ** 1.0
    found = theory.well_separated(model, target=0.4, c1=1.0, c2=1.0, episodes=40_000, rng=0)
    assert found.threshold == pytest.approx(threshold)
    exact = np.zeros((2, 2))
    for _, p in all_episodes(model, lm.UniformPolicy()):
        for m, n in ((0, 1), (1, 0)):
            if p[m] > 0.0 and p[n] / p[m] > threshold:
                exact[m, n] += p[m]
    for m, n in ((0, 1), (1, 0)):
        assert abs(found.probabilities[m, n] - exact[m, n]) < 4 * found.stderr[m, n] + 1e-12
    assert found.holds is False


def test_condition_3_can_be_seen_to_hold():
    model = lm.make("separated", contexts=2, states=5, delta=1.2, horizon=60, rng=0)
    found = theory.well_separated(model, target=0.4, c1=4.0, c2=2.0, episodes=2000, rng=0)
    assert found.holds is True


def test_revelation_within_4_standard_errors():
    model = random_model(3, contexts=2, states=2, horizon=4, sparse=True)
    model = model.replace(weights=[0.5, 0.5])
    found = theory.revelation(model, level=0.9, episodes=20_000, rng=0)
    exact = 0.0
    for h, p in all_episodes(model, lm.UniformPolicy()):
        for m in range(2):
            if p[m] > 0.0 and any(
                posterior(model, h.states[: t + 1], h.actions[:t], h.rewards[:t])[m] >= 0.9
                for t in range(5)
            ):
                exact += 0.5 * p[m]
    assert 0.05 < exact < 0.95
    assert abs(found.share - exact) < 4 * found.stderr


def test_revelation_follows_episodes_beyond_the_horizon():
    model = lm.make("separated", contexts=2, states=5, delta=0.5, horizon=5, rng=0)
    found = theory.revelation(model, episodes=500, rng=0)
    assert found.longest > 5
    assert found.share < 0.5
    half, most, _ = found.quantiles
    assert 5 < half <= most < np.inf
    slowest = theory.kl_rate(model.replace(horizon=100))[[0, 1], [1, 0]].min()
    assert half < 6 * np.log(99) / slowest  # the right order
    with pytest.raises(ValueError, match="level"):
        theory.revelation(model, level=1.0)


def test_contexts_that_are_equal_are_never_revealed():
    model = random_model(0, contexts=2)
    twins = model.replace(
        transitions=model.transitions[[0, 0]],
        rewards=model.reward_probs[[0, 0]],
        initial=model.initial[[0, 0]],
        weights=[0.5, 0.5],
    )
    found = theory.revelation(twins, episodes=50, rng=0)
    assert found.share == 0.0
    assert np.isinf(found.mean)
