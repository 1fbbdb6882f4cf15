"""A disk that is full, or a folder that is read-only: an OSError, and the old file stays whole."""

import errno
import gc
import os

import numpy as np
import pytest
from support import random_model

import latentmdp as lm
from latentmdp._util import storage
from latentmdp.online import base as learning_base

OBJECTS = {
    "m.npz": lambda: random_model(1),
    "m.json": lambda: random_model(1),
    "m.pomdp": lambda: random_model(1),
    "m.pomdpx": lambda: random_model(1),
    "logs.npz": lambda: lm.simulate(random_model(1), lm.UniformPolicy(), 20, rng=0),
    "logs.parquet": lambda: lm.simulate(random_model(1), lm.UniformPolicy(), 20, rng=0),
    "policy.npz": lambda: lm.QMDP().plan(random_model(1)).policy,
    "run.parquet": lambda: lm.LUCRL().run(random_model(1), 5, rng=0),
}


class FullDisk:
    """A file that takes so many bytes and no more."""

    def __init__(self, stream, room):
        self.stream, self.room = stream, room

    def write(self, data):
        self.room -= len(memoryview(data).cast("B"))
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.stream.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def __getattr__(self, name):
        return getattr(self.stream, name)


@pytest.fixture
def disk(monkeypatch):
    """Give every file opened for atomic writing this much room; None for all it wants."""
    plain = os.fdopen

    def limit(room):
        class Files:
            def __getattr__(self, name):
                return getattr(os, name)

            def fdopen(self, handle, mode):
                stream = plain(handle, mode)
                return stream if room is None else FullDisk(stream, room)

        monkeypatch.setattr(storage, "os", Files())

    return limit


@pytest.fixture(autouse=True)
def collected():
    """Collect failed writers at once: pyarrow formats their errors when they go, with `ast`.

    Python 3.11 does not stand that where it parses, as NumPy does to read the header of an array.
    """
    yield
    gc.collect()


@pytest.mark.parametrize("name", OBJECTS)
def test_a_full_disk_leaves_the_old_file(tmp_path, name, disk):
    path, saved = tmp_path / name, OBJECTS[name]()
    lm.save(saved, path)
    before = path.read_bytes()
    for room in (0, 100, 700):
        disk(room)
        with pytest.raises(OSError, match="No space left") as caught:
            lm.save(saved, path)
        assert caught.value.filename == str(path)
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == [name]
    disk(None)
    lm.load(path)


def test_a_run_goes_on_once_there_is_room(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(learning_base, "CHECKPOINT_SECONDS", -1.0)
    model, path = random_model(), tmp_path / "run.npz"
    whole = lm.LUCRL().run(model, 50, rng=1)
    write, calls = learning_base.write_checkpoint, []

    def third_is_too_much(*arguments):
        calls.append(1)
        disk(10 if len(calls) >= 3 else None)
        write(*arguments)

    monkeypatch.setattr(learning_base, "write_checkpoint", third_is_too_much)
    with pytest.raises(OSError, match="No space left") as caught:
        lm.LUCRL().run(model, 50, rng=1, checkpoint=path)
    assert caught.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]
    disk(None)
    monkeypatch.setattr(learning_base, "write_checkpoint", write)
    again = lm.LUCRL().run(model, 50, rng=1, checkpoint=path)
    np.testing.assert_array_equal(again.returns, whole.returns)
    out = tmp_path / "run.parquet"
    lm.save(again, out)
    disk(10)
    with pytest.raises(OSError, match="No space left"):
        lm.save(again, out)
    np.testing.assert_array_equal(lm.load(out).returns, whole.returns)


def test_a_read_only_folder_is_told_before_work_starts(tmp_path, monkeypatch):
    model, path = random_model(), tmp_path / "run.npz"
    lm.LUCRL().run(model, 50, rng=1, checkpoint=path)
    before, plain = path.read_bytes(), os.open

    def read_only(name, flags, *mode):
        if flags & os.O_CREAT and str(name).startswith(str(tmp_path)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))
        return plain(name, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    played = []
    monkeypatch.setattr(lm.LUCRL, "begin", lambda *_: played.append(1))
    for work in (
        lambda: lm.LUCRL().run(model, 50, rng=1, checkpoint=path),
        lambda: lm.learn(model, 2, 30, rng=1, checkpoint=path),
        lambda: lm.io.check_target(lm.Plan, path),
        lambda: lm.save(model, path),
    ):
        with pytest.raises(OSError, match="Read-only") as caught:
            work()
        assert caught.value.filename == str(path)
    assert not played
    assert path.read_bytes() == before
