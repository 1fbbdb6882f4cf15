"""Options from a file: the same run as by hand, the command line on top, mistakes named."""

import json

import pytest
from command_line import run, run_json
from support import random_model

import latentmdp as lm


def said(result):
    """What was said, without the lines of the box around it."""
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lm.save(random_model(), "m.npz")
    return tmp_path


def test_a_file_gives_options_and_arguments_and_the_command_line_wins(folder):
    (folder / "run.toml").write_text(
        'model = "m.npz"\nepisodes = 30\nseed = 4\nout = "logs.npz"\nhide-contexts = true\n'
    )
    assert run_json("simulate", "--config", "run.toml")["episodes"] == 30
    expected = lm.simulate(random_model(), lm.UniformPolicy(), 30, rng=4)
    assert lm.load("logs.npz") == expected.without_contexts()
    found = run_json("simulate", "--episodes", 7, "--config", "run.toml")
    assert (found["episodes"], found["seed"]) == (7, 4)


def test_a_planner_gets_the_keys_that_the_command_does_not_know(folder):
    (folder / "plan.toml").write_text('method = "pbvi"\nbeliefs = 20\njson = true\n')
    found = json.loads(run("plan", "m.npz", "--config", "plan.toml").stdout)
    assert found["lower"] == lm.PBVI(beliefs=20).plan(random_model()).lower
    few = json.loads(run("plan", "m.npz", "--config", "plan.toml", "--beliefs", 2).stdout)
    assert few["lower"] == lm.PBVI(beliefs=2).plan(random_model()).lower
    (folder / "plan.toml").write_text("wings = 2\n")
    assert "wings" in said(run("plan", "m.npz", "--config", "plan.toml", code=2))


@pytest.mark.parametrize("command", ["learn", "lucrl", "solve", "fit", "simulate", "reproduce"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wings = 2\n", "unknown key 'wings'; known:"),
        ('config = "other.toml"\n', "unknown key 'config'"),
        ("[learn]\nseed = 1\n", "'learn' is a table"),
        ("seed = \n", "not valid TOML"),
        ("quiet = 'perhaps'\n", "--quiet"),
    ],
)
def test_mistakes_in_a_file_are_named(folder, command, text, message):
    (folder / "run.toml").write_text(text)
    needed = ["--out", "logs.npz"] if command == "simulate" else []
    result = run(command, "m.npz", "--config", "run.toml", *needed, code=2)
    assert message in said(result)
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there(folder):
    assert "none.toml" in said(run("fit", "m.npz", "--config", "none.toml", code=2))
