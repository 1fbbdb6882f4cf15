"""Logs as long tables: round trips, any order of rows, and errors that name episode and step."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import batches

import latentmdp as lm
from latentmdp.errors import TrajectoryError
from latentmdp.logs import Trajectories


def table(**changes):
    """Two episodes: 0 -> 1 -> 2 and 2 -> 0."""
    columns = {
        "episode": np.array([7, 7, 9]),
        "t": np.array([0, 1, 0]),
        "state": np.array([0, 1, 2]),
        "action": np.array([1, 0, 1]),
        "reward": np.array([0.0, 1.0, 1.0]),
        "next_state": np.array([1, 2, 0]),
    }
    return {k: v for k, v in {**columns, **changes}.items() if v is not None}


def test_reads_the_columns():
    logs = Trajectories.from_table(table(context=[2, 2, 0], count=[5, 5, 1]))
    assert logs.states.tolist() == [0, 1, 2, 2, 0]
    assert logs.actions.tolist() == [1, 0, 1]
    assert logs.rewards.tolist() == [0, 1, 1]
    assert logs.offsets.tolist() == [0, 2, 3]
    assert logs.contexts.tolist() == [2, 0]
    assert logs.counts.tolist() == [5, 1]
    assert logs.reward_values.tolist() == [0.0, 1.0]


@given(batches(min_length=1), st.randoms(use_true_random=False))
def test_round_trip_in_any_order_of_rows(logs, random):
    columns = logs.to_table()
    order = list(range(logs.n_steps))
    random.shuffle(order)
    shuffled = {name: column[order] for name, column in columns.items()}
    values = logs.reward_values
    sizes = {"n_states": logs.n_states, "n_actions": logs.n_actions}
    indices = {"rewards_are_indices": True} if values is None else {"reward_values": values}
    assert Trajectories.from_table(shuffled, **sizes, **indices) == logs


def test_rewards_become_their_sorted_set():
    logs = Trajectories.from_table(table(reward=[3.5, -1.0, 3.5]))
    assert logs.reward_values.tolist() == [-1.0, 3.5]
    assert logs.rewards.tolist() == [1, 0, 1]


@pytest.mark.parametrize("rewards", [[0, 0, 0], [1.0, 1.0, 1.0], [True, False, True]])
def test_binary_rewards_keep_both_values(rewards):
    logs = Trajectories.from_table(table(reward=np.array(rewards)))
    assert logs.reward_values.tolist() == [0.0, 1.0]
    assert logs.values().tolist() == [float(r) for r in rewards]


def test_given_reward_values_keep_their_order():
    logs = Trajectories.from_table(table(), reward_values=(1.0, 0.5, 0.0))
    assert logs.rewards.tolist() == [2, 0, 0]


def test_episodes_may_be_called_by_strings():
    logs = Trajectories.from_table(table(episode=["b", "b", "a"]))
    assert logs.states.tolist() == [2, 0, 0, 1, 2]


def test_whole_floats_are_integers():
    assert Trajectories.from_table(table(state=[0.0, 1.0, 2.0])) == Trajectories.from_table(table())


def test_an_empty_table_has_no_episodes():
    logs = Trajectories.from_table(dict.fromkeys(table(), ()))
    assert len(logs) == 0
    assert logs.n_steps == 0


def test_an_episode_without_steps_has_no_row():
    logs = Trajectories.from_lists([[0, 1], [2]], [[0], []], [[0], []])
    with pytest.raises(TrajectoryError, match=r"episode 1 has no steps.*\.npz"):
        logs.to_table()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": None}, "no column 'action'"),
        ({"state": [0, 1]}, "column 'state' has 2 rows, column 'episode' has 3"),
        ({"state": [[0], [1], [2]]}, "column 'state' must be one-dimensional"),
        ({"t": [0, 0, 0]}, "episode 7, step 1: t is 0, occurs twice"),
        ({"next_state": [2, 2, 0]}, "episode 7, step 0: next_state is 2, but the state of the"),
        ({"context": [0, 1, 0]}, "episode 7, step 1: context is 1"),
        ({"count": [1, 2, 1]}, "episode 7, step 1: count is 2"),
        ({"state": [0, 1.5, 2]}, "episode 7, step 1: state is 1.5, must be an integer"),
        ({"action": [1, 0, -1]}, "episode 9, step 0: action is -1, must not be negative"),
        ({"action": [1, 0, 2**40]}, "episode 9, step 0: action is 1099511627776, larger than"),
        ({"reward": [0, np.inf, 1]}, "column 'reward' is inf in row 1"),
        ({"next_state": [1, 2, np.inf]}, "column 'next_state' is inf in row 2"),
    ],
)
def test_errors_name_the_place(changes, message):
    with pytest.raises(TrajectoryError, match=message):
        Trajectories.from_table(table(**changes))


@pytest.mark.parametrize("t", [[1, 2, 0], [1990, 1991, 2003], [-3, -2, 10**15], [0, 3, 0]])
def test_whole_numbers_are_times_wherever_they_begin(t):
    """Only a number that is missing among others that count by ones is a lost row."""
    assert Trajectories.from_table(table(t=t)) == Trajectories.from_table(table())


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ([2, 1, 2], ("1", "2")),
        ([20, 10, 20], ("10", "20")),
        ([7, 0, 7], ("0", "7")),
        ([True, False, True], ("False", "True")),
        ([2.0, 1.0, 2.0], ("1", "2")),
    ],
)
def test_whole_numbers_that_do_not_count_from_zero_are_names(column, names, tmp_path):
    """In memory and on disk, where every batch has the same names; declared sizes keep numbers."""
    logs = Trajectories.from_table(table(action=column))
    assert (logs.n_actions, logs.action_names) == (2, names)
    assert logs.actions.tolist() == [1, 0, 1]
    assert Trajectories.from_table(table(action=[2, 0, 2])).action_names is None
    if not isinstance(column[0], bool):
        assert Trajectories.from_table(table(action=column), n_actions=30).action_names is None
    for k, some in enumerate((slice(0, 2), slice(2, 3))):  # the second file has one action alone
        part = {name: np.asarray(values)[some] for name, values in table(action=column).items()}
        pq.write_table(pa.table(part), tmp_path / f"{k}.parquet")
    again = lm.open_logs(tmp_path).read()
    assert (again.action_names, again.actions.tolist()) == (names, [1, 0, 1])


def test_ordered_categories_keep_their_order():
    names = pd.Categorical(["poor", "good", "fair"], ["poor", "fair", "good"], ordered=True)
    logs = Trajectories.from_table(pd.DataFrame({**table(next_state=None), "state": names}))
    assert logs.state_names == ("poor", "fair", "good")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.tsv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_files_as_spreadsheets_write_them(name, encoding, tmp_path):
    frame = pd.DataFrame({**table(next_state=None), "state": ["mäßig", "gut", "übel"]})
    separator, decimal = ("\t", ",") if ".tsv" in name else (",", ".")
    frame["reward"] = [0.5, 1.5, 0.5]
    path = tmp_path / name
    frame.to_csv(path, sep=separator, decimal=decimal, encoding=encoding, index=False)
    assert Trajectories.from_table(path) == Trajectories.from_table(frame)
    assert lm.load(path) == Trajectories.from_table(frame)


def test_periods_are_times():
    frame = pd.DataFrame(table())
    frame["t"] = pd.PeriodIndex(["2020-01", "2020-02", "2021-05"], freq="M")
    assert Trajectories.from_table(frame) == Trajectories.from_table(table())


def test_a_reward_that_is_not_a_value():
    with pytest.raises(TrajectoryError, match=r"episode 7, step 1: reward is 1.0, not one of"):
        Trajectories.from_table(table(), reward_values=(0.0, 0.5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": np.arange(3).astype("datetime64[D]")}, "column 'action' must hold numbers"),
        ({"episode": np.array(["a", "b", 3], dtype=object)}, "column 'episode' is 3 in row 2"),
    ],
)
def test_wrong_types(changes, message):
    with pytest.raises(TypeError, match=message):
        Trajectories.from_table(table(**changes))


def test_sizes_are_checked():
    with pytest.raises(TrajectoryError, match="episode 0, step 2: state 2 is out of range"):
        Trajectories.from_table(table(), n_states=2)
    with pytest.raises(TypeError, match="n_stattes"):
        Trajectories.from_table(table(), n_stattes=2)
