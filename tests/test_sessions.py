"""Sessions make the decisions a simulation of the same episodes makes."""

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.sessions import SessionError


@pytest.mark.parametrize("form", ["bernoulli", "values"])
def test_batch_follows_logged_episodes(form: str) -> None:
    model = random_model(0, contexts=4, horizon=15, form=form)
    policy = random_alpha_policy(model, 1, vectors=4)
    logs = lm.simulate(model, policy, 300, rng=0)
    states, actions, rewards = logs.as_arrays()
    session = policy.batch_session(300)
    session.observe(states[:, 0])
    for t in range(15):
        np.testing.assert_array_equal(session.act(), actions[:, t])
        session.observe(states[:, t + 1], model.reward_values[rewards[:, t]])
    np.testing.assert_array_equal(session.beliefs, lm.posterior(model, logs))


def test_one_individual() -> None:
    model = random_model(0, horizon=10)
    policy = random_alpha_policy(model, 1)
    logs = lm.simulate(model, policy, 5, rng=0)
    for states, actions, rewards, _ in logs:
        session = policy.session()
        session.observe(int(states[0]))
        for t in range(10):
            assert session.act() == session.act() == actions[t]
            session.observe(int(states[t + 1]), float(model.reward_values[rewards[t]]))
        assert session.t == 10
        assert session.belief.sum() == pytest.approx(1.0)


def test_markov_and_stochastic_policies_have_sessions_too() -> None:
    """The frequency of a stochastic policy's choice is within 5 standard errors."""
    model = random_model(0)
    fixed = lm.MarkovPolicy([1, 0, 1]).batch_session(3, model)
    fixed.observe([0, 1, 2])
    np.testing.assert_array_equal(fixed.act(), [1, 0, 1])
    coin = lm.UniformPolicy().batch_session(10_000, model, rng=0)
    coin.observe(np.zeros(10_000, int))
    assert abs(coin.act().mean() - 0.5) < 5 * 0.005
    with pytest.raises(ValueError, match="UniformPolicy needs model="):
        lm.UniformPolicy().session()


def test_rewards_are_equal_up_to_rounding() -> None:
    """What a model calls .3 is paid as .1 + .2, or as a number of 32 bits."""
    model = testing.random_model(0, horizon=5, reward_values=(0.3, -1.0, 7.0, 0.0))
    followed = []
    for paid in ([0.3, 7.0, 0.0], [0.1 + 0.2, np.float32(7.0000002), 1e-13]):
        session = lm.QMDP().plan(model).policy.session()
        session.observe(0)
        for reward in paid:
            session.act()
            session.observe(1, float(reward))
        followed.append(session.beliefs)
    np.testing.assert_array_equal(*followed)
    session.act()
    with pytest.raises(ValueError, match=r"is 0\.3001: not one of"):
        session.observe(1, 0.3001)


def test_misuse_is_refused_and_loses_nothing() -> None:
    model = random_model(0, horizon=1)
    session = random_alpha_policy(model, 0).session()
    with pytest.raises(SessionError, match="before acting"):
        session.act()
    with pytest.raises(SessionError, match="a state alone"):
        session.observe(0, 1.0)
    with pytest.raises(ValueError, match=r"states\[0\] is 3: must be below n_states=3"):
        session.observe(3)
    session.observe(0)
    with pytest.raises(SessionError, match=r"act\(\) before"):
        session.observe(0, 1.0)
    action = session.act()
    with pytest.raises(ValueError, match="not one of the reward values"):
        session.observe(0, 0.5)
    with pytest.raises(SessionError, match="rewards are missing"):
        session.observe(0)
    assert session.act() == action
    session.observe(0, 1.0)
    with pytest.raises(SessionError, match="the horizon is 1 steps"):
        session.act()
    with pytest.raises(SessionError, match="the horizon is 1 steps"):
        session.observe(0, 1.0, action=0)


def test_a_callable_is_followed_like_any_policy():
    """The same decisions as asking it by hand; a stochastic one draws, and repeats itself."""
    model = random_model(3)
    seen = []

    def alternating(history):
        seen.append(history)
        return len(history.actions) % model.n_actions

    session = lm.sessions.Session(alternating, model)
    session.observe(0)
    first = session.act()
    session.observe(1, float(model.reward_values[0]))
    assert (first, session.act()) == (0, 1 % model.n_actions)
    assert seen[-1].states == (0, 1)
    assert seen[-1].actions == (0,)
    assert seen[-1].rewards == (0,)

    def stochastic(history):
        return np.full(model.n_actions, 1.0 / model.n_actions)

    many = [lm.sessions.BatchSession(stochastic, model, 500, rng=7) for _ in range(2)]
    for batch in many:
        batch.observe(np.zeros(500, int))
    np.testing.assert_array_equal(many[0].act(), many[1].act())
    assert np.unique(many[0].act()).size == model.n_actions
    wrong = lm.sessions.Session(lambda history: [0.5, 0.6], model)
    wrong.observe(0)
    with pytest.raises(ValueError, match=r"the policy returned .* sums to 1\.1"):
        wrong.act()
