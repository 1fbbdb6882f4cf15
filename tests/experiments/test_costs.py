"""What a problem will cost follows its sizes, and what is measured here."""

import dataclasses
import math

import pytest

import latentmdp as lm
from latentmdp.experiments.costs import Rates, costs, measured_rates
from latentmdp.logs import HELD_STEPS

RATES = Rates(simulation=2e-8, reading=3e-7, filter=8e-8, em_pass=3e-9, multiplication=1e-10)
SIZES = {"n_contexts": 3, "n_states": 20, "n_actions": 3, "n_outcomes": 40.0, "horizon": 100}


def test_what_grows_with_what():
    one = costs(**SIZES, episodes=1e6, workers=10, rates=RATES)
    assert one.steps == 1e8
    ten = costs(**SIZES, episodes=1e7, workers=10, rates=RATES)
    for name in ("stored_bytes", "reading_seconds", "filter_seconds", "pass_seconds"):
        assert getattr(ten, name) == pytest.approx(10.0 * getattr(one, name)), name
    assert ten.disk_bytes == one.disk_bytes
    assert ten.memory_bytes > 5.0 * one.memory_bytes
    assert ten.plan_seconds == one.plan_seconds
    more = costs(**{**SIZES, "n_states": 40}, episodes=1e6, workers=10, rates=RATES)
    assert more.plan_seconds == pytest.approx(2.0 * one.plan_seconds)
    assert more.pass_seconds == one.pass_seconds
    few = costs(**SIZES, episodes=HELD_STEPS / 400, rates=RATES)
    assert few.disk_bytes < one.disk_bytes


def test_workers_share_the_steps_until_handing_out_takes_longer():
    found = [
        costs(**SIZES, episodes=1e9, workers=n, rates=RATES).cluster_pass_seconds
        for n in (1, 100, 100_000)
    ]
    assert found[0] == pytest.approx(300.0, rel=0.01)
    assert found[1] == pytest.approx(3.0, rel=0.3)
    assert found[2] > found[1]


def test_a_gpu_holds_so_many_steps():
    assert costs(**SIZES, episodes=1e6, rates=RATES).gpu_pass_seconds < 0.01
    assert math.isnan(costs(**SIZES, episodes=1e9, rates=RATES).gpu_pass_seconds)


def test_the_bytes_of_a_model_are_those_of_its_outcomes():
    model = lm.make("random", contexts=3, states=20, actions=3, horizon=5, rng=0)
    table = model.outcomes
    held = table.probs.nbytes + table.next_state.nbytes + table.reward.nbytes
    each = table.probs.shape[0] / 60
    found = costs(3, 20, 3, each, 1.0, 5, rates=RATES).model_bytes
    assert found == pytest.approx(held + table.starts.nbytes, rel=0.25)


def test_this_machine_is_measured():
    rates = dataclasses.asdict(measured_rates(2))
    assert all(0.0 < seconds < 1e-4 for seconds in rates.values())
    assert rates["em_pass"] < rates["reading"]
    with pytest.raises(ValueError, match="n_contexts must be"):
        measured_rates(0)
