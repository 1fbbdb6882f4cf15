"""Lemmas of the appendices, checked as statements about numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp import theory

seeds = st.integers(0, 2**32 - 1)


def matrices(seed, rank=3, noise=0.2):
    """A of rank k, and A + E with ||E|| <= noise sigma_k(A)."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(8, rank)) @ rng.normal(size=(rank, 6))
    E = rng.normal(size=A.shape)
    E *= noise * rng.random() * np.linalg.svd(A)[1][rank - 1] / np.linalg.norm(E, 2)
    return A, A + E


@pytest.mark.parametrize("seed", range(3))
def test_lemma_c_1_from_its_horizon_on_condition_3_holds(seed):
    """The lemma leaves C open. Here C = 1.5 is enough (with C = 1 the share is about 1.2e-4, where
    the condition asks for less than 1e-4), and half of that horizon is not. Of 8 million episodes 3
    exceeded the threshold at C = 1.5; `holds` fails if 5 of 100,000 do: false alarm below 1e-7."""
    model = lm.make("separated", contexts=2, states=3, delta=1.3, rewards="shared", rng=0)
    H = theory.separation_horizon(lm.separation(model), 3, 2, target=0.2, constant=1.5)
    long, short = (model.replace(horizon=int(np.ceil(steps))) for steps in (H, H / 2))
    assert theory.well_separated(long, target=0.2, episodes=200_000, rng=seed).holds is True
    assert theory.well_separated(short, target=0.2, episodes=100_000, rng=seed).holds is False


@pytest.mark.parametrize("n", [2, 5, 30])
def test_lemma_c_2_holds_with_n_over_e_and_not_as_printed(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        assert theory.log_probability_norm(rng.dirichlet(np.ones(n))) <= n / np.e + 1e-12
    assert theory.log_probability_norm(np.full(n, 1.0 / n)) == pytest.approx(np.log(n))
    assert np.log(n) > 1.0 / np.e


@pytest.mark.parametrize("seed", range(3))
def test_lemma_c_3_a_good_start_and_smoothing_find_the_context(seed):
    model = lm.make("separated", contexts=3, states=4, delta=1.0, horizon=150, rng=0)
    delta = lm.separation(model)
    alpha = theory.largest_smoothing(delta, 4)
    error = theory.initialization_error(delta, 4)
    rng = np.random.default_rng(1)
    noise = rng.dirichlet(np.ones(4), model.transitions.shape[:-1])
    near = model.replace(transitions=(1 - error / 2) * model.transitions + error / 2 * noise)
    off = np.abs(near.transitions - model.transitions).sum(axis=-1).max()
    assert off <= error
    logs = lm.simulate(model, lm.UniformPolicy(), 2000, rng=seed)
    beliefs = lm.posterior(near, logs, smoothing=alpha)
    assert beliefs[np.arange(2000), logs.contexts].min() > 1 - 1e-4


@given(seeds)
def test_singular_values_move_by_at_most_the_error(seed):
    A, B = matrices(seed)
    moved = np.abs(np.linalg.svd(A)[1] - np.linalg.svd(B)[1])
    assert moved.max() <= np.linalg.norm(B - A, 2) + 1e-12


@given(seeds)
def test_singular_subspaces_turn_by_at_most_the_error(seed):
    # sin theta, and Corollary 22 and Lemma 9 of Hsu et al. as the paper restates them
    A, B = matrices(seed)
    U, values, _ = np.linalg.svd(A)
    W, changed, _ = np.linalg.svd(B)
    E, k = np.linalg.norm(B - A, 2), 3
    epsilon = E / values[k - 1]
    sine = np.linalg.norm(W[:, k:].T @ U[:, :k], 2)
    assert sine <= E / changed[k - 1] + 1e-9
    assert changed[k - 1] >= (1 - epsilon) * values[k - 1] - 1e-12
    rest = 1 - epsilon**2 / (1 - epsilon) ** 2
    kept = np.linalg.svd(W[:, :k].T @ A)[1][k - 1]
    assert kept >= np.sqrt(max(0.0, rest)) * values[k - 1] - 1e-9


@given(seeds)
def test_pseudo_inverses_move_by_the_golden_ratio_times_the_error(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(6, 4))
    B = A + 0.1 * rng.normal(size=A.shape)
    one, two = np.linalg.pinv(A), np.linalg.pinv(B)
    largest = max(np.linalg.norm(one, 2), np.linalg.norm(two, 2)) ** 2
    bound = (1 + np.sqrt(5)) / 2 * largest * np.linalg.norm(B - A, 2)
    assert np.linalg.norm(two - one, 2) <= bound + 1e-9


@pytest.mark.parametrize("episodes", [1000, 10_000])
def test_empirical_moments_concentrate(episodes):
    """Lemma E.3 with C = 3: errors of P_H and P_{T,H} for all states at once, eta = 0.05."""
    model = lm.make("separated", contexts=3, states=4, actions=2, delta=0.8, horizon=2, rng=0)
    S, A, Z = 4, 2, 2
    weights = model.weights[:, None]
    tests, histories = theory.prediction_matrices(model), theory.history_matrices(model)
    ends = theory.end_state_probs(model)
    logarithm = np.log(S * A / 0.05)
    for seed in range(10):
        logs = lm.simulate(model, lm.UniformPolicy(), episodes, rng=seed)
        states, actions, rewards = logs.as_arrays()
        count = np.zeros((S, A, S, Z, S, A, Z))
        where = (states[:, 1], actions[:, 1], states[:, 2], rewards[:, 1])
        np.add.at(count, (*where, states[:, 0], actions[:, 0], rewards[:, 0]), 1.0 / episodes)
        for s in range(S):
            bound = 3.0 * np.sqrt(ends[s] / episodes * logarithm)
            joint = tests[s] @ (weights * histories[s])
            found = A * count[s].reshape(joint.shape)
            assert np.linalg.norm(found - joint, 2) <= A * bound
            single = (weights * histories[s]).sum(axis=0)
            assert np.linalg.norm(found.sum(axis=0) / A - single) <= bound
