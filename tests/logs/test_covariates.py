"""Covariates: from tables to design vectors, and to the weights of contexts."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import latentmdp as lm
from latentmdp.logs import Covariates, Encoder, WeightModel


def people():
    return Covariates.from_columns(
        {"age": [20.0, 40.0, None, 30.0], "region": ["north", "south", "south", None]}
    )


def test_columns_become_numbers_and_categories():
    found = people()
    assert found.names == ("age", "region")
    assert found.levels == {"region": ("north", "south")}
    assert found.row(2) == {"age": None, "region": "south"}
    assert found[[1]].row(0) == {"age": 40.0, "region": "south"}
    both = Covariates.concat([found, Covariates.from_columns({"age": [1.0], "region": ["east"]})])
    assert both.row(4) == {"age": 1.0, "region": "east"}
    assert both.row(1) == found.row(1)


def test_the_design_has_mean_zero_and_numbers_have_deviation_one():
    rng = np.random.default_rng(0)
    region = np.array(["n", "s", "w"])[rng.integers(3, size=500)]
    counts = rng.integers(1, 4, size=500)
    table = {"age": rng.normal(40, 9, size=500), "region": region, "same": np.ones(500)}
    x = Encoder.of(Covariates.from_columns(table), counts).design(table)
    weights = counts / counts.sum()
    np.testing.assert_allclose(weights @ x, 0.0, atol=1e-12)
    np.testing.assert_allclose(weights @ x[:, 0] ** 2, 1.0)
    np.testing.assert_allclose(
        x[:, 1:4],
        (region[:, None] == ["n", "s", "w"]) - weights @ (region[:, None] == ["n", "s", "w"]),
    )
    assert (x[:, 4] == 0.0).all()


def test_what_is_missing_or_new_counts_as_average_and_is_said():
    encoder = people().encoder()
    assert encoder.columns == ("age", "region=north", "region=south")
    with pytest.warns(UserWarning, match="region=east was never seen before; taken for the ave"):
        np.testing.assert_allclose(encoder.vector({"age": 30.0, "region": "east"}), 0.0, atol=1e-12)
    with pytest.warns(UserWarning, match="age is not given"):
        encoder.vector({"region": "north"})
    with pytest.warns(UserWarning, match="age is missing"):
        encoder.vector({"age": None, "region": "north"})
    with pytest.raises(ValueError, match="no covariate 'size'; there are 'age' and 'region'"):
        encoder.vector({"size": 3})
    with pytest.raises(ValueError, match="covariate 'age' is a number, got 'old'"):
        encoder.vector({"age": "old", "region": "north"})
    with pytest.raises(TypeError, match="a mapping of names to values, got list"):
        encoder.vector([1, 2])


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame])
def test_frames_of_individuals(frame):
    encoder = people().encoder()
    table = {"region": ["south", "north"], "age": [20.0, 35.0]}
    x = encoder.design(frame(table))
    for i in range(2):
        one = {name: column[i] for name, column in table.items()}
        np.testing.assert_array_equal(x[i], encoder.vector(one))
    rows = [{"age": 20.0, "region": "south"}, {"age": 35.0, "region": "north"}]
    np.testing.assert_array_equal(encoder.design(rows), x)


def test_weights_are_a_softmax():
    encoder = people().encoder()
    rng = np.random.default_rng(0)
    c, beta = rng.normal(size=3), rng.normal(size=(3, 3))
    model = WeightModel(encoder, c, beta)
    x = encoder.design(people())
    scores = np.exp(c + x @ beta.T)
    np.testing.assert_allclose(model.of(people()), scores / scores.sum(axis=1, keepdims=True))
    one = model.of({"age": 40.0, "region": "south"})
    np.testing.assert_allclose(one, scores[1] / scores[1].sum())
    np.testing.assert_allclose(model.permuted([2, 0, 1]).weights(x[1]), one[[2, 0, 1]])
    assert np.isfinite(WeightModel(encoder, c * 1e4, beta).weights(x)).all()
    with pytest.raises(ValueError, match=r"coefficients \(M, 3\)"):
        WeightModel(encoder, c, beta[:, :2])


@pytest.mark.parametrize("make", [people, lambda: people().encoder()])
def test_files(tmp_path, make):
    lm.save(make(), tmp_path / "x.npz")
    assert lm.load(tmp_path / "x.npz") == make()


def test_bad_covariates():
    with pytest.raises(ValueError, match="must differ"):
        Covariates(["a", "a"], np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"values must have shape \(N, 1\)"):
        Covariates(["a"], np.zeros((1, 2)))
    with pytest.raises(ValueError, match="has 2 levels, but a value is 2"):
        Covariates(["a"], [[2.0]], {"a": ["x", "y"]})
    with pytest.raises(ValueError, match="covariate 'a' of individual 0 is infinite"):
        Covariates(["a"], [[np.inf]])
    with pytest.raises(TypeError, match="column 'a' is 'x' in row 1"):
        Covariates.from_columns({"a": [1, "x"]})
