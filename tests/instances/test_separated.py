from functools import partial

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import LatentMDPError
from latentmdp.instances import separated


def distances(model):
    """L1 distances of transitions of every pair of contexts, at every (s, a)."""
    T = model.transitions
    M = model.n_contexts
    return np.array([np.abs(T[m] - T[n]).sum(axis=-1) for m in range(M) for n in range(m + 1, M)])


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.2, 0.5, 1.0, 1.5])
@pytest.mark.parametrize(("M", "S", "A"), [(3, 7, 2), (7, 7, 2), (7, 15, 3)])
def test_every_pair_lies_between_delta_and_two_delta(M, S, A, delta):
    model = lm.make("separated", contexts=M, states=S, actions=A, delta=delta, rng=M + S)
    d = distances(model)
    assert d.min() >= delta - 1e-12
    assert d.max() <= 2 * delta + 1e-12


def test_with_shared_rewards_the_separation_is_that_of_the_transitions():
    model = lm.make("separated", contexts=4, delta=0.3, rng=0)
    assert lm.separation(model) == pytest.approx(distances(model).min(), abs=1e-12)
    means = model.mean_rewards()
    assert (means == means[0]).all()


def test_own_rewards_only_add_to_the_separation():
    model = lm.make("separated", rewards="own", reward_density=0.5, delta=0.3, rng=0)
    assert lm.separation(model) >= 0.3 - 1e-12
    means = model.mean_rewards()
    assert not np.array_equal(means[0], means[1])


@pytest.mark.parametrize(("density", "count"), [(0.0, 0), (4 / 45, 4), (1.0, 45)])
def test_rewards_are_as_sparse_as_asked(density, count):
    model = lm.make("separated", states=15, actions=3, reward_density=density, rng=0)
    assert (model.mean_rewards()[0] > 0).sum() == count


def test_the_start_is_uniform_or_fixed_in_all_contexts():
    assert (lm.make("separated", rng=0).initial == 1 / 7).all()
    assert (lm.make("separated", start=2, rng=0).initial[:, 2] == 1).all()


def test_one_context_needs_no_separation():
    assert lm.make("separated", contexts=1, rng=0).n_contexts == 1


def test_what_cannot_be_separated_is_an_error(monkeypatch):
    few = partial(separated._separated_rows, batches=20)
    monkeypatch.setattr(separated, "_separated_rows", few)
    with pytest.raises(LatentMDPError, match="no 5 distributions over 2 states"):
        lm.make("separated", contexts=5, states=2, delta=1.5, rng=0)
