"""`latentmdp learn`, `lucrl`, `solve --run-out` and `reproduce`."""

import numpy as np
from command_line import run, run_json

import latentmdp as lm


def test_lucrl_runs_what_the_library_runs(model, tmp_path):
    out = tmp_path / "run.parquet"
    arguments = ("lucrl", model, "--episodes", 40, "--seed", 3, "--out", out)
    found = run_json(*arguments)
    expected = lm.LUCRL().run(lm.load(model), 40, rng=3)
    np.testing.assert_array_equal(lm.load(out).returns, expected.returns)
    assert (found["seed"], found["episodes"]) == (3, 40)
    assert found["trailing_return"] == expected.returns[-4:].mean()
    assert "in the last tenth" in run(*arguments).stdout


def test_lucrl_assumes_a_number_of_contexts(model, tmp_path):
    start = tmp_path / "start.npz"
    lm.save(lm.load(model).subset([0, 1]), start)
    options = ("--episodes", 10, "--labels", "inferred", "--start", start)
    found = run_json("lucrl", model, *options, "--contexts", 2, "--out", tmp_path / "r.parquet")
    assert lm.load(tmp_path / "r.parquet").model.n_contexts == 2
    assert found["model_error"] is None  # models of different sizes have no distance
    failed = run("lucrl", model, "--episodes", 10, "--contexts", 2, code=2)
    assert "the world reveals 3 contexts" in failed.stderr
    assert "revealed" in run("lucrl", model, "--labels", "guessed", code=2).stderr


def test_learn_tells_the_return_of_the_last_tenth(model, tmp_path):
    out = tmp_path / "run.npz"
    arguments = ("learn", model, "--contexts", 3, "--episodes", 60, "--seed", 4, "--run-out", out)
    found = run_json(*arguments)
    returns = lm.load(out).returns
    assert found["seed"] == 4
    assert found["trailing_return"] == returns[-6:].mean()
    assert run_json("info", out)["trailing_return"] == returns[-6:].mean()
    assert "in the last tenth" in run(*arguments).stdout


def test_lucrl_takes_a_start_and_a_checkpoint(model, tmp_path):
    logs, checkpoint = tmp_path / "logs.npz", tmp_path / "c.npz"
    lm.save(lm.simulate(lm.load(model), lm.UniformPolicy(), 30, rng=0), logs)
    options = ("--labels", "inferred", "--start", logs, "--checkpoint", checkpoint)
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
    assert "is written as" in run("solve", logs, *options, "--run-out", "s.json", code=2).output


def test_reproduce_says_what_held(tmp_path):
    found = run_json("reproduce", "fig1a", "--quick", "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    assert len(found["claims"]) == 3
    assert all(isinstance(claim["held"], bool) for claim in found["claims"])
    assert "no experiment 'fig7'" in run("reproduce", "fig7", code=2).output


def test_lucrl_names_the_option_that_is_wrong(model):
    for option, value in (("--labels", "told"), ("--contexts", "revealed")):
        result = run("lucrl", model, "--episodes", "5", option, value, code=2)
        assert option in result.output
