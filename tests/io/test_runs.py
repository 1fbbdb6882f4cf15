"""Runs as Parquet files: a row per episode, everything else in the metadata."""

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_worlds import small

import latentmdp as lm
from latentmdp._util import storage
from latentmdp.errors import FormatError
from latentmdp.online.baselines import FixedPolicy, uniform


@pytest.mark.parametrize(
    "learner",
    [
        lm.LUCRL(),
        lm.LUCRL(reward_model="transition"),
        uniform(),
        FixedPolicy(lm.MarkovPolicy(np.zeros(5, int))),
        FixedPolicy(lm.MarkovPolicy(np.full((5, 2), 0.5))),
    ],
    ids=["lucrl", "by next state", "uniform", "markov", "stochastic"],
)
@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_there_and_back(learner, suffix, tmp_path):
    run = learner.run(small(), 80, rng=0)
    lm.save(run, tmp_path / f"run{suffix}")
    back = lm.load(tmp_path / f"run{suffix}")
    for name in ("returns", "beliefs", "contexts"):
        np.testing.assert_array_equal(getattr(run, name), getattr(back, name))
        assert getattr(run, name).dtype == getattr(back, name).dtype
    np.testing.assert_array_equal(run.error_curve.episodes, back.error_curve.episodes)
    np.testing.assert_array_equal(run.error_curve.values, back.error_curve.values)
    for name in ("transitions", "rewards", "initial"):
        np.testing.assert_array_equal(getattr(run.counts, name), getattr(back.counts, name))
    assert back.model == run.model
    assert back.settings == run.settings
    assert back.space == run.space
    assert back.seconds == run.seconds > 0.0
    np.testing.assert_equal(back.optimistic_value, run.optimistic_value)
    logs = [lm.simulate(small(), r.policy, 20, rng=1) for r in (run, back)]
    assert logs[0] == logs[1]


def test_other_tools_read_a_row_per_episode(tmp_path):
    run = lm.LUCRL().run(small(), 30, rng=0)
    lm.save(run, tmp_path / "run.parquet")
    table = pq.read_table(tmp_path / "run.parquet")
    assert table.column_names == ["episode", "return", "belief", "context"]
    np.testing.assert_array_equal(table["return"].to_numpy(), run.returns)


def header_of(path):
    return json.loads(pq.read_schema(path).metadata[b"latentmdp"])


def with_header(path, header):
    """Write the run again with another header."""
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"latentmdp": json.dumps(header).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_the_digest_is_of_the_outcome_and_not_of_the_time_it_took(tmp_path):
    for k, seed in enumerate((0, 0, 1)):
        lm.save(lm.LUCRL().run(small(), 30, rng=seed), tmp_path / f"{k}.parquet")
    first, same, other = (header_of(tmp_path / f"{k}.parquet") for k in range(3))
    assert first["values"]["seconds"] != same["values"]["seconds"]
    assert first["digest"] == same["digest"] != other["digest"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": {"settings": {}}}, "damaged"),
        ({"values": {"horizon": 7}}, "damaged"),
        ({"values": {"seconds": -1.0}}, "'seconds' must not be negative"),
        ({"values": {"seconds": "long"}}, "'seconds' must be a number"),
        ({"digest": "0" * 32}, "damaged"),
        ({"digest": None}, "damaged"),
        ({"arrays": None}, "the metadata lack 'arrays'"),
        ({"arrays": {}}, "damaged"),
        ({"schema": 2}, "newer than 1"),
    ],
)
def test_a_changed_header_is_refused(tmp_path, change, message):
    path = tmp_path / "run.parquet"
    lm.save(lm.LUCRL().run(small(), 30, rng=0), path)
    header = header_of(path)
    if "values" in change:
        change = {"values": {**header["values"], **change["values"]}}
    with_header(path, {**header, **change})
    with pytest.raises(FormatError, match=rf"run\.parquet: .*{message}"):
        lm.load(path)


@pytest.mark.parametrize(
    "layout",
    [
        ["<f8", [-1, 3]],
        ["<f8", [2**40, 2**40]],
        ["<f8", [1.5]],
        ["|O", [1]],
        ["<M8[s]", [1]],
        [3, [1]],
        ["nonsense", [1]],
        ["<f8"],
        None,
    ],
)
def test_hostile_arrays_in_the_metadata_are_refused(tmp_path, monkeypatch, layout):
    """Even with a right digest, as one who changes a file on purpose would give it."""
    monkeypatch.setattr(storage, "digest_of", lambda *_: "signed")
    path = tmp_path / "run.parquet"
    lm.save(lm.LUCRL().run(small(), 30, rng=0), path)
    header = header_of(path)
    with_header(path, {**header, "arrays": {**header["arrays"], "initial": layout}})
    with pytest.raises(FormatError, match=r"run\.parquet: "):
        lm.load(path)


def test_large_arrays_fit_into_the_metadata(tmp_path):
    """More than the 100 MB that a text in the metadata may have by default."""
    path = tmp_path / "run.parquet"
    run = lm.LUCRL().run(small(), 2, rng=0)
    curve = type(run.error_curve)(np.arange(5_000_000), np.zeros(5_000_000))
    lm.save(dataclasses.replace(run, error_curve=curve), path)
    np.testing.assert_array_equal(lm.load(path).error_curve.episodes, curve.episodes)


def test_a_flipped_bit_is_seen_or_changes_nothing(tmp_path):
    """The digest covers what the checksums of Parquet's pages leave open: the metadata."""
    path = tmp_path / "run.parquet"
    run = lm.LUCRL().run(small(), 30, rng=0)
    lm.save(run, path)
    whole = path.read_bytes()
    seen = 0
    for place in np.random.default_rng(0).integers(len(whole), size=300):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        try:
            back = lm.load(path)
        except FormatError:
            seen += 1
            continue
        np.testing.assert_array_equal(back.returns, run.returns)
        np.testing.assert_array_equal(back.counts.transitions, run.counts.transitions)
        np.testing.assert_array_equal(back.policy.vectors, run.policy.vectors)
        assert back.settings == run.settings
    assert seen > 150
