"""Subsets of tests and histories that keep the rank."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.spectral import population_moments, select
from latentmdp.testing import oracles, random_model

MODEL = random_model(1, contexts=3, states=3, actions=2, horizon=5)


@pytest.mark.parametrize("length", [1, (2, 1), (1, 2)])
@pytest.mark.parametrize("keep", [3, 5])
def test_a_few_tests_and_histories_are_sufficient(length, keep):
    chosen = select(population_moments(MODEL, length), 3, keep, keep)
    assert all(part.size == keep for part in (*chosen.tests, *chosen.histories))
    assert np.isfinite(chosen.condition_numbers).all()
    psr = lm.SpectralPSR(rank=3, length=length, selection=chosen).from_model(MODEL)
    rng = np.random.default_rng(0)
    for _ in range(5):
        sequence = rng.integers(3, size=5), rng.integers(2, size=4), rng.integers(2, size=4)
        truth = oracles.trajectory_probability(MODEL, *sequence)
        assert psr.sequence_probability(*sequence) == pytest.approx(truth, abs=1e-8)


def test_pivoting_beats_random_subsets():
    """The selection's smallest singular value is above the median of 200 random subsets."""
    moments = population_moments(MODEL)
    chosen = select(moments, 3, 3, 3)
    rng = np.random.default_rng(0)
    for s in range(3):
        joint = moments.joint_probs(s)
        n = joint.shape[0]
        pairs = [(rng.choice(n, 3, False), rng.choice(n, 3, False)) for _ in range(200)]
        values = [np.linalg.svd(joint[np.ix_(*p)], compute_uv=False)[2] for p in pairs]
        assert chosen.singular_values[s, 2] > np.median(values)


def test_equality_is_by_content():
    moments = population_moments(MODEL)
    assert select(moments, 3, 4, 4) == select(moments, 3, 4, 4)
    assert select(moments, 3, 4, 4) != select(moments, 3, 5, 4)


def test_too_few_cannot_be_asked_for():
    with pytest.raises(ValueError, match="tests must be at least rank=3, got 2"):
        select(population_moments(MODEL), 3, 2, 5)
