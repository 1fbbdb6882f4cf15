import math
from functools import cache

import numpy as np
import pytest

import latentmdp as lm


@pytest.mark.parametrize("planner", [lm.Exact(), lm.HSVI(gap=1e-9, time_limit=None)], ids=repr)
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_each_missing_bit_halves_the_chance(planner, bits):
    for horizon in range(1, bits + 3):
        plan = planner.plan(lm.make("identification", bits=bits, horizon=horizon))
        expected = 2.0 ** -max(0, bits + 1 - horizon)
        assert plan.lower == pytest.approx(expected, abs=1e-8)
        assert plan.upper == pytest.approx(expected, abs=1e-8)


def optimum_by_counting(bits, noise, horizon):
    """V*: the belief is a function of the lead of the answers 1 over the answers 0 to each bit."""
    odds = (1 - noise) / noise

    def one(lead):
        return odds**lead / (1 + odds**lead)

    @cache
    def best(left, leads):
        guess = math.prod(max(one(lead), 1 - one(lead)) for lead in leads)
        values = [guess]
        for i, lead in enumerate(leads if left > 1 else ()):
            hear_one = one(lead) * (1 - noise) + (1 - one(lead)) * noise
            more, less = ((*leads[:i], lead + step, *leads[i + 1 :]) for step in (1, -1))
            values.append(hear_one * best(left - 1, more) + (1 - hear_one) * best(left - 1, less))
        return max(values)

    return best(horizon, (0,) * bits)


@pytest.mark.parametrize(
    ("bits", "noise", "horizon"), [(1, 0.3, 8), (2, 0.1, 6), (2, 0.9, 5), (3, 0.2, 4)]
)
def test_with_noise_answers_are_counted(bits, noise, horizon):
    model = lm.make("identification", bits=bits, noise=noise, horizon=horizon)
    expected = optimum_by_counting(bits, noise, horizon)
    assert lm.Exact().plan(model).lower == pytest.approx(expected, abs=1e-9)


def test_answers_by_a_coin_tell_nothing():
    model = lm.make("identification", bits=2, noise=0.5, horizon=4)
    assert lm.Exact().plan(model).lower == pytest.approx(0.25)


def test_qmdp_asks_the_same_again():
    # Two guesses are as good as one bit; the false-alarm probability is below 1e-4 at 4 errors.
    model = lm.make("identification")
    value = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0)
    assert abs(value.mean - 0.25) <= 4.0 * value.stderr + 1e-12


def test_sizes_are_those_of_the_docstring():
    model = lm.make("identification", bits=4, horizon=5)
    assert (model.n_contexts, model.n_states, model.n_actions) == (16, 4, 20)
    assert model.terminal.tolist() == [False, False, False, True]
    assert model.context_names[5] == "0101"
    bit = model.transitions[:, 0, :4, 2]  # heard 1
    np.testing.assert_array_equal(bit, [[m >> i & 1 for i in range(4)] for m in range(16)])
    guess = model.mean_rewards()[:, 0, 4:]
    np.testing.assert_array_equal(guess, np.eye(16))
