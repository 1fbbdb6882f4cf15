"""What few observations support is attractive, and what other contexts showed counts."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp.online.optimism import optimistic_model

VISITS = np.zeros((2, 3, 2))
VISITS[0, 0, 0] = 4.0


def believed(transitions: float, rewards: float) -> lm.LatentMDP:
    world = random_model(0, contexts=2, states=3, actions=2, horizon=5)
    fit = lm.Fit(
        world,
        np.ones((1, 2)) / 2,
        0.0,
        True,
        pseudo_counts=transitions,
        reward_pseudo_counts=rewards,
    )
    return optimistic_model(world, VISITS, fit, 0.3, largest_return=5.0)


def test_without_pseudo_counts_each_context_stands_alone() -> None:
    model = believed(0.0, 0.0)
    assert model.bonus[0, 0, 0] == pytest.approx(0.3 * (0.5 + 0.5))
    assert (model.bonus[0, 1:] == 5.0).all()
    assert (model.bonus[1] == 5.0).all()
    assert (model.transitions[1] == 0.0).all()
    assert model.transitions[0, 0, 0].sum() == pytest.approx(1.0)


def test_what_one_context_shows_serves_the_others_as_far_as_it_carries_over() -> None:
    """Pseudo-counts count as observations, but not more of them than there are."""
    model = believed(12.0, 1.0)
    assert model.bonus[0, 0, 0] == pytest.approx(0.3 * (1 / np.sqrt(8) + 1 / np.sqrt(5)))
    assert model.bonus[1, 0, 0] == pytest.approx(0.3 * (1 / np.sqrt(4) + 1 / np.sqrt(1)))
    assert model.transitions[1, 0, 0].sum() == pytest.approx(1.0)
    assert (model.bonus[:, 1:] == 5.0).all()


def test_the_bonus_is_measured_in_ranges_of_the_rewards() -> None:
    world = random_model(0, contexts=2, states=3, actions=2, horizon=5)
    fit = lm.Fit(world, np.ones((1, 2)) / 2, 0.0, True)
    dear = world.replace(reward_values=1000.0 * world.reward_values)
    plain, scaled = (
        optimistic_model(model, np.ones((2, 3, 2)), fit, 0.3, largest_return=1e9).bonus
        for model in (world, dear)
    )
    np.testing.assert_allclose(scaled, 1000.0 * plain)
