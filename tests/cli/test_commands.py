"""Every command on files, as a user runs them; values agree with the library's own."""

import sys

import numpy as np
import pytest
from command_line import run, run_json, runner
from support import random_model

import latentmdp as lm
from latentmdp.cli.app import COMMANDS, app
from latentmdp.engines.cuda import gpu


def test_make_gives_what_the_library_gives(tmp_path):
    out = tmp_path / "m.npz"
    options = ("--contexts", 3, "--delta=0.5", "--reward-density", "0.2", "--seed", 7)
    found = run_json("make", "separated", *options, "--out", out)
    assert found["arguments"] == {"contexts": 3, "delta": 0.5, "reward_density": 0.2}
    assert lm.load(out) == lm.make("separated", contexts=3, delta=0.5, reward_density=0.2, rng=7)


def test_every_instance_is_listed_with_its_arguments():
    from latentmdp.instances import list_instances

    found = run_json("list", "instances")["instances"]
    assert set(found) == {entry.name for entry in list_instances()}
    assert "--delta 0.5" in found["separated"]
    listed = {entry["name"]: entry for entry in run_json("make", "--list")["instances"]}
    assert set(listed) == set(found)
    assert listed["separated"]["arguments"]["delta"] == 0.5
    for command in (("list", "instances"), ("make", "--list")):
        assert "--reward-density" in run(*command).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("make", "seperated"), "separated"),
        (("make", "separated", "--delt", "1"), "delta"),
        (("make", "separated", "--delta", "much"), "delta"),
        (("make",), "--list"),
        (("make", "--contexts", "3"), "name of an instance first"),
        (("make", "visitor", "more"), "unexpected 'more'"),
        (("make", "visitor", "--horizon", "3", "--horizon=4"), "given twice"),
        (("make", "visitor", "--out", "m.pkl"), "m.pkl"),
        (("make", "visitor", "--seed", "-1"), "--seed"),
        (("plan", "nowhere.npz"), "nowhere.npz"),
        (("solve",), "solve"),
    ],
)
def test_bad_input_ends_with_code_2_and_no_traceback(arguments, message):
    result = run(*arguments, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "{model}", "--method", "magic"), "unknown method 'magic'"),
        (("plan", "{model}", "--speed", "3"), "speed"),
        (("plan", "{model}", "--out", "{folder}/p.json"), "p.json"),
        (("evaluate", "{model}", "--policy", "magic"), "unknown policy 'magic'"),
        (("evaluate", "{model}", "--policy", "{model}"), "not a policy"),
        (("evaluate", "{model}", "--method", "magic"), "magic"),
        (("evaluate", "{model}", "--episodes", "0"), "--episodes"),
        (("simulate", "{model}", "--out", "{folder}/logs.csv"), "logs.csv"),
        (("simulate", "{model}", "--out", "{folder}/nowhere/logs.npz"), "nowhere"),
        (("simulate", "{model}"), "--out"),
    ],
)
def test_bad_options_of_commands_on_files(model, arguments, message):
    filled = [a.format(model=model, folder=model.parent) for a in arguments]
    result = run(*filled, code=2)
    # The message may be broken over the lines of a box, a long path in the middle of a word.
    assert message.replace(" ", "") in "".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "m.npz"
    path.write_bytes(b"PK not really")
    result = run("info", path, code=2)
    assert result.stderr.startswith(f"error: {path}: not an npz archive")


def test_debug_shows_the_error_itself(tmp_path):
    path = tmp_path / "m.npz"
    path.write_bytes(b"PK not really")
    result = runner.invoke(app, ["info", str(path), "--debug"])
    assert isinstance(result.exception, lm.LatentMDPError)


def test_ctrl_c_ends_with_code_130(model, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lm, "load", interrupted)
    assert run("info", model, code=130).stderr == "interrupted\n"


def test_info_of_a_model(model):
    found = run_json("info", model)
    expected = random_model()
    assert (found["contexts"], found["states"], found["actions"]) == (3, 4, 2)
    assert found["separation"] == pytest.approx(lm.separation(expected))
    assert found["weights"] == expected.weights.tolist()
    assert "separation" in run("info", model).stdout


