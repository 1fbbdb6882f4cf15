"""The rate of Theorem 3.3; the confidence sets themselves are tested with the bonus."""

import numpy as np
import pytest

from latentmdp.theory import regret_bound


def test_the_rate_by_hand():
    bound = regret_bound(7, 15, 3, 30, [10_000], 0.05)
    N = 30 * 10_000
    expected = 30 * 15 * np.sqrt(7 * 3 * N * np.log(7 * 15 * 3 * N / 0.05))
    assert bound[0] == pytest.approx(expected)
    assert regret_bound(7, 15, 3, 30, [10_000], 0.05, reward_span=2.0)[0] == 2 * bound[0]


def test_it_grows_like_a_square_root():
    K = np.array([1e4, 4e4])
    first, second = regret_bound(3, 5, 2, 10, K)
    assert 2.0 < second / first < 2.2


def test_bad_input():
    with pytest.raises(ValueError, match="episodes must be positive"):
        regret_bound(3, 5, 2, 10, [0])
    with pytest.raises(ValueError, match="failure_probability"):
        regret_bound(3, 5, 2, 10, [1], 0.0)
