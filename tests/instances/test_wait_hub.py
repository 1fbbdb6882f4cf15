import numpy as np
import pytest
from belief_dp import q_values, qmdp_policy, value

import latentmdp as lm


def optimum_by_counting(accuracy, pay, wait_pay, horizon, journey=4):
    """V*: the belief is a function of d, the lead of the signals that favour the east."""
    V = dict.fromkeys(range(-horizon, horizon + 1), 0.0)
    odds = accuracy / (1 - accuracy)
    for left in range(1, horizon + 1):
        previous, V = V, {}
        for d in range(-horizon + left, horizon - left + 1):
            east = odds**d / (1 + odds**d)
            hear_east = east * accuracy + (1 - east) * (1 - accuracy)
            ask = hear_east * previous[d + 1] + (1 - hear_east) * previous[d - 1]
            go = max(east, 1 - east) * pay * max(0, left - journey)
            V[d] = max(ask, wait_pay + previous[d], go)
    return V[0]


def test_the_optimum_asks_and_goes():
    model = lm.make("wait-hub")
    expected = optimum_by_counting(accuracy=0.8, pay=0.51, wait_pay=0.055, horizon=30)
    assert value(model) == pytest.approx(expected, abs=1e-9)
    assert expected >= 10.9


def test_qmdp_waits_for_ever():
    model = lm.make("wait-hub")
    Q = q_values(model)[:, :, 0].mean(axis=1)
    wait = model.action_names.index("wait")
    others = np.delete(Q, wait, axis=1)
    assert (Q[:, wait] > others.max(axis=1) + 1e-3).all()
    assert value(model, qmdp_policy(model)) == pytest.approx(30 * 0.055)


@pytest.mark.parametrize(
    ("accuracy", "pay", "horizon"), [(0.6, 0.5, 12), (0.95, 0.9, 20), (0.8, 0.2, 10)]
)
def test_other_numbers(accuracy, pay, horizon):
    model = lm.make("wait-hub", accuracy=accuracy, pay=pay, wait_pay=0.1, horizon=horizon)
    assert value(model) == pytest.approx(optimum_by_counting(accuracy, pay, 0.1, horizon), abs=1e-9)
