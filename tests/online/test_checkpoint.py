"""Runs that are interrupted end bit for bit like runs that are not."""

import subprocess
import sys
import time

import numpy as np
import pytest
from small_worlds import PlainQMDP, small

import latentmdp as lm
from latentmdp.experiments.lucrl_runs import unrelated_model
from latentmdp.online import CheckpointError, PosteriorSampling, base

CHILD = """
import sys, latentmdp as lm
from latentmdp.online import base
base.CHECKPOINT_SECONDS = 0.02
model = lm.make("random", rng=0, contexts=3, states=5, actions=2, horizon=6)
print("ready", flush=True)
lm.save(lm.LUCRL().run(model, 60_000, rng=0, checkpoint=sys.argv[1]), sys.argv[2])
"""


class StoppedError(Exception):
    """Stands for whatever ends a run early."""


@pytest.fixture
def stopping(monkeypatch):
    """Make runs stop right after each of their first checkpoints."""
    monkeypatch.setattr(base, "CHECKPOINT_SECONDS", -1.0)
    write = base.write_checkpoint

    def write_and_stop(*arguments):
        write(*arguments)
        raise StoppedError

    def switch(on):
        monkeypatch.setattr(base, "write_checkpoint", write_and_stop if on else write)

    return switch


def same(first, second):
    for name in ("returns", "beliefs", "contexts"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.error_curve.values, second.error_curve.values)
    np.testing.assert_array_equal(first.counts.transitions, second.counts.transitions)
    np.testing.assert_array_equal(first.policy.vectors, second.policy.vectors)
    assert first.optimistic_value == second.optimistic_value


@pytest.mark.parametrize(
    "learner",
    [
        lm.LUCRL(),
        lm.LUCRL(contexts="inferred", start=unrelated_model(small(), 1), replan="lazy"),
        lm.LUCRL(planner=PlainQMDP(), replan=1.5),
        lm.LUCRL(weights=[0.2, 0.3, 0.5]),
        PosteriorSampling(),
    ],
    ids=["compiled", "lazy", "plain lazy", "known weights", "posterior sampling"],
)
def test_resuming_again_and_again(learner, stopping, tmp_path):
    model, path = small(), tmp_path / "run.npz"
    whole = learner.run(model, 60, rng=3)
    stopping(True)
    for _ in range(6):
        with pytest.raises(StoppedError):
            learner.run(model, 60, rng=3, checkpoint=path)
    stopping(False)
    same(learner.run(model, 60, rng=3, checkpoint=path), whole)
    same(learner.run(model, 60, rng=3, checkpoint=path), whole)


def test_seconds_add_up_over_resumptions(stopping, monkeypatch, tmp_path):
    """Two processes that took a hundred seconds each before they were stopped."""
    path = tmp_path / "run.npz"
    stopping(True)
    stop = base.write_checkpoint
    monkeypatch.setattr(base, "write_checkpoint", lambda *a: stop(*a[:3], a[3] + 100.0))
    for _ in range(2):
        with pytest.raises(StoppedError):
            lm.LUCRL().run(small(), 60, rng=3, checkpoint=path)
    stopping(False)
    again = lm.LUCRL().run(small(), 60, rng=3, checkpoint=path)
    assert 200.0 < again.seconds < 250.0


def test_killed_three_times(tmp_path):
    paths = [str(tmp_path / name) for name in ("c.npz", "r.parquet", "c0.npz", "r0.parquet")]
    for pause in (0.1, 0.05, 0.15):
        command = [sys.executable, "-c", CHILD, *paths[:2]]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(pause)
            child.kill()
    for pair in (paths[:2], paths[2:]):
        subprocess.run([sys.executable, "-c", CHILD, *pair], check=True)
    same(lm.load(paths[1]), lm.load(paths[3]))


def test_foreign_checkpoints_are_refused(tmp_path):
    model, path = small(), tmp_path / "run.npz"
    lm.LUCRL().run(model, 20, rng=3, checkpoint=path)
    before = path.read_bytes()
    others = [
        (lm.LUCRL(), model, 20, 4, "its seed is 3, here 4"),
        (lm.LUCRL(), model, 30, 3, "its episodes is 20, here 30"),
        (lm.LUCRL(), small(1), 20, 3, "its world is"),
        (lm.LUCRL(replan="lazy"), model, 20, 3, "its replan is 'every', here 'lazy'"),
        (PosteriorSampling(), model, 20, 3, "its learner is 'LUCRL', here 'PosteriorSampling'"),
    ]
    for learner, world, episodes, seed, message in others:
        with pytest.raises(CheckpointError, match=message):
            learner.run(world, episodes, rng=seed, checkpoint=path)
    assert path.read_bytes() == before


def test_damaged_checkpoints_are_refused(tmp_path):
    model, path = small(), tmp_path / "run.npz"
    lm.LUCRL().run(model, 20, rng=3, checkpoint=path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    place = whole.index(b"counts.npy") + 300
    flipped[place] ^= 0xFF
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], b"hello" * 50, bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="not a whole checkpoint"):
            lm.LUCRL().run(model, 20, rng=3, checkpoint=path)
        assert path.read_bytes() == damaged
