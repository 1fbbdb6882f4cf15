"""The exact planner against brute force over histories."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.exact import TooManyBeliefsError


@given(
    seed=st.integers(0, 2**32 - 1),
    contexts=st.integers(1, 3),
    states=st.integers(1, 3),
    actions=st.integers(1, 3),
    horizon=st.integers(1, 3),
    next_state=st.booleans(),
    zeros=st.sampled_from([0.0, 0.4]),
    bonus=st.booleans(),
    discount=st.sampled_from([1.0, 0.7]),
)
def test_equals_brute_force(
    seed, contexts, states, actions, horizon, next_state, zeros, bonus, discount
) -> None:
    model = testing.random_model(
        seed,
        contexts=contexts,
        states=states,
        actions=actions,
        horizon=horizon,
        reward_values=(-1.0, 0.5, 2.0),
        reward_model="transition" if next_state else "state-action",
        zeros=zeros,
        bonus=bonus,
        discount=discount,
    )
    plan, best = lm.Exact().plan(model), testing.optimal_value(model)
    assert plan.converged
    assert plan.lower == plan.upper == pytest.approx(best, abs=1e-9)
    assert testing.policy_value(model, plan.policy) == pytest.approx(best, abs=1e-9)


def test_conforms() -> None:
    testing.check_planner(lm.Exact())


def test_equal_beliefs_are_merged() -> None:
    """Belief depends on counts, so t pulls of one coin of two biases give t + 1 beliefs."""
    model = lm.LatentMDP(np.ones((2, 1, 1, 1)), [[[0.3]], [[0.6]]], horizon=40)
    plan = lm.Exact().plan(model)
    assert plan.n_iter == 40 * 41 // 2
    assert plan.lower == pytest.approx(40 * 0.45, rel=1e-12)


def test_merging_costs_nothing_at_a_long_horizon() -> None:
    """Two arms that mirror each other: V* by a textbook recursion over counts of successes."""
    rewards = np.array([[[0.3, 0.7]], [[0.7, 0.3]]])
    H = 12
    model = lm.LatentMDP(np.ones((2, 1, 2, 1)), rewards, horizon=H)

    def value(t: int, score: int) -> float:
        """Score: successes of the second arm and failures of the first, less the others."""
        if t == H:
            return 0.0
        odds = (0.7 / 0.3) ** score
        best = 0.7 * max(odds, 1.0) / (1 + odds) + 0.3 * min(odds, 1.0) / (1 + odds)
        up = (0.7 * odds + 0.3) / (1 + odds)
        return best + up * table[t + 1][score + 1] + (1 - up) * table[t + 1][score - 1]

    table: dict[int, dict[int, float]] = {}
    for t in range(H, -1, -1):
        table[t] = {score: value(t, score) for score in range(-t, t + 1)}
    assert lm.Exact().plan(model).lower == pytest.approx(table[0][0], abs=1e-9)


def test_refuses_what_is_too_large() -> None:
    model = lm.make("random", rng=0)
    with pytest.raises(TooManyBeliefsError, match="raise max_beliefs, or use"):
        lm.Exact(max_beliefs=20_000).plan(model)
    small = testing.random_model(0)
    with pytest.raises(TooManyBeliefsError, match="max_beliefs=5"):
        lm.Exact(max_beliefs=5).plan(small)
    with pytest.raises(ValueError, match="max_beliefs"):
        lm.Exact(max_beliefs=0)


def test_solves_what_merging_makes_small() -> None:
    """Histories are very many, but few of their beliefs differ; Q-MDP's bound encloses V*."""
    model = lm.make("river-swim")
    plan = lm.Exact().plan(model)
    assert plan.n_iter < 10_000
    value = lm.evaluate(model, plan.policy, episodes=20_000, rng=0)
    assert abs(value.mean - plan.lower) <= 5.0 * value.stderr  # a false alarm in 2 million
    assert plan.lower <= lm.QMDP().plan(model).upper + 1e-9


def test_nothing_ever_follows() -> None:
    model = lm.LatentMDP(
        np.zeros((2, 2, 2, 2)),
        np.zeros((2, 2, 2)),
        bonus=np.ones((2, 2, 2)),
        horizon=3,
        allow_unvisited=True,
    )
    assert lm.Exact().plan(model).lower == 1.0


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    contexts=st.integers(1, 3),
    terminal=st.integers(0, 2),
    table=st.booleans(),
    reward_model=st.sampled_from(["state-action", "transition"]),
)
def test_equals_brute_force_with_forbidden_actions_and_terminal_states(
    seed: int, contexts: int, terminal: int, table: bool, reward_model: str
) -> None:
    model = testing.random_model(
        seed,
        contexts=contexts,
        states=4,
        actions=3,
        zeros=0.3,
        bonus=True,
        discount=0.9,
        forbidden=0.4,
        n_terminal=terminal,
        as_table=table,
        reward_model=reward_model,
    )
    best, plan = testing.optimal_value(model), lm.Exact().plan(model)
    assert plan.lower == plan.upper == pytest.approx(best, abs=1e-11)
    assert testing.policy_value(model, plan.policy) == pytest.approx(best, abs=1e-11)


def test_an_episode_that_begins_at_its_end_is_worth_its_bonus() -> None:
    model = testing.random_model(1, states=3, n_terminal=1, bonus=True).replace(initial=2)
    plan = lm.Exact().plan(model)
    assert plan.lower == pytest.approx(model.initial_value())


def test_without_an_end_hsvi_is_recommended() -> None:
    model = testing.random_model(0, horizon=None, discount=0.9)
    with pytest.raises(lm.errors.ModelError, match=r"unlike HSVI.*needs a horizon"):
        lm.Exact().plan(model)
