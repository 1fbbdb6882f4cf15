"""Many runs of L-UCRL: each is that of its seed, and a GPU's induction rounds as the CPU's."""

import numpy as np
import pytest
from numba import njit

import latentmdp as lm
from latentmdp import testing
from latentmdp._kernels.optimism import back_up_optimistically, value_span
from latentmdp.online.many_runs import window_means
from latentmdp.worlds import ModelWorld


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
    assert dict(runs.facts())["runs"] == "3"


@pytest.mark.parametrize("window", [1, 2, 4, 7])
def test_the_return_at_the_end_is_that_of_the_last_tenth(window):
    """3 of 30 episodes, or all of the windows that hold them."""
    model, learner = world(), lm.LUCRL()
    runs = learner.run_many(model, 30, 2, window=window)
    episodes = {1: 3, 2: 4, 4: 6, 7: 9}[window]  # the last window of 4, and of 7, has only 2
    alone = [learner.run(model, 30, rng=seed).returns[-episodes:].mean() for seed in (0, 1)]
    assert runs.trailing_return() == pytest.approx(np.mean(alone))
    assert f"{np.mean(alone):.4g}" in dict(runs.facts()).values()


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
        ({"device": "gpu"}, "device"),
    ],
)
def test_arguments_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        lm.LUCRL().run_many(world(), **{"episodes": 5, "seeds": 2, **settings})


@njit
def planned_alone(estimate, optimistic, S):
    """Backward induction state by state, as the threads of a GPU do it."""
    M, H = optimistic.values.shape[:2]
    for m in range(M):
        value, later = np.zeros(S), np.zeros(S)
        origin, span = 0.0, 0.0
        for t in range(H - 1, -1, -1):
            for s in range(S):
                value[s] = back_up_optimistically(
                    estimate, optimistic, later, m, t, s, origin, span
                )
            origin = later[0]
            later[:] = value
            span = value_span(optimistic, m, value)


@pytest.mark.parametrize(
    "bonus", [lm.Bonus(scale=1e-3), lm.VarianceBonus(), lm.VarianceBonus.printed(), None]
)
@pytest.mark.parametrize(
    "model",
    [
        world(),
        world(states=9, actions=3, horizon=7, discount=0.8),
        world(states=6, forbidden=0.3, n_terminal=2, reward_values=(-2.0, 0.0, 1.5), zeros=0.3),
        world(contexts=1, states=17, actions=1),
    ],
    ids=["plain", "discounted", "costs and ends", "one context"],
)
def test_induction_state_by_state_rounds_as_the_vectors_do(model, bonus):
    """The oracle is the vector code; a GPU calls the other, and must give the same bits."""
    learner, place = lm.LUCRL(bonus=bonus), ModelWorld(model)
    learning = learner.begin(place, 60, 7)
    learning.play(60)
    empirical = learning.empirical
    empirical.require_plan()
    empirical.replan()
    M, S, A, _ = model.dimensions
    shape = (M, model.horizon, A, -1)
    planned = empirical.optimistic.values.copy().reshape(shape)[..., :S]
    empirical.optimistic.values[:] = -7.0
    planned_alone(empirical.estimate, empirical.optimistic, S)
    again = empirical.optimistic.values.reshape(shape)[..., :S]
    assert np.array_equal(again, planned)
