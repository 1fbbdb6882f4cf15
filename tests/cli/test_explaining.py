"""`explain` and `explorer` on the command line."""

import json

import pytest
from command_line import run, run_json

import latentmdp as lm


@pytest.fixture
def files(tmp_path):
    """A model with names, and a policy for it."""
    model = lm.make("treatment", horizon=5)
    lm.save(model, tmp_path / "m.npz")
    lm.save(lm.QMDP().plan(model), tmp_path / "plan.npz")
    lm.save(lm.QMDP().plan(model).policy, tmp_path / "p.npz")
    return tmp_path


def test_explain_in_words_and_as_data(files):
    given = ("explain", files / "m.npz", "--policy", files / "p.npz", "--state", "mild", "--t", 1)
    shown = run(*given, "--belief", "slow=0.25;fast, responsive=0.75").stdout
    assert "the policy takes" in shown
    told = run_json(*given, "--belief", "0.25,0.75,0,0")
    model = lm.load(files / "m.npz")
    expected = lm.explain(model, lm.QMDP().plan(model).policy, "mild", [0.25, 0.75, 0, 0], 1)
    assert told["margin"] == pytest.approx(expected.margin)
    assert told["turning_points"] == json.loads(json.dumps(expected.to_dict()["turning_points"]))
    assert run_json(*given[:4], "--state", "1")["state"] == "mild"


def test_tables_and_pictures(files):
    world = ("explain", files / "m.npz", "--policy", "qmdp")
    run(*world, "--out", files / "t.md")
    assert "| mild |" in (files / "t.md").read_text()
    run(*world, "--out", files / "t.csv", "--state", "mild", "--plot", files / "d.svg")
    assert (files / "t.csv").read_text().startswith("from_step,to_step,state,context,")
    assert (files / "d.svg").exists()
    lm.save(lm.make("treatment").replace(horizon=None, discount=0.9), files / "endless.npz")
    run("explain", files / "endless.npz", "--plot", files / "g.svg")
    assert (files / "g.svg").exists()


def test_a_policy_that_is_drawn(files):
    model = lm.load(files / "m.npz")
    plan = lm.Robust("regret", gap=0.01, time_limit=5.0).plan(model)
    assert plan.policy.weights.size > 1
    lm.save(plan, files / "r.npz")
    lm.save(plan.policy, files / "drawn.npz")
    given = ("explain", files / "m.npz", "--policy", files / "drawn.npz")
    shown = run(*given, "--state", "mild", "--plot", files / "d.svg").stdout
    assert f"one of {plan.policy.weights.size} policies is drawn" in " ".join(shown.split())
    assert (files / "d.svg").exists()
    assert len(run_json(*given, "--state", "mild")["parts"]) == plan.policy.weights.size
    run(*given, "--out", files / "page.html")
    text = (files / "page.html").read_text()
    for i in range(plan.policy.weights.size):
        assert f"Policy {i + 1}, drawn at the start with probability" in text
    assert "policy.parts" in run(*given, "--out", files / "t.md", code=2).stderr
    run("explorer", files / "r.npz", "--out", files / "page.html")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "--state"),
        (("--out", "t.txt"), ".md, .csv or .html"),
        (("--state", "mildly"), "does not know"),
        (("--state", "mild", "--belief", "half"), "--belief takes"),
        (("--state", "mild", "--belief", "0.5,0.5"), "4 contexts"),
        (("--state", "mild", "--t", "5"), "t must lie in"),
        (("--state", "mild", "--plot", "x.txt"), "is written as"),
    ],
)
def test_bad_input_is_named(files, more, told, monkeypatch):
    monkeypatch.chdir(files)
    assert told in run("explain", "m.npz", *more, code=2).stderr


def test_the_explorer_takes_policies_and_what_holds_them(files):
    for name in ("p.npz", "plan.npz"):
        found = run_json("explorer", files / name, "--out", files / "page.html")
        assert found["bytes"] == (files / "page.html").stat().st_size
    assert "page.html" in run("explorer", files / "p.npz", "--out", files / "page.html").stdout
    lm.save(lm.MarkovPolicy([0] * 5), files / "markov.npz")
    out = ("--out", files / "page.html")
    assert "give model=" in run("explorer", files / "markov.npz", *out, code=2).stderr
    run("explorer", files / "markov.npz", *out, "--model", files / "m.npz")
    assert "not a policy" in run("explorer", files / "m.npz", *out, code=2).stderr
