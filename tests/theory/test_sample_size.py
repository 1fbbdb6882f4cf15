"""Formulas by their equations and exponents; what is truly needed, by direct simulation."""

import math

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import theory

MODEL = lm.make("separated", contexts=2, states=3, actions=2, delta=0.6, horizon=6, rng=0)
PSR = {
    "n_contexts": 3,
    "n_states": 7,
    "n_actions": 2,
    "sigma_tau": 0.2,
    "sigma_h": 0.03,
    "end_state_prob": 0.1,
    "steps": 4,
    "error": 0.1,
}
CLUSTERING = {
    "n_contexts": 3,
    "n_states": 7,
    "n_actions": 2,
    "horizon": 40,
    "sigma_tau": 0.2,
    "sigma_h": 0.03,
    "end_state_prob": 0.1,
    "alpha_2": 0.05,
    "alpha_3": 0.2,
    "accuracy": 0.01,
    "steps": 1e6,
}


def exponent(formula, arguments, name, factor=2.0):
    """d ln f / d ln x between x and factor x."""
    scaled = {**arguments, name: arguments[name] * factor}
    return math.log(formula(**scaled) / formula(**arguments)) / math.log(factor)


@pytest.mark.parametrize(("delta", "S"), [(0.1, 5), (0.5, 15), (1.0, 7), (2.0, 1)])
def test_largest_smoothing_solves_its_equation(delta, S):
    alpha = theory.largest_smoothing(delta, S)
    limit = delta**2 / (200 * S)
    assert alpha * math.log(1 / alpha) == pytest.approx(limit, rel=1e-12)
    assert 0 < alpha < 1 / math.e
    larger = alpha * 1.001
    assert larger * math.log(1 / larger) > limit
    error = theory.initialization_error(delta, S)
    assert error * 200 * math.log(1 / alpha) == pytest.approx(delta**2, rel=1e-12)


def test_horizon_of_theorem_3_4():
    H = theory.inference_horizon(0.5, 15, 3e5, failure_probability=0.1, smoothing=1e-3, constant=2)
    assert pytest.approx(2 * 16 * math.log(1e3) ** 2 * math.log(3e6), rel=1e-12) == H
    default = theory.inference_horizon(0.5, 15, 3e5)
    alpha = theory.largest_smoothing(0.5, 15)
    assert default == theory.inference_horizon(0.5, 15, 3e5, smoothing=alpha)


def test_horizons_in_which_contexts_are_decoded():
    """With the planned window W, M exp(-d^2 (W - 1) / 2) is the accuracy; d is half of delta."""
    low, high, W = theory.decoding_horizons(0.5, 7, 15, accuracy=0.1)
    assert 7 * math.exp(-(0.25**2) * (W - 1) / 2) == pytest.approx(0.1)
    assert pytest.approx(2 * low) == W - 1
    assert high == pytest.approx(160 * math.log(7 * 15 / (0.1 * 0.25)))
    further = theory.decoding_horizons(0.5, 7, 15, accuracy=0.1, constant=3)
    assert further.learnable == pytest.approx(high + 48)


def test_horizon_of_lemma_c_1():
    H = theory.separation_horizon(0.5, 15, 7, target=0.1)
    alpha = 0.25 / (200 * 15)
    assert pytest.approx(16 * math.log(alpha) ** 2 * math.log(70), rel=1e-12) == H


def test_n0_of_theorem_d_1():
    value = theory.psr_episodes(**PSR, failure_probability=0.05, constant=1.0)
    shape = 3 * 2**3 / (0.1 * 0.2**2 * 0.03**2)
    expected = shape * 4**2 / 0.1**2 * (7 + 2 / 0.03**2) * math.log(14 / 0.05)
    assert value == pytest.approx(expected, rel=1e-12)
    assert exponent(theory.psr_episodes, PSR, "error") == pytest.approx(-2)
    assert exponent(theory.psr_episodes, PSR, "sigma_tau") == pytest.approx(-2)
    assert theory.psr_episodes(**{**PSR, "sigma_h": 0.0}) == math.inf
    longer = theory.psr_episodes(**PSR, length=2) / value
    assert longer == pytest.approx(4 * (7 + 4 / 0.03**2) / (7 + 2 / 0.03**2), rel=1e-12)


