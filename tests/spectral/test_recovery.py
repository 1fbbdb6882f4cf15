"""Recovery of the model: both variants, failures that explain themselves, bad input."""

import pickle
import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import TrajectoryError
from latentmdp.fit import FitWarning

UNIFORM = lm.UniformPolicy()


def separated(delta, seed, horizon):
    return lm.make(
        "separated", contexts=3, states=5, actions=2, horizon=horizon, delta=delta, rng=seed
    )


@pytest.fixture(scope="module")
def exact():
    """A well-separated model, its exact PSR and long episodes."""
    model = separated(1.0, 0, 40)
    return (
        model,
        lm.SpectralPSR(rank=3).from_model(model),
        lm.simulate(model, UNIFORM, 4_000, rng=1),
    )


@pytest.mark.parametrize("variant", ["paper", "practical"])
@pytest.mark.parametrize("delta", [0.5, 1.0])
def test_exact_psr_and_enough_episodes_recover_the_model(variant, delta):
    """Below 0.05 per cell: 4,000 episodes of 40 steps give rows whose L1 error is about 0.02."""
    model = separated(delta, 2, 60)
    psr = lm.SpectralPSR(rank=3).from_model(model)
    logs = lm.simulate(model, UNIFORM, 4_000, rng=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = lm.recover(psr, logs, n_contexts=3, variant=variant, rng=0)
    assert lm.model_error(model, fit.model, per_cell=True) < 0.05
    assert lm.clustering_accuracy(logs.contexts, fit.labels) > 0.97
    assert fit.converged
    aligned = fit.model.align(model)
    # First states and weights are counted: 5 standard errors of a third of the episodes.
    assert np.abs(aligned.weights - model.weights).max() < 5.0 * np.sqrt(0.25 / 1_300)
    assert np.abs(aligned.initial - model.initial).max() < 5.0 * np.sqrt(0.25 / 400)


@pytest.mark.parametrize("variant", ["paper", "practical"])
def test_learned_psr_recovers_the_model(variant):
    model = separated(1.0, 4, 30)
    short = lm.simulate(model.replace(horizon=4), UNIFORM, 300_000, rng=0)
    logs = lm.simulate(model, UNIFORM, 3_000, rng=1)
    fit = lm.recover(lm.SpectralPSR(rank=3).fit(short), logs, variant=variant, rng=0)
    assert lm.model_error(model, fit.model, per_cell=True) < 0.1
    np.testing.assert_allclose(fit.responsibilities.sum(axis=1), 1.0)


def test_the_result_depends_on_the_seed_only(exact):
    _, psr, logs = exact
    first, second = (lm.recover(psr, logs, variant="paper", rng=7) for _ in range(2))
    assert first.model == second.model
    hidden = lm.recover(psr, logs.without_contexts(), variant="paper", rng=7)
    assert hidden.model == first.model


def test_multiplicities_count(exact):
    model, psr, logs = exact
    few = logs[:1_000]
    twice = lm.Trajectories.concat([few, few])
    merged = twice.deduplicate()
    assert len(merged) == 1_000
    fit = lm.recover(psr, merged, rng=0)
    assert fit.responsibilities.shape == (1_000, 3)
    assert lm.model_error(model, fit.model, per_cell=True) < 0.05
    per_episode = [
        np.log(lm.testing.oracles.trajectory_probability(fit.model, *episode[:3]))
        for episode in few
    ]
    assert fit.log_likelihood == pytest.approx(2.0 * np.sum(per_episode), rel=1e-9)


def test_log_likelihood_is_that_of_the_episodes(exact):
    """Against the probabilities of single episodes, by the oracle."""
    _, psr, logs = exact
    fit = lm.recover(psr, logs[:500], rng=0)
    totals = [
        np.log(lm.testing.oracles.trajectory_probability(fit.model, *episode[:3]))
        for episode in logs[:500]
    ]
    assert fit.log_likelihood == pytest.approx(np.sum(totals), rel=1e-9)


def test_unreliable_psr_is_reported():
    model = separated(0.1, 0, 20)
    short = lm.simulate(model.replace(horizon=4), UNIFORM, 50_000, rng=0)
    psr = lm.SpectralPSR(rank=3).fit(short)
    logs = lm.simulate(model, UNIFORM, 1_000, rng=1)
    with pytest.warns(FitWarning, match=r"sigma_3 / sigma_4 is \d"):
        fit = lm.recover(psr, logs, rng=0)
    assert not fit.converged
    with (
        pytest.warns(FitWarning, match="sigma_3 / sigma_4"),
        pytest.raises(lm.RecoveryError, match=r"linking failed: .* links of label") as caught,
    ):
        lm.recover(psr, logs, variant="paper", rng=0)
    assert caught.value.step == "linking"
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    with (
        pytest.warns(FitWarning, match="sigma_3 / sigma_4"),
        pytest.raises(lm.RecoveryError, match="majority vote failed: 3 of 3 repetitions"),
    ):
        lm.recover(psr, logs, variant="paper", rng=0, repeats=3)


def single_runs(psr, logs, rng, number):
    """The models of as many runs of Algorithm 6 with one source of chance; failures left out."""
    models = []
    for _ in range(number):
        try:
            models.append(lm.recover(psr, logs, variant="paper", rng=rng).model)
        except lm.RecoveryError:
            continue
    return models


def test_majority_outvotes_failures(exact):
    """With few episodes some runs of Algorithm 6 fail and some give a poor model.

    The vote takes one of the models, and if more than half of them are within r of the truth it is
    within 3 r: its median distance to the others is at most 2 r, so that one of the good ones is
    that close (triangle inequality)."""
    model, psr, logs = exact
    few, failures, poorest = logs[:185], 0, 0.0
    for seed in range(4):
        models = single_runs(psr, few, np.random.default_rng(seed), 9)
        errors = np.sort([lm.model_error(model, found) for found in models])
        voted = lm.recover(psr, few, variant="paper", rng=seed, repeats=9).model
        assert voted in models
        assert lm.model_error(model, voted) <= 3.0 * errors[len(errors) // 2] + 1e-9
        assert lm.model_error(model, voted, per_cell=True) < 1e-6
        failures, poorest = failures + 9 - len(models), max(poorest, errors[-1])
    assert failures > 0
    assert poorest > 1.0


def test_fewer_contexts_than_the_rank(exact):
    _, psr, logs = exact
    assert lm.recover(psr, logs[:500], n_contexts=1, rng=0).model.n_contexts == 1


def test_a_state_that_episodes_never_reach(exact):
    _, _, logs = exact
    sizes = {"n_states": 6, "n_actions": 2, "reward_values": (0, 1)}
    wider = lm.Trajectories.from_arrays(*logs.as_arrays(), **sizes)
    with pytest.warns(UserWarning, match="state 5"):
        psr = lm.SpectralPSR(rank=3).fit(wider)
    for variant in ("paper", "practical"):
        with pytest.warns(FitWarning, match="state 5"):
            fit = lm.recover(psr, wider, variant=variant, rng=0)
        assert np.isfinite(fit.model.transitions).all()
        assert np.isfinite(fit.log_likelihood)


def bandit():
    """One state, two arms, two contexts."""
    R = [[[[0.1, 0.9], [0.8, 0.2]]], [[[0.9, 0.1], [0.2, 0.8]]]]
    return lm.LatentMDP(np.ones((2, 1, 2, 1)), R, horizon=4)


@pytest.mark.parametrize("variant", ["paper", "practical"])
def test_labels_of_a_single_state_need_no_linking(variant, recwarn):
    model = bandit()
    psr = lm.SpectralPSR(rank=2).fit(lm.simulate(model, UNIFORM, 100_000, rng=0))
    long = lm.simulate(model.replace(horizon=30), UNIFORM, 600, rng=1)
    fit = lm.recover(psr, long, variant=variant, rng=0)
    assert fit.converged
    assert lm.model_error(model, fit.model, per_cell=True) < 0.05
    assert not [w for w in recwarn if issubclass(w.category, FitWarning)]


def test_contexts_are_not_invented():
    """One MDP entered twice, where few histories occur: the result says that it is not to be used.

    sigma_3 is zero up to rounding here, since there is one state and one action."""
    R = np.array([[[[0.3, 0.7]]]])
    model = lm.LatentMDP(np.ones((2, 1, 1, 1)), np.repeat(R, 2, axis=0), horizon=3)
    psr = lm.SpectralPSR(rank=2).fit(lm.simulate(model, UNIFORM, 5_000, rng=0))
    long = lm.simulate(model.replace(horizon=20), UNIFORM, 300, rng=1)
    with pytest.warns(FitWarning, match="told from sampling noise in state 0"):
        fit = lm.recover(psr, long, rng=0)
    assert not fit.converged


def test_bad_input(exact):
    model, psr, logs = exact
    with pytest.raises(ValueError, match="n_contexts=4 needs a PSR of at least that rank"):
        lm.recover(psr, logs, n_contexts=4)
    with pytest.raises(ValueError, match="variant must be"):
        lm.recover(psr, logs, variant="best")
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        lm.recover(psr, logs, repeats=0)
    with pytest.raises(TrajectoryError, match="7 episodes cannot show 3 contexts"):
        lm.recover(psr, logs[:7])
    tiny = lm.simulate(model.replace(horizon=1), UNIFORM, 50, rng=0)
    with pytest.raises(TrajectoryError, match="at least 2 are needed"):
        lm.recover(psr, tiny, variant="paper")
    larger = lm.make("separated", contexts=3, states=6, horizon=5, rng=0)
    with pytest.raises(TrajectoryError, match=r"episode \d+, step \d+: state 5 is out of range"):
        lm.recover(psr, lm.simulate(larger, UNIFORM, 50, rng=0))
