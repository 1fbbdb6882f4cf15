"""Many runs of L-UCRL: each is that of its seed."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing
from latentmdp.online.many_runs import window_means


def world(**settings):
    return testing.random_model(3, **{"contexts": 3, "states": 5, "horizon": 4, **settings})


def test_every_run_is_that_of_its_seed():
    model, learner = world(), lm.LUCRL(replan="lazy")
    runs = learner.run_many(model, 30, 3, first_seed=5)
    assert len(runs) == 3
    assert runs.returns.shape == (3, 30)
    for i in range(3):
        alone = learner.run(model, 30, rng=5 + i)
        assert np.array_equal(runs.returns[i], alone.returns)
        assert np.array_equal(runs.beliefs[i], alone.beliefs)
        assert runs.counts[i] == alone.counts
        assert runs.counts[i].model(runs.space) == alone.model
    assert runs.settings["world"] == alone.settings["world"]
    assert repr(runs) == "ManyRuns(3 runs of LUCRL, 30 episodes each)"
    assert runs.facts()["runs"] == 3


@pytest.mark.parametrize("window", [1, 2, 4, 7])
def test_the_return_at_the_end_is_that_of_the_last_tenth(window):
    """3 of 30 episodes, or all of the windows that hold them."""
    model, learner = world(), lm.LUCRL()
    runs = learner.run_many(model, 30, 2, window=window)
    episodes = {1: 3, 2: 4, 4: 6, 7: 9}[window]  # the last window of 4, and of 7, has only 2
    alone = [learner.run(model, 30, rng=seed).returns[-episodes:].mean() for seed in (0, 1)]
    assert runs.trailing_return() == pytest.approx(np.mean(alone))
    assert runs.facts()["trailing_return"] == runs.trailing_return()


def test_threads_change_nothing_and_seeds_do():
    model, learner = world(), lm.LUCRL()
    one = learner.run_many(model, 20, 4, threads=1)
    assert learner.run_many(model, 20, 4, threads=3) == one
    assert not np.array_equal(one.returns[0], one.returns[1])
    assert learner.run_many(model, 20, 2, first_seed=2).counts == one.counts[2:]


def test_windows_are_means_of_episodes_in_a_row():
    model, learner = world(), lm.LUCRL()
    returns = learner.run_many(model, 11, 2).returns
    means = learner.run_many(model, 11, 2, window=4).returns
    expected = [returns[:, k : k + 4].mean(axis=1) for k in (0, 4, 8)]
    np.testing.assert_allclose(means, np.transpose(expected), rtol=1e-14)
    whole = learner.run_many(model, 11, 2, window=100).returns
    np.testing.assert_allclose(whole[:, 0], returns.mean(axis=1), rtol=1e-14)
    assert np.array_equal(window_means(returns, 1), returns)


class Another:
    """A planner that is not Q-MDP by its type."""

    def plan(self, model):
        return lm.QMDP().plan(model)


def test_any_planner_and_worlds_that_are_no_models():
    model = world(contexts=2, states=3, horizon=3)
    for learner, place in (
        (lm.LUCRL(Another()), model),
        (lm.LUCRL(), lm.envs.LatentMDPEnv(model)),
    ):
        runs = learner.run_many(place, 4, 2)
        alone = learner.run(place, 4, rng=1)
        assert np.array_equal(runs.returns[1], alone.returns)
        assert runs.counts[1] == alone.counts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 0}, "episodes"),
        ({"seeds": 0}, "seeds"),
        ({"window": 0}, "window"),
        ({"first_seed": -1}, "first_seed"),
        ({"threads": 0}, "threads"),
    ],
)
def test_arguments_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        lm.LUCRL().run_many(world(), **{"episodes": 5, "seeds": 2, **settings})
