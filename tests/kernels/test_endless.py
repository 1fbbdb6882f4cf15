"""Plans without an end: how often they are visited, against a power of a matrix."""

import numpy as np
import pytest
from models import random_model

from latentmdp.planning.point_based.kernels.endless import invert, visit


@pytest.mark.parametrize("seed", range(3))
def test_visits_are_those_of_a_markov_chain_on_the_plans(seed: int) -> None:
    model = random_model(seed, 3, 4, 2, 3, sparse=True)
    table, rng, n = model.outcomes.informative(), np.random.default_rng(seed), 30
    states, labels = rng.integers(4, size=n), rng.integers(2, size=n)
    rows = states * 2 + labels
    offsets = np.concatenate([[0], np.cumsum(np.diff(table.starts)[rows])])
    followers = rng.integers(n, size=offsets[-1])
    start, discount = rng.random((n, 3)), 0.9
    chain = np.zeros((3, n, n))
    for i in range(n):
        for j in range(offsets[i], offsets[i + 1]):
            k = table.starts[rows[i]] + j - offsets[i]
            chain[:, i, followers[j]] += table.probs[k]
    inverse = invert(table, 2, states, labels, offsets, followers)
    visits, expected, out = start.copy(), start.copy(), np.empty_like(start)
    for _ in range(5):
        visit(0, 7, table.probs, discount, inverse, start, visits, out)
        visit(7, n, table.probs, discount, inverse, start, visits, out)
        visits, out = out, visits
        expected = start + discount * np.einsum("im,mif->fm", expected, chain)
    np.testing.assert_allclose(visits, expected, rtol=1e-12)
