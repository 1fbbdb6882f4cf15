"""Conditions 1 and 2 against matrices built entry by entry."""

from itertools import product

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import theory
from latentmdp.testing import action_probabilities


def step(model, m, s, a, n, z):
    return model.observation_probs()[m, s, a, n, z]


def explicit_tests(model, s, length):
    """L_s: one row for every sequence of (action, next state, reward)."""
    cells = list(product(range(model.n_actions), range(model.n_states), range(model.n_rewards)))
    P = model.observation_probs()
    rows = []
    for test in product(cells, repeat=length):
        row = np.ones(model.n_contexts)
        for m in range(model.n_contexts):
            here = s
            for a, n, z in test:
                row[m] *= P[m, here, a, n, z]
                here = n
        rows.append(row)
    return np.array(rows)


def explicit_histories(model, policy, s, length):
    """H_s: one column for every history of `length` transitions that ends in s."""
    acts = action_probabilities(policy, model.n_actions)
    P = model.observation_probs()
    S, A, Z = model.n_states, model.n_actions, model.n_rewards
    columns = []
    for states in product(range(S), repeat=length):
        for actions in product(range(A), repeat=length):
            for rewards in product(range(Z), repeat=length):
                path = (*states, s)
                column = model.initial[:, states[0]].copy()
                for t in range(length):
                    seen = lm.policies.History(path[: t + 1], actions[:t], rewards[:t])
                    column *= acts(seen)[actions[t]]
                    column *= P[:, path[t], actions[t], path[t + 1], rewards[t]]
                columns.append(column)
    return np.array(columns).T


def sigma(matrix, M):
    return np.linalg.svd(matrix, compute_uv=False)[M - 1]


@pytest.mark.parametrize(("seed", "length"), [(0, 1), (1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("kind", ["uniform", "markov", "alpha"])
def test_sigmas_equal_those_of_explicit_matrices(seed, length, kind):
    model = random_model(seed, contexts=2 if length == 2 else 3, states=3 if length == 1 else 2)
    rng = np.random.default_rng(seed)
    policy = {
        "uniform": lm.UniformPolicy(),
        "markov": lm.MarkovPolicy(rng.dirichlet(np.ones(2), (model.horizon, model.n_states))),
        "alpha": random_alpha_policy(model, seed),
    }[kind]
    M = model.n_contexts
    found_tau = theory.sigma_tau(model, length)
    found_h = theory.sigma_h(model, policy, length)
    found_joint = theory.joint_sigma(model, policy, length)
    ends = theory.end_state_probs(model, policy, length)
    for s in range(model.n_states):
        L = explicit_tests(model, s, length)
        H = explicit_histories(model, policy, s, length)
        end = model.weights @ H.sum(axis=1)
        assert found_tau[s] == pytest.approx(sigma(L, M), abs=1e-12)
        assert ends[s] == pytest.approx(end, abs=1e-12)
        assert found_h[s] == pytest.approx(sigma(L @ H, M) / end, abs=1e-10)
        weighted = model.weights[:, None] * H
        assert found_joint[s] == pytest.approx(sigma(L @ weighted, M) / end, abs=1e-10)


def test_end_state_probabilities_sum_to_one():
    model = random_model(0)
    assert theory.end_state_probs(model, length=2).sum() == pytest.approx(1.0, abs=1e-12)


def test_equal_contexts_have_no_rank():
    model = random_model(1, contexts=2)
    twins = model.replace(
        transitions=model.transitions[[0, 0]],
        rewards=model.reward_probs[[0, 0]],
        initial=model.initial[[0, 0]],
    )
    assert theory.sigma_tau(twins).max() < 1e-12
    assert theory.sigma_h(twins).max() < 1e-12


def test_a_state_that_no_history_reaches_is_nan():
    model = lm.make("lower-bound", rng=0)
    found = theory.sigma_h(model)
    assert np.isnan(found[0])
    assert np.isnan(found[2])


def test_too_many_tests_are_refused():
    with pytest.raises(ValueError, match="too many"):
        theory.sigma_tau(lm.make("random", contexts=7, states=15, actions=3, rng=0), length=4)


@pytest.mark.parametrize("length", [1, 2])
def test_prediction_separation_is_its_definition(length):
    model = random_model(3, contexts=3, states=2, actions=2)
    apart = []
    for s in range(model.n_states):
        tests = explicit_tests(model, s, length)
        for m, n in ((0, 1), (0, 2), (1, 2)):
            apart.append(np.abs(tests[:, m] - tests[:, n]).sum() / model.n_actions**length)
    assert theory.prediction_separation(model, length) == pytest.approx(min(apart), rel=1e-12)


def test_prediction_separation_is_at_least_delta():
    model = lm.make("separated", contexts=3, states=4, delta=0.5, rng=0)
    assert theory.prediction_separation(model) >= lm.separation(model) - 1e-12
    assert theory.prediction_separation(model, 2) >= theory.prediction_separation(model) - 1e-12
    assert theory.prediction_separation(model.subset([0])) == np.inf
