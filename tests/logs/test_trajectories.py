"""Trajectories: the flat layout, slicing, joining and merging, against lists of episodes."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import batches, random_model

from latentmdp.errors import TrajectoryError
from latentmdp.logs import Trajectories


def as_tuples(logs):
    """Each episode as plain tuples: the oracle works on these."""
    return [(tuple(e.states), tuple(e.actions), tuple(e.rewards), e.context) for e in logs]


@given(batches())
def test_layout(logs):
    for i, episode in enumerate(logs):
        start, stop = logs.offsets[i], logs.offsets[i + 1]
        np.testing.assert_array_equal(episode.actions, logs.actions[start:stop])
        np.testing.assert_array_equal(episode.states, logs.states[start + i : stop + i + 1])
        assert len(episode.states) == len(episode.actions) + 1 == logs.lengths[i] + 1
    assert logs.n_steps == logs.lengths.sum()
    assert logs.n_episodes == logs.multiplicities().sum()


@given(batches())
def test_lists_and_back(logs):
    parts = [[list(x) for x in column] for column in zip(*((e[0], e[1], e[2]) for e in logs))]
    states, actions, rewards = parts or ([], [], [])
    rebuilt = Trajectories.from_lists(
        states,
        actions,
        rewards,
        contexts=logs.contexts,
        counts=logs.counts,
        n_states=logs.n_states,
        n_actions=logs.n_actions,
        reward_values=logs.reward_values,
    )
    assert rebuilt == logs


@given(batches(), st.data())
def test_indexing_agrees_with_lists(logs, data):
    n = len(logs)
    key = data.draw(st.slices(n))
    assert as_tuples(logs[key]) == as_tuples(logs)[key]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    assert as_tuples(logs[mask]) == [e for e, keep in zip(as_tuples(logs), mask) if keep]
    if n:
        order = data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=8))
        assert as_tuples(logs[np.array(order)]) == [as_tuples(logs)[i] for i in order]
        assert as_tuples([logs[order[0]]]) == [as_tuples(logs)[order[0]]]
        if logs.counts is not None:
            np.testing.assert_array_equal(logs[np.array(order)].counts, logs.counts[order])


def test_indexing_out_of_range():
    logs = Trajectories.from_arrays([[0, 1]], [[0]], [[0]])
    with pytest.raises(IndexError, match="episode 1 of 1"):
        logs[1]
    with pytest.raises(IndexError, match="1-d"):
        logs[None]


@given(batches(), st.integers(0, 6))
def test_concat_undoes_slicing(logs, cut):
    assert Trajectories.concat([logs[:cut], logs[cut:]]) == logs


def test_concat_of_unlike_batches():
    one = Trajectories.from_arrays([[0, 1]], [[0]], [[0]], reward_values=(0.0, 1.0))
    two = Trajectories.from_arrays([[0, 4]], [[2]], [[0]], reward_values=(0.0, 1.0), counts=[3])
    joined = Trajectories.concat([one, two])
    assert joined.counts.tolist() == [1, 3]
    assert (joined.n_states, joined.n_actions) == (5, 3)
    with pytest.raises(TrajectoryError, match="batch 1 has other reward_values"):
        Trajectories.concat([one, Trajectories.from_arrays([[0, 1]], [[0]], [[0]])])
    with pytest.raises(TrajectoryError, match="batch 1"):
        Trajectories.concat([one, two.with_contexts([0])])
    with pytest.raises(ValueError, match="at least one"):
        Trajectories.concat([])


@given(batches())
def test_deduplicate_counts_identical_episodes(logs):
    doubled = Trajectories.concat([logs, logs])
    merged, inverse = doubled.deduplicate_with_inverse()
    expected = Counter()
    for episode, count in zip(as_tuples(doubled), doubled.multiplicities()):
        expected[episode] += int(count)
    assert dict(zip(as_tuples(merged), merged.counts.tolist())) == dict(expected)
    assert as_tuples(merged) == list(expected)  # in the order of first occurrence
    assert [as_tuples(merged)[i] for i in inverse] == as_tuples(doubled)
    assert merged.n_episodes == doubled.n_episodes


def test_arrays_and_back():
    rng = np.random.default_rng(0)
    states, actions, rewards = (rng.integers(0, 3, (4, n)) for n in (6, 5, 5))
    logs = Trajectories.from_arrays(states, actions, rewards)
    for mine, given_array in zip(logs.as_arrays(), (states, actions, rewards)):
        np.testing.assert_array_equal(mine, given_array)
    uneven = Trajectories.from_lists([[0, 1], [0, 1, 2]], [[0], [0, 1]], [[0], [0, 0]])
    with pytest.raises(TrajectoryError, match="episode 0 has 1 steps, episode 1 has 2"):
        uneven.as_arrays()


@given(batches(), st.sampled_from([1.0, 0.5]))
def test_returns_are_sums_of_values(logs, discount):
    values = logs.reward_values
    expected = [
        sum(discount**t * (r if values is None else values[r]) for t, r in enumerate(e.rewards))
        for e in logs
    ]
    np.testing.assert_allclose(logs.returns(discount), expected, atol=1e-12)
    assert logs.returns(discount).dtype == np.float64


def test_contexts_can_be_hidden_and_given():
    logs = Trajectories.from_arrays([[0, 1], [1, 0]], [[0], [1]], [[0], [0]], contexts=[1, 0])
    hidden = logs.without_contexts()
    assert hidden.contexts is None
    assert hidden.with_contexts([1, 0]) == logs
    with pytest.raises(TrajectoryError, match="2 entries, got 3"):
        hidden.with_contexts([0, 1, 2])


@given(batches())
def test_copies_are_equal_and_read_only(logs):
    for twin in (copy.copy(logs), copy.deepcopy(logs), pickle.loads(pickle.dumps(logs))):
        assert twin == logs
        assert not twin.states.flags.writeable
    with pytest.raises(AttributeError):
        logs.states = 0
    with pytest.raises(AttributeError):
        del logs.states


def test_validate_against_a_model():
    model = random_model(M=2, S=3, A=2)
    states, actions, rewards = [[0, 1], [2, 1, 0]], [[0], [1, 0]], [[0], [1, 0]]
    Trajectories.from_lists(states, actions, rewards, contexts=[0, 1]).validate(model)
    with pytest.raises(TrajectoryError, match="episode 1, step 1: state 3"):
        Trajectories.from_lists([[0, 1], [2, 3, 0]], actions, rewards).validate(model)
    with pytest.raises(TrajectoryError, match="episode 1, step 0: action 2"):
        Trajectories.from_lists(states, [[0], [2, 0]], rewards).validate(model)
    with pytest.raises(TrajectoryError, match="episode 0, step 0: reward index 2"):
        Trajectories.from_lists(states, actions, [[2], [1, 0]]).validate(model)
    with pytest.raises(TrajectoryError, match="episode 1: context 2"):
        Trajectories.from_lists(states, actions, rewards, contexts=[0, 2]).validate(model)
    with pytest.raises(TrajectoryError, match="reward_values"):
        Trajectories.from_lists(states, actions, rewards, reward_values=(0.0, 2.0)).validate(model)


def test_zero_length_episodes_do_not_blur_the_place_of_an_error():
    logs = Trajectories.from_lists([[0], [0], [0, 0, 9]], [[], [], [0, 7]], [[], [], [0, 0]])
    with pytest.raises(TrajectoryError, match="episode 2, step 2: state 9"):
        logs.validate(random_model())
    logs = Trajectories.from_lists([[0], [0], [0, 0, 0]], [[], [], [0, 7]], [[], [], [0, 0]])
    with pytest.raises(TrajectoryError, match="episode 2, step 1: action 7"):
        logs.validate(random_model())


def test_repr():
    logs = Trajectories.from_lists([[0, 1], [0]], [[0], []], [[0], []], counts=[2, 3])
    assert repr(logs) == "Trajectories(2 episodes, lengths 0 to 1, 5 with multiplicities)"
    assert repr(logs[:0]) == "Trajectories(no episodes)"
