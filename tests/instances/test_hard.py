"""The claims of the lower bound, by enumerating every action sequence and every observation."""

from itertools import product

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.testing import optimal_value, policy_value


def observation_law(model, actions):
    """P(s_1.., r_1.. || do actions) as a dict, by following every context."""
    P = model.observation_probs()
    law = {}
    for m in range(model.n_contexts):
        paths = {((0,), ()): model.weights[m]}
        for a in actions:
            longer = {}
            for (states, rewards), p in paths.items():
                for s, z in np.argwhere(P[m, states[-1], a] > 0):
                    key = ((*states, int(s)), (*rewards, int(z)))
                    longer[key] = longer.get(key, 0.0) + p * P[m, states[-1], a, s, z]
            paths = longer
        for key, p in paths.items():
            law[key] = law.get(key, 0.0) + p
    return law


def split_right_from_wrong(model):
    """(value, law) of the best sequence, and of all the others."""
    laws = {
        actions: observation_law(model, actions)
        for actions in product(range(model.n_actions), repeat=model.horizon)
    }
    values = {
        actions: sum(p * sum(rewards) for (_, rewards), p in law.items())
        for actions, law in laws.items()
    }
    right = max(values, key=lambda actions: values[actions])
    wrong = [actions for actions in laws if actions != right]
    return right, values, laws, wrong


def assert_same_law(first, second):
    assert first.keys() == second.keys()
    for key, p in first.items():
        assert p == pytest.approx(second[key], abs=1e-15)


@pytest.mark.parametrize(
    ("M", "A"), [(1, 3), (2, 2), (2, 3), (3, 2), (4, 2), (3, 3), (5, 2), (4, 3)]
)
def test_plain(M, A):
    model = lm.make("lower-bound", contexts=M, actions=A, rng=M)
    assert (model.n_states, model.n_actions, model.horizon) == (M + 1, A, M)
    right, values, laws, wrong = split_right_from_wrong(model)
    assert values[right] == pytest.approx(1 / M, abs=1e-15)
    for actions in wrong:
        assert values[actions] == 0
        assert_same_law(laws[actions], laws[wrong[0]])


@pytest.mark.parametrize(("M", "A", "depth"), [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3)])
def test_amplified(M, A, depth):
    model = lm.make(
        "lower-bound", variant="amplified", contexts=M, actions=A, depth=depth, rng=depth
    )
    n = (A**depth - 1) // (A - 1)
    assert model.n_states == M * n + 1
    assert model.horizon == M * depth
    right, values, laws, wrong = split_right_from_wrong(model)
    assert values[right] == pytest.approx(1 / M, abs=1e-15)
    # Sequences differ in the nodes they walk through, which they choose themselves: what happens
    # beyond that choice, being sunk by stage k, must be the same for all.
    sink = model.n_states - 1
    first = sink_times(laws[wrong[0]], sink)
    for actions in wrong:
        assert values[actions] == 0
        assert_same_law(sink_times(laws[actions], sink), first)


def sink_times(law, sink):
    times = {}
    for (states, rewards), p in law.items():
        assert sum(rewards) == 0
        key = states.index(sink)
        times[key] = times.get(key, 0.0) + p
    return times


@pytest.mark.parametrize(("M", "A"), [(1, 2), (2, 2), (3, 2), (2, 3), (4, 2)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_epsilon(M, A, epsilon):
    model = lm.make("lower-bound", variant="epsilon", contexts=M, actions=A, epsilon=epsilon, rng=1)
    right, values, laws, wrong = split_right_from_wrong(model)
    assert values[right] == pytest.approx(0.5 + epsilon / M, abs=1e-14)
    for actions in wrong:
        assert values[actions] == pytest.approx(0.5, abs=1e-14)
        assert_same_law(laws[actions], laws[wrong[0]])
    for _, rewards in laws[right]:
        assert sum(rewards[:-1]) == 0


def test_epsilon_and_trees_together():
    model = lm.make("lower-bound", variant="epsilon", contexts=2, depth=2, epsilon=0.2, rng=0)
    _, values, _, wrong = split_right_from_wrong(model)
    assert max(values.values()) == pytest.approx(0.5 + 0.2 / 2, abs=1e-14)
    assert {round(values[actions], 12) for actions in wrong} == {0.5}


@pytest.mark.parametrize("M", [2, 3, 4])
def test_seeing_the_states_does_not_help(M):
    model = lm.make("lower-bound", contexts=M, rng=M)
    assert optimal_value(model) == pytest.approx(1 / M, abs=1e-15)


def test_the_right_sequence_is_drawn():
    sequences = {split_right_from_wrong(lm.make("lower-bound", rng=seed))[0] for seed in range(30)}
    assert len(sequences) > 4


def test_one_action_is_never_wrong():
    model = lm.make("lower-bound", contexts=3, actions=1, rng=0)
    assert policy_value(model, lambda history: 0) == pytest.approx(1 / 3)
