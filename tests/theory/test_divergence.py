"""Separation by its definition, KL rates exactly, Condition 3 and revelation by Monte Carlo."""

from itertools import combinations, product

import numpy as np
import pytest
from models import random_alpha_policy, random_model
from scipy.stats import chi2

import latentmdp as lm
from latentmdp import testing, theory
from latentmdp._util.random import philox_key
from latentmdp.spectral import log_likelihoods
from latentmdp.testing import action_probabilities, posterior
from latentmdp.theory.divergence import (
    closest_contexts,
    divergences,
    kl_rate,
    revelation,
    separation,
    well_separated,
)


def by_hand(model):
    """(distance, pair, s, a) of the closest pair, entry by entry."""
    M, S, A, Z = model.n_contexts, model.n_states, model.n_actions, model.n_rewards
    R = model.reward_probs
    best = None
    for (m, n), s, a in (
        (pair, s, a) for pair in combinations(range(M), 2) for s in range(S) for a in range(A)
    ):
        total = 0.0
        for k in range(S):
            for z in range(Z):
                r = [R[c, s, a, k, z] if R.ndim == 5 else R[c, s, a, z] for c in (m, n)]
                T = [model.transitions[c, s, a, k] for c in (m, n)]
                total += abs(T[0] * r[0] - T[1] * r[1])
        if best is None or total < best[0] - 1e-15:
            best = (total, (m, n), s, a)
    return best


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("reward_model", ["state-action", "transition"])
def test_agrees_with_the_definition(seed, reward_model):
    model = testing.random_model(
        seed, contexts=4, states=3, reward_values=(0.0, 1.0, 2.0), reward_model=reward_model
    )
    distance, pair, s, a = by_hand(model)
    assert lm.separation(model) == pytest.approx(distance, abs=1e-14)
    closest = theory.closest_contexts(model)
    assert closest.distance == lm.separation(model)
    assert (closest.contexts, closest.state, closest.action) == (pair, s, a)


def test_rewards_alone_separate():
    T = np.full((2, 2, 1, 2), 0.5)
    model = lm.LatentMDP(T, [[[0.2], [0.9]], [[0.5], [0.1]]], horizon=3)
    assert lm.separation(model) == pytest.approx(2 * 0.3)


def test_relabelling_changes_nothing():
    model = testing.random_model(0, contexts=4)
    assert lm.separation(model.subset([2, 0, 3, 1])) == lm.separation(model)


def test_one_context_is_infinitely_separated_from_no_other():
    model = testing.random_model(0, contexts=1)
    assert lm.separation(model) == np.inf
    with pytest.raises(ValueError, match="at least two contexts"):
        theory.closest_contexts(model)


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


def test_condition_3_and_its_standard_errors():
    """z of 40 independent estimates against the exact probability: their sum of squares is chi2(40)
    up to the normal approximation; outside of its central 1 - 2e-6 the estimate, or its standard
    error, is wrong."""
    model = random_model(2, contexts=2, states=2, horizon=4)
    threshold = (0.4 / 2) ** 1.0
    exact = np.zeros((2, 2))
    for _, p in all_episodes(model, lm.UniformPolicy()):
        for m, n in ((0, 1), (1, 0)):
            if p[m] > 0.0 and p[n] / p[m] > threshold:
                exact[m, n] += p[m]
    z = []
    for seed in range(20):
        found = theory.well_separated(model, target=0.4, c1=1.0, c2=1.0, episodes=8_000, rng=seed)
        assert found.threshold == pytest.approx(threshold)
        assert found.holds is not True
        off = found.probabilities - exact
        z += [off[m, n] / found.stderr[m, n] for m, n in ((0, 1), (1, 0))]
    assert_standard_normal(z)
    assert exact.max() > 0.2
    many = theory.well_separated(model, target=0.4, c1=1.0, c2=1.0, episodes=40_000, rng=0)
    assert many.holds is False


