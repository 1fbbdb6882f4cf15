"""Monte Carlo requirements against direct simulation."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import theory

MODEL = lm.make("separated", contexts=2, states=3, actions=2, delta=0.6, horizon=6, rng=0)


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


def test_clustering_requirement_within_4_standard_errors():
    model = MODEL.replace(horizon=3)
    found = theory.needed_clustering_episodes(model, repetitions=200, rng=0)
    rng = np.random.default_rng(1)
    own = np.array([coupon(model, rng) for _ in range(200)])
    error = np.hypot(found.stderr, 1.25 * own.std() / np.sqrt(own.size))
    assert abs(found.value - np.median(own)) < 4 * error


def test_clustering_that_never_ends_is_infinite():
    model = lm.make("lower-bound", rng=0)
    found = theory.needed_clustering_episodes(model, repetitions=2, most=500)
    assert found.value == np.inf
