"""SQUAREM: it ends at the fixed point, faster than the plain iteration, and never goes down."""

import numpy as np

from latentmdp.estimation.squarem import squarem

RATES = np.array([0.999, 0.9, 0.5])
TOP = np.array([1.0, -2.0, 3.0])


def step(point):
    (x,) = point
    return (TOP + RATES * (x - TOP),), -float(np.sum((x - TOP) ** 2))


def test_reaches_the_fixed_point_of_a_linear_map_in_far_fewer_maps() -> None:
    found = squarem(step, lambda x, _: x, (np.zeros(3),), 1e-16, 10_000)
    assert found.converged
    np.testing.assert_allclose(found.point[0], TOP, atol=1e-3)
    assert found.n_maps < 300  # the plain iteration needs log(1e-3) / log(0.999) > 6,900
    assert all(b >= a for a, b in zip(found.history, found.history[1:]))
    assert found.history[-1] == found.objective


def test_a_cap_is_not_convergence() -> None:
    found = squarem(step, lambda x, _: x, (np.zeros(3),), 1e-16, 7)
    assert not found.converged
    assert found.n_maps == 7


def test_extrapolations_that_lose_are_refused() -> None:
    """Candidates are sent to a terrible point: the iteration falls back on the plain map."""
    found = squarem(step, lambda x, _: (TOP + 1e6,), (np.zeros(3),), 1e-6, 200)
    assert all(b >= a for a, b in zip(found.history, found.history[1:]))
    assert np.abs(found.point[0] - TOP).max() < 3.0