def test_info_of_a_single_context(tmp_path):
    lm.save(random_model(M=1), tmp_path / "m.json")
    assert "separation" not in run_json("info", tmp_path / "m.json")


def test_info_of_logs_counts_multiplicities(tmp_path):
    logs = lm.Trajectories.from_lists(
        [[0, 1], [1, 1, 0]], [[0], [1, 0]], [[1], [0, 0]], counts=[3, 1], reward_values=(0.0, 1.0)
    )
    lm.save(logs, tmp_path / "logs.parquet")
    found = run_json("info", tmp_path / "logs.parquet")
    assert (found["episodes"], found["stored_episodes"], found["steps"]) == (4, 2, 3)
    assert found["mean_return"] == pytest.approx(0.75)
    assert found["lengths"] == [1, 2]
    assert "1 to 2" in run("info", tmp_path / "logs.parquet").stdout


def test_info_of_what_was_learned_is_short(model, tmp_path):
    learned, solved, logs, lucrl = (tmp_path / f for f in ("l.npz", "s.npz", "e.npz", "r.parquet"))
    run("learn", model, "--episodes", 40, "--contexts", 3, "--run-out", learned)
    run("simulate", model, "--episodes", 60, "--out", logs)
    run("solve", logs, "--contexts", 2, "--bootstrap", 2, "--run-out", solved)
    run("lucrl", model, "--episodes", 40, "--out", lucrl)
    assert run_json("info", learned)["episodes"] == 40
    assert run_json("info", lucrl)["mean_return"] == pytest.approx(lm.load(lucrl).returns.mean())
    value = lm.load(solved).value
    facts = run_json("info", solved)
    assert facts["value"] == value._asdict()
    for file in (learned, solved, lucrl):
        assert len(run("info", file).stdout.splitlines()) < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "MODEL", "--bogus", 3), "hsvi takes no option --bogus"),
        (("plan", "MODEL", "--gapp", 3), "did you mean '--gap'"),
        (("plan", "MODEL", "--out", "MODEL"), "a file that the command reads"),
        (("plan", "MODEL", "--method", "cadp", "--gap", 0.1), "cadp takes no option --gap"),
        (("evaluate", "MODEL", "--policy", "none.npz"), "there is no file 'none.npz'"),
        (("solve", "EMPTY"), "holds no episode"),
        (("report", "EMPTY"), "holds Trajectories: a report needs runs"),
        (("reproduce", "fig9"), "known: fig1a"),
    ],
)
def test_errors_name_the_culprit(model, tmp_path, arguments, message):
    logs = lm.simulate(lm.load(model), lm.UniformPolicy(), 3, rng=0)
    lm.save(logs[:0], tmp_path / "empty.parquet")
    given = {"MODEL": model, "EMPTY": tmp_path / "empty.parquet"}
    failed = run(*(given.get(word, word) for word in arguments), code=2)
    assert message in " ".join(failed.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("work", "command", "option", "suffix"),
    [
        ("make", ("make", "visitor"), "--out", ".npz"),
        ("simulate", ("simulate", "MODEL"), "--out", ".npz"),
        ("initialize", ("fit", "LOGS"), "--out", ".npz"),
        ("QMDP", ("plan", "MODEL"), "--out", ".npz"),
        ("QMDP", ("plan", "MODEL"), "--plot", ".svg"),
        ("QMDP", ("compare", "MODEL"), "--plot", ".svg"),
        ("learn", ("learn", "MODEL"), "--out", ".npz"),
        ("learn", ("learn", "MODEL"), "--model-out", ".npz"),
        ("learn", ("learn", "MODEL"), "--run-out", ".npz"),
        ("learn", ("learn", "MODEL"), "--checkpoint", ".npz"),
        ("LUCRL", ("lucrl", "MODEL"), "--out", ".parquet"),
        ("LUCRL", ("lucrl", "MODEL"), "--checkpoint", ".npz"),
        ("solve", ("solve", "LOGS"), "--out", ".npz"),
        ("solve", ("solve", "LOGS"), "--model-out", ".npz"),
        ("solve", ("solve", "LOGS"), "--run-out", ".npz"),
        ("load", ("report", "MODEL"), "--out", ".html"),
    ],
)
def test_outputs_are_tried_before_work(model, tmp_path, monkeypatch, work, command, option, suffix):
    logs = tmp_path / "logs.npz"
    lm.save(lm.simulate(lm.load(model), lm.UniformPolicy(), 5, rng=0), logs)
    before = sorted(tmp_path.iterdir())

    def began(*_, **__):
        raise AssertionError("the work began")

    monkeypatch.setattr(lm.io if work == "load" else lm, work, began)
    given = [{"MODEL": model, "LOGS": logs}.get(word, word) for word in command]
    (tmp_path / f"folder{suffix}").mkdir()
    for bad in (tmp_path / "nowhere" / f"x{suffix}", tmp_path / f"folder{suffix}"):
        failed = run(*given, option, bad, code=2)
        assert "folder" in failed.stderr, failed.output
        assert "the work began" not in failed.output
    (tmp_path / f"folder{suffix}").rmdir()
    assert sorted(tmp_path.iterdir()) == before  # trying leaves nothing behind


