from itertools import product

import numpy as np
import pytest
from belief_dp import informed_values, qmdp_policy, value

import latentmdp as lm


def stationary_values(model):
    """The value of each of the A^S deterministic stationary policies."""
    S, H = model.n_states, model.horizon
    policies = np.array(list(product(range(model.n_actions), repeat=S)))
    states = np.arange(S)
    total = np.zeros(len(policies))
    for block in np.array_split(np.arange(len(policies)), 60):
        for m in range(model.n_contexts):
            T = model.transitions[m][states, policies[block]]
            means = model.mean_rewards()[m][states, policies[block]]
            V = np.zeros(means.shape)
            for _ in range(H):
                V = means + (T @ V[..., None])[..., 0]
            total[block] += model.weights[m] * V[:, 0]
    return policies, total


def test_memory_is_worth_much():
    model = lm.make("river-swim")
    policies, values = stationary_values(model)
    best = np.argmax(values)
    assert (policies[best] == 0).all()
    assert values[best] == pytest.approx(56 * 0.005)
    optimum = value(model)
    assert 10.9 < optimum < informed_values(model).max()
    assert optimum - 1e-3 < value(model, qmdp_policy(model)) <= optimum


def test_every_regime_is_as_hard_to_swim_when_known():
    model = lm.make("river-swim")
    values = informed_values(model)
    assert np.ptp(values) < 1e-12


def test_a_channel_is_right_or_hurts():
    model = lm.make("river-swim", contexts=3, states=6)
    means = model.mean_rewards()
    for m, s in product(range(3), range(6)):
        right = 2 if s % 3 == m else 1
        assert means[m, s, right] == (1.0 if s == 5 else 0.0)
        assert means[m, s, 3 - right] == -1.0
        assert model.transitions[m, s, 3 - right, max(s - 1, 0)] == 1.0
    assert (means[:, 0, 0] == 0.005).all()
