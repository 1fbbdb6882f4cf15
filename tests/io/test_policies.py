"""Policies come back from their files as they were, and act alike."""

import numpy as np
import pytest
from support import random_model

import latentmdp as lm
from latentmdp.errors import FormatError


@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_alpha_vector_policy(tmp_path, smoothing):
    model = random_model(context_names=["a", "b", "c"])
    planned = lm.QMDP().plan(model).policy
    policy = lm.AlphaVectorPolicy(
        planned.vectors, planned.actions, planned.offsets, model, smoothing
    )
    lm.save(policy, tmp_path / "p.npz")
    loaded = lm.load(tmp_path / "p.npz")
    for name in ("vectors", "actions", "offsets"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(policy, name))
    assert loaded.model == model
    assert loaded.smoothing == smoothing
    played, again = (lm.simulate(model, p, episodes=200, rng=1) for p in (policy, loaded))
    assert played == again


@pytest.mark.parametrize(
    "actions", [np.array([0, 1, 1, 0]), np.ones((5, 4), dtype=int), np.full((5, 4, 2), 0.5)]
)
def test_markov_policy(tmp_path, actions):
    policy = lm.MarkovPolicy(actions)
    lm.save(policy, tmp_path / "p.npz")
    loaded = lm.load(tmp_path / "p.npz")
    for name in ("actions", "probabilities"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(policy, name))
    assert loaded.stationary == policy.stationary


def test_uniform_policy(tmp_path):
    lm.save(lm.UniformPolicy(), tmp_path / "p.npz")
    assert isinstance(lm.load(tmp_path / "p.npz"), lm.UniformPolicy)


def test_a_policy_is_no_json_file(tmp_path):
    with pytest.raises(FormatError, match=r"UniformPolicy is saved as \.npz"):
        lm.save(lm.UniformPolicy(), tmp_path / "p.json")