def test_n0_and_n1_of_theorem_3_5():
    n1 = theory.clustering_episodes(3, 7, 2, alpha_2=0.05, alpha_3=0.2, constant=3.0)
    assert n1 == pytest.approx(3 * 6 * math.log(21) / 0.01, rel=1e-12)
    assert theory.clustering_episodes(3, 7, 2, alpha_2=0.0, alpha_3=0.2) == math.inf
    f = theory.psr_episodes_for_clustering
    assert exponent(f, CLUSTERING, "accuracy") == pytest.approx(-2)
    assert exponent(f, CLUSTERING, "alpha_3") == pytest.approx(-2)
    assert exponent(f, CLUSTERING, "horizon") == pytest.approx(2)
    assert f(**CLUSTERING, test_length=2) / f(**CLUSTERING) == pytest.approx(4)
    assert f(**CLUSTERING, log_power=2) / f(**CLUSTERING) == pytest.approx(math.log(2e7))
    assert f(**{**CLUSTERING, "alpha_2": 0.0}) == math.inf


def test_small_formulas():
    assert theory.initial_counts(0.1, 67.0) == pytest.approx(6700)
    assert theory.prediction_accuracy(0.5, 0.01) == pytest.approx(0.0025)
    assert theory.required_episodes(3, 4) == 64
    assert theory.required_episodes(3, 4, epsilon=0.1) == pytest.approx(6400)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: theory.largest_smoothing(0.0, 3), "delta"),
        (lambda: theory.inference_horizon(0.5, 3, math.inf), "steps"),
        (lambda: theory.initialization_error(0.5, 3, smoothing=1.0), "smoothing"),
        (lambda: theory.psr_episodes(**{**PSR, "error": -1.0}), "error"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_psr_requirement_is_where_the_error_meets_half_the_singular_value():
    found = theory.needed_psr_episodes(MODEL, repetitions=40, rng=0)
    N = int(found.value)
    weights = MODEL.weights[:, None]
    joint = [
        L @ (weights * H)
        for L, H in zip(theory.prediction_matrices(MODEL), theory.history_matrices(MODEL))
    ]
    S, A, Z = 3, 2, 2
    worst = []
    for seed in range(20):
        logs = lm.simulate(MODEL.replace(horizon=2), lm.UniformPolicy(), N, rng=seed)
        states, actions, rewards = logs.as_arrays()
        count = np.zeros((S, A, S, Z, S, A, Z))
        cell = (
            states[:, 1],
            actions[:, 1],
            states[:, 2],
            rewards[:, 1],
            states[:, 0],
            actions[:, 0],
            rewards[:, 0],
        )
        np.add.at(count, cell, A / N)
        ratios = []
        for s, P in enumerate(joint):
            order = count[s].reshape(A * S * Z, S * A * Z)
            error = np.linalg.norm(order - P.reshape(A * S * Z, S * A * Z), 2)
            ratios.append(2 * error / np.linalg.svd(P, compute_uv=False)[1])
        worst.append(max(ratios))
    assert np.median(worst) == pytest.approx(1.0, abs=0.2)
    assert found.stderr < 0.2 * found.value


def test_psr_requirement_without_rank_is_infinite():
    assert theory.needed_psr_episodes(lm.make("lower-bound", rng=0)).value == np.inf


def coupon(model, rng):
    """Episodes until all is seen, written out for the uniform policy with numpy's own chance."""
    M, S = model.n_contexts, model.n_states
    seen, links = set(), {m: {frozenset({s}) for s in range(S)} for m in range(M)}
    for k in range(1, 100_000):
        m = rng.choice(M, p=model.weights)
        s = rng.choice(S, p=model.initial[m])
        for _ in range(model.horizon - 2):
            s = rng.choice(S, p=model.transitions[m, s, rng.integers(model.n_actions)])
        n = rng.choice(S, p=model.transitions[m, s, rng.integers(model.n_actions)])
        seen.add((m, s))
        touched = {group for group in links[m] if s in group or n in group}
        links[m] = (links[m] - touched) | {frozenset().union(*touched)}
        if len(seen) == M * S and all(len(groups) == 1 for groups in links.values()):
            return k
    return np.inf


@pytest.mark.parametrize("seed", range(4))
def test_clustering_requirement_is_that_of_direct_simulation(seed):
    """Two medians of 200: within 4.5 standard errors of their difference, false alarm below 1e-5
    each (the normal approximation of a median, with the factor 1.25 of a skewed sample)."""
    model = MODEL.replace(horizon=3)
    found = theory.needed_clustering_episodes(model, repetitions=200, rng=seed)
    rng = np.random.default_rng(100 + seed)
    own = np.array([coupon(model, rng) for _ in range(200)])
    error = np.hypot(found.stderr, 1.25 * own.std() / np.sqrt(own.size))
    assert abs(found.value - np.median(own)) < 4.5 * error


def test_clustering_that_never_ends_is_infinite():
    model = lm.make("lower-bound", rng=0)
    found = theory.needed_clustering_episodes(model, repetitions=2, most=500)
    assert found.value == np.inf
