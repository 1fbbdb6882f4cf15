"""The commands around planners: plan with bounds, compare, convert."""

import subprocess
import sys

import pytest
from command_line import run, run_json
from support import random_model

import latentmdp as lm
from latentmdp.cli.catalogue import PLANNERS
from latentmdp.cli.screen import Screen


@pytest.mark.parametrize("method", ["exact", "branch-and-bound", "cadp"])
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


def test_a_planner_that_the_package_lists_is_known_by_its_name(model) -> None:
    """`Memoryless` stands in the table under its methods only."""
    assert "memoryless" not in PLANNERS
    found = run_json("plan", model, "--method", "memoryless", "--starts", 1)
    assert found["lower"] == lm.Memoryless(starts=1).plan(random_model()).lower
    assert "unknown method 'plan'" in run("plan", model, "--method", "plan", code=2).stderr


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
    assert rows["branch-and-bound"]["lower"] >= rows["cadp"]["lower"] - 1e-9


def test_compare_shows_a_table_and_what_a_planner_refuses(tmp_path) -> None:
    path = tmp_path / "m.npz"
    lm.save(lm.make("random", rng=0), path)
    shown = run("compare", path, "--methods", "exact,cadp", "--episodes", 100).stdout
    assert "regret" in shown
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
    assert "m.txt" in run("convert", model, model.with_name("m.txt"), code=2).stderr


def test_tables_of_others_are_converted(tmp_path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("who,from,do,to,probability,reward\na,x,go,end,1,5\nb,x,go,x,1,-1\n")
    names = "context=who,state=from,action=do,next_state=to"
    target = tmp_path / "t.npz"
    found = run_json("convert", table, target, "--columns", names, "--horizon", 4)
    assert found["kind"] == "LatentMDP"
    facts = run_json("info", target)
    assert (facts["horizon"], facts["outcomes"], facts["terminal_states"]) == (4, 2, 1)
    assert facts["state_names"] == ["end", "x"]
    endless = run("info", table, "--columns", names, "--discount", 0.5)
    assert "without an end" in endless.stdout
    assert "0.95" in run("info", table, "--columns", names).stderr
    assert "--columns takes" in run("info", table, "--columns", "who", code=2).stderr
    run("make", "sparse", "--states", 9, "--horizon", "none", "--discount", 0.9, "--out", target)
    assert run_json("info", target)["horizon"] is None


def test_what_compiled_code_prints_is_no_result(tmp_path) -> None:
    """Bytes on file descriptor 1, as a C library writes them, go to stderr with --json."""
    body = (
        "import os, json\nfrom latentmdp.cli.screen import session\n"
        "with session(True, False, False) as screen:\n"
        "    os.write(1, b'noise'); screen.result(value=1); os.write(1, b'noise')\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ['{"value":', "1}", "after"]
    assert done.stderr == "noisenoise"


def test_the_display_shows_bounds_at_a_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Screen(as_json=False, quiet=False).closing_bounds("planning") as show:
        show(0.5, 1.0, 2.0)
        show(1.0, 0.0, 2.0)
        show(1.5, 1.0, 1.01)
    assert "planning: 1 to 1.01, gap 1.000%" in capsys.readouterr().err
    with Screen(as_json=False, quiet=True).closing_bounds("planning") as show:
        show(0.5, 1.0, 2.0)
    assert capsys.readouterr().err == ""


def test_plan_for_the_bad_case(model) -> None:
    out = model.with_name("robust.npz")
    found = run_json("plan", model, "--objective", "cvar", "--level", 0.5, "--out", out)
    plan = lm.Robust("cvar", 0.5).plan(random_model())
    assert (found["lower"], found["upper"]) == (plan.lower, plan.upper)
    assert found["by_context"] == plan.by_context.tolist()
    assert lm.load(out) == plan.policy
    shown = run("plan", model, "--objective", "regret").stdout
    assert "worst weights" in shown
    assert "by context" in shown
    failed = run("plan", model, "--objective", "cvar", "--method", "pbvi", code=2)
    assert "--objective is for --method robust" in failed.stderr
    assert "needs level" in run("plan", model, "--objective", "ball", code=2).stderr


def test_compare_shows_the_worst_context(model) -> None:
    rows = run_json("compare", model, "--methods", "exact,robust,cadp", "--episodes", 2000)["plans"]
    exact, robust, memoryless = rows
    assert robust["worst"] == pytest.approx(robust["lower"])
    assert robust["worst"] == min(robust["by_context"])
    assert exact["worst"] <= robust["upper"] + 5.0 * exact["stderr"] + 0.05
    marks = [row["bounds_of"] for row in rows]
    assert marks == ["all policies", "worst-case", "memoryless"]
    assert memoryless["regret"] >= -1e-9
    found = run_json("evaluate", model, "--policy", "robust")
    assert found["by_context"] == pytest.approx(robust["by_context"])
    assert found["stderr_by_context"] == [0.0] * len(found["by_context"])


def test_models_of_a_model_checker(tmp_path, monkeypatch):
    """`--hidden` and `--goal` reach the reader as `load` would get them; folders are taken."""
    read = {}

    def stand_in(path, *, hidden=None, goal=None, horizon=None, discount=None):
        read.update(path=path, hidden=hidden, goal=goal, horizon=horizon, discount=discount)
        return lm.make("wait-hub")

    monkeypatch.setattr("latentmdp.io.storm.read", stand_in)
    file = tmp_path / "m.prism"
    file.write_text("mdp")
    options = ("--hidden", "N=2..4", "--hidden", "p=0.5,true", "--goal", '"done"', "--horizon", 7)
    run("plan", file, *options)
    assert read.pop("hidden") == {"N": [2, 3, 4], "p": [0.5, True]}
    assert read == {"path": file, "goal": '"done"', "horizon": 7, "discount": None}
    run("convert", tmp_path, tmp_path / "out.npz", "--goal", '"done"', "--discount", 0.5)
    assert (read["path"], read["discount"]) == (tmp_path, 0.5)
    assert "must look like" in run("plan", file, "--hidden", "N", code=2).output
