"""Two writers never share a file, and a writer that was killed does not stop the next."""

import os
import subprocess
import sys
from threading import Barrier, Thread

import numpy as np
import pytest
from support import random_model

import latentmdp as lm
from latentmdp._util.storage import one_writer
from latentmdp.experiments import Setting, run_sweep
from latentmdp.io import LockedError

HOLD = """
import sys
from latentmdp._util.storage import one_writer
with one_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of `run.npz`."""
    path = tmp_path / "run.npz"
    command = [sys.executable, "-c", HOLD, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert child.stdout.readline() == b"held\n"
    yield path, child
    child.kill()
    child.wait()
    child.stdout.close()
    child.stdin.close()


def test_another_process_is_named_and_kept_out(holder):
    path, child = holder
    with pytest.raises(LockedError, match=f"process {child.pid} on"):
        lm.LUCRL().run(random_model(), 5, rng=0, checkpoint=path)
    with pytest.raises(LockedError):
        lm.learn(random_model(), 2, 30, rng=0, checkpoint=path)
    assert not path.exists()
    child.stdin.close()
    child.wait()
    lm.LUCRL().run(random_model(), 5, rng=0, checkpoint=path)
    assert [p.name for p in path.parent.iterdir()] == ["run.npz"]


def test_a_killed_writer_is_succeeded(holder):
    path, child = holder
    child.kill()
    child.wait()
    assert os.path.exists(f"{path}.lock")
    with one_writer(path):
        assert f"process {os.getpid()} on" in path.with_name("run.npz.lock").read_text()
    assert not os.path.exists(f"{path}.lock")


def test_a_thread_of_the_same_process_is_kept_out(tmp_path):
    (tmp_path / "a.lock").write_text("left behind")
    with one_writer(tmp_path / "a"), pytest.raises(LockedError), one_writer(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_every_writer_of_many_comes_in_alone(tmp_path):
    """The file of a writer that ends is removed while others have it open already."""
    inside, most, entered = [], [], []

    def writer():
        while len(entered) < 200:
            try:
                with one_writer(tmp_path / "a"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    entered.append(1)
            except LockedError:
                pass

    threads = [Thread(target=writer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert max(most) == 1
    assert list(tmp_path.iterdir()) == []


def test_of_many_threads_one_takes_over(tmp_path):
    (tmp_path / "a.lock").write_text("left behind")
    barrier, inside, refused = Barrier(8), [], []

    def writer():
        barrier.wait()
        try:
            with one_writer(tmp_path / "a"):
                inside.append(1)
                assert len(inside) == 1
                done.wait()
        except LockedError:
            refused.append(1)
            if len(refused) == 7:
                done.wait()

    done = Barrier(2)
    threads = [Thread(target=writer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert (len(inside), len(refused)) == (1, 7)


def test_sweeps_lock_their_folder(tmp_path):
    def nested(setting):
        with pytest.raises(LockedError):
            run_sweep([setting], nested, tmp_path / "runs", jobs=1)
        return {"x": np.zeros(1)}

    run_sweep([Setting("toy/0", {})], nested, tmp_path / "runs", jobs=1)
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]
