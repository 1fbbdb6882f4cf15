"""`latentmdp fit` saves what `initialize` finds, and says what it is."""

import json

import pytest
from typer.testing import CliRunner

import latentmdp as lm
from latentmdp.cli.app import app


@pytest.fixture
def files(tmp_path):
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=20, delta=0.8, rng=3)
    lm.save(lm.simulate(model, lm.UniformPolicy(), 500, rng=0), tmp_path / "long.npz")
    short = lm.simulate(model.replace(horizon=4), lm.UniformPolicy(), 2000, rng=1)
    lm.save(short, tmp_path / "short.npz")
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["fit", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_saves_the_model_that_initialize_finds(files):
    out = files / "m.npz"
    options = ("--short", files / "short.npz", "--contexts", 2, "--out", out, "--seed", 4)
    found = json.loads(run(files / "long.npz", *options, "--json").stdout)
    short, long = (lm.load(files / f"{name}.npz") for name in ("short", "long"))
    fit = lm.initialize(short, long, 2, rng=4)
    assert lm.load(out) == fit.model
    assert found["weights"] == fit.model.weights.tolist()
    first = found["separated_by"][0]
    joint = fit.model.observation_probs()[:, first["state"], first["action"]]
    assert first["distance"] == pytest.approx(abs(joint[0] - joint[1]).sum())
    assert first["between"] == [0, 1]
    assert found["selection"] is None


def test_tells_what_was_found(files):
    shown = run(files / "long.npz", "--out", files / "m.json").stdout
    assert "2 contexts" in shown
    assert "what separates them" in shown
    assert "ure: " in shown


def test_bad_input(files):
    assert "number or auto" in run(
        files / "long.npz", "--contexts", "many", "--out", files / "m.npz", code=2
    ).stderr  # fmt: skip
    lm.save(lm.make("separated", rng=0), files / "m.npz")
    message = run(files / "m.npz", "--contexts", 2, "--out", files / "n.npz", code=2).stderr
    assert "not logs" in message
