"""Logs on disk are the logs in memory, to the last bit, wherever they are read."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import latentmdp as lm
from latentmdp import simulation
from latentmdp.errors import FormatError, TrajectoryError
from latentmdp.estimation.termination import final_states
from latentmdp.fit import logged_behaviour
from latentmdp.logs import base, cell_counts, first_state_counts, occurring_cells, on_disk
from latentmdp.testing import random_model

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Batches, pieces and row groups so small that every boundary occurs."""
    for module in (base, simulation):
        monkeypatch.setattr(module, "BATCH_STEPS", 700)
    monkeypatch.setattr(on_disk, "_PIECE_ROWS", 90)
    monkeypatch.setattr(base, "HELD_STEPS", 1500)


def ragged(episodes=1200, seed=0, **options):
    model = random_model(1, contexts=2, states=5, actions=2, horizon=14, n_terminal=1, **options)
    logs = lm.simulate(model, lm.UniformPolicy(), episodes, rng=seed)
    return model, logs[logs.lengths > 0]


def table_of(logs, **columns):
    return pa.table({**logs.to_table(), **columns})


def write(table, folder, cuts, rows=64):
    """A table in several files, cut at the given rows."""
    edges = [0, *cuts, table.num_rows]
    for k, (low, high) in enumerate(itertools.pairwise(edges)):
        path = folder / f"{k:03d}.parquet"
        pq.write_table(table.slice(low, high - low), path, row_group_size=rows)
    return str(folder / "*.parquet")


def same_logs(one, other):
    return one.fingerprint() == other.fingerprint()


def same_fit(one, other):
    for name in ("transitions", "reward_probs", "initial", "weights"):
        assert np.array_equal(getattr(one.model, name), getattr(other.model, name)), name
    assert one.log_likelihood == other.log_likelihood
    assert one.history == other.history
    assert one.decisions == other.decisions
    assert np.array_equal(one.responsibilities, other.responsibilities)
    assert np.array_equal(one.behaviour, other.behaviour)


@pytest.mark.parametrize("rows", [13, 1000])
def test_an_episode_that_goes_on_in_the_next_file_is_joined(tmp_path, rows):
    _, logs = ragged()
    # cuts inside episodes, at the border of two, and a file that is within one episode
    border = int(logs.offsets[40])
    pattern = write(table_of(logs), tmp_path, (101, 103, border, 2001), rows)
    found = lm.open_logs(pattern, n_states=logs.n_states)
    assert same_logs(found.read(), logs)
    assert len(found) == len(logs)
    assert found.n_steps == logs.n_steps
    assert found.longest == logs.longest
    assert len(found.batches()) > 3
    assert [(b.start, b.stop) for b in found.batches()] == [
        (b.start, b.stop) for b in logs.batches()
    ]
    for mine, theirs in zip(found.batches(), logs.batches()):
        assert same_logs(mine.read(), theirs.read())
    assert np.array_equal(final_states(found), final_states(logs))


@pytest.mark.parametrize("called", [lambda k: f"patient {k}", lambda k: 3 * k + 7])
def test_episodes_keep_their_names(tmp_path, called):
    _, logs = ragged(300)
    columns = logs.without_contexts().to_table()
    episodes = np.unique(columns["episode"], return_inverse=True)[1]
    columns["episode"] = np.array([called(k) for k in range(len(logs))])[episodes]
    held = lm.Trajectories.from_table(columns, n_states=5, n_actions=2)
    names = np.array([str(called(k)) for k in range(len(logs))])
    lm.save(held, tmp_path / "own.parquet")
    paths = write(pa.table(columns), tmp_path, [50, 333])
    for files in (str(tmp_path / "own.parquet"), paths.replace("*", "00*")):
        part = lm.open_logs(files).read()
        assert sorted(part.episode_names) == sorted(names)
        k = int(np.flatnonzero(part.episode_names == names[9])[0])
        assert part[k].states.tolist() == logs[9].states.tolist()


