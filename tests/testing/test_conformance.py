"""check_planner accepts a correct planner and names what is wrong with incorrect ones."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.policies import History, MarkovPolicy
from latentmdp.testing import (
    ConformanceError,
    check_instance,
    check_planner,
    optimal_memoryless_value,
    optimal_value,
    policy_value,
    random_model,
    small_models,
)


@dataclass(frozen=True)
class Outcome:
    policy: Any
    lower: float | None = None
    upper: float | None = None
    converged: bool = True
    n_iter: int = 1
    seconds: float = 0.0
    history: tuple[Any, ...] = ()
    guarantee: tuple[float, float] | None = None


class Exhaustive:
    """The optimal policy as a table of all histories, found by expectimax."""

    def plan(self, model):
        P = model.observation_probs()
        bonus = np.zeros(P.shape[:3]) if model.bonus is None else model.bonus
        table = {}

        def best(history, u):
            if len(history.actions) == model.horizon:
                return 0.0
            s = history.states[-1]
            values = []
            for a in range(model.n_actions):
                total = u @ bonus[:, s, a]
                for n, z in product(range(model.n_states), range(model.n_rewards)):
                    v = u * P[:, s, a, n, z]
                    longer = History(
                        (*history.states, n), (*history.actions, a), (*history.rewards, z)
                    )
                    total += model.reward_values[z] * v.sum() + model.discount * best(longer, v)
                values.append(total)
            table[history] = int(np.argmax(values))
            return max(values)

        first = 0.0 if model.initial_bonus is None else model.weights @ model.initial_bonus
        value = first + sum(
            best(History((s,), (), ()), model.weights * model.initial[:, s])
            for s in range(model.n_states)
        )
        return Outcome(lambda h: table[h], value, value, guarantee=(1.0, 0.0))


class BestMemoryless:
    """The best deterministic Markov policy, by trying them all."""

    def plan(self, model):
        shape = (model.horizon, model.n_states)
        candidates = (
            MarkovPolicy(np.reshape(actions, shape))
            for actions in product(range(model.n_actions), repeat=shape[0] * shape[1])
        )
        best = max(candidates, key=partial(policy_value, model))
        value = policy_value(model, best)
        return Outcome(best, value, value)


@dataclass
class Spoilt:
    """A correct planner whose plan, or whose model, is tampered with."""

    after: Any = lambda plan: plan
    before: Any = lambda model: model

    def plan(self, model):
        return self.after(Exhaustive().plan(self.before(model)))


FEW = ("two contexts", "hidden bonus and discount", "single context, hidden bonus")
MODELS = {name: small_models()[name] for name in FEW}


def failures_of(planner, models=MODELS):
    with pytest.raises(ConformanceError) as failure:
        check_planner(planner, models=models)
    return str(failure.value)


def test_a_correct_planner_conforms():
    check_planner(Exhaustive())


def test_qmdp_conforms():
    check_planner(lm.QMDP())


def test_a_memoryless_planner_conforms_to_its_own_optimum():
    models = {
        f"model {seed}": random_model(seed, states=2, horizon=2, bonus=True, discount=0.8)
        for seed in range(3)
    }
    check_planner(BestMemoryless(), models=models, optimum=optimal_memoryless_value)


def test_the_bounds_of_a_memoryless_planner_are_not_those_of_the_optimum():
    model = lm.LatentMDP(np.ones((2, 1, 2, 1)), [[[1, 0]], [[0, 1]]], horizon=3)
    text = failures_of(BestMemoryless(), models={"bandit": model})
    assert "bandit: upper=1.5 is below the optimum 2.5" in text


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda p: replace(p, lower=p.lower + 0.1), "exceeds the optimum"),
        (lambda p: replace(p, lower=p.lower + 0.1), "less than lower="),
        (lambda p: replace(p, upper=p.upper - 0.1), "is below the optimum"),
        (lambda p: replace(p, policy=lambda h: 0), "guarantee=(1.0, 0.0) promises"),
        (lambda p: replace(p, converged="yes"), "converged must be a bool, got 'yes'"),
        (lambda p: replace(p, n_iter=-1), "n_iter must be a count, got -1"),
        (lambda p: replace(p, seconds=-1.0), "seconds must not be negative"),
        (lambda p: replace(p, upper=float("inf")), "must be finite or None"),
        (lambda p: p.policy, "the plan lacks policy, lower, upper"),
    ],
)
def test_a_false_plan_is_found_out(after, message):
    assert message in failures_of(Spoilt(after=after))


def test_a_planner_that_ignores_the_bonus_is_found_out():
    text = failures_of(Spoilt(before=lambda model: model.replace(bonus=None, initial_bonus=None)))
    assert "single context, hidden bonus: with one context the policy is worth" in text
    assert "two contexts:" not in text


def test_a_planner_that_ignores_the_discount_is_found_out():
    text = failures_of(Spoilt(before=lambda model: model.replace(discount=1.0)))
    assert "hidden bonus and discount: " in text


def test_a_planner_that_changes_its_mind_is_found_out():
    class Fickle:
        calls = 0

        def plan(self, model):
            self.calls += 1
            plan = Exhaustive().plan(model)
            return replace(plan, upper=plan.upper + self.calls)

    assert "planning again gave bounds" in failures_of(Fickle())


def test_a_planner_that_fails_is_reported_with_its_model():
    class Broken:
        def plan(self, model):
            raise RuntimeError("no memory left")

    text = failures_of(Broken())
    assert "two contexts: raised RuntimeError: no memory left" in text
    assert text.count("\n") == len(MODELS)


def test_check_instance_takes_a_model():
    check_instance(random_model(0))
    with pytest.raises(ConformanceError, match="context 1 is never drawn"):
        check_instance(random_model(0).replace(weights=[1.0, 0.0]))


def test_check_instance_takes_forbidden_actions_and_terminal_states():
    model = random_model(0, states=3, actions=2)
    allowed = [[True, False], [True, True], [False, False]]
    check_instance(model.replace(allowed=allowed, initial=0))
    twin = model.subset([0, 1]).replace(
        transitions=model.transitions[[0, 0]], rewards=model.reward_probs[[0, 0]], initial=0
    )
    with pytest.raises(ConformanceError, match="contexts 0 and 1 are the same MDP"):
        check_instance(twin.replace(allowed=allowed))


def test_small_models_are_small_and_fixed_by_their_seed():
    models = small_models(5)
    assert models.keys() == small_models(5).keys()
    for name, model in models.items():
        assert model == small_models(5)[name]
        assert np.isfinite(optimal_value(model, limit=20_000))


@pytest.mark.parametrize("zeros", [0.5, 0.9])
def test_random_models_have_impossible_transitions_on_request(zeros):
    model = random_model(0, states=6, zeros=zeros)
    share = (model.transitions == 0).mean()
    assert 0.5 * zeros < share < 1.0
