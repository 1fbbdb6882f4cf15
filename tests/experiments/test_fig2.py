"""Figure 2 in its quick version: the runs, the summary and the drawing."""

import numpy as np
import pyarrow as pa
import pytest

from latentmdp.experiments import Experiment
from latentmdp.experiments.fig2 import METHODS, analyse, summarise, sweep, work
from latentmdp.experiments.runner import run_sweep
from latentmdp.report.report import experiment_section


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    settings = [s for s in sweep(quick=True, seeds=1) if s["horizon"] == 20]
    return run_sweep(settings, work, tmp_path_factory.mktemp("fig2"), jobs=1)


def test_the_paper_runs_ten_instances_a_point():
    settings = sweep()
    assert len({s.id for s in settings}) == len(settings) == 9 * 3 * 10
    assert {s["short_episodes"] for s in settings} == {1_000_000}


def test_more_separation_is_easier(table):
    """Belief closer, singular value larger, and known labels below every method."""
    points = summarise(table)
    assert points["belief", 1.0, 20].mean < points["belief", 0.5, 20].mean
    assert points["singular value", 1.0, 20].mean > points["singular value", 0.5, 20].mean
    for name in METHODS:
        point = points[name, 1.0, 20]
        assert point.failures or point.mean >= points["known labels", 1.0, 20].mean


def test_failures_are_counted_apart():
    rows = {
        "quantity": ["x", "x", "x", "y"],
        "delta": [0.1] * 4,
        "horizon": [20] * 4,
        "value": [1.0, 3.0, np.nan, np.nan],
    }
    points = summarise(pa.table(rows))
    some, none = points["x", 0.1, 20], points["y", 0.1, 20]
    assert (some.mean, some.instances, some.failures) == (2.0, 3, 1)
    assert np.isnan(none.mean)
    assert none.failures == 1


def test_findings_have_four_panels_and_claims(table):
    findings = analyse(table)
    assert [len(panel.lines) for panel in findings.panels] == [1, 1, 1, len(METHODS)]
    assert all(line.x == (0.5, 1.0) for panel in findings.panels for line in panel.lines)
    assert len(findings.claims) == 4
    assert findings.claims[0].held
    assert findings.claims[1].held
    assert findings.claims[2].held is None  # the small version has no small delta


def test_every_panel_is_a_picture_of_a_report(table):
    findings = analyse(table)
    section = experiment_section("fig2", Experiment("fig2", True, findings, ()))
    assert len(section.pictures) == 4
    for picture in section.pictures:
        (axes,) = picture.figure.axes
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert len(picture.caption) > 40
