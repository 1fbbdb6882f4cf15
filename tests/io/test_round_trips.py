"""What is saved is what is loaded, in every format; writes are atomic."""

import errno
import json
import os
import stat

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support import batches, gap_model, models, random_model

import latentmdp as lm
from latentmdp._util.arrays import Floats
from latentmdp._util.storage import atomic_write
from latentmdp.errors import FormatError
from latentmdp.io import check_target

quick = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(models())
@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_models(tmp_path, suffix, model):
    path = tmp_path / f"model{suffix}"
    lm.save(model, path)
    loaded = lm.load(path)
    assert loaded == model
    assert loaded.fingerprint() == model.fingerprint()


@pytest.mark.parametrize("suffix", [".npz", ".json", ".pomdp", ".pomdpx"])
@pytest.mark.parametrize("changes", [{}, {"horizon": 4}, {"horizon": 2, "discount": 1.0}])
def test_tables_allowed_actions_and_no_end(tmp_path, suffix, changes):
    names = {"state_names": ["a", "b", "the end"], "action_names": ["x y", "<z>"]}
    for model in (gap_model(**changes), gap_model(**changes, **names)):
        lm.save(model, tmp_path / f"m{suffix}")
        loaded = lm.load(tmp_path / f"m{suffix}")
        assert loaded == model
        assert loaded.is_table
        assert loaded.horizon == model.horizon
        assert loaded.fingerprint() == model.fingerprint()
        np.testing.assert_array_equal(loaded.allowed, model.allowed)


@quick
@given(batches())
def test_logs_as_npz(tmp_path, logs):
    lm.save(logs, tmp_path / "logs.npz")
    assert lm.load(tmp_path / "logs.npz") == logs


@quick
@given(batches(min_length=1))
def test_logs_as_parquet(tmp_path, logs):
    lm.save(logs, tmp_path / "logs.parquet")
    assert lm.load(tmp_path / "logs.parquet") == logs


def test_unvisited_rows_survive(tmp_path):
    model = random_model()
    T = model.transitions.copy()
    T[1, 2, 0] = 0.0
    empirical = model.replace(transitions=T, allow_unvisited=True)
    for suffix in (".npz", ".json"):
        lm.save(empirical, tmp_path / f"m{suffix}")
        assert lm.load(tmp_path / f"m{suffix}") == empirical


def test_an_episode_without_steps_is_refused_by_parquet(tmp_path):
    logs = lm.Trajectories.from_lists([[0, 1], [2]], [[0], []], [[0], []])
    with pytest.raises(FormatError, match=r"logs\.parquet: episode 1 has no steps.*\.npz"):
        lm.save(logs, tmp_path / "logs.parquet")
    assert list(tmp_path.iterdir()) == []


def test_equal_objects_give_equal_files(tmp_path):
    for name in ("a.npz", "b.npz", "a.json", "b.json"):
        lm.save(random_model(), tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_numpy_and_json_read_the_files_too(tmp_path):
    model = random_model()
    lm.save(model, tmp_path / "m.npz")
    lm.save(model, tmp_path / "m.json")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["transitions"], model.transitions)
        assert json.loads(file["header"].item())["kind"] == "model"
    top = json.loads((tmp_path / "m.json").read_text())
    assert (top["format"], top["kind"], top["schema"]) == ("latentmdp", "model", 1)
    np.testing.assert_array_equal(top["model"]["transitions"], model.transitions)


def test_suffixes_may_be_upper_case_and_paths_plain_strings(tmp_path):
    lm.save(random_model(), str(tmp_path / "M.NPZ"))
    assert lm.load(str(tmp_path / "M.NPZ")) == random_model()


