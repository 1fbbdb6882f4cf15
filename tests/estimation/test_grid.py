"""The grid of [kausik2023]: 64 states, 2 contexts, 1,000 trajectories, no rewards, no labels."""

from pathlib import Path

import numpy as np
import pytest

import latentmdp as lm

FILES = [p / "shared" / "data" / "grid8x8.npz" for p in Path(__file__).resolve().parents]
FILE = next((f for f in FILES if f.exists()), None)


@pytest.mark.skipif(FILE is None, reason="grid8x8.npz is not part of the project")
@pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")
@pytest.mark.parametrize(("horizon", "accuracy"), [(20, 0.93), (60, 0.96), (100, 0.97)])
def test_default_settings_find_the_contexts(horizon: int, accuracy: float) -> None:
    grid = np.load(str(FILE))
    model = lm.LatentMDP(
        grid["transitions"],
        np.ones((2, 64, 4, 1)),
        initial=grid["initial"],
        horizon=horizon,
        reward_values=[0.0],
    )
    policy = lm.MarkovPolicy(np.broadcast_to(grid["behaviour"], (horizon, 64, 4)))
    logs = lm.simulate(model, policy, 1000, rng=horizon)
    fit = lm.EM(n_contexts=2).fit(logs.without_contexts(), rng=0)
    assert lm.clustering_accuracy(logs.contexts, fit.labels) >= accuracy
