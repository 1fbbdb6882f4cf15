"""The picture of bounds against time is drawn from the plan's own history."""

from pathlib import Path

import pytest
from models import random_model

import latentmdp as lm
from latentmdp.report.plans import bounds_figure, plot_bounds


@pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_writes_the_figure(tmp_path: Path, suffix: str, magic: bytes) -> None:
    plan = lm.HSVI(gap=1e-3, time_limit=None).plan(random_model(0, contexts=3, horizon=4))
    plot_bounds(plan, tmp_path / f"bounds.{suffix}")
    assert (tmp_path / f"bounds.{suffix}").read_bytes().startswith(magic)


def test_a_plan_without_history_is_refused(tmp_path: Path) -> None:
    plan = lm.QMDP().plan(random_model(0))
    with pytest.raises(ValueError, match="history"):
        plot_bounds(plan, tmp_path / "bounds.svg")


def test_many_planners_get_a_panel_each_to_one_scale() -> None:
    histories = {
        name: [(0.0, -100.0, 1000.0), (0.5, 1.0 + i, 4.0), (1.0 + i, 2.0, 3.0 + i)]
        for i, name in enumerate("abcde")
    }
    figure = bounds_figure({**histories, "without": []})
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == list("abcde")
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert len({axes.get_xlim() for axes in panels}) == 1
    low, high = panels[0].get_ylim()
    assert -10.0 < low < 2.0
    assert 7.0 < high < 20.0  # not that of the first bounds
    for axes, history in zip(panels, histories.values()):
        assert axes.lines[0].get_ydata()[-1] == history[-1][1]
