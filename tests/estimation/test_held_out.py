"""The pseudo-counts chosen follow how much the contexts differ."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.fit import FitWarning
from latentmdp.testing import trajectory_probability


def chosen(delta: float, episodes: int) -> float:
    """The strength EM chooses from its truth."""
    model = lm.make("separated", contexts=2, states=5, actions=2, horizon=30, delta=delta, rng=2)
    logs = lm.simulate(model, lm.UniformPolicy(), episodes, rng=0)
    em = lm.EM(2, shared_rewards=True)
    return em.fit(logs.without_contexts(), start=model, rng=0).pseudo_counts


def test_close_contexts_take_more() -> None:
    """Rows of a Dirichlet prior with k pseudo-counts deviate by about 1 / sqrt(k)."""
    far, near = chosen(1.0, 1000), chosen(0.25, 1000)
    assert far <= 16.0
    assert near >= 4.0 * far


def test_transitions_and_rewards_have_their_own() -> None:
    """Contexts that share what the other strength governs ask for much of one and little of it."""
    shared = lm.make("separated", contexts=2, states=5, actions=2, horizon=30, delta=1.0, rng=2)
    rng = np.random.default_rng(0)
    good = rng.uniform(size=(2, 5, 2))
    own = lm.LatentMDP(
        np.repeat(shared.transitions[:1], 2, axis=0),
        np.stack([1.0 - good, good], axis=-1),
        horizon=30,
    )
    strengths = []
    for model in (shared, own):
        logs = lm.simulate(model, lm.UniformPolicy(), 500, rng=0).without_contexts()
        fit = lm.EM(2).fit(logs, start=model, rng=0)
        strengths.append((fit.pseudo_counts, fit.reward_pseudo_counts))
    (of_moves, of_shared_rewards), (of_shared_moves, of_rewards) = strengths
    assert of_shared_rewards >= 4.0 * of_moves
    assert of_shared_moves >= 16.0 * of_rewards


def test_cross_validation_with_transitions_seen_once_stays_finite() -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(30, size=(60, 7))
    logs = lm.Trajectories.from_arrays(
        states, np.zeros((60, 6), int), rng.integers(2, size=(60, 6)), n_actions=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", FitWarning)
        fit = lm.EM(2, restarts=2).fit(logs, rng=0)
    expected = sum(np.log(trajectory_probability(fit.model, *episode[:3])) for episode in logs)
    assert fit.log_likelihood == pytest.approx(expected)


def test_pseudo_counts_pay_when_data_are_short() -> None:
    """The chosen strength has a smaller error than none at all, from the same start."""
    errors = []
    for seed in range(4):
        model = lm.make(
            "separated", contexts=2, states=6, actions=2, horizon=20, delta=0.4, rng=seed
        )
        logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=seed).without_contexts()
        errors.append(
            [
                lm.model_error(model, em.fit(logs, start=model, rng=0).model)
                for em in (
                    lm.EM(2, shared_rewards=True),
                    lm.EM(2, pseudo_counts=0.0, shared_rewards=True),
                )
            ]
        )
    chosen_strength, plain = np.mean(errors, axis=0)
    assert chosen_strength < plain