def test_a_plot_is_a_picture(model):
    failed = run("plan", model, "--plot", model.with_name("bounds.txt"), code=2)
    assert ".svg, .png or .pdf" in " ".join(failed.stderr.replace("│", " ").split())


def test_an_interruption_says_how_to_go_on(model, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lm, "learn", stop)
    (tmp_path / "c.npz").touch()
    kept = run("learn", model, "--checkpoint", tmp_path / "c.npz", code=130)
    assert kept.stderr.startswith("interrupted; the same command goes on from")
    assert (
        run("learn", model, "--checkpoint", tmp_path / "d.npz", code=130).stderr == "interrupted\n"
    )


@pytest.mark.parametrize(
    ("arguments", "planner"),
    [
        (("--method", "hsvi", "--gap", 0.1), lm.HSVI(gap=0.1)),
        (("--method", "pbvi", "--beliefs", 20), lm.PBVI(beliefs=20)),
    ],
)
def test_plan_hands_options_on_to_the_planner(model, arguments, planner):
    found = run_json("plan", model, *arguments)
    plan = planner.plan(random_model())
    assert (found["lower"], found["upper"]) == (plan.lower, plan.upper)
    assert found["message"] == plan.message


def test_plan_saves_the_policy(model):
    out = model.with_name("policy.npz")
    found = run_json("plan", model, "--method", "qmdp", "--out", out)
    plan = lm.QMDP().plan(random_model())
    assert found["upper"] == plan.upper
    assert found["lower"] is None
    np.testing.assert_array_equal(lm.load(out).vectors, plan.policy.vectors)
    assert "not computed" in run("plan", model, "--method", "qmdp").stdout
    assert run_json("plan", model)["lower"] is not None  # by default with a certificate
    assert "written" in run("plan", model, "--out", out).stdout
    run_json("info", out)


def test_evaluate_from_logs(model, tmp_path):
    world, path = lm.load(model), tmp_path / "logs.npz"
    logs = lm.simulate(world, lm.UniformPolicy(), 500, rng=3).without_contexts()
    lm.save(logs, path)
    given = ("evaluate", model, "--policy", "qmdp", "--logs", path, "--seed", 2)
    found = run_json(*given)
    policy = lm.QMDP().plan(world).policy
    expected = lm.off_policy_value(logs, policy, model=world, rng=2)
    assert [found[k] for k in ("mean", "low", "high")] == [
        expected.mean,
        expected.low,
        expected.high,
    ]
    assert found["effective_size"] == expected.effective_size.tolist()
    assert found["warnings"] == list(expected.warnings)
    shown = run(*given, "--method", "per-decision").stdout
    assert "per episode" in shown
    assert "where it is smallest" in shown
    assert "doubly-robust" in run(*given, "--method", "magic", code=2).output


