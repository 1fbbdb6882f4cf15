"""The picture of bounds against time is drawn from the plan's own history."""

from pathlib import Path

import pytest
from models import random_model

import latentmdp as lm
from latentmdp.report.plans import plot_bounds


@pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_writes_the_figure(tmp_path: Path, suffix: str, magic: bytes) -> None:
    plan = lm.HSVI(gap=1e-3, time_limit=None).plan(random_model(0, contexts=3, horizon=4))
    plot_bounds(plan, tmp_path / f"bounds.{suffix}")
    assert (tmp_path / f"bounds.{suffix}").read_bytes().startswith(magic)


def test_a_plan_without_history_is_refused(tmp_path: Path) -> None:
    plan = lm.QMDP().plan(random_model(0))
    with pytest.raises(ValueError, match="history"):
        plot_bounds(plan, tmp_path / "bounds.svg")
