"""`latentmdp lucrl`, `solve --run-out` and `reproduce`."""

import numpy as np
from command_line import run, run_json

import latentmdp as lm


def test_lucrl_runs_what_the_library_runs(model, tmp_path):
    out = tmp_path / "run.parquet"
    found = run_json("lucrl", model, "--episodes", 40, "--seed", 3, "--out", out)
    expected = lm.LUCRL().run(lm.load(model), 40, rng=3)
    np.testing.assert_array_equal(lm.load(out).returns, expected.returns)
    assert found["trailing_return"] == expected.trailing_return()


def test_lucrl_takes_a_start_and_a_checkpoint(model, tmp_path):
    logs, checkpoint = tmp_path / "logs.npz", tmp_path / "c.npz"
    lm.save(lm.simulate(lm.load(model), lm.UniformPolicy(), 30, rng=0), logs)
    options = ("--contexts", "inferred", "--start", logs, "--checkpoint", checkpoint)
    assert "per episode" in run("lucrl", model, "--episodes", 20, *options).output
    assert checkpoint.exists()
    failed = run("lucrl", model, "--episodes", 30, *options, code=2)
    assert "belongs to another run" in failed.output


def test_solve_keeps_its_outcome(model, tmp_path):
    logs, out = tmp_path / "logs.npz", tmp_path / "solved.npz"
    played = lm.simulate(lm.load(model), lm.UniformPolicy(), 60, rng=0)
    lm.save(played.without_contexts(), logs)
    options = ("--contexts", 2, "--bootstrap", 2, "--seed", 5)
    found = run_json("solve", logs, *options, "--run-out", out)
    solved = lm.load(out)
    assert solved.value._asdict() == found["value"]
    assert solved.settings["seed"] == 5
    assert "is saved as .npz" in run("solve", logs, *options, "--run-out", "s.json", code=2).output


def test_reproduce_says_what_held(tmp_path):
    found = run_json("reproduce", "fig1a", "--quick", "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    assert len(found["claims"]) == 3
    assert all(isinstance(claim["held"], bool) for claim in found["claims"])
    assert "no experiment 'fig7'" in run("reproduce", "fig7", code=2).output
