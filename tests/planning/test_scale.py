"""Point-based planning of tables, costs and forbidden actions; threads; set-up cut short."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.limits import PlanningClock
from latentmdp.testing.models import random_model

PLANNERS = [lm.HSVI(gap=1e-6, time_limit=None), lm.PBVI(beliefs=50), lm.PBVI(spacing=0.5)]


def sparse_model(seed: int, states: int = 40, horizon: int = 12) -> lm.LatentMDP:
    """Three successors a row, shared by the contexts; a tenth of (s, a) rewarded."""
    rng = np.random.default_rng(seed)
    M, A, k = 4, 3, 3
    starts = np.arange(states * A + 1) * k
    next_state = np.sort(
        np.array([rng.choice(states, k, replace=False) for _ in range(states * A)]), axis=1
    )
    probs = rng.dirichlet(np.ones(k), (M, states * A)).transpose(1, 2, 0).reshape(-1, M)
    paid = np.where(rng.random((M, states, A)) < 0.1, rng.random((M, states, A)), 0.0)
    return lm.LatentMDP.from_outcomes(
        starts,
        next_state.ravel(),
        np.zeros(starts[-1], np.int64),
        probs,
        n_states=states,
        horizon=horizon,
        reward_values=(0.0,),
        bonus=paid,
    )


@pytest.mark.parametrize("planner", PLANNERS, ids=repr)
@pytest.mark.parametrize("seed", range(6))
def test_bounds_enclose_the_optimum_with_forbidden_actions_and_terminal_states(
    planner: lm.HSVI | lm.PBVI, seed: int
) -> None:
    model = random_model(
        seed, contexts=2 + seed % 2, states=3, actions=3, horizon=4, zeros=0.3, bonus=True,
        forbidden=0.4, n_terminal=seed % 3 > 0, as_table=seed % 2 == 1,
    )  # fmt: skip
    plan, best = planner.plan(model), testing.optimal_value(model)
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9
    groups = np.repeat(np.arange(plan.policy.offsets.size - 1), np.diff(plan.policy.offsets))
    assert model.allowed[groups % model.n_states, plan.policy.actions].all()


@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("by_context", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_costs_that_all_differ(seed: int, by_context: bool, observed: bool) -> None:
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(3), (3, 3, 2))
    costs = -rng.random((3, 3, 2) if by_context else (3, 2))
    model = lm.LatentMDP.from_amounts(transitions, costs, horizon=4, observed=observed)
    plan, best = lm.HSVI(gap=1e-6, time_limit=None).plan(model), testing.optimal_value(model)
    assert plan.converged
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert lm.Exact().plan(model).lower == pytest.approx(best, abs=1e-9)
    assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9


def test_threads_and_form_do_not_change_a_bit() -> None:
    table = sparse_model(0)
    dense = lm.LatentMDP(
        table.transitions,
        table.reward_probs,
        horizon=table.horizon,
        reward_values=table.reward_values,
        bonus=table.bonus,
    )
    alone, shared, other = (
        lm.HSVI(gap=0.01, time_limit=None, threads=n).plan(model)
        for n, model in ((1, table), (3, table), (2, dense))
    )
    assert (shared.lower, shared.upper) == (alone.lower, alone.upper)
    np.testing.assert_array_equal(shared.policy.vectors, alone.policy.vectors)
    np.testing.assert_array_equal(shared.policy.actions, alone.policy.actions)
    assert other.lower == pytest.approx(alone.lower, rel=0.01)
    assert other.upper == pytest.approx(alone.upper, rel=0.01)
    rounds = [lm.PBVI(beliefs=100, threads=n).plan(table) for n in (1, 3)]
    np.testing.assert_array_equal(rounds[0].policy.vectors, rounds[1].policy.vectors)


@pytest.mark.parametrize("planner", [partial(lm.HSVI, gap=0.0), lm.PBVI], ids=["HSVI", "PBVI"])
def test_set_up_cut_short_anywhere_returns_a_valid_plan(
    planner: Callable[..., lm.HSVI | lm.PBVI], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock ticks once a look: every limit ends the work at another place.
    # The model is one that a search does not close before it has looked at the clock.
    model = random_model(8, contexts=3, states=3, horizon=5, zeros=0.1, forbidden=0.1, n_terminal=1)
    best, informed = testing.optimal_value(model), lm.QMDP().plan(model).upper
    messages = set()
    for seconds in (0.5, *range(1, 40, 3), 60):
        ticks = itertools.count()
        monkeypatch.setattr(
            PlanningClock, "seconds", property(lambda self, ticks=ticks: float(next(ticks)))
        )
        plan = planner(time_limit=seconds, threads=1).plan(model)
        messages.add(plan.message)
        assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
        assert plan.upper <= informed + 1e-9 or seconds < 10  # Q-MDP itself was cut short
        assert testing.policy_value(model, plan.policy) >= plan.lower - 1e-9
    assert any(message.startswith("stopped at the time limit of 1 s") for message in messages)


@pytest.mark.parametrize("planner", [lm.HSVI, lm.PBVI])
def test_what_does_not_fit_is_not_begun(planner: type) -> None:
    model = sparse_model(1, states=30)
    plan = planner(memory_limit=0.001, time_limit=None).plan(model)
    assert "memory limit" in plan.message
    assert "would need about" in plan.message
    assert not plan.converged
    assert plan.lower <= plan.upper
    assert plan.policy.actions.size == model.horizon * model.n_states  # one policy, no room for two


@pytest.mark.parametrize("planner", [lm.HSVI, lm.PBVI])
def test_bad_threads_are_refused(planner: type) -> None:
    with pytest.raises(ValueError, match="threads"):
        planner(threads=0)
    with pytest.raises(TypeError, match="threads"):
        planner(threads=1.5)