@pytest.mark.parametrize("name", ["m.pkl", "m", "m.parquet"])
def test_unfit_suffixes(tmp_path, name):
    with pytest.raises(FormatError, match=rf"{name}: LatentMDP is saved as \.npz or \.json"):
        lm.save(random_model(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_unknown_suffix_and_object(tmp_path):
    with pytest.raises(FormatError, match=r"unknown suffix '\.pkl'"):
        lm.load(tmp_path / "m.pkl")
    with pytest.raises(TypeError, match="cannot save a dict"):
        lm.save({}, tmp_path / "m.npz")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        lm.load(tmp_path / "nowhere.npz")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        lm.save(random_model(), tmp_path / "nowhere" / "m.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(IsADirectoryError, match="folder"):
        lm.save(random_model(), tmp_path / "folder.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half():
        with atomic_write(path) as stream:
            stream.write(b"half of the new")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_keeps_permissions_and_links(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    with atomic_write(link) as stream:
        stream.write(b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_ordinary_permissions(tmp_path):
    (tmp_path / "plain").touch()
    with atomic_write(tmp_path / "ours") as stream:
        stream.write(b"x")
    assert os.stat(tmp_path / "ours").st_mode == os.stat(tmp_path / "plain").st_mode


def test_a_new_kind_needs_one_entry(tmp_path, monkeypatch):
    from latentmdp.io import Kind, kinds, register

    class Curve:
        points: Floats
        label: str

        def __init__(self, points, label):
            self.points, self.label = points, label

        def to_fields(self):
            return vars(self)

        @classmethod
        def from_fields(cls, fields):
            return cls(**fields)

    monkeypatch.setattr(kinds, "_KINDS", dict(kinds._KINDS))
    register(Kind("curve", "Curve", lambda: Curve, suffixes=(".npz", ".json")))
    for suffix in (".npz", ".json"):
        lm.save(Curve(np.array([0.1, 0.2]), "error"), tmp_path / f"c{suffix}")
        loaded = lm.load(tmp_path / f"c{suffix}")
        assert (loaded.points.tolist(), loaded.label) == ([0.1, 0.2], "error")
    with pytest.raises(ValueError, match="registered already"):
        register(kinds.by_name("curve"))
    wrong = Curve(np.array([0.1]), "error")
    wrong.colour = "red"
    with pytest.raises(TypeError, match="knows no field 'colour'"):
        lm.save(wrong, tmp_path / "c.npz")
    with pytest.raises(FormatError, match="field 'label' must be a string, got int"):
        lm.save(Curve(np.array([0.1]), 3), tmp_path / "d.npz")
    assert not (tmp_path / "d.npz").exists()


def test_an_object_that_is_something_else_is_refused(tmp_path):
    from latentmdp.io import load_as

    lm.save(random_model(), tmp_path / "m.npz")
    assert load_as(lm.LatentMDP, tmp_path / "m.npz", "a model") == random_model()
    with pytest.raises(FormatError, match=r"m\.npz holds LatentMDP, not logs"):
        load_as(lm.Trajectories, tmp_path / "m.npz", "logs")


def test_a_place_is_checked_before_work_starts(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.npz").mkdir()
    for path, error, message in [
        (tmp_path / "nowhere" / "m.npz", FileNotFoundError, "no such folder: .*nowhere"),
        (tmp_path / "file" / "m.npz", NotADirectoryError, "not a folder: .*file"),
        (tmp_path / "folder.npz", IsADirectoryError, "is a folder: .*folder"),
        (tmp_path / "m.txt", FormatError, "is saved as"),
    ]:
        with pytest.raises(error, match=message):
            check_target(lm.LatentMDP, path)
    before = sorted(tmp_path.iterdir())
    check_target(lm.LatentMDP, tmp_path / "m.npz")
    assert sorted(tmp_path.iterdir()) == before

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", "some temporary name.tmp")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: '.*m\.npz'"):
        check_target(lm.LatentMDP, tmp_path / "m.npz")


def test_a_misspelt_argument_of_load_is_not_the_fault_of_the_file(tmp_path):
    model = random_model()
    for suffix, argument, message in [
        (".npz", "horizon", "such a file holds everything, load takes no 'horizon'"),
        (".json", "horizon", "such a file holds everything, load takes no 'horizon'"),
        (".csv", "horizn", "load takes no 'horizn' for such a file .did you mean 'horizon'"),
        (".csv", "next_stat", "did you mean 'next_state'"),
        (".pomdp", "horison", "did you mean 'horizon'"),
        (".pomdpx", "wings", "load takes no 'wings' for such a file$"),
        (".parquet", "reward_level", "did you mean 'reward_levels'"),
    ]:
        path = tmp_path / f"m{suffix}"
        if suffix == ".parquet":
            lm.save(lm.simulate(model, lm.UniformPolicy(), 3, rng=0), path)
        else:
            lm.save(model, path)
        with pytest.raises(TypeError, match=message) as caught:
            lm.load(path, **{argument: 3})
        assert str(caught.value).startswith(str(path))


def test_the_fields_of_a_kind_may_be_listed_instead_of_annotated(tmp_path, monkeypatch):
    from latentmdp.io import Kind, kinds, register

    class Bare:
        def to_fields(self):
            return {"points": np.array([1.0]), "label": None}

        @classmethod
        def from_fields(cls, fields):
            assert list(fields) == ["points"]
            return cls()

    monkeypatch.setattr(kinds, "_KINDS", dict(kinds._KINDS))
    fields = {"points": "array of floats", "label": "text"}
    register(Kind("bare", "Bare", lambda: Bare, fields, optional=frozenset({"label"})))
    lm.save(Bare(), tmp_path / "b.npz")
    assert isinstance(lm.load(tmp_path / "b.npz"), Bare)
    with pytest.raises(ValueError, match="field 'x' must be one of"):
        register(Kind("other", "Other", lambda: Bare, {"x": "array of dreams"}))
