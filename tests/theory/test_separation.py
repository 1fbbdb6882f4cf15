from itertools import combinations

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.testing import random_model
from latentmdp.theory import closest_contexts


def by_hand(model):
    """(distance, pair, s, a) of the closest pair, entry by entry."""
    M, S, A, Z = model.n_contexts, model.n_states, model.n_actions, model.n_rewards
    R = model.reward_probs
    best = None
    for (m, n), s, a in (
        (pair, s, a) for pair in combinations(range(M), 2) for s in range(S) for a in range(A)
    ):
        total = 0.0
        for k in range(S):
            for z in range(Z):
                r = [R[c, s, a, k, z] if R.ndim == 5 else R[c, s, a, z] for c in (m, n)]
                T = [model.transitions[c, s, a, k] for c in (m, n)]
                total += abs(T[0] * r[0] - T[1] * r[1])
        if best is None or total < best[0] - 1e-15:
            best = (total, (m, n), s, a)
    return best


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("next_state_rewards", [False, True])
def test_agrees_with_the_definition(seed, next_state_rewards):
    model = random_model(
        seed,
        contexts=4,
        states=3,
        reward_values=(0.0, 1.0, 2.0),
        next_state_rewards=next_state_rewards,
    )
    distance, pair, s, a = by_hand(model)
    assert lm.separation(model) == pytest.approx(distance, abs=1e-14)
    closest = closest_contexts(model)
    assert closest.distance == lm.separation(model)
    assert (closest.contexts, closest.state, closest.action) == (pair, s, a)


def test_rewards_alone_separate():
    T = np.full((2, 2, 1, 2), 0.5)
    model = lm.LatentMDP(T, [[[0.2], [0.9]], [[0.5], [0.1]]], horizon=3)
    assert lm.separation(model) == pytest.approx(2 * 0.3)


def test_relabelling_changes_nothing():
    model = random_model(0, contexts=4)
    assert lm.separation(model.subset([2, 0, 3, 1])) == lm.separation(model)


def test_one_context_is_infinitely_separated_from_no_other():
    model = random_model(0, contexts=1)
    assert lm.separation(model) == np.inf
    with pytest.raises(ValueError, match="at least two contexts"):
        closest_contexts(model)
