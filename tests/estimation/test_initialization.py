"""`initialize`: as good as EM from the truth, whatever is shared, and any number of contexts."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import TrajectoryError

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


def data(
    delta: float = 0.3, seed: int = 0, rewards: str = "shared", horizon: int = 40
) -> tuple[lm.LatentMDP, lm.Trajectories, lm.Trajectories]:
    model = lm.make(
        "separated", contexts=3, states=7, actions=2, horizon=horizon, delta=delta,
        rewards=rewards, reward_density=1.0, rng=seed,
    )  # fmt: skip
    short = lm.simulate(model.replace(horizon=4), lm.UniformPolicy(), 30_000, rng=seed)
    long = lm.simulate(model, lm.UniformPolicy(), 2000, rng=seed + 1)
    return model, short, long


@pytest.mark.parametrize("seed", [0, 2])
def test_as_good_as_em_from_the_truth(seed: int) -> None:
    model, short, long = data(seed=seed)
    fit = lm.initialize(short, long, n_contexts=3, rng=seed)
    truth = lm.EM(3, pseudo_counts=0.0, shared_rewards=True).fit([short, long], start=model)
    assert lm.model_error(model, fit.model) < 1.1 * lm.model_error(model, truth.model)
    assert fit.responsibilities.shape == (len(long), 3)
    assert fit.converged
    shared = fit.model.reward_probs
    assert np.array_equal(shared[0], shared[1])


def test_rewards_that_differ_are_found_and_used() -> None:
    model, short, long = data(delta=0.1, rewards="own", seed=3)
    fit = lm.initialize(short, long, n_contexts=3, rng=0)
    assert not np.array_equal(fit.model.reward_probs[0], fit.model.reward_probs[1])
    best = lm.clustering_accuracy(long.contexts, lm.posterior(model, long).argmax(axis=1))
    assert lm.clustering_accuracy(long.contexts, fit.labels) > best - 0.02
    told = lm.initialize(short, long, n_contexts=3, shared_rewards=True, rng=0)
    assert lm.clustering_accuracy(long.contexts, told.labels) < best - 0.1


def test_long_episodes_alone_will_do() -> None:
    model, _, long = data(delta=0.5, seed=2)
    fit = lm.initialize(None, long, 3, rng=0)
    assert lm.clustering_accuracy(long.contexts, fit.labels) > 0.9
    assert lm.model_error(model, fit.model, per_cell=True) < 0.1


def test_bad_arguments() -> None:
    short = long = lm.simulate(lm.make("separated", rng=0), lm.UniformPolicy(), 100, rng=0)
    with pytest.raises(ValueError, match="method"):
        lm.initialize(short, long, 3, method="magic")
    with pytest.raises(ValueError, match="n_contexts"):
        lm.initialize(short, long, 0)
    with pytest.raises(ValueError, match="needs short episodes and a known n_contexts"):
        lm.initialize(None, long, 3, method="psr")
    one_step = lm.simulate(lm.make("separated", horizon=1, rng=0), lm.UniformPolicy(), 100, rng=0)
    with pytest.raises(TrajectoryError, match="too short"):
        lm.initialize(None, one_step, 3)


def test_progress_goes_to_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    _, short, long = data(delta=0.8)
    lm.initialize(short[:3000], long[:200], 3, progress=True, rng=0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "rewards shared: own ones gain" in captured.err


@pytest.mark.parametrize("seed", range(4))
def test_hardly_any_data_are_no_failure(seed: int) -> None:
    """One cell has no room for two directions, and a held-out fold of few episodes may be empty."""
    logs = lm.Trajectories.from_lists([[0] * 4] * 3, [[0] * 3] * 3, [[0] * 3] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert lm.initialize(None, logs, 3, rng=seed).model.n_contexts == 3
        assert lm.initialize(None, logs, "auto", rng=seed).model.n_contexts == 1
