"""`diagnose` collects what the other tests check, and says it in words."""

from functools import partial

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import theory
from latentmdp.theory import diagnosis


def test_fields_agree_with_the_functions():
    model = random_model(0, states=4, horizon=5)
    d = lm.diagnose(model, length=1, rng=0, episodes=500)
    assert d.delta == lm.separation(model)
    assert d.closest == theory.closest_contexts(model)
    np.testing.assert_array_equal(d.sigma_tau, theory.sigma_tau(model))
    np.testing.assert_array_equal(d.sigma_h, theory.sigma_h(model))
    np.testing.assert_array_equal(d.alpha_3, theory.connectivity(model))
    np.testing.assert_array_equal(d.diameter, theory.diameter(model))
    assert d.alpha_2 == theory.reachability(model)
    assert d.connected.dtype == bool
    assert (d.sigma_tau.shape, d.sigma_h.shape) == ((4,), (4,))
    assert (d.alpha_3.shape, d.connected.shape, d.diameter.shape) == ((3,), (3,), (3,))
    m, s = d.hardest
    assert theory.reach_probs(model)[m, s] == d.alpha_2
    with pytest.raises(AttributeError):
        d.delta = 1.0


def test_the_same_seed_gives_the_same_diagnosis():
    model = random_model(1)
    first, second, other = (lm.diagnose(model, rng=seed, episodes=200) for seed in (3, 3, 4))
    assert first == second
    assert first.table() == second.table()
    assert first != other
    assert first != lm.diagnose(model, rng=3, episodes=200, total_steps=7)


def test_equality_holds_where_numbers_are_missing():
    """A state that no history ends in has NaN for its singular values."""
    model = lm.make("visitor", horizon=4)
    first, second = (lm.diagnose(model, episodes=100) for _ in range(2))
    assert np.isnan(first.sigma_h).any()
    assert first == second
    assert len(repr(first)) < 250
    assert len(repr(first.well_separated)) < 150


def test_verdicts_in_words():
    d = lm.diagnose(lm.make("separated", contexts=3, states=5, horizon=20, rng=0), episodes=300)
    text = d.table()
    assert f"Theorem 3.4 needs H >= {d.needed_horizon:.3g}" in text
    assert "you have 20: too short" in text
    assert len(d.rows()) == 14
    assert f"{d.decoding.planned:.3g}" in text
    assert all(verdict for _, _, verdict in d.rows())
    assert str(d) == text
    hard = lm.diagnose(lm.make("lower-bound", rng=0), episodes=300)
    assert "does not apply without separation" in hard.table()
    assert "no number suffices" in hard.table()
    assert hard.needed_horizon == np.inf
    assert hard.decoding is None


def test_a_single_context_hides_nothing():
    d = lm.diagnose(random_model(0).context(0), episodes=100)
    assert d.delta == np.inf
    assert d.revelation is None
    assert "nothing is hidden" in d.table()


def test_requirements_stand_beside_the_formulas():
    model = lm.make("separated", contexts=2, states=3, delta=0.8, horizon=4, rng=0)
    d = lm.diagnose(model, episodes=200, requirements=True)
    assert d.needed_clustering.value < d.clustering_episodes * 10
    assert d.needed_psr.value < d.psr_episodes
    assert "truly needed here" in d.table()


def test_policies_that_depend_on_histories():
    model = random_model(2, horizon=4)
    d = lm.diagnose(model, random_alpha_policy(model, 0), episodes=100)
    assert 0.0 <= d.alpha_2 <= 1.0
    long = model.replace(horizon=40)
    d = lm.diagnose(long, lm.QMDP().plan(long).policy, episodes=100)
    assert np.isnan(d.alpha_2)
    assert "too many histories" in d.table()


def test_a_large_model_is_diagnosed_as_far_as_possible(monkeypatch):
    model = random_model(0, states=4)
    monkeypatch.setattr(diagnosis, "MAX_ENTRIES", 10)
    monkeypatch.setattr(diagnosis, "_diameters", partial(diagnosis._diameters, most_work=10))
    d = lm.diagnose(model, episodes=50)
    assert np.isnan(d.sigma_h).all()
    assert np.isnan(d.diameter).all()
    assert d.table().count("not computed") == 4
    assert np.isnan(d.psr_episodes)


def test_bad_arguments():
    with pytest.raises(TypeError, match="LatentMDP or Trajectories"):
        lm.diagnose([1, 2])
    with pytest.raises(ValueError, match="length"):
        lm.diagnose(random_model(0), length=0)


def test_contexts_that_one_observation_can_tell_apart_are_said_to_be():
    """Disjoint supports: the rates are infinite, and no number of nats is printed."""
    T = np.zeros((2, 3, 1, 3))
    T[0, :, 0, 1] = T[1, :, 0, 2] = 1.0
    words = str(lm.diagnose(lm.LatentMDP(T, np.zeros((2, 3, 1)), horizon=4), rng=0))
    assert "rule one of the two out" in words
    assert "inf nats" not in words
