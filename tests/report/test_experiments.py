"""Experiments and solved logs in a report: what the page says is what the files hold."""

import dataclasses
import re

import numpy as np
import pytest
from pages import small_world, solve_small_world
from typer.testing import CliRunner

import latentmdp as lm
from latentmdp.cli.app import app
from latentmdp.experiments import read_experiment, reproduce
from latentmdp.experiments.fig1a import ARMS
from latentmdp.offline import LoggedEstimate
from latentmdp.report.report import experiment_section, experiment_settings, write_report
from latentmdp.report.solved import solved_section


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module", params=["fig1a", "fig1b", "lower_bound"])
def found(request, out):
    return reproduce(request.param, quick=True, seeds=2, jobs=1, out=out)


@pytest.fixture(scope="module")
def solved():
    return solve_small_world()


def test_claims_and_verdicts_are_those_of_the_experiment(found):
    section = experiment_section("e", read_experiment(found.folder))
    (table,) = section.tables
    assert [tuple(row) for row in table.rows] == [
        ({True: "held", False: "did not hold", None: "not tested"}[c.held], c.paper, c.measured)
        for c in found.claims
    ]


def test_every_figure_has_axes_and_a_caption(found):
    for picture in experiment_section("e", read_experiment(found.folder)).pictures:
        (axes,) = picture.figure.axes
        assert axes.get_xlabel()
        assert axes.get_ylabel() or any(label.get_text() for label in axes.get_yticklabels())
        assert len(picture.caption) > 40


def test_curves_are_means_over_instances_with_their_spread(out):
    folder = reproduce("fig1a", quick=True, seeds=2, jobs=1, out=out).folder
    experiment = read_experiment(folder)
    for arm, line in zip(ARMS, experiment.findings.panels[0].lines, strict=True):
        files = [folder / "runs" / r.file for r in experiment.runs if r.values["arm"] == arm]
        errors = np.stack([np.load(file)["error"] for file in files])
        assert line.name == ARMS[arm]
        np.testing.assert_allclose(line.mean, errors.mean(axis=0))
        np.testing.assert_allclose(line.high, errors.mean(axis=0) + errors.std(axis=0))


def test_settings(found):
    experiment = read_experiment(found.folder)
    rows = dict(experiment_settings("e", experiment).rows)
    assert rows["runs"] == str(len(experiment.runs))
    assert rows["seed"] == "0, 1"


def test_the_section_of_solved_logs_says_what_solve_found(solved):
    section = solved_section("s", solved, small_world())
    rows = dict(section.tables[0].rows)
    value = solved.value
    assert rows["value"] == f"{value} per episode, with confidence 95%"
    assert rows["first steps"].startswith(f"{solved.logged.mean:.4g} ±")
    assert f"{solved.model_first_steps:.4g} by the model" in rows["first steps"]
    true = lm.evaluate(small_world(), solved.policy, rng=0).mean
    inside = "inside" if value.low <= true <= value.high else "outside"
    assert rows["in the true model"] == f"{true:.4g}, {inside} the interval"
    for picture in section.pictures:
        (axes,) = picture.figure.axes
        assert axes.get_xlabel()
        assert axes.get_ylabel() or any(label.get_text() for label in axes.get_yticklabels())
        assert len(picture.caption) > 40


def test_warnings_stand_first(solved):
    doubtful = dataclasses.replace(
        solved,
        warnings=("the policy leaves the data", "no logged episode agrees"),
        logged=LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0)),
    )
    section = solved_section("s", doubtful)
    assert section.text.split("\n\n") == [
        "Warning: the policy leaves the data.",
        "Warning: no logged episode agrees.",
    ]
    assert len(section.pictures) == 1


def test_everything_at_once_is_on_one_page(out, solved, tmp_path):
    folders = [
        reproduce(n, quick=True, seeds=2, jobs=1, out=out).folder for n in ("fig1a", "fig1b")
    ]
    lm.save(solved, tmp_path / "solved.npz")
    lm.save(lm.LUCRL().run(small_world(), 20, rng=0), tmp_path / "run.parquet")
    lm.save(small_world(), tmp_path / "model.json")
    names = [str(tmp_path / name) for name in ("solved.npz", "run.parquet", "model.json")]
    page = tmp_path / "r.html"
    shown = CliRunner().invoke(app, ["report", *names, *map(str, folders), "--out", str(page)])
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    assert "From 1 run, 1 solved set of logs, 2 experiments and 1 model." in text
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    for part in ("Runs and seeds", "From logs to a policy: solved", "Figure 1a", "Figure 1b"):
        assert any(title.startswith(part) for title in titles), part
    assert "Model model.json" in titles
    seconds = sum(run.seconds for run in read_experiment(folders[0]).runs)
    (shown,) = re.findall(r"fig1a-quick, [^<]* runs</td>\s*<td[^>]*>([^<]*)<", text)
    assert float(shown) == pytest.approx(seconds, rel=1e-3)


def test_a_folder_of_no_experiment_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "empty")])
    assert shown.exit_code == 2
    assert "Traceback" not in shown.output
    with pytest.raises(ValueError, match=r"has no manifest\.json"):
        write_report([tmp_path / "empty"], tmp_path / "r.html")
