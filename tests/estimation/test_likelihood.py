"""The mixture likelihood against enumeration, and parameters against the models they make."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.likelihood import (
    MixtureLikelihood,
    Parameters,
    PseudoCounts,
    Structure,
    behaviour_from_parameters,
    model_from_parameters,
    parameters_from_model,
    reward_values_of,
)
from latentmdp.testing import random_model, trajectory_probability


def logs_of(model: lm.LatentMDP, episodes: int, seed: int = 0) -> lm.Trajectories:
    return lm.simulate(model, lm.UniformPolicy(), episodes, rng=seed).without_contexts()


def likelihood_of(
    model: lm.LatentMDP, logs: lm.Trajectories, k: tuple[float, ...] = (0.0, 0.0), **more: object
) -> MixtureLikelihood:
    structure = Structure(model.n_contexts, reward_model=model.reward_model, **more)
    return MixtureLikelihood(Episodes([logs]), structure, PseudoCounts(*k))


@pytest.mark.parametrize("reward_model", ["state-action", "transition"])
def test_a_model_becomes_parameters_and_back(reward_model: str) -> None:
    model = random_model(0, contexts=3, horizon=6, reward_model=reward_model)
    logs = logs_of(model, 2000)  # every transition of positive probability occurs
    likelihood = likelihood_of(model, logs)
    parameters = parameters_from_model(likelihood, model)
    expected = sum(np.log(trajectory_probability(model, s, a, z)) for s, a, z, _ in logs)
    # a share of 1e-6 of the pooled model is mixed in
    assert likelihood.log_likelihood(parameters) == pytest.approx(expected, abs=0.1)
    again = model_from_parameters(likelihood, parameters, model.reward_values)
    np.testing.assert_allclose(again.transitions, model.transitions, atol=2e-6)
    np.testing.assert_allclose(again.weights, model.weights)
    np.testing.assert_allclose(again.initial, model.initial, atol=2e-6)
    np.testing.assert_allclose(again.observation_probs(), model.observation_probs(), atol=3e-6)


def test_the_prior_by_hand() -> None:
    """k <pooled row, log row> of every part, and nothing of a part that is shared."""
    model = random_model(1, contexts=2, states=3, horizon=8)
    logs = logs_of(model, 500)
    likelihood = likelihood_of(model, logs, (2.0, 0.5, np.inf, 3.0))
    pooled = lm.EM(1, pseudo_counts=0.0).fit(logs).model
    parameters = parameters_from_model(likelihood, model)
    fitted = model_from_parameters(likelihood, parameters, model.reward_values)
    expected = sum(
        2.0 * np.sum(pooled.transitions[0] * np.log(fitted.transitions[m]))
        + 0.5 * np.sum(pooled.reward_probs[0] * np.log(fitted.reward_probs[m]))
        + 3.0 * pooled.initial[0] @ np.log(fitted.initial[m])
        for m in range(2)
    )
    assert likelihood.log_prior(parameters) == pytest.approx(expected, rel=1e-9)
    shared = likelihood_of(model, logs, (2.0, 0.5, np.inf, np.inf))
    less = expected - sum(3.0 * pooled.initial[0] @ np.log(fitted.initial[m]) for m in range(2))
    assert shared.log_prior(parameters) == pytest.approx(less, rel=1e-9)


def scored(likelihood: MixtureLikelihood, parameters: Parameters, test: Episodes) -> float:
    scores = likelihood.held_out(parameters, test)
    each = [group.counts > 0.0 for group in test.groups]
    return sum(float(g.counts[k] @ e[k]) for g, e, k in zip(test.groups, scores, each))


def test_held_out_episodes_are_scored_by_what_training_has_seen() -> None:
    model = random_model(2, contexts=2, states=3, horizon=5)
    logs = logs_of(model, 400)
    episodes = Episodes([logs])
    (train, test), *_ = episodes.folds(5, np.random.default_rng(0))
    likelihood = MixtureLikelihood(train, Structure(2), PseudoCounts(1.0, 1.0))
    assert (likelihood.cell_counts > 0.0).all()
    parameters = parameters_from_model(likelihood, model)
    whole = likelihood_of(model, logs)
    both = likelihood.log_likelihood(parameters) + scored(likelihood, parameters, test)
    assert both == pytest.approx(whole.log_likelihood(parameters), rel=1e-9)


def test_a_cell_that_training_never_shows_counts_as_one() -> None:
    usual, odd = [[0, 1, 0]] * 6, [[0, 1, 1]]
    logs = lm.Trajectories.from_lists([*usual, *odd], [[0, 0]] * 7, [[0, 0]] * 7)
    episodes = Episodes([logs])
    folds = episodes.folds(7, np.random.default_rng(0))
    (train, test) = next((a, b) for a, b in folds if (a.cell_counts() == 0.0).any())
    likelihood = MixtureLikelihood(train, Structure(1), PseudoCounts(0.0, 0.0))
    parameters = parameters_from_model(likelihood, lm.EM(1).fit(logs).model)
    # Its episode begins in 0 and moves to 1, as all do: log 1, and as much for the unseen cell.
    assert scored(likelihood, parameters, test) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("reward_model", ["state-action", "transition"])
def test_shared_rewards_are_frequencies(reward_model: str) -> None:
    model = random_model(3, contexts=2, states=3, horizon=5, reward_model=reward_model)
    logs = logs_of(model, 200)
    shared = likelihood_of(model, logs, (1.0, np.inf)).block("rewards")
    counts: dict[tuple[int, ...], np.ndarray] = {}
    for states, actions, rewards, _ in logs:
        for t, (a, z) in enumerate(zip(actions, rewards)):
            given = (
                (states[t], a) if reward_model == "state-action" else (states[t], a, states[t + 1])
            )
            counts.setdefault(given, np.zeros(2))[z] += 1
    shape = (3, 2, 2) if reward_model == "state-action" else (3, 2, 3, 2)
    found, total = np.zeros(shape), 0.0
    found.flat[shared.position] = shared.pooled
    for given, row in counts.items():
        np.testing.assert_allclose(found[given], row / row.sum())
        total += sum(n * np.log(n / row.sum()) for n in row if n)
    assert shared.log_likelihood() == pytest.approx(total)
    assert shared.n_parameters == sum(np.count_nonzero(row) - 1 for row in counts.values())


@pytest.mark.parametrize("reward_model", ["state-action", "transition"])
def test_the_logger_is_part_of_the_likelihood(reward_model: str) -> None:
    """Against enumeration: sum_m w_m nu_m(s) prod_t pi_m(a|s) T_m(s'|s,a) R_m(z|...)."""
    model = random_model(4, contexts=2, states=3, horizon=5, reward_model=reward_model)
    logs = logs_of(model, 2000)
    pi = np.random.default_rng(0).dirichlet([5.0, 5.0], size=(2, 3))
    likelihood = likelihood_of(
        model, logs, (0.0, 0.0, 0.0), parts=("transitions", "rewards", "behaviour")
    )
    parameters = parameters_from_model(likelihood, model, pi)
    expected = 0.0
    for states, actions, rewards, _ in logs:
        one = 0.0
        for m in range(2):
            chosen = np.prod(pi[m, states[:-1], actions])
            own = trajectory_probability(model.context(m), states, actions, rewards)
            one += model.weights[m] * chosen * own
        expected += np.log(one)
    assert likelihood.log_likelihood(parameters) == pytest.approx(expected, abs=0.1)
    np.testing.assert_allclose(behaviour_from_parameters(likelihood, parameters), pi, atol=2e-6)


def test_reward_values_are_those_that_a_log_states() -> None:
    plain = lm.Trajectories.from_lists([[0, 1]], [[0]], [[2]])
    stated = lm.Trajectories.from_lists([[0, 1]], [[0]], [[1]], reward_values=[-1.0, 0.0, 4.0])
    assert reward_values_of([plain, stated]).tolist() == [-1.0, 0.0, 4.0]
    assert reward_values_of([plain]).tolist() == [0.0, 1.0, 2.0]
