"""Logs as people have them: names, times, gaps, measured rewards, from any kind of table."""

import contextlib
import datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.logs import MissingCells, Trajectories
from latentmdp.logs.long_table import reward_levels_of

STATES, ACTIONS = ("cold", "warm", "hot2", "hot10"), ("heat", "wait")


def panel(**changes):
    """Two visitors by name; b comes first in the table, and its last next state is not told."""
    columns = {
        "visitor": ["b", "b", "a", "b"],
        "day": ["2024-01-03", "2024-01-01", "2024-02-09", "2024-01-02"],
        "temperature": ["hot10", "cold", "warm", "hot2"],
        "did": ["wait", "heat", "heat", "heat"],
        "paid": [1.0, 0.0, 1.0, 1.0],
    }
    return {**columns, **changes}


CALLED = {
    "episode": "visitor",
    "t": "day",
    "state": "temperature",
    "action": "did",
    "reward": "paid",
}


def test_names_and_times():
    logs = Trajectories.from_table(panel(), **CALLED)
    assert logs.state_names == ("cold", "hot2", "hot10", "warm")
    assert logs.action_names == ("heat", "wait")
    assert logs.episode_names.tolist() == ["a", "b"]
    assert logs.states.tolist() == [3, -1, 0, 1, 2, -1]
    assert logs.actions.tolist() == [0, 0, 0, 1]
    assert logs.rewards.tolist() == [1, 0, 1, 1]
    assert logs.missing == MissingCells(ends=2)
    assert Trajectories.from_table(panel(), columns=CALLED) == logs


@pytest.mark.parametrize(
    "times",
    [
        [datetime.date(2024, month, day) for month, day in [(1, 3), (1, 1), (2, 9), (1, 2)]],
        np.array(["2024-01-03", "2024-01-01", "2024-02-09", "2024-01-02"], "datetime64[D]"),
        [f"2024-{day}T10:00:00Z" for day in ("01-03", "01-01", "02-09", "01-02")],
        [7.5, -1.0, 0.0, 2.25],
        np.array([2, 0, 0, 1], "timedelta64[s]"),
        [2, 0, 0, 1],
    ],
    ids=["dates", "datetime64", "zone", "floats", "durations", "steps"],
)
def test_anything_that_orders_rows_is_a_time(times):
    expected = Trajectories.from_table(panel(), **CALLED)
    assert Trajectories.from_table(panel(day=times), **CALLED) == expected


def test_without_t_rows_are_in_their_order():
    logs = Trajectories.from_table(panel(), **{**CALLED, "t": None})
    assert [logs.state_names[s] for s in logs.states[2:5]] == ["hot10", "cold", "hot2"]