def test_what_is_counted_in_files_is_what_is_counted_in_memory(tmp_path):
    _, logs = ragged()
    found = lm.open_logs(write(table_of(logs), tmp_path, (500,)), n_states=logs.n_states)
    shares = np.random.default_rng(0).dirichlet(np.ones(3), len(logs))
    by = ("state", "action", "next_state", "reward")
    for given in (None, shares):
        counted = cell_counts(found, by, shares=given)
        assert np.array_equal(counted, cell_counts(logs, by, shares=given))
        for mine, theirs in zip(
            occurring_cells(found, by, shares=given), occurring_cells(logs, by, shares=given)
        ):
            assert np.array_equal(mine, theirs)
        assert np.array_equal(
            first_state_counts(found, shares=given), first_state_counts(logs, shares=given)
        )
    # the dense counts against one step at a time
    expected = np.zeros((logs.n_states, logs.n_actions))
    for states, actions, _, _ in logs:
        np.add.at(expected, (states[:-1], actions), 1.0)
    assert np.array_equal(cell_counts(found, ("state", "action")), expected)
    assert np.array_equal(logged_behaviour(found), logged_behaviour(logs))


def test_names_values_gaps_and_covariates_are_those_of_a_table_in_memory(tmp_path):
    _, logs = ragged()
    columns = logs.to_table()
    rng = np.random.default_rng(3)
    size = columns["episode"].size
    names = np.array(["bed10", "bed2", "door", "hall", "yard"], dtype=object)
    who = np.array(["north", "south", "west"], dtype=object)
    table = {
        "episode": columns["episode"],
        "t": columns["t"],
        "state": names[columns["state"]],
        "action": np.array(["go", "stay"], dtype=object)[columns["action"]],
        "reward": np.where(rng.uniform(size=size) < 0.05, np.nan, columns["reward"] * 2.5),
        "next_state": names[columns["next_state"].astype(int)],
        "ward": who[columns["episode"] % 3],
    }
    table["action"] = np.where(rng.uniform(size=size) < 0.03, None, table["action"])
    whole = pa.table({k: pa.array(v, from_pandas=True) for k, v in table.items()})
    memory = lm.Trajectories.from_table(whole, covariates=["ward"])
    assert memory.continues is not None
    found = lm.open_logs(write(whole, tmp_path, (777, 1500)), covariates=["ward"])
    read = found.read()
    for name in ("states", "actions", "rewards", "offsets", "continues", "reward_values"):
        assert np.array_equal(getattr(read, name), getattr(memory, name)), name
    assert found.state_names == memory.state_names == ("bed2", "bed10", "door", "hall", "yard")
    assert found.action_names == memory.action_names
    assert found.missing == memory.missing
    assert np.array_equal(found.covariates.values, memory.covariates.values)
    assert found.covariates.levels == memory.covariates.levels
    em = lm.EM(2, pseudo_counts=1.0, restarts=2, max_iter=15, tolerance=1e-3)
    same_fit(em.fit(memory, rng=0), em.fit(found, rng=0))


def test_measured_rewards_have_the_levels_of_a_table_in_memory(tmp_path):
    _, logs = ragged()
    reward = np.random.default_rng(0).normal(size=logs.n_steps).round(2)
    whole = table_of(logs).set_column(4, "reward", pa.array(reward))
    assert whole.column_names[4] == "reward"
    memory = lm.Trajectories.from_table(whole)
    found = lm.open_logs(write(whole, tmp_path, (999,)))
    assert np.array_equal(found.reward_values, memory.reward_values)
    assert np.array_equal(found.reward_edges, memory.reward_edges)
    assert np.array_equal(found.read().rewards, memory.rewards)
    money = lm.open_logs(str(tmp_path), informative_rewards=False)
    unseen = lm.Trajectories.from_table(whole, informative_rewards=False)
    assert np.array_equal(money.mean_amounts(), unseen.mean_amounts(), equal_nan=True)


def test_an_episode_in_two_files_is_refused_unless_they_number_anew(tmp_path):
    _, logs = ragged(60)
    first, second = table_of(logs[:30]), table_of(logs[30:])
    for k, table in enumerate((first, second)):
        pq.write_table(table, tmp_path / f"{k}.parquet")
    with pytest.raises(TrajectoryError, match=r"episode 0 is in .*0.parquet and in .*1.parquet"):
        lm.open_logs(str(tmp_path))
    found = lm.open_logs(str(tmp_path), numbered_anew=True, n_states=logs.n_states)
    assert same_logs(found.read(), logs)


def test_rows_of_an_episode_that_lie_apart_are_refused(tmp_path):
    _, logs = ragged(60)
    table = table_of(logs)
    order = np.argsort(table["t"].to_numpy(), kind="stable")
    pq.write_table(table.take(order), tmp_path / "a.parquet")
    with pytest.raises(TrajectoryError, match="do not lie together: sort the table by episode"):
        lm.open_logs(str(tmp_path))


