"""Alias tables are exact: the mass each outcome receives is computed, not sampled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentmdp._kernels.alias import alias_draw, alias_tables


def implied_probabilities(threshold: np.ndarray, alias: np.ndarray) -> np.ndarray:
    n = threshold.size
    mass = threshold / n
    np.add.at(mass, alias, (1.0 - threshold) / n)
    return mass


@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_tables_carry_the_distribution(row: np.ndarray) -> None:
    if row.sum() < 1e-3:
        row = row + 1.0
    row = row / row.sum()
    threshold, alias = alias_tables(row[None])
    implied = implied_probabilities(threshold[0].copy(), alias[0])
    np.testing.assert_allclose(implied, row, atol=1e-14)
    assert (implied[row == 0.0] == 0.0).all()


@pytest.mark.parametrize("uniform", [0.0, 0.3, 1.0 - 2**-53])
def test_draw_stays_in_range_and_skips_impossible_outcomes(uniform: float) -> None:
    threshold, alias = alias_tables(np.array([[0.0, 0.5, 0.0, 0.5, 0.0]]))
    assert alias_draw(uniform, threshold, alias, 0) in (1, 3)
