"""Q-learning: its sweep is the formula, and it finds what can be found."""

import gymnasium
import numpy as np
import pytest

import latentmdp as lm
from latentmdp.envs import MixtureEnv, adapt, tabular_model
from latentmdp.online import QLearning
from latentmdp.testing import check_learner, random_model
from latentmdp.worlds import as_world


def with_an_end(seed):
    model = random_model(seed, contexts=2, states=5, actions=3, horizon=7)
    allowed = np.random.default_rng(seed).random((5, 3)) < 0.7
    allowed[:, 0], allowed[4] = True, False
    initial = np.tile([0.25, 0.25, 0.25, 0.25, 0.0], (2, 1))
    return model.replace(allowed=allowed, initial=initial)


def test_a_sweep_is_the_formula_from_the_last_step_to_the_first():
    """Every episode of a run, learned from by hand, gives the tables of the run."""
    model = with_an_end(3)
    learning = QLearning().begin(as_world(model), 80, key=1)
    values, visits = np.ones((2, 5, 3)), np.zeros((2, 5, 3))
    batch = learning.play(80)
    for (states, actions, rewards, _), m in zip(batch, batch.contexts):
        for t in range(len(actions) - 1, -1, -1):
            s, a, n = states[t], actions[t], states[t + 1]
            rest = 0.0 if model.terminal[n] else values[m, n, model.allowed[n]].max()
            visits[m, s, a] += 1.0
            target = model.reward_values[rewards[t]] + (1.0 - 1.0 / 7) * rest
            values[m, s, a] += visits[m, s, a] ** -0.7 * (target - values[m, s, a])
    np.testing.assert_array_equal(learning.q_visits, visits)
    np.testing.assert_allclose(learning.values, values, rtol=1e-12)


def test_told_the_context_it_earns_more_than_anyone_who_must_infer_it():
    model = lm.make("wait-hub", rng=0)
    plan = lm.HSVI(gap=0.005, time_limit=10.0).plan(model)
    run = QLearning().run(model, 3_000, rng=0)
    informed = lm.QMDP().plan(model).upper
    stderr = run.returns[-1_000:].std() / np.sqrt(1_000)
    assert plan.upper < run.returns[-1_000:].mean() < informed + 4.5 * stderr


def test_blind_it_earns_no_more_than_the_best_memoryless_policy():
    model = random_model(5, contexts=3, states=4, actions=2, horizon=6)
    best = lm.Memoryless(time_limit=20.0).plan(model)
    assert best.converged
    run = QLearning(informed=False).run(model, 4_000, rng=0)
    stderr = run.returns[-2_000:].std() / np.sqrt(2_000)
    assert run.returns[-2_000:].mean() < best.upper + 4.5 * stderr
    assert lm.evaluate(model, run.policy).mean <= best.upper + 1e-9


def lakes():
    maps = (["SFF", "HFF", "FFG"], ["SHF", "FFF", "FFG"])
    return [gymnasium.make("FrozenLake-v1", desc=d, is_slippery=False) for d in maps]


def test_in_an_environment_that_tells_the_context():
    env = MixtureEnv(lakes(), horizon=12, tell_context=True)
    run = QLearning().run(env, 300, rng=0)
    assert run.returns[-100:].mean() > 0.9
    told = env.reset(seed=0)[1]["context"]
    assert told == env.step(0)[4]["context"]
    hidden = lm.QMDP().plan(tabular_model(lakes(), horizon=12))
    assert hidden.upper == pytest.approx(1.0)  # what can be earned by one who knows


def test_an_environment_that_hides_the_context_is_refused():
    with pytest.raises(ValueError, match="tell_context=True"):
        QLearning().run(MixtureEnv(lakes(), horizon=12), 5, rng=0)
    with pytest.raises(ValueError, match="n_contexts: the environment"):
        QLearning().run(adapt(lakes()[0]), 5, rng=0)
    blind = QLearning(informed=False).run(adapt(lakes()[0], horizon=12), 100, rng=0)
    assert blind.returns[-50:].mean() > 0.8


@pytest.mark.parametrize("informed", [True, False])
def test_it_conforms(informed):
    check_learner(QLearning(informed=informed))


@pytest.mark.parametrize("wrong", [{"rate": 0.5}, {"random_until": -1.0}, {"optimism": np.nan}])
def test_bad_arguments(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        QLearning(**wrong)
