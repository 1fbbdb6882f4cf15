"""Gymnasium's tables as models: the same outcomes, an end that is an end, no dense array."""

import gymnasium
import numpy as np
import pytest

import latentmdp as lm
from latentmdp import model as model_module
from latentmdp.envs import tabular_model

MAPS = (["SFF", "HFF", "FFG"], ["SHF", "FFF", "FFG"])


def by_simulation(env, actions, episodes):
    """Mean return of a fixed sequence of actions in the environment itself."""
    total = 0.0
    for episode in range(episodes):
        env.reset(seed=episode)
        for action in actions:
            _, reward, terminated, _, _ = env.step(action)
            total += reward
            if terminated:
                break
    return total / episodes


def by_table(model, actions):
    """Expected return of a fixed sequence of actions in a model, from its outcomes."""
    table, A = model.outcomes, model.n_actions
    reached, total = model.initial[0].copy(), 0.0
    for action in actions:
        after = np.zeros_like(reached)
        for s in np.flatnonzero(reached):
            here = slice(*table.starts[s * A + action : s * A + action + 2])
            mass = reached[s] * table.probs[here, 0]
            total += mass @ model.reward_values[table.reward[here]]
            np.add.at(after, table.next_state[here], mass)
        reached = after
    return total


def test_outcomes_are_those_of_the_table():
    lakes = [gymnasium.make("FrozenLake-v1", is_slippery=s) for s in (False, True)]
    model = tabular_model(lakes, horizon=10)
    table = lakes[1].unwrapped.P
    holes = [5, 7, 11, 12, 15]
    assert np.flatnonzero(model.terminal).tolist() == holes
    for s in set(range(16)) - set(holes):
        for a in range(4):
            expected = np.zeros((16, 2))
            for p, x, r, _ in table[s][a]:
                expected[x, int(r)] += p
            np.testing.assert_allclose(model.observation_probs()[1, s, a], expected)


@pytest.mark.parametrize(
    ("name", "states", "terminal"),
    [("Taxi-v4", 500, 4), ("CliffWalking-v1", 48, 1), ("FrozenLake8x8-v1", 64, 11)],
)
def test_known_environments_never_become_dense(monkeypatch, name, states, terminal):
    def refuse(*_):
        raise AssertionError("a dense array was made")

    monkeypatch.setattr(model_module, "dense_transitions", refuse)
    monkeypatch.setattr(model_module, "dense_joint", refuse)
    model = tabular_model([gymnasium.make(name)], horizon=50)
    assert model.is_table
    assert model.n_states == states
    assert model.terminal.sum() == terminal
    assert tabular_model([gymnasium.make(name)], horizon=None, discount=0.9).horizon is None


def test_returns_are_those_of_the_environment():
    cliff = gymnasium.make("CliffWalking-v1")
    model = tabular_model([cliff], horizon=20)
    for actions in ([0, *[1] * 11, 2, 1, 1], [1, 0, 1, 2, 0, 0]):
        assert by_table(model, actions) == by_simulation(cliff, actions, 1)
    lake = gymnasium.make("FrozenLake-v1", is_slippery=True)
    actions = [2, 1, 1, 2, 1, 2, 2, 1, 1, 2] * 3
    found = by_simulation(lake, actions, 4000)
    p = by_table(tabular_model([lake], horizon=30), actions)
    # A Bernoulli mean of 4,000 episodes: 4 standard errors, false alarm below 1e-4.
    assert abs(found - p) < 4 * np.sqrt(p * (1 - p) / 4000) + 1e-12


def test_what_ends_in_one_context_only_gets_a_final_state():
    lakes = [gymnasium.make("FrozenLake-v1", desc=d, is_slippery=False) for d in MAPS]
    model = tabular_model(lakes, horizon=12)
    assert model.n_states == 10
    assert np.flatnonzero(model.terminal).tolist() == [8, 9]
    down, right = 1, 2
    assert model.transitions[0, 0, down, 9] == 1.0  # a hole in the first lake
    assert model.transitions[1, 0, down, 3] == 1.0
    assert model.transitions[1, 0, right, 9] == 1.0


def test_environments_that_do_not_fit():
    with pytest.raises(ValueError, match="same states and actions"):
        tabular_model([gymnasium.make("FrozenLake-v1"), gymnasium.make("Taxi-v4")], horizon=5)
    with pytest.raises(ValueError, match="table P"):
        tabular_model([gymnasium.make("CartPole-v1")], horizon=5)
    with pytest.raises(ValueError, match="table P"):
        tabular_model([], horizon=5)
    with pytest.raises(lm.errors.ModelError, match="needs a horizon or a discount below 1"):
        lm.Memoryless().plan(tabular_model([gymnasium.make("FrozenLake-v1")], horizon=None))
