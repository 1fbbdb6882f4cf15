"""What a run gives back, and its Parquet file."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from latentmdp.online.session import milestones
from small_worlds import small

import latentmdp as lm
from latentmdp.errors import FormatError
from latentmdp.online import Run
from latentmdp.online.baselines import FixedPolicy, uniform
from latentmdp.online.run_files import RunFileError


def test_milestones_are_log_spaced_and_end_with_the_run():
    assert milestones(1).tolist() == [1]
    assert milestones(35).tolist() == [*range(1, 10), 10, 20, 30, 35]
    assert {300, 30_000, 40_000} <= set(milestones(40_000).tolist())


def test_regret_carries_the_bounds_of_the_plan():
    model = small()
    run = lm.LUCRL().run(model, 100, rng=0)
    upper = lm.QMDP().plan(model)
    regret = run.regret(reference=upper)
    assert regret.lower is None
    np.testing.assert_allclose(regret.upper, np.cumsum(upper.upper - run.returns))
    np.testing.assert_array_equal(np.asarray(regret), regret.upper)
    both = lm.Plan(upper.policy, lower=1.0, upper=2.0, guarantee=(0.5, 0.1))
    regret = run.regret(reference=both)
    np.testing.assert_allclose(regret.lower, np.cumsum(0.5 * 1.0 - 0.1 - run.returns))
    np.testing.assert_allclose(regret.upper, np.cumsum(0.5 * 2.0 - 0.1 - run.returns))
    assert (regret.bound > regret.upper).all()
    with pytest.raises(ValueError, match="no upper bound"):
        run.regret(reference=lm.Plan(upper.policy))


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
def test_parquet_and_back(learner, tmp_path):
    run = learner.run(small(), 80, rng=0)
    run.save(tmp_path / "run.parquet")
    back = Run.load(tmp_path / "run.parquet")
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
    run.save(tmp_path / "run.parquet")
    table = pq.read_table(tmp_path / "run.parquet")
    assert table.column_names == ["episode", "return", "belief", "context"]
    np.testing.assert_array_equal(table["return"].to_numpy(), run.returns)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    with pytest.raises(RunFileError, match="does not hold a run"):
        Run.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(RunFileError, match="does not hold a run"):
        Run.load(path)


def header_of(path):
    return json.loads(pq.read_schema(path).metadata[b"latentmdp"])


def with_header(path, header):
    """Write the run again with another header."""
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"latentmdp": json.dumps(header).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_a_run_is_not_taken_for_logs(tmp_path):
    path = tmp_path / "run.parquet"
    lm.LUCRL().run(small(), episodes=5, rng=0).save(path)
    with pytest.raises(FormatError, match=r"holds a run of a learner: read it with .*Run\.load"):
        lm.load(path)


def test_the_digest_is_of_the_outcome_and_not_of_the_time_it_took(tmp_path):
    for k in (0, 1):
        lm.LUCRL().run(small(), 30, rng=0).save(tmp_path / f"{k}.parquet")
    lm.LUCRL().run(small(), 30, rng=1).save(tmp_path / "2.parquet")
    first, same, other = (header_of(tmp_path / f"{k}.parquet") for k in range(3))
    assert first["seconds"] != same["seconds"]
    assert first["digest"] == same["digest"] != other["digest"]


def test_files_without_time_and_digest_are_read(tmp_path):
    path = tmp_path / "run.parquet"
    run = lm.LUCRL().run(small(), 30, rng=0)
    run.save(path)
    header = header_of(path)
    with_header(path, {k: v for k, v in header.items() if k not in ("seconds", "digest")})
    old = Run.load(path)
    assert old.seconds is None
    np.testing.assert_array_equal(old.returns, run.returns)


@pytest.mark.parametrize(
    "change", [{"settings": {}}, {"seconds": -1.0}, {"seconds": "long"}, {"digest": "0" * 32}]
)
def test_a_changed_header_is_refused(tmp_path, change):
    path = tmp_path / "run.parquet"
    lm.LUCRL().run(small(), 30, rng=0).save(path)
    with_header(path, {**header_of(path), **change})
    with pytest.raises(FormatError, match=r"does not hold a run: .*(damaged|seconds)"):
        Run.load(path)


def test_a_flipped_bit_is_seen_or_changes_nothing(tmp_path):
    """The digest covers what the checksums of Parquet's pages leave open: the metadata."""
    path = tmp_path / "run.parquet"
    run = lm.LUCRL().run(small(), 30, rng=0)
    run.save(path)
    whole = path.read_bytes()
    seen = 0
    for place in np.random.default_rng(0).integers(len(whole), size=300):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        try:
            back = Run.load(path)
        except FormatError:
            seen += 1
            continue
        np.testing.assert_array_equal(back.returns, run.returns)
        np.testing.assert_array_equal(back.counts.transitions, run.counts.transitions)
        np.testing.assert_array_equal(back.policy.vectors, run.policy.vectors)
        assert back.settings == run.settings
    assert seen > 150


def test_progress_is_shown(capsys):
    lm.LUCRL().run(small(), 30, rng=0, progress=True)
    assert "trailing return" in capsys.readouterr().out
