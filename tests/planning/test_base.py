"""Plans: how they print, when they are equal, and their fields for saving."""

import dataclasses

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.planning.base import CrossedBoundsError, enclosing

POLICY = lm.MarkovPolicy([0, 1])
FULL = lm.Plan(
    POLICY,
    lower=1.0,
    upper=1.25,
    converged=False,
    n_iter=7,
    seconds=0.5,
    history=((0.1, 0.5, 2.0), (0.4, 1.0, 1.25)),
    guarantee=(1.0, 0.25),
    message="stopped <here>",
)


def test_gap_is_relative_to_the_lower_bound() -> None:
    assert FULL.gap == 0.25
    assert lm.Plan(POLICY, lower=-2.0, upper=-1.0).gap == 0.5
    assert lm.Plan(POLICY, lower=1.0, upper=1.0).gap == 0.0
    assert lm.Plan(POLICY, lower=0.0, upper=1.0).gap == np.inf
    assert lm.Plan(POLICY, upper=1.0).gap is None


def test_repr_is_a_few_lines_whatever_the_history() -> None:
    long = dataclasses.replace(FULL, history=FULL.history * 10_000)
    text = repr(long)
    assert text.count("\n") < 4
    assert max(map(len, text.splitlines())) < 120
    for part in ("lower=1, upper=1.25, gap=0.25", "converged=False, n_iter=7", "stopped"):
        assert part in text
    assert "lower" not in repr(lm.Plan(POLICY, upper=1.0))


def test_notebooks_get_a_table_of_the_same() -> None:
    html = FULL._repr_html_()
    assert html.startswith("<table>")
    for part in (">1.25<", ">25%<", ">False<", ">7<", "stopped &lt;here&gt;"):
        assert part in html
    assert "lower" not in lm.Plan(POLICY, upper=1.0)._repr_html_()


@pytest.mark.parametrize("plan", [FULL, lm.Plan(POLICY)])
def test_fields_give_the_plan_back(plan: lm.Plan) -> None:
    fields = plan.to_fields()
    assert fields["history"].shape == (len(plan.history), 3)
    kept = {name: value for name, value in fields.items() if value is not None}
    again = lm.Plan.from_fields(kept)
    assert again == plan
    assert again.history == plan.history
    assert set(fields) == {field.name for field in dataclasses.fields(lm.Plan)}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("history", np.zeros((2, 2)), ValueError),
        ("history", np.zeros(3), ValueError),
        ("guarantee", [1.0], ValueError),
    ],
)
def test_wrong_fields_are_refused_by_name(name: str, value: object, error: type) -> None:
    with pytest.raises(error, match=name):
        lm.Plan.from_fields({**FULL.to_fields(), name: value})


def test_equality_is_by_content() -> None:
    """Times are left out, those of the history too."""
    assert dataclasses.replace(FULL, seconds=9.0, history=()) == FULL
    for change in ({"upper": 1.5}, {"message": ""}, {"policy": lm.UniformPolicy()}):
        assert dataclasses.replace(FULL, **change) != FULL


def test_bounds_may_cross_by_rounding_only() -> None:
    assert enclosing(1.0, 2.0, 5.0) == 2.0
    assert enclosing(1.0 + 4e-9, 1.0, 5.0) == 1.0 + 4e-9
    with pytest.raises(CrossedBoundsError, match="one of them is wrong"):
        enclosing(1.0 + 6e-9, 1.0, 5.0)
    with pytest.raises(CrossedBoundsError):
        enclosing(1e-30, 0.0, 0.0)
    assert issubclass(CrossedBoundsError, lm.LatentMDPError)
