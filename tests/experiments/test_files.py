"""Manifests of folders: whole, or refused with a reason."""

import json
import math

import numpy as np
import pytest

from latentmdp.errors import FormatError
from latentmdp.experiments.findings import Claim, Findings, Line, Panel
from latentmdp.experiments.results import (
    Experiment,
    FinishedRun,
    read_experiment,
    write_experiment,
)


def experiment(seconds=1.5, **changes):
    line = Line("a", (1.0, 2.0), (0.5, 0.25), (0.4, 0.2), (0.6, 0.3), 1, "--")
    points = Line("b", (1.0,), (2.0,), (1.0,), (3.0,), 0, "o", (True,))
    panels = (Panel("p", "what to see", "x", "y", (line, points), log="xy"),)
    claims = (Claim("so", "indeed", True), Claim("more", "less", False), Claim("?", "-", None))
    runs = (
        FinishedRun("toy/0", {"seed": 0, "arm": "a"}, "toy-0.parquet", seconds),
        FinishedRun("toy/1", {"seed": 1, "arm": "a"}, "toy-1.parquet", None),
    )
    findings = Findings("Title", "What was run", panels, claims)
    return Experiment(
        **{"name": "toy", "quick": True, "findings": findings, "runs": runs} | changes
    )


def test_a_manifest_comes_back(tmp_path):
    write_experiment(tmp_path, experiment())
    assert read_experiment(tmp_path) == experiment()


def test_gaps_come_back(tmp_path):
    gap = Panel("p", "c", "x", "y", (Line("a", (1.0, 2.0), (0.5, math.nan)),))
    write_experiment(tmp_path, experiment(findings=Findings("t", "d", (gap,), ())))
    (panel,) = read_experiment(tmp_path).findings.panels
    np.testing.assert_array_equal(panel.lines[0].mean, [0.5, math.nan])


def test_the_digest_is_not_of_the_time_it_took(tmp_path):
    found = []
    for seconds in (1.0, 2.0):
        write_experiment(tmp_path, experiment(seconds))
        found.append(json.loads((tmp_path / "manifest.json").read_text())["digest"])
    assert found[0] == found[1]


def test_a_folder_without_manifest_is_told_what_to_do(tmp_path):
    with pytest.raises(FormatError, match=r"has no manifest\.json.*`latentmdp reproduce` finishes"):
        read_experiment(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(title="Other"), "not those that were written"),
        (lambda m: m["claims"][1].update(held=True), "not those that were written"),
        (lambda m: m.update(kind="model"), "holds 'model'"),
        (lambda m: m.update(schema=2), "schema 2"),
        (lambda m: m["runs"][0].update(seconds=-1), "must not be negative"),
        (lambda m: m.pop("panels"), "not those"),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path, change, message):
    write_experiment(tmp_path, experiment())
    path = tmp_path / "manifest.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(FormatError, match=rf"is not the manifest of an experiment: .*{message}"):
        read_experiment(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"mean": [1.0]}, "differ in length"),
        ({"low": []}, "one of 'low' and 'high'"),
        ({"x": "12"}, "'x' must be a list"),
        ({"style": "wavy"}, "style must be"),
        ({"colour": 1.5}, "'colour' must be an integer"),
        ({"at_least": [1, 0]}, "'at_least' must be true or false"),
        ({"mean": [1.0, "2"]}, "must be a number"),
    ],
)
def test_lines_that_cannot_be_drawn_are_refused(tmp_path, monkeypatch, line, message):
    """Even with a right digest, as one who changes a file on purpose would give it."""
    monkeypatch.setattr("latentmdp._util.storage.digest_of", lambda *_: "signed")
    write_experiment(tmp_path, experiment())
    path = tmp_path / "manifest.json"
    found = json.loads(path.read_text())
    found["panels"][0]["lines"][0].update(line)
    path.write_text(json.dumps(found))
    with pytest.raises(FormatError, match=message):
        read_experiment(tmp_path)
