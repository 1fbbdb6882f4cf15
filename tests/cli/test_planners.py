"""The commands around planners: plan with bounds, compare, convert."""

import pytest
from command_line import run, run_json
from support import random_model

import latentmdp as lm
from latentmdp.cli.catalogue import PLANNERS
from latentmdp.cli.screen import Screen


@pytest.mark.parametrize("method", ["exact", "branch-and-bound", "mip", "cadp"])
def test_plan_gives_what_the_library_gives(model, method) -> None:
    found = run_json("plan", model, "--method", method)
    world = random_model()
    plan = (lm.Exact() if method == "exact" else lm.Memoryless(method)).plan(world)
    assert (found["lower"], found["upper"]) == (plan.lower, plan.upper)
    assert tuple(found["guarantee"]) == plan.guarantee
    assert found["message"] == plan.message


def test_plan_hands_its_options_on(model) -> None:
    arguments = ("--method", "branch-and-bound", "--stationary", "--time-limit", "5")
    out = model.with_name("policy.npz")
    run("plan", model, *arguments, "--out", out)
    assert lm.load(out).stationary
    failed = run("plan", model, "--method", "exact", "--time-limit", 5, code=2)
    assert "exact takes no option --time-limit" in failed.stderr


def test_plan_draws_the_bounds(model) -> None:
    picture = model.with_name("bounds.svg")
    run("plan", model, "--method", "branch-and-bound", "--plot", picture)
    assert picture.read_text().lstrip().startswith("<?xml")


def test_compare_runs_every_planner(model) -> None:
    found = run_json("compare", model, "--episodes", 2000)["plans"]
    assert [row["method"] for row in found] == list(PLANNERS)
    rows = {row["method"]: row for row in found}
    best = rows["exact"]["lower"]
    for row in found:
        slack = 5.0 * row["stderr"] + 1e-9  # one false alarm in 3 million for each planner
        assert row["value"] <= best + slack
        if row["lower"] is not None:
            assert row["value"] >= row["lower"] - slack
    assert rows["branch-and-bound"]["lower"] == pytest.approx(rows["mip"]["lower"], rel=1e-9)


def test_compare_shows_a_table_and_what_a_planner_refuses(tmp_path) -> None:
    path = tmp_path / "m.npz"
    lm.save(lm.make("random", rng=0), path)
    shown = run("compare", path, "--methods", "exact,cadp", "--episodes", 100).stdout
    assert "rho1" in shown
    assert "raise max_beliefs" in shown
    assert "over memoryless policies" in shown


def test_compare_names_an_unknown_planner(model) -> None:
    assert "unknown method 'magic'" in run("compare", model, "--methods", "magic", code=2).stderr


def test_compare_keeps_what_was_done_before_an_interrupt(model, monkeypatch) -> None:
    def interrupted(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lm.Exact, "plan", interrupted)
    found = run_json("compare", model, "--methods", "qmdp,exact,cadp")
    assert [row["method"] for row in found["plans"]] == ["qmdp"]


@pytest.mark.parametrize("suffix", [".json", ".pomdp", ".pomdpx"])
def test_convert_there_and_back(model, suffix) -> None:
    there, back = model.with_name(f"there{suffix}"), model.with_name("back.npz")
    run("convert", model, there)
    found = run_json("convert", there, back)
    assert found["kind"] == "LatentMDP"
    assert lm.load(back) == random_model()


def test_convert_refuses_what_cannot_be(model) -> None:
    target = model.with_name("m.pomdp")
    assert "discount below 1" in run("convert", model, target, "--discounted", code=2).stderr
    assert "m.csv" in run("convert", model, model.with_name("m.csv"), code=2).stderr


def test_the_display_shows_bounds_at_a_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Screen(as_json=False, quiet=False).closing_bounds("planning") as show:
        show(0.5, 1.0, 2.0)
        show(1.0, 0.0, 2.0)
        show(1.5, 1.0, 1.01)
    shown = capsys.readouterr().err
    assert "100.000%" in shown
    assert "1.000%" in shown
    with Screen(as_json=False, quiet=True).closing_bounds("planning") as show:
        assert show is None
