"""What logs show: coverage, singular values with their noise, connectedness."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import theory


def uniform_logs(model, episodes, rng=0):
    return lm.simulate(model, lm.UniformPolicy(), episodes, rng=rng)


@pytest.mark.parametrize("seed", range(5))
def test_singular_values_are_those_of_the_population_up_to_the_noise(seed):
    """In 160 other cases the error was 0.67 of the noise in the median and at most 1.3."""
    model = lm.make("separated", contexts=3, states=4, actions=2, delta=1.0, horizon=4, rng=0)
    found = lm.diagnose(uniform_logs(model, 100_000, seed), lm.UniformPolicy(), rng=seed)
    weights = model.weights[:, None]
    tests, histories = theory.prediction_matrices(model), theory.history_matrices(model)
    for s, (L, H) in enumerate(zip(tests, histories)):
        population = np.linalg.svd(L @ (weights * H), compute_uv=False)
        # Weyl: singular values move by at most the error's norm, of which the noise is an estimate
        assert (
            np.abs(found.singular_values[s][: population.size] - population).max()
            < 2 * found.noise[s]
        )
    shares = theory.end_state_probs(model)
    error = np.sqrt(shares * (1.0 - shares) / 100_000)
    assert (np.abs(found.end_state_probs - shares) < 5.5 * error).all()  # false alarm 1e-6 in all
    assert found.n_contexts_seen == 3


def test_the_policy_is_estimated_when_it_is_not_given():
    model = lm.make("separated", contexts=2, states=3, actions=2, delta=1.0, horizon=2, rng=0)
    probabilities = np.tile([0.8, 0.2], (3, 1))
    logs = lm.simulate(model, lm.MarkovPolicy(probabilities), 200_000, rng=1)
    guessed, told = lm.diagnose(logs), lm.diagnose(logs, lm.MarkovPolicy(probabilities))
    for a, b in zip(guessed.singular_values, told.singular_values):
        np.testing.assert_allclose(a, b, atol=0.01)


@pytest.mark.parametrize("episodes", [2_000, 50_000])
@pytest.mark.parametrize("seed", range(5))
def test_one_context_shows_one(seed, episodes):
    """All but the first singular value are noise; none of 180 other logs showed a second one, so
    that the chance is below 2% (95% confidence) for each."""
    model = random_model(100 + seed, contexts=1, states=3, horizon=4)
    assert lm.diagnose(uniform_logs(model, episodes, seed)).n_contexts_seen == 1


def test_counts_and_coverage():
    model = random_model(1)
    logs = lm.simulate(model, lm.MarkovPolicy(np.zeros(3, dtype=int)), 1000, rng=0)
    found = lm.diagnose(logs.deduplicate())
    states, actions, _ = logs.as_arrays()
    expected = np.zeros((3, 2), dtype=int)
    np.add.at(expected, (states[:, :-1].ravel(), actions.ravel()), 1)
    np.testing.assert_array_equal(found.visits[:, : logs.n_actions], expected[:, : logs.n_actions])
    assert (found.episodes, found.steps) == (1000, 3000)
    assert "never tried" in found.table() or logs.n_actions == 1


def test_equality_is_by_content():
    logs = uniform_logs(random_model(1), 200)
    assert lm.diagnose(logs) == lm.diagnose(logs)
    assert lm.diagnose(logs) != lm.diagnose(logs[:100])
    assert "episodes=200" in repr(lm.diagnose(logs))
    assert len(repr(lm.diagnose(logs))) < 150


def test_unconnected_states_are_reported():
    logs = lm.Trajectories.from_arrays([[0, 0, 0], [1, 1, 1]], [[0, 0], [0, 0]], [[0, 0], [0, 1]])
    found = lm.diagnose(logs)
    assert not found.connected
    assert "need a model" in found.table()


def test_bad_logs():
    logs = lm.Trajectories.from_arrays([[0, 1]], [[0]], [[1]])
    with pytest.raises(ValueError, match="2 steps"):
        lm.diagnose(logs)
    longer = lm.Trajectories.from_arrays([[0, 1, 0]], [[0, 0]], [[1, 0]])
    with pytest.raises(TypeError, match="policy"):
        lm.diagnose(longer, lambda history: 0)