def test_what_is_wrong_in_a_file_is_named(tmp_path):
    _, logs = ragged(600)
    table = table_of(logs)
    states = table["next_state"].to_numpy().copy()
    place = int(logs.offsets[350])
    states[place] = (states[place] + 1) % 4
    wrong = table.set_column(5, "next_state", pa.array(states))
    assert wrong.column_names[5] == "next_state"
    path = write(wrong, tmp_path, (800,))
    with pytest.raises(
        TrajectoryError,
        match=r"001.parquet, where rows are counted from row (\d+): row \d+, episode 350, ",
    ):
        lm.open_logs(path)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        lm.open_logs(str(tmp_path / "none*.parquet"))
    with pytest.raises(TrajectoryError, match="has no column 'patient'"):
        lm.open_logs(path, columns={"episode": "patient"})
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(FormatError, match=r"text.parquet is not a Parquet file"):
        lm.open_logs(str(tmp_path / "text.parquet"))


def test_files_that_change_or_vanish_are_noticed(tmp_path):
    _, logs = ragged(600)
    found = lm.open_logs(write(table_of(logs), tmp_path, (800,)))
    path = tmp_path / "001.parquet"
    os.utime(path, ns=(1, 1))
    with pytest.raises(TrajectoryError, match=r"001\.parquet has changed since"):
        found.read()
    path.unlink()
    with pytest.raises(FileNotFoundError, match="is gone"):
        lm.EM(2).fit(found, rng=0)


def test_simulated_shards_are_the_episodes_in_memory(tmp_path):
    model = random_model(0, contexts=3, states=6, actions=2, horizon=9)
    memory = lm.simulate(model, lm.UniformPolicy(), 500, rng=4)
    made = lm.simulate(model, lm.UniformPolicy(), 500, rng=4, out=tmp_path / "logs")
    opened = lm.open_logs(tmp_path / "logs")
    assert len(made.paths) == 7
    for found in (made, opened):
        assert same_logs(found.read(), memory)
        assert np.array_equal(lm.posterior(model, found), lm.posterior(model, memory))
        along = lm.posterior(model, found, along=True)
        assert np.array_equal(along, lm.posterior(model, memory, along=True))
    with pytest.raises(FileExistsError, match="already: give a new or empty folder"):
        lm.simulate(model, lm.UniformPolicy(), 5, rng=4, out=tmp_path / "logs")
    with pytest.raises(TypeError, match="open_logs takes no 'columns'"):
        lm.open_logs(tmp_path / "logs", columns={"state": "s"})


@pytest.mark.parametrize("given", [{"pseudo_counts": 1.0}, {"shared_rewards": "auto"}])
@pytest.mark.parametrize("short", [True, False])
def test_a_fit_from_disk_is_the_fit_in_memory_to_the_last_bit(tmp_path, given, short):
    model = random_model(2, contexts=2, states=4, actions=2, horizon=3 if short else 12)
    memory = lm.simulate(model, lm.UniformPolicy(), 600 if short else 150, rng=0)
    found = lm.simulate(
        model, lm.UniformPolicy(), len(memory), rng=0, out=tmp_path, engine=lm.engines.Threads(2)
    )
    em = lm.EM(2, restarts=2, max_iter=6, **given)
    fits = [
        em.fit(memory, rng=0),
        em.fit(found, rng=0),
        em.fit(found, rng=0, engine=lm.engines.Threads(3)),
    ]
    for other in fits[1:]:
        same_fit(fits[0], other)
    again = lm.EM(2, pseudo_counts=1.0, max_iter=5)
    labels = again.fit(memory, start=memory.contexts, rng=0)
    same_fit(labels, again.fit(found, start=memory.contexts, rng=0))


def test_long_rows_of_results_lie_in_a_file(tmp_path, monkeypatch):
    from latentmdp._util import storage

    monkeypatch.setattr(storage, "_FEW_ROWS", 100)
    model = random_model(0, contexts=2, states=4, horizon=8)
    memory = lm.simulate(model, lm.UniformPolicy(), 300, rng=0)
    found = lm.simulate(model, lm.UniformPolicy(), 300, rng=0, out=tmp_path)
    beliefs = lm.posterior(model, found)
    assert isinstance(beliefs, np.memmap)
    assert np.array_equal(beliefs, lm.posterior(model, memory))


