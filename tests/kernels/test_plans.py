"""The arrangement of plans: products, cells, and the search for the best plan."""

import numpy as np
import pytest

from latentmdp.planning.point_based.kernels import plans as kernels


@pytest.mark.parametrize("M", [1, 2, 3, 5, 7, 12])
def test_products_match_numpy(M: int) -> None:
    rng = np.random.default_rng(M)
    columns, mass, out = rng.random((M, 90)), rng.random(M), np.empty(90)
    for begin, end in ((0, 90), (3, 4), (7, 7), (11, 40)):
        kernels.products(columns, mass, begin, end, out)
        np.testing.assert_allclose(out[: end - begin], mass @ columns[:, begin:end], rtol=1e-13)


@pytest.mark.parametrize("exact", [True, False])
def test_plans_are_grouped_and_the_search_finds_good_ones(exact: bool) -> None:
    rng = np.random.default_rng(0)
    S, M, n = 3, 4, 900
    states, beliefs = rng.integers(S, size=n), rng.dirichlet(np.ones(M), n)
    vectors = 1.0 + 0.1 * rng.random((n, M)) - 0.5 * (beliefs - 0.25) ** 2
    member, offsets, groups = kernels.group_states(states, S, exact)
    order, starts = np.empty(n, np.int64), np.full(groups[S] + 1, n)
    leaders = np.zeros((M, groups[S]))
    for s in range(S):  # one block after the other
        kernels.cut_states(
            s, s + 1, member, offsets, groups, beliefs, vectors, order, starts, leaders
        )
    assert sorted(order) == list(range(n))
    bounds = starts[groups]
    for s in range(S):
        assert (states[order[bounds[s] : bounds[s + 1]]] == s).all()
    columns = np.zeros((M, n))
    columns[:, :n] = vectors[order].T
    scores, cells, reached = np.empty(n), np.empty(1 if exact else 2, np.int64), []
    for mass in rng.dirichlet(np.ones(M), 200):
        s = int(rng.integers(S))
        count = kernels.best_cells(starts, groups, leaders, s, mass, scores, cells)
        j, value = kernels.best_plan(starts, columns, mass, cells, count, scores)
        all_values = vectors[order[bounds[s] : bounds[s + 1]]] @ mass
        assert bounds[s] <= j < bounds[s + 1]
        assert value == pytest.approx(vectors[order[j]] @ mass)
        reached.append(value / all_values.max())
    assert max(reached) == pytest.approx(1.0)
    assert min(reached) >= (1.0 - 1e-12 if exact else 0.9)


def test_a_search_passes_over_empty_cells_if_it_must() -> None:
    """Three cells of one state, led by ever worse plans; only the last has any."""
    leaders = np.zeros((1, 3))
    leaders[0, :3] = 3.0, 2.0, 1.0
    starts, groups = np.array([0, 0, 0, 2]), np.array([0, 3])
    columns = np.zeros((1, 2))
    columns[0, :2] = 0.5, 1.0
    scores, mass = np.empty(3), np.ones(1)
    for size, expected in ((1, [2]), (2, [0, 2]), (3, [0, 1, 2]), (5, [0, 1, 2])):
        cells = np.full(size, -1)
        count = kernels.best_cells(starts, groups, leaders, 0, mass, scores, cells)
        assert cells[:count].tolist() == expected
        assert kernels.best_plan(starts, columns, mass, cells, count, scores) == (1, 1.0)
