"""Q-MDP against a textbook recursion and its bound against brute force."""

import itertools

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.qmdp import least_values, q_values


def textbook_q_values(model: lm.LatentMDP) -> np.ndarray:
    H, S, A, M = model.horizon, model.n_states, model.n_actions, model.n_contexts
    P, values = model.observation_probs(), np.zeros((H + 1, S, A, M))
    bonus = np.zeros((M, S, A)) if model.bonus is None else model.bonus
    for t in reversed(range(H)):
        for s, a, m in np.ndindex(S, A, M):
            total = bonus[m, s, a]
            for n, z in np.ndindex(S, model.n_rewards):
                future = values[t + 1, n, :, m].max()
                total += P[m, s, a, n, z] * (model.reward_values[z] + model.discount * future)
            values[t, s, a, m] = total
    return values[:H]


@pytest.mark.parametrize("form", ["bernoulli", "values", "next-state"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 3, 2, 5), (4, 9, 3, 4), (3, 6, 1, 3)])
def test_q_values_match_the_recursion(form: str, sizes: tuple[int, int, int, int]) -> None:
    model = random_model(0, *sizes, form=form, bonus=True, discount=0.9)
    np.testing.assert_allclose(q_values(model), textbook_q_values(model), rtol=1e-12, atol=1e-12)


def test_least_values_are_those_of_the_worst_policy() -> None:
    """Against every memoryless policy, of which one is the worst in a single context."""
    model = random_model(4, contexts=2, states=2, actions=2, horizon=2, bonus=True, discount=0.9)
    found = least_values(model)
    for m in range(2):
        for s in range(2):
            alone = model.context(m).replace(initial=s, initial_bonus=None)
            values = [
                lm.evaluate(alone, lm.MarkovPolicy(np.reshape(rule, (2, 2)))).mean
                for rule in itertools.product(range(2), repeat=4)
            ]
            assert found[0, s, m] == pytest.approx(min(values), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_informed_bound_is_at_least_the_optimum(seed: int) -> None:
    model = random_model(seed, form="values", bonus=True, discount=0.95)
    plan = lm.QMDP().plan(model)
    assert plan.upper >= testing.optimal_value(model) - 1e-12
    assert plan.lower is None
    assert plan.guarantee is None


def test_with_one_context_q_mdp_is_optimal_and_its_bound_tight() -> None:
    model = random_model(3, contexts=1, bonus=True, discount=0.9)
    plan = lm.QMDP().plan(model)
    value = lm.evaluate(model, plan.policy, method="exact").mean
    assert value == pytest.approx(plan.upper, rel=1e-12)
    assert value == pytest.approx(testing.optimal_value(model), rel=1e-12)


def test_a_row_never_visited_has_no_future_but_its_bonus() -> None:
    model = random_model(1, horizon=3)
    transitions, rewards = model.transitions.copy(), model.reward_probs.copy()
    transitions[0, 1, 1], rewards[0, 1, 1] = 0.0, 0.0
    bonus = np.zeros((3, 3, 2))
    bonus[0, 1, 1] = 3.0
    partial = model.replace(
        transitions=transitions, rewards=rewards, bonus=bonus, allow_unvisited=True
    )
    np.testing.assert_array_equal(q_values(partial)[:, 1, 1, 0], 3.0)


def test_conforms() -> None:
    testing.check_planner(lm.QMDP())