def test_evaluate(model):
    world = random_model()
    found = run_json("evaluate", model, "--policy", "uniform")
    assert found["exact"]
    assert found["mean"] == pytest.approx(lm.evaluate(world, lm.UniformPolicy()).mean)
    policy = model.with_name("policy.npz")
    run("plan", model, "--method", "qmdp", "--out", policy)
    sampled = ("--method", "monte-carlo", "--episodes", 500, "--seed", 3)
    by_name, by_file = (
        run_json("evaluate", model, "--policy", p, *sampled) for p in ("qmdp", policy)
    )
    assert by_name["mean"] == by_file["mean"]
    expected = lm.evaluate(
        world, lm.QMDP().plan(world).policy, episodes=500, rng=3, method="monte-carlo"
    )
    assert (by_name["mean"], by_name["stderr"]) == (expected.mean, expected.stderr)


def test_simulate_gives_what_the_library_gives(model):
    out = model.with_name("logs.parquet")
    found = run_json("simulate", model, "--episodes", 50, "--seed", 4, "--out", out)
    expected = lm.simulate(random_model(), lm.UniformPolicy(), episodes=50, rng=4)
    assert lm.load(out) == expected
    assert found["mean_return"] == pytest.approx(expected.returns().mean())
    hidden = model.with_name("hidden.npz")
    run("simulate", model, "--episodes", 50, "--seed", 4, "--out", hidden, "--hide-contexts")
    assert lm.load(hidden) == expected.without_contexts()


@pytest.mark.parametrize(
    ("device", "installed", "message"),
    [("gpu", True, "is not one of"), ("cuda", False, "latentmdp[gpu]")],
)
def test_a_device_that_cannot_be_used_is_refused(model, monkeypatch, device, installed, message):
    gpu.cache_clear()
    if not installed:
        monkeypatch.setitem(sys.modules, "numba_cuda", None)
    out = model.with_name("none.parquet")
    for command in (("simulate", model, "--out", out), ("evaluate", model)):
        result = runner.invoke(app, [str(a) for a in (*command, "--device", device)])
        assert result.exit_code != 0
        assert message in " ".join(result.output.split())
    assert not out.exists()


def test_demo(tmp_path):
    found = run_json("demo", "--quick", "--out", tmp_path)
    for values in found["instances"].values():
        slack = 4 * values["best_stderr"]  # one false alarm in 30,000
        assert values["random"] < values["memoryless"] <= values["upper"]
        assert values["lower"] - slack <= values["best"] <= values["upper"] + slack
        assert max(values["learned"]) <= values["upper"] + slack
        assert values["upper"] <= values["full_information"] + 1e-9
        assert values["belief"][0] < values["belief"][-1]
    page = (tmp_path / "demo.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") >= 10
    assert (tmp_path / "separated-1.npz").exists()


def test_report(model, tmp_path):
    runs = [tmp_path / "a.parquet", tmp_path / "b.npz"]
    run("lucrl", model, "--episodes", 30, "--out", runs[0])
    run("learn", model, "--contexts", 2, "--episodes", 30, "--run-out", runs[1])
    out = tmp_path / "report.html"
    found = run_json("report", *runs, model, "--truth", model, "--out", out)
    assert found == {"report": str(out), "bytes": out.stat().st_size}
    for bad in (tmp_path / "none.parquet", tmp_path):
        run("report", bad, "--out", out, code=2)
    logs = tmp_path / "logs.npz"
    run("simulate", model, "--episodes", 5, "--out", logs)
    assert "needs runs" in run("report", logs, "--out", out, code=2).output


def test_quiet_says_nothing(model):
    for arguments in (("info", model), ("plan", model), ("evaluate", model, "--policy", "uniform")):
        assert run(*arguments, "--quiet").output == ""


def test_version():
    assert run("--version").stdout.strip() == f"latentmdp {lm.__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command):
    shown = run(command, "--help").stdout
    assert f"Example: latentmdp {command}" in shown
    for option in ("--json", "--quiet", "--debug"):
        assert option in shown
