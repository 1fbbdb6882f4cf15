"""`Fit` and `ContextSelection`: equality by content, short texts, and fields there and back."""

import dataclasses

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.fit import ContextSelection

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


@pytest.fixture(scope="module")
def fit() -> lm.Fit:
    model = lm.make("separated", contexts=2, states=4, horizon=15, delta=1.0, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=0)
    return lm.initialize(None, logs.without_contexts(), "auto", max_contexts=3, rng=0)


def test_equality_is_by_content_and_leaves_out_the_seconds(fit: lm.Fit) -> None:
    same = dataclasses.replace(
        fit, responsibilities=fit.responsibilities.copy(), seconds=fit.seconds + 1.0
    )
    assert same == fit
    for change in (
        {"log_likelihood": fit.log_likelihood + 1.0},
        {"responsibilities": fit.responsibilities[:, ::-1]},
        {"model": fit.model.replace(horizon=3)},
        {"selection": None},
        {"selection": dataclasses.replace(fit.selection, held_out=fit.selection.held_out + 1.0)},
    ):
        assert dataclasses.replace(fit, **change) != fit
    assert fit != fit.model
    with pytest.raises(TypeError, match="unhashable"):
        hash(fit)


def test_texts_are_short(fit: lm.Fit) -> None:
    assert len(repr(fit).splitlines()) <= 16
    assert f"{fit.log_likelihood:.6g}" in repr(fit)
    assert fit.selection.statement in repr(fit)
    assert repr(fit.selection).count("\n") == 0
    assert "2 of (1, 2, 3)" in repr(fit.selection)
    html = fit._repr_html_()
    assert html.startswith("<table")
    assert fit.selection.statement in html


@pytest.mark.parametrize("selected", [True, False])
def test_fields_there_and_back(fit: lm.Fit, selected: bool) -> None:
    fit = fit if selected else dataclasses.replace(fit, selection=None)
    fields = {name: value for name, value in fit.to_fields().items() if value is not None}
    assert lm.Fit.from_fields(fields) == fit
    if selected:
        kept = ContextSelection.from_fields(fit.selection.to_fields())
        assert kept == fit.selection
        assert kept.models == ()  # files leave them out


def test_a_field_that_is_missing_keeps_its_default(fit: lm.Fit) -> None:
    fields = fit.to_fields()
    del fields["reward_pseudo_counts"]
    assert lm.Fit.from_fields(fields).reward_pseudo_counts == 0.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"responsibilities": np.ones((4, 7))}, ValueError, "responsibilities must have shape"),
        ({"responsibilities": np.full((4, 2), np.nan)}, ValueError, "responsibilities"),
        ({"history": np.ones((2, 2))}, ValueError, "history must have shape"),
    ],
)
def test_wrong_fields_are_refused(
    fit: lm.Fit, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lm.Fit.from_fields({**fit.to_fields(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_contexts": 9}, "not among the candidates"),
        ({"held_out": np.zeros(2)}, "held_out must have shape"),
        ({"n_parameters": np.full(3, -1)}, "n_parameters must lie from 0"),
    ],
)
def test_a_wrong_selection_is_refused(fit: lm.Fit, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ContextSelection.from_fields({**fit.selection.to_fields(), **change})
