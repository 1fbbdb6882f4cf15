"""HSVI against brute force: bounds that enclose V*, a policy that attains the lower one."""

import itertools
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.instances import list_instances
from latentmdp.planning import CrossedBoundsError
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.limits import PlanningClock


def dense_model(seed: int, M: int, S: int, A: int, H: int) -> lm.LatentMDP:
    """Dirichlet(1) transitions, 20% of (m, s, a) rewarded, start in state 0."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(S), (M, S, A))
    means = np.where(rng.random((M, S, A)) < 0.2, rng.random((M, S, A)), 0.0)
    return lm.LatentMDP(transitions, means, initial=0, horizon=H)


def test_conforms() -> None:
    testing.check_planner(lm.HSVI(gap=1e-9, time_limit=None))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", ["bernoulli", "values", "next-state"])
def test_closes_the_gap_on_small_models(seed: int, form: str) -> None:
    model = random_model(
        seed, 2 + seed % 4, 2, 2, 4, form=form, sparse=seed % 2 == 1, bonus=True, discount=0.9
    )
    plan = lm.HSVI(gap=1e-6, time_limit=None).plan(model)
    best = testing.optimal_value(model)
    assert plan.converged
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9
    assert plan.guarantee == (1.0, plan.upper - plan.lower)


@pytest.mark.parametrize("seed", range(5))
def test_every_bound_in_the_history_holds_and_none_gets_worse(seed: int) -> None:
    model = random_model(seed, contexts=4, states=3, horizon=4, sparse=True)
    plan = lm.HSVI(gap=0.0, time_limit=None).plan(model)
    best = testing.optimal_value(model)
    for _, lower, upper in plan.history:
        assert lower - 1e-9 <= best <= upper + 1e-9
    for (t0, l0, u0), (t1, l1, u1) in itertools.pairwise(plan.history):
        assert (t0 <= t1, l0 <= l1, u0 >= u1) == (True, True, True)


@pytest.mark.parametrize("wrong", ["lower", "upper"])
def test_bounds_that_cross_are_an_error_and_no_closed_gap(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bound is a hundredth of V* off, so that on the way to a small gap they must cross."""
    model = random_model(0, contexts=3, states=3, horizon=4)
    honest, sign = Bounds.bounds_at, 1.0 if wrong == "lower" else -1.0
    error = sign * 0.01 * testing.optimal_value(model)

    def off(bounds: Bounds, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lowers, uppers, items = honest(bounds, points)
        return lowers + error * (wrong == "lower"), uppers + error * (wrong == "upper"), items

    monkeypatch.setattr(Bounds, "bounds_at", off)
    with pytest.raises(CrossedBoundsError, match="exceeds the upper bound"):
        lm.HSVI(gap=0.0, time_limit=None).plan(model)


def test_bounds_that_cross_by_rounding_count_as_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(0, contexts=1, states=3, horizon=4)
    honest = Bounds.bounds_at

    def off(bounds: Bounds, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lowers, uppers, items = honest(bounds, points)
        return lowers * (1.0 + 1e-13), uppers, items

    monkeypatch.setattr(Bounds, "bounds_at", off)
    plan = lm.HSVI(gap=0.0, time_limit=None).plan(model)
    assert plan.converged
    assert plan.lower == plan.upper == pytest.approx(testing.optimal_value(model), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_policy_attains_its_bound_by_monte_carlo(seed: int) -> None:
    # One false alarm in 30,000 for each seed, by the normal approximation.
    model = dense_model(seed, 4, 6, 3, 12)
    plan = lm.HSVI(gap=0.005, time_limit=None).plan(model)
    value = lm.evaluate(model, plan.policy, episodes=100_000, rng=seed, method="monte-carlo")
    assert plan.converged
    assert value.mean >= plan.lower - 4.0 * value.stderr
    assert value.mean <= plan.upper + 4.0 * value.stderr


@pytest.mark.parametrize("name", [entry.name for entry in list_instances()])
def test_the_policy_attains_its_bound_on_every_instance(name: str) -> None:
    # One false alarm in 30,000 for each instance, by the normal approximation.
    model = lm.make(name, rng=0)
    plan = lm.HSVI(gap=0.05, time_limit=20.0).plan(model)
    value = lm.evaluate(model, plan.policy, episodes=20_000, rng=0, method="monte-carlo")
    assert value.mean >= plan.lower - 4.0 * value.stderr
    assert value.mean <= plan.upper + 4.0 * value.stderr


def test_wait_hub_needs_to_probe() -> None:
    model = lm.make("wait-hub", horizon=30)
    plan = lm.HSVI(gap=0.01, time_limit=None).plan(model)
    assert plan.lower >= 10.9
    wait = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0)
    assert wait.mean + 4.0 * wait.stderr < 2.0


def test_an_unvisited_row_has_no_future_but_its_bonus() -> None:
    model = random_model(1, contexts=3, horizon=4)
    transitions, rewards = model.transitions.copy(), model.reward_probs.copy()
    transitions[:2, 1, 1], rewards[:2, 1, 1] = 0.0, 0.0
    bonus = np.zeros((3, 3, 2))
    bonus[:2, 1, 1] = 4.0
    partial = model.replace(
        transitions=transitions, rewards=rewards, bonus=bonus, allow_unvisited=True
    )
    plan = lm.HSVI(gap=1e-7, time_limit=None).plan(partial)
    best = testing.optimal_value(partial)
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert testing.policy_value(partial, plan.policy) >= plan.lower - 1e-9


@pytest.mark.filterwarnings("error")
def test_where_nothing_was_visited_the_bonus_is_all() -> None:
    model = lm.LatentMDP(
        np.zeros((2, 3, 2, 3)),
        np.zeros((2, 3, 2, 2)),
        horizon=4,
        bonus=np.full((2, 3, 2), 4.0),
        allow_unvisited=True,
    )
    plan = lm.HSVI().plan(model)
    assert plan.lower == pytest.approx(4.0)
    assert plan.upper == pytest.approx(4.0)


@pytest.mark.filterwarnings("error")
def test_beliefs_too_small_to_divide_by() -> None:
    model = dense_model(0, 3, 3, 2, 3).replace(weights=[1.0, 1e-310, 0.0])
    plan, best = lm.HSVI(gap=0.0).plan(model), testing.optimal_value(model)
    assert plan.lower == pytest.approx(best)
    assert plan.upper == pytest.approx(best)


def test_stops_at_an_absolute_gap() -> None:
    model = dense_model(0, 3, 5, 2, 8)
    plan = lm.HSVI(gap=0.0, absolute_gap=0.05, time_limit=None).plan(model)
    assert plan.converged
    assert plan.upper - plan.lower <= 0.05


def test_stops_at_the_memory_limit_with_valid_bounds() -> None:
    model = random_model(0, contexts=4, states=3, horizon=4)
    plan = lm.HSVI(gap=0.0, time_limit=None, memory_limit=0.05).plan(model)
    assert not plan.converged
    assert "memory limit" in plan.message
    best = testing.optimal_value(model)
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9


def test_stops_at_the_time_limit_with_valid_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock ticks once a look, so the limit falls into the middle of a sweep.
    ticks = itertools.count()
    monkeypatch.setattr(PlanningClock, "seconds", property(lambda self: float(next(ticks))))
    model = random_model(2, contexts=4, states=3, horizon=4)
    best = testing.optimal_value(model)
    for seconds in (3.0, 17.0, 30.0, 45.0):
        plan = lm.HSVI(gap=0.0, time_limit=seconds).plan(model)
        assert not plan.converged
        assert "time limit" in plan.message
        assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
        assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python's own handler, also where the tests run in the background, with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_keeps_what_was_done() -> None:
    model = dense_model(1, 5, 10, 3, 20)
    reports: list[tuple[float, float, float]] = []

    def interrupt(seconds: float, lower: float, upper: float) -> None:
        reports.append((seconds, lower, upper))
        if len(reports) == 4:
            signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    plan = lm.HSVI(gap=0.0, time_limit=None, on_progress=interrupt).plan(model)
    assert plan.message == "interrupted"
    assert not plan.converged
    assert plan.history == tuple(reports)
    assert (plan.lower, plan.upper) == reports[-1][1:]


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_in_the_middle_of_compiled_code_is_held_back() -> None:
    model = dense_model(1, 5, 10, 3, 20)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    plan = lm.HSVI(gap=0.0, time_limit=60.0).plan(model)
    timer.join()
    assert plan.message == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_plans_are_reproducible() -> None:
    model = dense_model(3, 3, 5, 2, 8)
    first, second = (lm.HSVI(gap=0.001, time_limit=None).plan(model) for _ in range(2))
    assert (first.lower, first.upper) == (second.lower, second.upper)
    np.testing.assert_array_equal(first.policy.vectors, second.policy.vectors)


@pytest.mark.parametrize(
    ("name", "value"),
    [("gap", -0.1), ("absolute_gap", -1.0), ("time_limit", 0.0), ("memory_limit", float("nan"))],
)
def test_refuses_bad_limits(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        lm.HSVI(**{name: value})
