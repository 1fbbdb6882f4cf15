"""Exact values against brute force, Monte Carlo against exact values."""

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import simulation, testing
from latentmdp._kernels.rollout import play_episodes
from latentmdp._util.random import philox_key
from latentmdp.planning import TooManyHistoriesError
from latentmdp.policies import History
from latentmdp.worlds import ModelWorld


def parity_rule(history: History) -> int:
    return (sum(history.states) + sum(history.rewards)) % 2


def parity_lottery(history: History) -> np.ndarray:
    """The parity rule's action for sure after two rewards, before with probability 1/4."""
    chosen = np.eye(2)[parity_rule(history)]
    return chosen if sum(history.rewards) > 1 else 0.25 * chosen + 0.75 * chosen[::-1]


POLICIES = {
    "uniform": lambda model: lm.UniformPolicy(),
    "markov": lambda model: lm.MarkovPolicy(np.arange(9).reshape(3, 3) % 2),
    "stochastic": lambda model: lm.MarkovPolicy(np.tile([0.7, 0.3], (3, 1))),
    "alpha": lambda model: random_alpha_policy(model, 3),
    "callable": lambda model: parity_rule,
    "stochastic callable": lambda model: parity_lottery,
}


@pytest.mark.parametrize("form", ["bernoulli", "next-state"])
@pytest.mark.parametrize("name", POLICIES)
def test_exact_value_is_that_of_brute_force(name: str, form: str) -> None:
    model = random_model(1, form=form, sparse=True, bonus=True, discount=0.9)
    policy = POLICIES[name](model)
    value = lm.evaluate(model, policy, method="exact")
    assert value.exact
    assert value.stderr == 0.0
    assert value.mean == pytest.approx(testing.policy_value(model, policy), rel=1e-12)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "stochastic callable"])
def test_monte_carlo_is_within_its_error(name: str) -> None:
    """Five standard errors: false-alarm probability below 1e-6 a case."""
    model = random_model(2, form="values", bonus=True, discount=0.9)
    policy = POLICIES[name](model)
    episodes = 4_000 if name == "callable" else 100_000
    estimate = lm.evaluate(model, policy, episodes, rng=0, method="monte-carlo")
    exact = lm.evaluate(model, policy, method="exact")
    assert not estimate.exact
    assert abs(estimate.mean - exact.mean) < 5 * estimate.stderr


@pytest.mark.parametrize("name", ["stochastic", "alpha"])
def test_monte_carlo_is_mean_and_spread_of_single_returns(name: str) -> None:
    """Blocks of 256 episodes, whole ones and what is left; the oracle adds returns one by one."""
    model = random_model(2, contexts=3, form="bernoulli", bonus=True, discount=0.9)
    model = model.replace(weights=[0.1, 0.25, 0.65])
    policy = POLICIES[name](model)
    value = lm.evaluate(model, policy, 2_000, rng=5, method="monte-carlo")
    world, counts, before = ModelWorld(model), [200, 500, 1_300], 0
    playing = simulation._playing(policy, world, world.space, philox_key(5))
    for m, n in enumerate(counts):
        noted = [np.full(n, m, np.int32), np.empty(n, np.int64)]
        logs, returns = [np.empty((0, 0), np.int32)] * 3, np.empty(n)
        here = playing._replace(first_episode=before)
        play_episodes(0, n, here, *noted, *logs, simulation._earning(model), returns)
        assert value.by_context[m] == pytest.approx(returns.mean(), rel=1e-14)
        assert value.stderr_by_context[m] == pytest.approx(
            returns.std(ddof=1) / np.sqrt(n), rel=1e-13
        )
        before += n


def test_auto_is_exact_for_markov_policies_only() -> None:
    model = random_model(0)
    assert lm.evaluate(model, lm.UniformPolicy()).exact
    assert not lm.evaluate(model, random_alpha_policy(model, 0), 100, rng=0).exact


def test_enumeration_refuses_what_is_too_large() -> None:
    model = random_model(0, states=5, horizon=8)
    with pytest.raises(TooManyHistoriesError, match="more than 100 histories at time"):
        lm.evaluate(model, random_alpha_policy(model, 0), method="exact", max_histories=100)


def test_a_policy_for_another_model_is_judged_in_the_real_one() -> None:
    """The filter runs on the policy's own model; the value is the world's."""
    real, believed = random_model(0), random_model(1)
    policy = random_alpha_policy(believed, 2)
    value = lm.evaluate(real, policy, method="exact").mean
    assert value == pytest.approx(testing.policy_value(real, policy), rel=1e-12)


def test_a_callable_of_probabilities_is_the_markov_policy_with_these() -> None:
    model = random_model(3, bonus=True, discount=0.9)
    table = np.random.default_rng(3).dirichlet(np.ones(2), (3, 3))
    found = lm.evaluate(
        model, lambda history: table[len(history.actions), history.states[-1]], method="exact"
    )
    assert found.mean == pytest.approx(lm.evaluate(model, lm.MarkovPolicy(table)).mean, rel=1e-12)
    as_list = lm.evaluate(model, lambda history: [0, 1], method="exact")
    assert as_list == lm.evaluate(model, lambda history: 1, method="exact")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (2, "neither an action in"),
        (-1, "neither an action in"),
        ("left", "neither an action in"),
        (None, "neither an action in"),
        (1.0, "neither an action in"),
        ([0.5, 0.25, 0.25], "nor 2 probabilities"),
        ([0.5, 0.4], "sums to 0.9"),
        ([1.5, -0.5], "lie in"),
        ([np.nan, 1.0], "finite"),
    ],
)
def test_a_callable_that_answers_nonsense_is_refused(answer: object, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        lm.evaluate(random_model(0), lambda history: answer, method="exact")
    assert "after History(states=(0,)" in str(error.value)


def test_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method must be one of auto, exact, monte-carlo"):
        lm.evaluate(random_model(0), lm.UniformPolicy(), method="guess")
