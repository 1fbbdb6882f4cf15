"""The oracles against closed forms and theorems: what else could judge a judge."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import ImpossibleObservationError, TooLargeError
from latentmdp.policies import AlphaVectorPolicy, MarkovPolicy, UniformPolicy
from latentmdp.testing import (
    count_histories,
    optimal_memoryless_value,
    optimal_value,
    policy_value,
    posterior,
    random_model,
    small_models,
    trajectory_probability,
)

MODELS = small_models(1)


def backward_induction(model):
    """V* of a model with a single context."""
    T, means = model.transitions[0], model.planning_rewards()[0]
    V = np.zeros(model.n_states)
    for _ in range(model.horizon):
        V = (means + model.discount * T @ V).max(axis=1)
    first = 0.0 if model.initial_bonus is None else model.initial_bonus[0]
    return model.initial[0] @ V + first


def markov_value(model, probabilities):
    """The value of pi_t(a | s), shape (H, S, A), context by context."""
    total = 0.0
    for m in range(model.n_contexts):
        V = np.zeros(model.n_states)
        for t in reversed(range(model.horizon)):
            Q = model.planning_rewards()[m] + model.discount * model.transitions[m] @ V
            V = (probabilities[t] * Q).sum(axis=1)
        first = 0.0 if model.initial_bonus is None else model.initial_bonus[m]
        total += model.weights[m] * (model.initial[m] @ V + first)
    return total


def among_allowed(model, probabilities):
    """The same preferences among allowed actions; any in a terminal state, which has none."""
    allowed = model.allowed | model.terminal[:, None]
    kept = np.where(allowed, probabilities, 0.0)
    return kept / kept.sum(axis=-1, keepdims=True)


def every_trajectory(model, actions):
    S, Z, L = model.n_states, model.n_rewards, len(actions)
    return product(product(range(S), repeat=L + 1), product(range(Z), repeat=L))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("discount", [1.0, 0.6])
def test_with_one_context_the_optimum_is_backward_induction(seed, discount):
    model = random_model(seed, contexts=1, bonus=True, discount=discount, zeros=0.3)
    expected = backward_induction(model)
    assert optimal_value(model) == pytest.approx(expected, rel=1e-12)
    assert optimal_memoryless_value(model) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_value_of_a_markov_policy(name):
    model = MODELS[name]
    g = np.random.default_rng(0)
    pi = g.dirichlet(np.ones(model.n_actions), size=(model.horizon, model.n_states))
    pi = among_allowed(model, pi)
    expected = markov_value(model, pi)
    assert policy_value(model, MarkovPolicy(pi)) == pytest.approx(expected, rel=1e-12)
    by_history = policy_value(model, lambda history: pi[len(history.actions), history.states[-1]])
    assert by_history == pytest.approx(expected, rel=1e-12)
    by_time = policy_value(model, lambda t, history: pi[t, history.states[-1]])
    assert by_time == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_uniform_policy_is_the_uniform_markov_policy(name):
    model = MODELS[name]
    flat = np.full((model.horizon, model.n_states, model.n_actions), 1 / model.n_actions)
    expected = markov_value(model, among_allowed(model, flat))
    assert policy_value(model, UniformPolicy()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stationary", [False, True])
def test_the_best_memoryless_policy_is_the_best_of_all(seed, stationary):
    model = random_model(seed, states=2, horizon=2, bonus=True, discount=0.9)
    layers = 1 if stationary else 2
    values = []
    for actions in product(range(2), repeat=2 * layers):
        table = np.resize(np.reshape(actions, (layers, 2)), (2, 2))
        values.append(markov_value(model, np.eye(2)[table]))
    best = optimal_memoryless_value(model, stationary=stationary)
    assert best == pytest.approx(max(values), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_memory_helps_and_by_at_most_a_factor_of_contexts(seed):
    # [kwon2021, Example 2]: with rewards that are not negative, V*/M <= memoryless <= V*.
    model = random_model(seed, contexts=3, states=2, horizon=3)
    best, memoryless = optimal_value(model), optimal_memoryless_value(model)
    stationary = optimal_memoryless_value(model, stationary=True)
    assert best / 3 - 1e-12 <= memoryless <= best + 1e-12
    assert stationary <= memoryless + 1e-12


def test_a_bandit_worked_by_hand():
    # Two arms, one pays; one pull tells which: 1/2 + 1 per later step.
    model = lm.LatentMDP(np.ones((2, 1, 2, 1)), [[[1, 0]], [[0, 1]]], horizon=4)
    assert optimal_value(model) == pytest.approx(0.5 + 3)
    assert optimal_memoryless_value(model) == pytest.approx(2.0)

    def switch(history):
        if not history.actions:
            return 0
        last = history.actions[-1]
        return last if history.rewards[-1] == 1 else 1 - last

    assert policy_value(model, switch) == pytest.approx(0.5 + 3)


@pytest.mark.parametrize("M", [2, 3, 4])
def test_the_lower_bound_instance_is_worth_one_in_m(M):
    assert optimal_value(lm.make("lower-bound", contexts=M, rng=0)) == pytest.approx(1 / M)


@pytest.mark.parametrize(
    "name", [name for name, m in MODELS.items() if m.all_allowed and not m.allow_unvisited]
)
def test_probabilities_of_all_trajectories_sum_to_one(name):
    model = MODELS[name]
    actions = [0, model.n_actions - 1]
    total = sum(
        trajectory_probability(model, s, actions, z) for s, z in every_trajectory(model, actions)
    )
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_posterior_is_bayes_rule(name):
    model = MODELS[name]
    actions = [0, model.n_actions - 1]
    for states, rewards in every_trajectory(model, actions):
        p = trajectory_probability(model, states, actions, rewards)
        if p == 0.0:
            with pytest.raises(ImpossibleObservationError):
                posterior(model, states, actions, rewards)
            continue
        by_context = [
            w * trajectory_probability(model.replace(weights=row), states, actions, rewards)
            for w, row in zip(model.weights, np.eye(model.n_contexts))
        ]
        belief = posterior(model, states, actions, rewards)
        np.testing.assert_allclose(belief, np.array(by_context) / p, rtol=1e-12)


def test_the_smoothed_posterior_in_exact_arithmetic():
    model = random_model(0, contexts=3, states=2)
    P, alpha = model.observation_probs(), Fraction(1, 16)
    states, actions, rewards = (0, 1, 1, 0), (1, 0, 1), (0, 1, 1)
    weights = [Fraction(w) * Fraction(nu) for w, nu in zip(model.weights, model.initial[:, 0])]
    for t, (a, z) in enumerate(zip(actions, rewards)):
        row = P[:, states[t], a, states[t + 1], z]
        weights = [w * (alpha + (1 - 4 * alpha) * Fraction(p)) for w, p in zip(weights, row)]
    expected = [float(w / sum(weights)) for w in weights]
    belief = posterior(model, states, actions, rewards, smoothing=float(alpha))
    np.testing.assert_allclose(belief, expected, rtol=1e-13)


def test_with_smoothing_an_impossible_first_state_tells_nothing():
    model = random_model(0, contexts=2).replace(initial=0)
    with pytest.raises(ImpossibleObservationError, match="at time 0"):
        posterior(model, [1], [], [])
    np.testing.assert_allclose(posterior(model, [1], [], [], smoothing=0.01), model.weights)


def test_an_empty_episode_leaves_the_prior():
    model = random_model(0, contexts=3)
    prior = model.weights * model.initial[:, 1]
    np.testing.assert_allclose(posterior(model, [1], [], []), prior / prior.sum())


def test_alpha_vectors_act_on_the_belief():
    # The bandit again: one vector per arm, the belief that it pays.
    model = lm.LatentMDP(np.ones((2, 1, 2, 1)), [[[1, 0]], [[0, 1]]], horizon=4)
    policy = AlphaVectorPolicy(np.eye(2), [0, 1], [0, 2], model)
    assert policy_value(model, policy) == pytest.approx(0.5 + 3)


def test_a_filter_without_smoothing_ignores_the_impossible():
    # The policy's model holds arm 0 to pay for sure in both contexts, so that a miss is impossible.
    world = lm.LatentMDP(np.ones((2, 1, 2, 1)), [[[0, 0.5]], [[0, 0.5]]], horizon=2)
    wrong = lm.LatentMDP(np.ones((2, 1, 2, 1)), [[[1, 0]], [[1, 1]]], weights=[0.7, 0.3], horizon=2)
    policy = AlphaVectorPolicy(np.eye(2), [0, 1], [0, 2], wrong)
    assert policy_value(world, policy) == 0.0


def reachable_histories(model):
    """Every history of positive probability, contexts pooled step by step."""
    possible = (model.observation_probs() > 0).any(axis=0)
    layer = [((s,), (), ()) for s in np.flatnonzero(model.initial.any(axis=0))]
    found = list(layer)
    for _ in range(model.horizon):
        layer = [
            ((*states, n), (*actions, a), (*rewards, z))
            for states, actions, rewards in layer
            for a in range(model.n_actions)
            for n, z in np.argwhere(possible[states[-1], a])
        ]
        found += layer
    return found


def test_counting_histories():
    model = random_model(0, states=2, actions=2, horizon=2)
    assert count_histories(model) == 2 + 2 * 8 + 2 * 8 * 8
    deterministic = lm.make("lower-bound", contexts=3, rng=0)
    assert count_histories(deterministic) == len(reachable_histories(deterministic))


@pytest.mark.parametrize(
    "enumerate_all",
    [optimal_value, optimal_memoryless_value, lambda m: policy_value(m, UniformPolicy())],
)
def test_large_problems_are_refused_before_work_starts(enumerate_all):
    with pytest.raises(TooLargeError, match="brute force would enumerate"):
        enumerate_all(lm.make("random", states=15, horizon=30, rng=0))


def test_lengths_must_fit():
    model = random_model(0)
    with pytest.raises(ValueError, match="L actions need L rewards and L\\+1 states, got 2 states"):
        trajectory_probability(model, [0, 1], [0, 1], [0, 1])
    with pytest.raises(ValueError, match="got 3 states, 2 actions and 1 rewards"):
        posterior(model, [0, 1, 1], [0, 1], [0])


def test_a_policy_must_be_one():
    with pytest.raises(TypeError, match="policy must be a Policy or callable, got int"):
        policy_value(random_model(0), 3)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_judged_like_the_arrays_it_stands_for(seed):
    kind = {"states": 4, "actions": 3, "zeros": 0.3, "forbidden": 0.4, "terminal": 1}
    dense = random_model(seed, **kind, bonus=True, discount=0.9)
    table = random_model(seed, **kind, bonus=True, discount=0.9, table=True)
    assert table.is_table
    assert not dense.is_table
    assert count_histories(table) == count_histories(dense)
    for value in (optimal_value, optimal_memoryless_value):
        assert value(table) == pytest.approx(value(dense), rel=1e-12)


def test_a_forbidden_action_is_not_an_option_and_a_terminal_state_pays_nothing():
    # State 0 may stop (action 1) or go on for 1; state 1 may only wait; state 2 is the end.
    T = np.zeros((1, 3, 2, 3))
    T[0, 0, 0, 1] = T[0, 0, 1, 2] = T[0, 1, 0, 0] = 1.0
    allowed = [[True, True], [True, False], [False, False]]
    rewards = [[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]
    model = lm.LatentMDP(T, rewards, initial=0, horizon=6, allowed=allowed)
    assert optimal_value(model) == pytest.approx(3.0)
    assert policy_value(model, MarkovPolicy([1, 0, 0])) == 0.0
    with pytest.raises(ValueError, match="not allowed"):
        policy_value(model, MarkovPolicy([0, 1, 0]))


@pytest.mark.parametrize("seed", range(3))
def test_without_an_end_a_stationary_policy_is_worth_its_limit(seed):
    kind = {"forbidden": 0.4, "terminal": 1, "states": 4, "bonus": True}
    endless = random_model(seed, **kind, horizon=None, discount=0.5)
    long = endless.replace(horizon=60)
    best = optimal_memoryless_value(endless)
    assert best == pytest.approx(optimal_memoryless_value(long, stationary=True), abs=1e-12)
    with pytest.raises(lm.errors.ModelError, match="horizon"):
        optimal_value(endless)
