"""Ties are broken for the sooner, then for the lowest number, by every planner and by `learn`."""

from typing import Any

import numpy as np
import pytest

import latentmdp as lm
from latentmdp._util.duration import Duration
from latentmdp.planning import best_actions, q_values


def corridor(contexts: int = 2, places: int = 5, horizon: int = 20) -> lm.LatentMDP:
    """Wait, go back, go on or jump on; leaving at the far end pays 1, whenever it happens."""
    S = places + 1
    T = np.zeros((contexts, S, 4, S))
    for s in range(places):
        T[:, s, np.arange(4), [s, max(s - 1, 0), s + 1, s + 1]] = 1.0
    R = np.zeros((contexts, S, 4))
    R[:, places - 1, 2:] = 1.0
    allowed = np.ones((S, 4), dtype=bool)
    allowed[-1] = False
    return lm.LatentMDP(T, R, initial=0, horizon=horizon, allowed=allowed)


PLANNERS = [lm.QMDP(), lm.Exact(), lm.HSVI(), lm.PBVI(), lm.Memoryless(), lm.Robust()]


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: type(planner).__name__)
def test_the_shortest_way_is_taken_by_the_lowest_action(planner: Any) -> None:
    model = corridor()
    plan = planner.plan(model)
    episode = lm.simulate(model, plan.policy, 1, rng=0)
    assert episode.actions.tolist() == [2] * 5
    assert plan.upper == pytest.approx(1.0, rel=1e-12)


def test_a_plan_of_few_vectors_takes_it_too() -> None:
    model = corridor()
    small = lm.HSVI().plan(model).compact(vectors=1)
    assert lm.simulate(model, small.policy, 1, rng=0).lengths.tolist() == [5]


def test_costs_are_paid_late() -> None:
    """A cost that can be put off is put off, and in the end never paid."""
    T = np.zeros((1, 2, 2, 2))
    T[0, 0, 0, 1] = T[0, 0, 1, 0] = T[0, 1, :, 1] = 1.0
    model = lm.LatentMDP.from_amounts(T, [[[-1.0, 0.0], [0.0, 0.0]]], initial=0, horizon=3)
    assert lm.simulate(model, lm.QMDP().plan(model).policy, 1, rng=0).actions.tolist() == [1, 1, 1]


def test_no_better_action_is_given_up() -> None:
    """What is better by a billionth, and comes ten steps later, is still taken."""
    T = np.zeros((1, 12, 2, 12))
    T[0, np.arange(11), 1, np.arange(1, 12)] = T[0, 11, :, 11] = 1.0
    T[0, np.arange(11), 0, 11] = 1.0
    amounts = np.zeros((1, 12, 2))
    amounts[0, 0, 0], amounts[0, 10, 1] = 1.0, 1.0 + 1e-9
    model = lm.LatentMDP.from_amounts(T, amounts, initial=0, horizon=11)
    for planner in (lm.QMDP(), lm.Exact(), lm.Memoryless()):
        returns = lm.simulate(model, planner.plan(model).policy, 1, rng=0).returns()
        assert returns[0] == 1.0 + 1e-9


def test_values_change_by_rounding_only() -> None:
    model = lm.make("random", contexts=2, states=4, horizon=8, rng=0)
    exact, discount = q_values(model), Duration(8, 1.0).planning_discount
    sooner = q_values(model, discount=discount)
    assert (sooner <= exact).all()
    np.testing.assert_allclose(sooner, exact, rtol=8 * 2.0**-46)


def test_best_actions_break_ties_at_every_step() -> None:
    """Against the time to the reward, counted by hand: place s needs 5 - s steps."""
    model = corridor(contexts=1)
    actions = best_actions(model, q_values(model))[..., 0]
    for t in range(20):
        for s in range(5):
            assert actions[t, s] == (2 if 5 - s <= 20 - t else 0)


def test_learning_takes_the_shortest_way() -> None:
    run = lm.learn(corridor(contexts=1, places=4, horizon=12), 1, 200, rng=0)
    assert (run.logs.lengths[-40:] == 4).all()
