"""Theorem 3.1 in exact arithmetic, for all sizes with A^M up to 1,000."""

from fractions import Fraction

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.testing import optimal_value
from latentmdp.theory import check_lower_bound, lower_bound

SIZES = [(M, A) for M in range(2, 6) for A in range(2, 32) if A**M <= 1000]


@pytest.mark.parametrize("variant", ["plain", "amplified", "epsilon"])
@pytest.mark.parametrize(("M", "A"), SIZES)
def test_every_claim_holds_exactly(variant, M, A):
    found = check_lower_bound(M, A, variant, rng=M + A)
    assert found.holds
    effective = A**2 if variant == "amplified" else A
    assert found.n_sequences == effective**M
    if variant != "epsilon":
        assert found.value == Fraction(1, M)
        assert found.wrong_value == 0
    else:
        assert found.wrong_value == Fraction(1, 2)
        assert float(found.value) == pytest.approx(0.5 + 0.1 / M, abs=1e-15)


def test_the_value_agrees_with_the_oracle():
    model = lm.make("lower-bound", contexts=3, actions=2, variant="epsilon", rng=0)
    assert float(check_lower_bound(3, 2, "epsilon").value) == pytest.approx(
        optimal_value(model), abs=1e-12
    )


@pytest.mark.parametrize("leak", ["state", "reward"])
def test_a_leak_is_found(monkeypatch, leak):
    """An instance that tells a bit more than it should does not pass."""
    honest = lm.make("lower-bound", contexts=3, actions=3, rng=0)

    def leaky(*_, **__):
        T, R = honest.transitions.copy(), honest.reward_probs.copy()
        right = int(np.argmax(T[0, 0, :, 1]))
        if leak == "state":  # in context 2 a wrong first action goes on like the right one
            T[1, 0, (right + 1) % 3] = np.eye(4)[3]
        else:
            R[1, 1, 0] = (0.0, 1.0)
        return honest.replace(transitions=T, rewards=R)

    monkeypatch.setattr(lower_bound, "make", leaky)
    assert not check_lower_bound(3, 3).holds


def test_bad_input():
    with pytest.raises(ValueError, match="actions"):
        check_lower_bound(3, 1)
    with pytest.raises(ValueError, match="variant"):
        check_lower_bound(3, 2, "other")