def test_diagnosis_and_off_policy_values_of_logs_on_disk(tmp_path, monkeypatch):
    model = random_model(3, contexts=2, states=4, actions=2, horizon=6)
    found = lm.simulate(model, lm.UniformPolicy(), 1500, rng=1, out=tmp_path)
    memory = lm.simulate(model, lm.UniformPolicy(), 1500, rng=1)
    diagnosis = lm.diagnose(found)
    assert np.array_equal(diagnosis.visits, lm.diagnose(memory).visits)
    assert diagnosis.episodes == 1500
    assert diagnosis.steps == memory.n_steps
    policy = lm.QMDP().plan(model).policy
    streamed = lm.off_policy_value(found, policy, rng=0)
    whole = lm.off_policy_value(memory, policy, rng=0)
    # both estimates use all episodes; only the groups of the interval differ by chance
    assert streamed.mean == pytest.approx(whole.mean, rel=1e-3)
    assert streamed.stderr == pytest.approx(whole.stderr, rel=0.2)
    truth = lm.evaluate(model, policy, rng=0)
    assert abs(streamed.mean - truth.mean) < 5.0 * np.hypot(streamed.stderr, truth.stderr)
    with pytest.raises(ValueError, match="two halves of the logs in memory"):
        lm.off_policy_value(found, lambda history: 0, rng=0)
    monkeypatch.setattr(base, "HELD_STEPS", 10_000)
    first = [lm.off_policy_value(logs, lambda history: 0, rng=0) for logs in (found, memory)]
    assert first[0] == first[1]


def test_what_needs_all_episodes_in_memory_says_so(tmp_path):
    model = random_model(3, contexts=2, states=4, actions=2, horizon=6)
    found = lm.simulate(model, lm.UniformPolicy(), 1500, rng=1, out=tmp_path)
    for work in (
        lm.estimation.TrajectoryKMeans(2).fit,
        lm.estimation.SubspaceClustering(2).fit,
        lm.SpectralPSR(2).fit,
        lm.spectral.count_moments,
    ):
        with pytest.raises(TypeError, match=r"all episodes in memory .* give logs\.read\(\)"):
            work(found)


def test_solve_reads_logs_on_disk(tmp_path, monkeypatch):
    model = random_model(3, contexts=2, states=4, actions=2, horizon=6)
    found = lm.simulate(model, lm.UniformPolicy(), 400, rng=1, out=tmp_path)
    settings = {"bootstrap": 2, "behaviour": "shared", "shared_initial": True}
    settings |= {
        "shared_rewards": False,
        "shared_transitions": False,
        "reward_model": "state-action",
    }
    sampled = lm.solve(found, 2, rng=0, **settings)
    monkeypatch.setattr(base, "HELD_STEPS", 10_000)
    from_disk = lm.solve(found, 2, rng=0, **settings)
    memory = lm.simulate(model, lm.UniformPolicy(), 400, rng=1)
    assert lm.solve(memory, 2, rng=0, **settings) == from_disk
    assert sampled.settings["episodes"] == 400
    assert sampled.model.n_contexts == 2


def test_logs_that_were_not_finished_are_none_and_the_same_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was killed after two of four parts is refused, then completed, the two as they are."""
    model = lm.make("visitor")
    monkeypatch.setattr(simulation, "BATCH_STEPS", 25 * 12)
    whole = lm.simulate(model, lm.UniformPolicy(), 100, rng=0)
    write, parts = on_disk.write_shard, []

    def dies(logs: lm.Trajectories, path: str) -> object:
        if len(parts) == 2:
            raise KeyboardInterrupt
        parts.append(path)
        return write(logs, path)

    folder = tmp_path / "logs"
    monkeypatch.setattr("latentmdp.logs.write_shard", dies)
    arguments: dict[str, Any] = {"out": folder, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        lm.simulate(model, lm.UniformPolicy(), 100, rng=0, **arguments)
    with pytest.raises(TrajectoryError, match="is not complete"):
        lm.open_logs(folder)
    with pytest.raises(FileExistsError, match="other logs that are not complete"):
        lm.simulate(model, lm.UniformPolicy(), 100, rng=1, **arguments)
    monkeypatch.setattr("latentmdp.logs.write_shard", write)
    stamps = [Path(path).stat().st_mtime_ns for path in parts]
    assert lm.simulate(model, lm.UniformPolicy(), 100, rng=0, **arguments).held() == whole
    assert [Path(path).stat().st_mtime_ns for path in parts] == stamps
    assert lm.open_logs(folder).held() == whole
