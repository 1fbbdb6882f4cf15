"""Engines give results in order, and sums do not depend on how work was handed out."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp.engines import Threads, as_engine, total, tree_sum
from latentmdp.engines.base import tree_total
from latentmdp.testing import random_model


class Runs(Threads):
    """Threads that hand out neighbours together."""

    def __init__(self, run):
        super().__init__(2)
        self.length = run

    def run_length(self, items):
        return self.length


class Elsewhere:
    """An engine whose pieces of work see nothing but what they are handed, pickled."""

    local, scratch, threads, within = False, None, 3, Threads(1)

    def version_of(self, work):
        return None

    def run_length(self, items):
        return 2

    def map(self, function, items, *common):
        for item in items:
            yield pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps((item, *common))))))

    def finished(self, function, items, *common):
        return enumerate(self.map(function, items, *common))


def numbers(item, scale):
    return (item * scale, float(item[0]))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.sampled_from([1, 2, 4, 8, 64]))
def test_runs_of_any_length_give_the_same_bits(items, run):
    rng = np.random.default_rng(items)
    values = [rng.normal(size=3) * 10.0 ** rng.integers(-9, 9) for _ in range(items)]
    alone = tree_sum((value, float(value[0])) for value in values)
    handed = total(Runs(run), numbers, values, 1.0)
    assert np.array_equal(alone[0], handed[0])
    assert alone[1] == handed[1]
    exact = np.sum(np.array(values, np.longdouble), axis=0)
    size = np.sum(np.abs(values), axis=0)
    np.testing.assert_allclose(alone[0] - exact.astype(float), 0.0, atol=1e-15 * 8 * size.max())


def test_results_come_in_order_and_errors_stop_the_work():
    before = threading.active_count()
    started = []

    def work(item):
        started.append(item)
        if item == 5:
            raise RuntimeError("the fifth")
        return -item

    engine = Threads(3)
    assert list(engine.map(abs, range(-50, 0))) == list(range(50, 0, -1))
    assert sorted(engine.finished(abs, [-3, 4, -5])) == [(0, 3), (1, 4), (2, 5)]
    with pytest.raises(RuntimeError, match="the fifth"):
        list(engine.map(work, range(1000)))
    assert len(started) < 100
    assert threading.active_count() < before + 20


def test_results_are_not_made_far_ahead_of_the_reader():
    made = []
    results = Threads(2).map(made.append, range(1000))
    next(results)
    assert len(made) < 20
    results.close()


def first_action(history):
    return int(history.states[-1] % 2)


def test_engines_do_not_change_simulation_evaluation_and_beliefs(monkeypatch):
    monkeypatch.setattr("latentmdp.simulation.BATCH_STEPS", 4_000)
    model = random_model(0, contexts=3, states=5, horizon=8, n_terminal=1)
    policy = lm.QMDP().plan(model).policy
    engines = (Threads(1), Threads(3), Elsewhere())
    for acting, number in ((policy, 2_000), (first_action, 600)):
        logs = [
            lm.simulate(model, acting, number, rng=1, first_episode=7, engine=engine)
            for engine in engines
        ]
        assert len({played.fingerprint() for played in logs}) == 1
        values = [
            lm.evaluate(model, acting, number, rng=1, method="monte-carlo", engine=engine)
            for engine in engines
        ]
        assert values[0] == values[1] == values[2]
    beliefs = [lm.posterior(model, logs[0], 0.01, along=True, engine=one) for one in engines]
    assert np.array_equal(beliefs[0], beliefs[1])
    assert np.array_equal(beliefs[0], beliefs[2])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=70))
def test_an_array_is_added_in_the_order_of_the_tree(values):
    assert tree_total(np.array(values)) == tree_sum((value,) for value in values)[0]


def test_what_is_no_engine_is_refused():
    with pytest.raises(TypeError, match=r"engine must be one of latentmdp.engines.*got int"):
        as_engine(4)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        Threads(0)


def test_two_places_at_once_are_refused():
    assert as_engine(Threads(2), 2).threads == 2
    assert as_engine(threads=3).threads == 3
    with pytest.raises(ValueError, match=r"threads=3 and engine=Threads\(2\) differ"):
        lm.simulate(random_model(0), lm.UniformPolicy(), 5, threads=3, engine=Threads(2))
    with pytest.raises(ValueError, match=r'device="cuda" and engine=Threads\(2\)'):
        lm.EM(2).fit(
            lm.simulate(random_model(0), lm.UniformPolicy(), 5), engine=Threads(2), device="cuda"
        )
