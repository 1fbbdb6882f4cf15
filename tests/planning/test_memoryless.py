"""Branch and bound against enumeration of all memoryless policies."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning import qmdp
from latentmdp.planning.limits import PlanningClock
from latentmdp.planning.memoryless.cadp import MemorylessProblem


def sparse_rewards(seed: int, contexts: int, states: int, actions: int, horizon: int):
    """Dirichlet(1) transitions, a fifth of (m, s, a) rewarded, start in state 0."""
    rng = np.random.default_rng(seed)
    shape = (contexts, states, actions)
    rewards = np.where(rng.random(shape) < 0.2, rng.random(shape), 0.0)
    transitions = rng.dirichlet(np.ones(states), shape)
    return lm.LatentMDP(transitions, rewards, initial=0, horizon=horizon)


@pytest.mark.parametrize("stationary", [False, True])
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    contexts=st.integers(1, 3),
    horizon=st.integers(1, 3),
    bonus=st.booleans(),
    discount=st.sampled_from([1.0, 0.6]),
)
def test_equals_enumeration(stationary, seed, contexts, horizon, bonus, discount) -> None:
    model = testing.random_model(
        seed,
        contexts=contexts,
        states=3,
        actions=2,
        horizon=horizon,
        reward_values=(-1.0, 0.0, 2.0),
        zeros=0.2,
        bonus=bonus,
        discount=discount,
    )
    best = testing.optimal_memoryless_value(model, stationary=stationary)
    plan = lm.Memoryless(stationary=stationary, starts=0).plan(model)
    assert plan.converged
    assert plan.lower == plan.upper == pytest.approx(best, abs=1e-9)
    assert testing.policy_value(model, plan.policy) == pytest.approx(best, abs=1e-9)
    assert plan.policy.stationary == (stationary or horizon == 1)


@pytest.mark.parametrize("stationary", [False, True])
def test_finds_the_optimum_of_larger_problems(stationary: bool) -> None:
    for seed in range(3):
        model = sparse_rewards(seed, 3, 4, 3, 4)
        plan = lm.Memoryless(stationary=stationary).plan(model)
        other = lm.Memoryless("cadp", stationary=stationary, starts=50).plan(model)
        assert plan.converged
        assert plan.lower >= other.lower - 1e-12
        assert plan.lower == pytest.approx(lm.evaluate(model, plan.policy).mean, rel=1e-12)
        assert plan.upper <= other.upper + 1e-12


def test_conforms() -> None:
    for models in (testing.small_models(), testing.endless_models()):
        testing.check_planner(
            lm.Memoryless(), models=models, optimum=testing.optimal_memoryless_value
        )


@pytest.mark.parametrize("seed", range(5))
def test_guarantee_holds_against_policies_with_memory(seed: int) -> None:
    model = testing.random_model(seed, contexts=3, bonus=True)
    plan = lm.Memoryless().plan(model)
    assert plan.guarantee == (pytest.approx(1 / 3), 0.0)
    assert plan.lower >= testing.optimal_value(model) / 3


def test_no_guarantee_where_the_argument_fails() -> None:
    model = testing.random_model(0)
    assert lm.Memoryless(stationary=True).plan(model).guarantee is None
    negative = model.replace(initial_bonus=[-1.0, 0.0])
    assert lm.Memoryless().plan(negative).guarantee is None


def test_time_limit_leaves_valid_bounds() -> None:
    model = sparse_rewards(0, 4, 8, 3, 8)
    plan = lm.Memoryless(time_limit=0.2).plan(model)
    assert not plan.converged
    assert "time limit" in plan.message
    assert plan.lower < plan.upper <= lm.QMDP().plan(model).upper + 1e-9
    assert plan.lower == pytest.approx(lm.evaluate(model, plan.policy).mean, rel=1e-12)
    seconds, lowers, uppers = np.array(plan.history).T
    assert (np.diff(seconds) >= 0).all()
    assert (np.diff(lowers) >= 0).all()
    assert (np.diff(uppers) <= 0).all()


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("horizon", [4, None])
def test_cut_short_anywhere_leaves_valid_bounds(
    stationary: bool, horizon: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock ticks once a look, and looks come after every layer: limits end the work anywhere.
    model = testing.random_model(
        4, contexts=3, states=3, actions=3, horizon=horizon, discount=0.8, zeros=0.3,
        forbidden=0.3, n_terminal=1, reward_values=(-1.0, 0.0, 2.0),
    )  # fmt: skip
    best = testing.optimal_memoryless_value(model, stationary=stationary)
    planner = lm.Memoryless(stationary=stationary, starts=1, time_limit=None)
    whole = planner.plan(model)
    monkeypatch.setattr(qmdp, "_BLOCK_WORK", 1.0)
    monkeypatch.setattr(PlanningClock, "seconds", property(lambda self: 0.0))
    in_layers = planner.plan(model)
    assert (in_layers.lower, in_layers.n_iter) == (whole.lower, whole.n_iter)
    np.testing.assert_array_equal(in_layers.policy.actions, whole.policy.actions)
    stopped = set()
    for limit in (*range(1, 40, 2), *range(50, 500, 100), 10**6):
        ticks = itertools.count()
        monkeypatch.setattr(
            PlanningClock, "seconds", property(lambda self, ticks=ticks: float(next(ticks)))
        )
        plan = lm.Memoryless(stationary=stationary, starts=1, time_limit=limit).plan(model)
        assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
        assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9
        assert plan.upper <= lm.QMDP().plan(model).upper + 1e-9 or limit < 10  # it was cut short
        stopped.add("time limit" in plan.message)
    assert stopped == {True, False}


def test_memory_limit_leaves_valid_bounds() -> None:
    model = sparse_rewards(1, 3, 7, 2, 7)
    free = lm.Memoryless().plan(model)
    assert free.converged
    for limit in (0.001, 0.1):  # no room for the first bound, and for some nodes
        stopped = lm.Memoryless(memory_limit=limit).plan(model)
        assert "memory limit" in stopped.message
        assert stopped.lower <= free.lower <= stopped.upper
        assert not stopped.converged


def test_interrupt_returns_the_incumbent() -> None:
    calls = []

    def interrupt(*bounds: float) -> None:
        calls.append(bounds)
        if len(calls) == 2:
            raise KeyboardInterrupt

    model = sparse_rewards(2, 3, 4, 3, 4)
    plan = lm.Memoryless(on_progress=interrupt).plan(model)
    assert plan.message == "interrupted"
    assert not plan.converged
    assert plan.lower == pytest.approx(lm.evaluate(model, plan.policy).mean, rel=1e-12)
    assert plan.upper >= lm.Memoryless().plan(model).lower


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"method": "simplex"}, ValueError, "method must be one of"),
        ({"method": "mip"}, ValueError, 'gone since 0.3: "branch-and-bound" proves the same'),
        ({"time_limit": 0}, ValueError, "time_limit must be positive"),
        ({"starts": -1}, ValueError, "starts must be a non-negative integer"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lm.Memoryless(**arguments)


@pytest.mark.parametrize("stationary", [False, True])
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    contexts=st.integers(1, 3),
    horizon=st.integers(1, 3),
    terminal=st.integers(0, 1),
    table=st.booleans(),
)
def test_equals_enumeration_with_forbidden_actions(
    stationary, seed, contexts, horizon, terminal, table
) -> None:
    model = testing.random_model(
        seed,
        contexts=contexts,
        states=3,
        actions=3,
        horizon=horizon,
        reward_values=(-1.0, 0.0, 2.0),
        zeros=0.2,
        bonus=True,
        forbidden=0.5,
        n_terminal=terminal,
        as_table=table,
    )
    best = testing.optimal_memoryless_value(model, stationary=stationary)
    plan = lm.Memoryless(stationary=stationary, starts=0).plan(model)
    assert plan.lower == plan.upper == pytest.approx(best, abs=1e-9)
    assert testing.policy_value(model, plan.policy) == pytest.approx(best, abs=1e-9)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    contexts=st.integers(1, 3),
    discount=st.sampled_from([0.3, 0.9, 0.99]),
    terminal=st.integers(0, 1),
)
def test_equals_enumeration_without_an_end(seed, contexts, discount, terminal) -> None:
    model = testing.random_model(
        seed,
        contexts=contexts,
        states=4,
        actions=3,
        horizon=None,
        reward_values=(-1.0, 0.0, 2.0),
        zeros=0.2,
        bonus=True,
        discount=discount,
        forbidden=0.3,
        n_terminal=terminal,
        as_table=bool(seed % 2),
    )
    best = testing.optimal_memoryless_value(model)
    plan = lm.Memoryless(starts=0).plan(model)
    size = max(1.0, abs(best))
    assert plan.converged
    assert plan.lower == plan.upper == pytest.approx(best, abs=1e-6 * size)
    assert testing.policy_value(model, plan.policy) == pytest.approx(plan.lower, abs=1e-9 * size)
    assert plan.policy.stationary
    assert plan.guarantee is None


def test_without_an_end_no_single_change_improves_the_ascent() -> None:
    for seed in range(5):
        model = testing.random_model(
            seed, contexts=3, states=5, actions=3, horizon=None, discount=0.95, forbidden=0.3
        )
        plan = lm.Memoryless("cadp", starts=2).plan(model)
        assert testing.policy_value(model, plan.policy) == pytest.approx(plan.lower, rel=1e-10)
        assert plan.upper >= testing.optimal_memoryless_value(model) - 1e-9
        for s, a in np.argwhere(model.allowed):
            changed = plan.policy.actions.copy()
            changed[0, s] = a
            assert testing.policy_value(model, lm.MarkovPolicy(changed)) <= plan.lower + 1e-8


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    model = sparse_rewards(1, 3, 4, 3, 4)
    for problem in (model, model.replace(horizon=None, discount=0.9)):
        lm.Memoryless(time_limit=2.0).plan(problem)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("horizon", [3, None])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_partial_policy_bounds_all_that_complete_it(stationary, horizon, seed) -> None:
    """The more rules are fixed the lower the bound, and with all of them it is the value."""
    rng = np.random.default_rng(seed)
    model = testing.random_model(
        rng, contexts=3, states=3, actions=3, horizon=horizon, zeros=0.3, bonus=True, discount=0.9,
        forbidden=0.3,
    )  # fmt: skip
    problem = MemorylessProblem.of(model, stationary)
    weights = np.where(problem.open, rng.random((*problem.shape, 3)), -1.0)
    policy = weights.argmax(axis=-1).astype(np.int32)
    value = testing.policy_value(model, lm.MarkovPolicy(policy))
    bounds = []
    rules = np.full(problem.shape, -1, np.int32)
    for slot in rng.permutation(rules.size):
        bound, gains = problem.relax(rules)
        bounds.append(bound)
        allowed = problem.open & ((rules < 0)[..., None] | (rules[..., None] == np.arange(3)))
        np.testing.assert_array_equal(np.isfinite(gains), allowed)
        assert (gains[allowed] <= 1e-8).all()
        rules.flat[slot] = policy.flat[slot]
    bounds.append(problem.relax(rules)[0])
    assert (np.diff(bounds) <= 1e-8).all()
    assert bounds[-1] == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("horizon", [3, None])
def test_gains_are_the_derivatives_of_the_value(horizon: int | None) -> None:
    """A little of an action at all times, as a randomised policy: what the value rises by."""
    model = testing.random_model(5, contexts=3, states=3, actions=3, horizon=horizon, discount=0.9)
    problem = MemorylessProblem.of(model, stationary=True)
    policy = np.array([[0, 2, 1]], np.int32)
    value, (gains,) = problem.relax(policy, excluded=True)
    for s, a in np.ndindex(gains.shape):
        share = np.eye(3)[policy[0]]
        share[s] += 1e-6 * (np.eye(3)[a] - share[s])
        mixed = lm.MarkovPolicy(share)
        rise = testing.policy_value(model, mixed) - value
        assert rise / 1e-6 == pytest.approx(gains[s, a], rel=1e-3, abs=1e-5)