@pytest.mark.parametrize("seed", range(5))
def test_condition_3_can_be_seen_to_hold(seed):
    """The likelihood ratio of 60 steps is far below the threshold in all but a share below 1e-3 of
    the episodes, and more than 25 of 1,000 would have to exceed it: chance below 1e-20."""
    model = lm.make("separated", contexts=2, states=5, delta=1.2, horizon=60, rng=0)
    found = theory.well_separated(model, target=0.4, c1=4.0, c2=2.0, episodes=2000, rng=seed)
    assert found.holds is True


def test_revelation_and_its_standard_error():
    """As above: 20 independent shares, chi2(20), false alarm 2e-6."""
    model = random_model(3, contexts=2, states=2, horizon=4, sparse=True)
    model = model.replace(weights=[0.5, 0.5])
    exact = 0.0
    for h, p in all_episodes(model, lm.UniformPolicy()):
        for m in range(2):
            if p[m] > 0.0 and any(
                posterior(model, h.states[: t + 1], h.actions[:t], h.rewards[:t])[m] >= 0.9
                for t in range(5)
            ):
                exact += 0.5 * p[m]
    assert 0.05 < exact < 0.95
    runs = [theory.revelation(model, level=0.9, episodes=2_000, rng=seed) for seed in range(20)]
    assert_standard_normal([(found.share - exact) / found.stderr for found in runs])


def assert_standard_normal(z):
    """The sum of squares is within the central 1 - 2e-6 of chi2."""
    total = float(np.square(z).sum())
    assert chi2.ppf(1e-6, len(z)) < total < chi2.ppf(1.0 - 1e-6, len(z))


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


KIND = {"contexts": 3, "states": 4, "actions": 3, "zeros": 0.3, "forbidden": 0.4, "n_terminal": 1}


@pytest.mark.parametrize("seed", range(5))
def test_a_table_is_measured_like_its_arrays_and_forbidden_pairs_count_for_nothing(seed):
    dense = testing.random_model(seed, **KIND, horizon=5)
    table = testing.random_model(seed, **KIND, horizon=5, as_table=True)
    P = dense.observation_probs()
    expected = min(
        np.abs(P[m, s, a] - P[n, s, a]).sum()
        for m, n in combinations(range(3), 2)
        for s, a in np.argwhere(dense.allowed)
    )
    assert expected > 0.0
    for model in (dense, table):
        assert separation(model) == pytest.approx(expected, rel=1e-12)
        closest = closest_contexts(model)
        assert model.allowed[closest.state, closest.action]
    np.testing.assert_allclose(divergences(table), divergences(dense), rtol=1e-12)
    np.testing.assert_allclose(kl_rate(table), kl_rate(dense), rtol=1e-12)
    first, second = (well_separated(m, episodes=300, target=0.9) for m in (dense, table))
    np.testing.assert_allclose(first.probabilities, second.probabilities)


@pytest.mark.parametrize("seed", range(3))
def test_likelihoods_of_ragged_logs_are_those_of_their_episodes(seed):
    model = testing.random_model(seed, **KIND, horizon=5, as_table=True)
    logs = lm.simulate(model, lm.UniformPolicy(), 50, rng=seed)
    assert np.unique(logs.lengths).size > 1
    found = np.exp(log_likelihoods(model, logs))
    for scores, (states, actions, rewards, _) in zip(found, logs):
        for m, p in enumerate(scores):
            alone = model.replace(weights=np.eye(3)[m])
            expected = testing.trajectory_probability(alone, states, actions, rewards)
            assert p == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_revelation_follows_ragged_episodes():
    model = testing.random_model(0, **KIND, horizon=6)
    found = revelation(model, episodes=200, level=0.9)
    logs = lm.simulate(model, lm.UniformPolicy(), 200, np.random.SeedSequence(philox_key(0)))
    there = 0
    for states, actions, rewards, context in logs:
        beliefs = [
            testing.posterior(model, states[: t + 1], actions[:t], rewards[:t])[context]
            for t in range(len(states))
        ]
        there += max(beliefs) >= 0.9
    assert found.share == pytest.approx(there / 200)


def test_what_needs_a_horizon_says_so():
    model = testing.random_model(0, horizon=None, discount=0.9)
    assert separation(model) > 0.0
    for measure in (kl_rate, revelation, well_separated, lm.diagnose):
        with pytest.raises(lm.errors.ModelError, match="needs a horizon"):
            measure(model)
