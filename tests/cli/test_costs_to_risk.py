"""The page that takes cost models to a decision table: its commands do what it says."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import run

import latentmdp as lm

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "costs_to_risk.md"


def test_the_commands_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
    (table,) = re.findall(r"<<'END'\n(.*?)^END$", shell, re.M | re.S)
    (tmp_path / "models.csv").write_text(table)
    commands = [
        shlex.split(line)[1:] for line in shell.splitlines() if line.startswith("latentmdp ")
    ]
    assert len(commands) == 9
    shown = {}
    for command in commands:
        shown[command[0], *command[2:4]] = run(*command).stdout
    model, policy = lm.load("model.npz"), lm.load("policy.npz")
    assert model.context_names == ("sound", "worn bearing", "corroded")
    plan = lm.HSVI(gap=0.001).plan(model)
    assert f"{plan.lower:.2f}" == "-12.14"  # as the page says
    decisions = lm.report.decision_table(model, policy).to_markdown()
    for line in decisions.splitlines():
        assert line in PAGE.read_text()
    assert "(worst)" in (tmp_path / "decisions.html").read_text()
    assert (tmp_path / "explorer.html").is_file()
    careful = lm.Robust("worst-case", gap=0.001).plan(model)
    rows = re.findall(
        r"^\| ([\w-]+) \| ~?(-[\d.]+) \| ~?(-[\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.M
    )
    told = {row[0]: [float(x) for x in row[1:]] for row in rows}
    assert told["robust"][1] == pytest.approx(careful.lower, abs=0.01)
    value = lm.evaluate(model, policy, rng=1)
    assert told["hsvi"][0] == pytest.approx(value.mean, abs=0.1)  # five standard errors
    assert told["hsvi"][1] == pytest.approx(value.by_context.min(), abs=0.5)
