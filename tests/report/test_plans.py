"""The picture of bounds against time is drawn from the plan's own history."""

from pathlib import Path

import pytest
from models import random_model

import latentmdp as lm
from latentmdp._util.figures import write_figure


@pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_writes_the_figure(tmp_path: Path, suffix: str, magic: bytes) -> None:
    plan = lm.HSVI(gap=1e-3, time_limit=None).plan(random_model(0, contexts=3, horizon=4))
    axes = lm.plot.bounds(plan)
    write_figure(axes, tmp_path / f"bounds.{suffix}")
    assert (tmp_path / f"bounds.{suffix}").read_bytes().startswith(magic)
    assert axes.lines[1].get_ydata()[-1] == plan.history[-1][1]


def test_many_planners_share_the_scale_of_their_last_bounds() -> None:
    rows = [((0.0, -100.0, 1e3), (0.5, 1.0 + i, 4.0), (1.0 + i, 2.0, 3.0 + i)) for i in range(5)]
    plans = {
        f"plan {i}": lm.Plan(lm.UniformPolicy(), *history[-1][1:], history=history)
        for i, history in enumerate(rows)
    }
    axes = lm.plot.bounds(plans)
    low, high = axes.get_ylim()
    assert -10.0 < low < 2.0
    assert 7.0 < high < 20.0  # not that of the first bounds
    for lower, history in zip(axes.lines[1::2], rows):
        assert lower.get_ydata()[-1] == history[-1][1]