FRAMES = {
    "pandas": pd.DataFrame,
    "pandas objects": lambda c: pd.DataFrame(c).astype(object).infer_objects(),
    "pandas categories": lambda c: pd.DataFrame(c).astype({"temperature": "category"}),
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "rows": lambda c: [dict(zip(c, row)) for row in zip(*c.values())],
    "numpy": lambda c: {name: np.array(column) for name, column in c.items()},
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame(kind):
    assert Trajectories.from_table(FRAMES[kind](panel()), **CALLED) == Trajectories.from_table(
        panel(), **CALLED
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files(tmp_path, suffix):
    frame, path = pd.DataFrame(panel()), tmp_path / f"panel{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    expected = Trajectories.from_table(panel(), **CALLED)
    assert Trajectories.from_table(path, **CALLED) == expected
    assert lm.load(path, columns=CALLED) == expected


def test_a_csv_file_with_gaps_and_codes(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text(
        "episode,t,state,action,reward,sure\n"
        '0,0,0,"NA",1.5,true\n0,1,1,left,,true\n1,0,1,left,2.5,false\n1,1,,left,0,false\n'
    )
    logs = Trajectories.from_table(path, covariates=["sure"])
    assert logs.state_names is None
    assert logs.action_names == ("NA", "left")
    assert logs.states.tolist() == [0, 1, -1, 1, -1]
    assert logs.rewards.tolist() == [0, -1, 1]
    assert logs.covariates.row(1) == {"sure": "False"}
    assert logs.missing == MissingCells(states=1, rewards=1, lost_steps=1, ends=2)


def test_names_known_beforehand_keep_their_numbers():
    logs = Trajectories.from_table(panel(), **CALLED, state_names=STATES, action_names=ACTIONS)
    assert logs.state_names == STATES
    assert logs.states.tolist() == [1, -1, 0, 2, 3, -1]
    with pytest.raises(TrajectoryError, match=r"row 1, .*temperature is cold, which is none of"):
        Trajectories.from_table(panel(), **CALLED, state_names=STATES[1:])


def test_an_ended_episode_leads_to_a_state_of_its_own():
    over = [True, False, False, False]
    logs = Trajectories.from_table(panel(over=over), **CALLED, terminated="over")
    assert logs.state_names == ("cold", "hot2", "hot10", "warm", "(end)")
    assert logs.last_states.tolist() == [-1, 4]
    with pytest.raises(TrajectoryError, match="row 1, episode b, step 0: over is True, but"):
        Trajectories.from_table(
            panel(over=[False, True, False, False]), **CALLED, terminated="over"
        )


# --------------------------------------------------------------------------------------- gaps


def by_hand(rows):
    """Segments of one episode: lists of (s, a, r, s') with None where missing, first state first.

    Written row by row, as the documentation says it.
    """
    rows = [dict(row) for row in rows]
    for one, two in pairwise(rows):
        if two["state"] is None:
            two["state"] = one["next_state"]
        if one["next_state"] is None:
            one["next_state"] = two["state"]
    segments = []
    gap = False
    for row in rows:
        lost = row["state"] is None or row["action"] is None
        if not segments or (gap and not lost):
            segments.append((row["state"], []))
        gap = lost
        if not lost:
            segments[-1][1].append((row["action"], row["reward"], row["next_state"]))
    return segments


@st.composite
def gappy_tables(draw):
    episodes = []
    for _ in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 5))
        path = draw(st.lists(st.integers(0, 2), min_size=length + 1, max_size=length + 1))
        shown = draw(st.lists(st.tuples(*[st.booleans()] * 4), min_size=length, max_size=length))
        rows = [
            {
                "state": path[t] if shown[t][0] else None,
                "action": draw(st.integers(0, 1)) if shown[t][1] else None,
                "reward": draw(st.sampled_from([0.0, 1.0])) if shown[t][2] else None,
                "next_state": path[t + 1] if shown[t][3] else None,
            }
            for t in range(length)
        ]
        episodes.append(rows)
    return episodes


@given(gappy_tables(), st.booleans(), st.randoms(use_true_random=False))
def test_gaps_split_episodes_as_by_hand(episodes, tell_next, random):
    rows = [
        {"episode": i, "t": t, **row}
        for i, episode in enumerate(episodes)
        for t, row in enumerate(episode)
    ]
    if not tell_next:
        episodes = [[{**row, "next_state": None} for row in episode] for episode in episodes]
        for row in rows:
            del row["next_state"]
    random.shuffle(rows)
    logs = Trajectories.from_table(rows, n_states=3, n_actions=2)
    expected = [(i, *segment) for i, rows in enumerate(episodes) for segment in by_hand(rows)]
    assert len(logs) == len(expected)
    assert logs.individuals().tolist() == [i for i, *_ in expected]

    def shown(value):
        return None if value < 0 else int(value)

    for episode, (_, first, steps) in zip(logs, expected):
        assert shown(episode.states[0]) == first
        found = list(zip(episode.actions, episode.rewards, episode.states[1:]))
        assert [(a, shown(r), shown(s)) for a, r, s in found] == [
            (a, None if r is None else int(r), s) for a, r, s in steps
        ]
    if (np.bincount(logs.individuals(), logs.lengths) > 0).all():
        again = Trajectories.from_table(
            logs.to_table(), n_states=3, n_actions=2, reward_values=(0.0, 1.0)
        )
        assert again._with(missing=None) == logs._with(missing=None)


def gappy():
    """Logs with everything: names, gaps, covariates, propensities, counts, contexts."""
    table = {
        "episode": ["x", "x", "x", "y", "y", "y"],
        "t": [0, 1, 2, 0, 1, 2],
        "state": ["u", None, "v", "v", "u", "u"],
        "action": ["l", "r", "r", None, "l", "r"],
        "reward": [0.5, 1.0, None, 2.0, 0.5, 0.5],
        "next_state": [None, "v", "u", "u", "u", "v"],
        "propensity": [0.5, 0.25, 1.0, None, 0.5, 0.5],
        "context": [0, 0, 0, 1, 1, 1],
        "count": [2, 2, 2, 1, 1, 1],
        "age": [None, 31.0, 31.0, 50.0, 50.0, None],
        "region": ["n", "n", None, "s", "s", "s"],
    }
    return Trajectories.from_table(table, covariates=["age", "region"])


def test_segments_keep_together():
    logs = gappy()
    assert logs.continues.tolist() == [False, True, False, True]
    assert logs.individuals().tolist() == [0, 0, 1, 1]
    assert logs.individual_offsets().tolist() == [0, 2, 4]
    assert logs.first_states.tolist() == [0, 1, 1, 0]
    assert lm.logs.first_state_counts(logs).tolist() == [2.0, 1.0]
    assert np.isnan(logs.returns()).all()
    assert logs.take_individuals([1]).episode_names.tolist() == ["y", "y"]
    assert logs.take_individuals([1, 0]).take_individuals([1, 0]) == logs._with(missing=None)
    with pytest.raises(IndexError, match="episode 1 continues episode 0"):
        logs[1:]
    joined = Trajectories.concat([logs, logs])
    assert joined.individuals().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert joined.covariates.row(5) == {"age": 31.0, "region": "n"}
    with pytest.raises(TrajectoryError, match="needs complete episodes, but of episode 0: its la"):
        logs.require_complete("A PSR")
    assert logs.deduplicate().counts.tolist() == [2, 2, 1, 1]


@pytest.mark.parametrize("name", ["logs.npz", "logs.parquet"])
def test_files_keep_everything(tmp_path, name):
    logs = gappy()
    for part in (logs, logs.take_individuals([1, 0]), Trajectories.from_table(panel(), **CALLED)):
        lm.save(part, tmp_path / name)
        assert lm.load(tmp_path / name) == part
    assert logs.fingerprint() != logs._with(continues=None).fingerprint()


def test_counts_leave_out_what_is_missing():
    logs = gappy()
    pairs = lm.logs.cell_counts(logs, ("state", "action"))
    assert pairs.tolist() == [[3.0, 1.0], [0.0, 2.0]]
    assert lm.logs.cell_counts(logs, ("state", "action", "reward")).sum() == 4.0
    assert lm.logs.cell_counts(logs, ("next_state",)).tolist() == [3.0, 1.0]


# ---------------------------------------------------------------------------- measured rewards


@pytest.mark.parametrize("zeros", [0.0, 0.8])
@pytest.mark.parametrize("number", [2, 5, 10])
def test_levels_have_equal_mass_and_their_means(zeros, number):
    rng = np.random.default_rng(0)
    rewards = np.where(rng.random(100_000) < zeros, 0.0, rng.exponential(size=100_000))
    values, edges = reward_levels_of(*np.unique(rewards, return_counts=True), number)
    index = np.searchsorted(edges, rewards, side="right")
    assert edges.size == values.size - 1 <= number
    for z, value in enumerate(values):
        np.testing.assert_allclose(value, rewards[index == z].mean(), rtol=1e-12)
    shares = np.bincount(index) / rewards.size
    free = shares if zeros == 0.0 else shares[1:]
    assert free.max() < 2.0 * free.mean()
    if zeros:
        assert values[0] == 0.0
        assert (values.size > 2) == (number > 2)


def test_many_values_become_levels_and_few_stay():
    rng = np.random.default_rng(0)
    table = {
        "episode": np.repeat(np.arange(5000), 20),
        "t": np.tile(np.arange(20), 5000),
        "state": rng.integers(3, size=100_000),
        "action": rng.integers(2, size=100_000),
        "reward": rng.normal(size=100_000),
    }
    logs = Trajectories.from_table(table)
    assert logs.n_rewards == 10
    assert logs.values().mean() == pytest.approx(table["reward"].mean())
    three = Trajectories.from_table(table, reward_levels=3)
    assert three.n_rewards == 3
    again = Trajectories.from_table(
        table, reward_values=logs.reward_values, reward_edges=logs.reward_edges
    )
    assert again == logs
    assert Trajectories.from_table(table, reward_levels=None).n_rewards == 100_000
    table["reward"] = np.round(table["reward"])
    assert Trajectories.from_table(table).reward_edges is None


def test_rewards_that_say_nothing_are_paid_and_not_seen():
    rng = np.random.default_rng(0)
    table = {
        "episode": np.repeat(np.arange(50), 4),
        "t": np.tile(np.arange(4), 50),
        "state": rng.integers(3, size=200),
        "action": rng.integers(2, size=200),
        "reward": rng.normal(size=200),
    }
    table["reward"][7] = np.nan
    logs = Trajectories.from_table(table, informative_rewards=False)
    assert logs.n_rewards == 1
    assert logs.complete is False  # the last next states
    frame = pd.DataFrame(table)
    means = frame.groupby(["state", "action"])["reward"].mean().to_numpy().reshape(3, 2)
    np.testing.assert_allclose(logs.mean_amounts(), means)
    np.testing.assert_allclose(
        logs.returns(), frame.groupby("episode")["reward"].sum(min_count=4).to_numpy()
    )
    model = lm.testing.random_model(0, states=3, actions=2, contexts=2, reward_values=(0.0,))
    described = logs.describe(model)
    np.testing.assert_array_equal(described.bonus, np.stack([logs.mean_amounts()] * 2))
    np.testing.assert_allclose(described.planning_rewards(), described.bonus)


# -------------------------------------------------------------------------------- bad tables


def steps(**changes):
    """Two episodes by number, three and two steps."""
    columns = {
        "episode": [0, 0, 0, 1, 1],
        "t": [0, 1, 2, 0, 1],
        "state": [0, 1, 2, 0, 2],
        "action": [0, 1, 0, 1, 1],
        "reward": [0.0, 1.0, 0.0, 1.0, 0.0],
        "next_state": [1, 2, 0, 2, 0],
    }
    return {k: v for k, v in {**columns, **changes}.items() if v is not None}


NAMED = ["a", "b", "c", "a", "c"]
BAD = {
    "no episodes": ({"episode": None}, "no column 'episode'"),
    "no times": ({"t": None}, "no column 't'"),
    "no states": ({"state": None}, "no column 'state'"),
    "no actions": ({"action": None}, "no column 'action'"),
    "no rewards": ({"reward": None}, "no column 'reward'"),
    "short column": ({"reward": [0, 1]}, "column 'reward' has 2 rows, column 'episode' has 5"),
    "matrix": ({"state": np.zeros((5, 2))}, "column 'state' must be one-dimensional"),
    "lists": ({"state": [[0], [1], [2], [0], [2]]}, "column 'state' must be one-dim"),
    "empty episode": ({"episode": [0, 0, None, 1, 1]}, "column 'episode' is empty or NaN in row 2"),
    "empty time": ({"t": [0, None, 2, 0, 1]}, "column 't' is empty or NaN in row 1"),
    "half an episode": ({"episode": [0, 0, 0.5, 1, 1]}, "column 'episode' is 0.5 in row 2"),
    "mixed episodes": ({"episode": [0, 0, "x", 1, 1]}, "column 'episode' is 'x' in row 2"),
    "infinite episode": ({"episode": [0, 0, np.inf, 1, 1]}, "column 'episode' is inf in row 2"),
    "step twice": ({"t": [0, 1, 1, 0, 1]}, "row 2, episode 0, step 2: t is 1, occurs twice"),
    "step left out": ({"t": [0, 1, 3, 0, 1]}, "row 2, .*t is 3, but step 2 is missing"),
    "date twice": (
        {"t": ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-01", "2024-01-02"]},
        "row 2, episode 0, step 2: t is 2024-01-02, occurs twice",
    ),
    "no date": (
        {"t": ["2024-01-01", "soon", "2024-01-03", "2024-01-01", "2024-01-02"]},
        "column 't' is 'soon' in row 1",
    ),
    "negative state": ({"state": [0, -1, 2, 0, 2]}, "row 1, .*state is -1, must not be negative"),
    "half a state": ({"state": [0, 1.5, 2, 0, 2]}, "row 1, .*state is 1.5, must be an integer"),
    "infinite state": ({"state": [0, np.inf, 2, 0, 2]}, "column 'state' is inf in row 1"),
    "huge action": ({"action": [0, 2**40, 0, 1, 1]}, "row 1, .*action is 1099511627776, larger"),
    "dates for states": ({"state": np.arange(5).astype("datetime64[D]")}, "column 'state' must"),
    "mixed states": ({"state": [0, "b", 2, 0, 2]}, "column 'state' is 'b' in row 1"),
    "names and numbers": ({"state": NAMED}, "column 'next_state' holds 1 in row 0, a number"),
    "broken link": ({"next_state": [1, 0, 0, 2, 0]}, "row 1, .*next_state is 0, but the state of"),
    "word for a reward": ({"reward": [0, "much", 0, 1, 0]}, "column 'reward' is 'much' in row 1"),
    "text rewards": ({"reward": ["0", "1", "x", "1", "0"]}, "column 'reward' is 'x' in row 2"),
    "infinite reward": ({"reward": [0, 1, -np.inf, 1, 0]}, "column 'reward' is -inf in row 2"),
    "two contexts": ({"context": [0, 1, 0, 1, 1]}, "row 1, episode 0, step 1: context is 1, but"),
    "empty context": ({"context": [0, None, 0, 1, 1]}, "row 1, .*context is None, must be given"),
    "two counts": ({"count": [1, 1, 2, 1, 1]}, "row 2, episode 0, step 2: count is 2, but another"),
    "sure and more": ({"propensity": [0.5, 1.5, 1, 1, 1]}, "row 1, .*propensity is 1.5, the prob"),
    "impossible": ({"propensity": [0.5, 0.0, 1, 1, 1]}, "row 1, .*propensity is 0.0, the prob"),
    "empty propensity": ({"propensity": [0.5, None, 1, 1, 1]}, "row 1, .*propensity is None"),
    "ended too soon": ({"terminated": [0, 1, 0, 0, 0]}, "row 1, .*terminated is 1, but the epis"),
    "perhaps ended": ({"terminated": [0, 2, 0, 0, 0]}, "row 1, .*terminated is 2, must be true"),
}


@pytest.mark.parametrize("kind", BAD)
def test_mistakes_name_column_and_row(kind):
    """In a dict, and in frames, unless they refuse such a table themselves."""
    changes, message = BAD[kind]
    table = steps(**changes)
    tables = [table]
    for frame in (pd.DataFrame, pl.DataFrame):
        if frame is pl.DataFrame and kind == "matrix":
            continue  # an array in polars is a list
        with contextlib.suppress(ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
            tables.append(frame(table))
    for form in tables:
        with pytest.raises((TrajectoryError, TypeError), match=message):
            Trajectories.from_table(form)


def test_other_mistakes():
    with pytest.raises(TrajectoryError, match="no column 'age'"):
        Trajectories.from_table(steps(), covariates=["age"])
    with pytest.raises(TrajectoryError, match=r"row 1, .*age is 4, but another value earlier"):
        Trajectories.from_table(steps(age=[3, 4, 3, 5, 5]), covariates=["age"])
    with pytest.raises(TypeError, match="covariates must be a list of column names"):
        Trajectories.from_table(steps(), covariates="age")
    with pytest.raises(TypeError, match="from_table knows no column 'sate'"):
        Trajectories.from_table(steps(), columns={"sate": "state"})
    with pytest.raises(TypeError, match="state is given twice"):
        Trajectories.from_table(steps(), state="a", columns={"state": "b"})
    with pytest.raises(TrajectoryError, match=r"no column 'brand' \(next_state\)"):
        Trajectories.from_table(steps(), next_state="brand")
    with pytest.raises(TrajectoryError, match="reward_levels must be"):
        Trajectories.from_table(steps(), reward_levels=0)
    with pytest.raises(TypeError, match="a table is a frame"):
        Trajectories.from_table(3)


def test_a_mistake_in_an_unsorted_table_names_the_users_row():
    table = steps(reward=[0.0, 7.0, 0.0, 1.0, 0.0])
    backwards = {name: column[::-1] for name, column in table.items()}
    with pytest.raises(TrajectoryError, match=r"row 3, episode 0, step 1: reward is 7\.0, not one"):
        Trajectories.from_table(backwards, reward_values=(0.0, 1.0))


def test_a_file_that_is_neither_logs_nor_model(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("who,what\n1,2\n")
    with pytest.raises(FormatError, match=r"x\.csv: has no column 'episode' \(episode\), as logs"):
        lm.load(path)
    path.write_text("who,t,state,action,reward\na,0,0,0,much\n")
    with pytest.raises(FormatError, match=r"x\.csv: column 'reward' is 'much' in row 0"):
        lm.load(path, episode="who")
