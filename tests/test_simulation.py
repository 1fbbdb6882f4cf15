"""Rollouts: reproducible in any cut, and distributed as the model says."""

from itertools import pairwise

import numpy as np
import pytest
from models import random_alpha_policy, random_model
from scipy import stats

import latentmdp as lm
from latentmdp.policies import History


def stochastic_policy(model: lm.LatentMDP) -> lm.MarkovPolicy:
    rng = np.random.default_rng(9)
    shape = (model.horizon, model.n_states)
    return lm.MarkovPolicy(rng.dirichlet(np.ones(model.n_actions), shape))


POLICIES = {
    "uniform": lambda model: lm.UniformPolicy(),
    "deterministic": lambda model: lm.MarkovPolicy(np.arange(model.n_states) % model.n_actions),
    "stochastic": stochastic_policy,
    "alpha": lambda model: random_alpha_policy(model, 5),
}


@pytest.mark.parametrize("name", POLICIES)
def test_threads_and_shards_do_not_change_a_bit(name: str) -> None:
    model = random_model(0, horizon=70)  # longer than one buffer of random numbers
    policy = POLICIES[name](model)
    whole = lm.simulate(model, policy, 20_000, rng=7, threads=1)
    assert whole == lm.simulate(model, policy, 20_000, rng=7, threads=3)
    cuts = [0, 1, 12_345, 20_000]
    shards = [
        lm.simulate(model, policy, stop - start, rng=7, first_episode=start)
        for start, stop in pairwise(cuts)
    ]
    assert whole == lm.Trajectories.concat(shards)


def test_callable_policy_plays_the_same_episodes() -> None:
    model = random_model(1, horizon=66)
    actions = np.random.default_rng(0).integers(2, size=(66, 3))

    def rule(history: History) -> int:
        assert len(history.states) == len(history.actions) + 1 == len(history.rewards) + 1
        return int(actions[len(history.actions), history.states[-1]])

    compiled = lm.simulate(model, lm.MarkovPolicy(actions), 40, rng=3)
    assert lm.simulate(model, rule, 40, rng=3) == compiled


def test_alpha_policy_acts_on_the_posterior() -> None:
    """Each action is the policy's choice under the belief that `posterior` computes."""
    model = random_model(2, contexts=4, horizon=12)
    policy = random_alpha_policy(model, 1, vectors=5)
    logs = lm.simulate(model, policy, 200, rng=0)
    beliefs = lm.posterior(model, logs, along=True).reshape(200, 13, 4)
    states, actions, _ = logs.as_arrays()
    for i in range(200):
        for t in range(12):
            assert actions[i, t] == policy.action(t, int(states[i, t]), beliefs[i, t])


@pytest.mark.parametrize("form", ["bernoulli", "values", "next-state"])
def test_frequencies_are_those_of_the_model(form: str) -> None:
    """Chi-square tests over all outcomes; false-alarm probability below 1e-5 each."""
    model = random_model(4, form=form, sparse=True, horizon=5)
    logs = lm.simulate(model, lm.UniformPolicy(), 100_000, rng=11)
    states, actions, rewards = logs.as_arrays()
    counts = np.zeros(model.observation_probs().shape)
    where = (logs.contexts[:, None], states[:, :-1], actions, states[:, 1:], rewards)
    np.add.at(counts, where, 1.0)
    expected = counts.sum(axis=(3, 4), keepdims=True) * model.observation_probs()
    assert (counts[expected == 0.0] == 0.0).all()
    common = expected >= 5.0
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    cells = int(common.sum() - (counts.sum(axis=(3, 4)) > 0).sum())
    assert stats.chi2.sf(statistic, cells) > 1e-5
    starts = np.zeros(model.initial.shape)
    np.add.at(starts, (logs.contexts, states[:, 0]), 1.0)
    expected = 100_000 * model.weights[:, None] * model.initial
    assert stats.chi2.sf(((starts - expected) ** 2 / expected).sum(), starts.size - 1) > 1e-5


def test_stochastic_policies_choose_as_they_say() -> None:
    """Every frequency within 5 standard errors; false-alarm probability below 2e-5."""
    model = random_model(5, horizon=2)
    policy = stochastic_policy(model)
    states, actions, _ = lm.simulate(model, policy, 100_000, rng=0).as_arrays()
    for t in range(2):
        for s in range(3):
            chosen = actions[states[:, t] == s, t]
            p = policy.action_probabilities(model)[t, s, 1]
            assert abs(chosen.mean() - p) < 5 * np.sqrt(p * (1 - p) / chosen.size)


def test_seeds_and_generators() -> None:
    model = random_model(6)
    play = lambda rng: lm.simulate(model, lm.UniformPolicy(), 50, rng=rng)  # noqa: E731
    assert play(0) == play(0)
    assert play(0) != play(1)
    generator = np.random.default_rng(0)
    assert play(generator) != play(generator)
    assert play(np.random.default_rng(0)) == play(np.random.default_rng(0))


def test_bad_arguments_are_refused_before_any_work() -> None:
    model = random_model(6)
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        lm.simulate(model, lm.UniformPolicy(), 0)
    with pytest.raises(TypeError, match="rng must be"):
        lm.simulate(model, lm.UniformPolicy(), 1, rng="seed")
    with pytest.raises(ValueError, match="first_episode"):
        lm.simulate(model, lm.UniformPolicy(), 1, first_episode=-1)
    with pytest.raises(TypeError, match="policy must be"):
        lm.simulate(model, 3, 1)
    with pytest.raises(ValueError, match=r"after History.* the policy returned 9"):
        lm.simulate(model, lambda history: 9, 1, rng=0)


def test_a_row_never_visited_cannot_be_simulated() -> None:
    model = random_model(0)
    transitions = model.transitions.copy()
    transitions[1, 2, 0] = 0.0
    partial = model.replace(transitions=transitions, allow_unvisited=True)
    with pytest.raises(ValueError, match="context 1, state 2, action 0 was never visited"):
        lm.simulate(partial, lm.UniformPolicy(), 1)
