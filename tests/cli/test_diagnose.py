"""`latentmdp diagnose` prints and gives what the library gives."""

import pytest
from command_line import run, run_json

import latentmdp as lm


@pytest.fixture
def files(tmp_path):
    model = lm.make("separated", contexts=2, states=3, horizon=4, rng=0)
    lm.save(model, tmp_path / "m.npz")
    lm.save(lm.simulate(model, lm.UniformPolicy(), 2000, rng=0), tmp_path / "logs.npz")
    return model, tmp_path


def test_a_model(files):
    model, folder = files
    found = run_json("diagnose", folder / "m.npz", "--episodes", 200)
    d = lm.diagnose(model, rng=0, episodes=200)
    assert found["delta"] == d.delta
    assert found["sigma_h"] == d.sigma_h.tolist()
    assert found["diameter"] == d.diameter.tolist()
    assert [tuple(row) for row in found["rows"]] == d.rows()
    assert "Assumption 3" in run("diagnose", folder / "m.npz", "--episodes", 200).stdout


def test_numbers_that_json_cannot_hold(tmp_path):
    lm.save(lm.make("lower-bound", rng=0), tmp_path / "hard.json")
    found = run_json("diagnose", tmp_path / "hard.json", "--episodes", 100)
    assert found["diameter"] == ["inf"] * 3
    assert None in found["sigma_h"]


def test_logs(files):
    _, folder = files
    found = run_json("diagnose", folder / "logs.npz")
    assert found["episodes"] == 2000
    assert "coverage" in run("diagnose", folder / "logs.npz").stdout


def test_a_file_that_is_neither(files):
    model, folder = files
    lm.save(lm.QMDP().plan(model).policy, folder / "policy.npz")
    run("diagnose", folder / "policy.npz", code=2)


def test_logs_against_a_model(files):
    model, folder = files
    logs = lm.load(folder / "logs.npz")
    found = run_json("diagnose", folder / "logs.npz", "--model", folder / "m.npz")
    checks = lm.check_fit(logs, model, 0)
    assert [row["p_value"] for row in found["checks"]] == [check.p_value for check in checks]
    text = run("diagnose", folder / "logs.npz", "--model", folder / "m.npz").stdout
    assert "beyond the model" in " ".join(text.split())
    lm.save(lm.QMDP().plan(model).policy, folder / "policy.npz")
    again = run_json("diagnose", folder / "logs.npz", "--model", folder / "policy.npz")
    assert again["checks"] == found["checks"]
