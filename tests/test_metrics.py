"""Metrics against minima over all relabellings."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import random_model
from scipy import stats

import latentmdp as lm
from latentmdp.metrics import Interval


@pytest.mark.parametrize("form", ["bernoulli", "next-state"])
@pytest.mark.parametrize("seed", range(5))
def test_model_error_is_the_minimum_over_all_relabellings(seed: int, form: str) -> None:
    true, estimate = (random_model(s, contexts=4, form=form) for s in (seed, seed + 100))
    P, Q = true.observation_probs(), estimate.observation_probs()
    errors = [np.abs(P - Q[list(order)]).sum() for order in permutations(range(4))]
    assert lm.model_error(true, estimate) == pytest.approx(min(errors), rel=1e-13)
    assert lm.model_error(true, estimate, per_cell=True) == pytest.approx(min(errors) / 24)


def test_context_order_is_immaterial() -> None:
    model = random_model(0, contexts=5)
    shuffled = model.subset([3, 1, 4, 0, 2])
    assert lm.model_error(model, shuffled) == 0.0
    assert shuffled.align(to=model) == model


def test_models_of_other_sizes_are_refused() -> None:
    model = random_model(0)
    with pytest.raises(ValueError, match="n_contexts: 3 and 2"):
        lm.model_error(model, random_model(0, contexts=2))
    with pytest.raises(ValueError, match="n_states: 3 and 4"):
        lm.model_error(model, random_model(0, states=4))
    with pytest.raises(ValueError, match="reward_values"):
        lm.model_error(model, random_model(0, form="values"))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_clustering_accuracy_is_the_best_matching(pairs: list[tuple[int, int]]) -> None:
    contexts, labels = np.array(pairs).T
    best = max(np.mean(np.array(order)[labels] == contexts) for order in permutations(range(4)))
    assert lm.clustering_accuracy(contexts, labels) == pytest.approx(best)


@pytest.mark.parametrize(
    ("contexts", "labels", "message"),
    [
        ([0, -1], [0, 0], r"contexts\[1\] is -1"),  # a run's contexts that are not known
        ([0, 1], [0.0, 1.0], "labels must hold integers"),
        ([0, 1], [0], "equally long"),
        ([], [], "must not be empty"),
        ([[0, 1]], [[0, 1]], "one-dimensional"),
    ],
)
def test_clustering_accuracy_refuses_what_are_no_labels(
    contexts: object, labels: object, message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        lm.clustering_accuracy(contexts, labels)


def test_regret_is_measured_against_the_oracle_guarantee() -> None:
    np.testing.assert_allclose(lm.regret([1.0, 2.0], 3.0), [2.0, 3.0])
    np.testing.assert_allclose(lm.regret([1.0, 2.0], 3.0, (0.5, 0.25)), [0.25, -0.5])


def test_the_adjusted_rand_index_counts_pairs() -> None:
    """Against its definition over all pairs, and its mean over shuffled labels, which is 0."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, 30), rng.integers(0, 4, 30)
    pairs = np.triu_indices(30, 1)
    same_a, same_b = (x[pairs[0]] == x[pairs[1]] for x in (a, b))
    expected = same_a.sum() * same_b.sum() / same_a.size
    index = ((same_a & same_b).sum() - expected) / ((same_a.sum() + same_b.sum()) / 2 - expected)
    assert lm.adjusted_rand_index(a, b) == pytest.approx(index)
    counts = rng.integers(1, 4, 30)
    assert lm.adjusted_rand_index(a, b, counts) == pytest.approx(
        lm.adjusted_rand_index(np.repeat(a, counts), np.repeat(b, counts))
    )
    assert lm.adjusted_rand_index(a, (a + 1) % 3) == 1.0
    assert lm.adjusted_rand_index(np.zeros(5, int), np.zeros(5, int)) == 1.0
    shuffled = [lm.adjusted_rand_index(a, rng.permutation(b)) for _ in range(400)]
    assert abs(np.mean(shuffled)) < 4 * np.std(shuffled) / 20


def test_returns_that_were_alike_leave_something_open():
    """Agresti and Coull: none of n, and two more at each end."""
    ends, n = np.array([0.0, 1.0, np.nan]), 96
    value = Interval(0.0, 0.0, 0.0).of_alike(n, ends, 0.95)
    share = 2 / (n + 4)
    half = stats.t.ppf(0.975, n) * np.sqrt(share * (1 - share) / (n + 4))
    assert value == pytest.approx(Interval(0.0, share - half, share + half))
    wide = Interval(0.0, -1.0, 1.0)
    assert wide.of_alike(n, ends, 0.95) == wide
